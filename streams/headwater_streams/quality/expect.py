"""Ready-made checks, in the field's words: `hw.check("has_carrier", hw.expect.not_null("carrier"))`.

Each function gives a rule, see `base.rule`. Nothing here needs Spark, a table or a clock.

A NULL passes every rule on rows but `not_null`, as in dbt, Soda and great-expectations: whether a value must be there
is a check of its own. (A condition that a person writes in SQL fails where it is NULL.)

A rule that compares a batch with earlier ones holds until it has seen enough of them, and says so.
"""

from typing import TYPE_CHECKING, NoReturn

from headwater_streams.base.nearest import nearest
from headwater_streams.quality.rules.keys import references, unique
from headwater_streams.quality.rules.measured import drift, fresh, volume
from headwater_streams.quality.rules.rows import (
    between,
    in_set,
    length,
    matches,
    not_null,
    null_share,
    on_time,
    text_of,
)
from headwater_streams.quality.rules.schema import same_columns

__all__ = [
    "between",
    "drift",
    "fresh",
    "in_set",
    "length",
    "matches",
    "not_null",
    "null_share",
    "on_time",
    "references",
    "same_columns",
    "text_of",
    "unique",
    "volume",
]

if not TYPE_CHECKING:  # which would take any name for one of these

    def __getattr__(name: str) -> NoReturn:
        """A rule that there is not is told with those that there are."""
        raise AttributeError(f"hw.expect has no rule {name!r}; it has {nearest(name, __all__)}")
