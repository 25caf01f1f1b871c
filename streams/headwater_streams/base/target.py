"""Where a job writes: a Delta table by name, its keys and its mode."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from headwater_streams.base.arguments import require_list
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.layout import PLAIN, Layout, layout_of
from headwater_streams.base.names import require_table_name

Mode = Literal["append", "update"]
LATE_SUFFIX, QUARANTINE_SUFFIX, CHANGES_SUFFIX = _SIDES = "__late", "__quarantine", "__changes"
_OWN_TABLES = ("audit.counts", "quality.results", "quality.discarded")
_OWN_SCHEMA, _OWN_PARTS = "headwater", re.compile("__ingest_|__step_[0-9]")


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table that one job writes.

    Attributes:
        name: `"schema.table"`.
        keys: The columns that name a row; needed by `update`.
        mode: `"append"` adds final rows; `"update"` keeps the newest row of each key, open windows included.
        sides_of: The table whose side tables are used; its own by default.
        layout: How the table is laid out. It decides no row, so a fingerprint of the job does not have it.
    """

    name: str
    keys: tuple[str, ...] = ()
    mode: Mode = "append"
    sides_of: str | None = None
    layout: Layout = field(default=PLAIN, repr=False)

    def __post_init__(self) -> None:
        require_table_name("table", self.name, max(_SIDES, key=len))
        if self.sides_of is None:
            self._require_free()
        if self.mode not in get_args(Mode):
            raise JobDefinitionError(
                f"table {self.name!r}: mode {self.mode!r} is not one of {get_args(Mode)}; "
                "slowly changing dimensions are hw.scd1(...) and hw.scd2(...)"
            )
        if self.mode == "update" and not self.keys:
            raise JobDefinitionError(
                f"table {self.name!r}: mode 'update' needs keys=[...], the columns that name a row"
            )

    def _require_free(self) -> None:
        schema, _, table = self.name.lower().partition(".")
        if schema == _OWN_SCHEMA:
            raise JobDefinitionError(
                f"table {self.name!r}: the schema {_OWN_SCHEMA!r} is Headwater's own; name another"
            )
        if self.name.lower() in _OWN_TABLES:
            raise JobDefinitionError(f"table {self.name!r}: it is Headwater's own; name another")
        reserved = [suffix for suffix in _SIDES if table.endswith(suffix)]
        reserved += _OWN_PARTS.findall(table)
        if reserved:
            raise JobDefinitionError(
                f"table {self.name!r}: names with {reserved[0]!r} are of tables that the library puts beside a "
                "job's; take another"
            )

    @property
    def late_table(self) -> str:
        """The table of rows that came after their window closed or their state was gone."""
        return (self.sides_of or self.name) + LATE_SUFFIX

    @property
    def quarantine_table(self) -> str:
        """The table of rejected rows."""
        return (self.sides_of or self.name) + QUARANTINE_SUFFIX


def declared_name(part: str) -> str:
    """The job or the table that a part belongs to.

    Example:
        >>> declared_name("gold.busiest__step_1__ingest_clicks")
        'gold.busiest'
    """
    return _OWN_PARTS.split(part)[0]


def is_part(table: str, of: str) -> bool:
    """Whether a table is an ingest table or a step of another table's job, or such a table of one of these.

    Example:
        >>> is_part("gold.busiest__step_1__ingest_clicks", "gold.busiest")
        True
    """
    return table.startswith(of) and _OWN_PARTS.match(table.removeprefix(of)) is not None


def delta(
    name: str,
    *,
    keys: list[str] | tuple[str, ...] = (),
    mode: Mode = "append",
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
    comments: Mapping[str, str] | None = None,
    keep: str | None = None,
    keep_by: str | None = None,
) -> DeltaTarget:
    """Declares a Delta table as a job's target.

    Args:
        name: `"schema.table"`.
        keys: The columns that name a row; needed by `"update"`.
        mode: `"append"` adds final rows; `"update"` keeps the newest row of each key, open windows included.
        partition_by: The columns whose values have folders of their own: columns of the result with few values, as
            `["country"]`, or parts of a time, `["days(placed_at)"]`, also `years`, `months` and `hours`: the table gets
            a column `placed_at_day` then. An empty text is NULL in such a column.
        cluster_by: Up to four columns by which the rows of the table's files are sorted, in each batch and again where
            small files are made one, so that readers skip files and parts of them.
        properties: The table's properties: Delta's, as `{"delta.logRetentionDuration": "60 days"}`, and any others.
        comment: What the table is, for people.
        comments: What columns of it are, by their names.
        keep: How long rows are kept by event time, as `"90 days"`. Upkeep removes those that are older than that behind
            the newest event that the job has seen; the ledger counts them as expired, and no backfill brings them back.
        keep_by: The column of the table that has the event time, where it is not called as in the input; of windows it
            is `window_end`.

    Example:
        >>> delta("silver.orders", partition_by=["days(placed_at)"], keep="90 days").layout.partition_columns
        ('placed_at_day',)

    Raises:
        JobDefinitionError: It contradicts itself, or a property would end what every reader of today can do.
    """
    require_list(f"table {name!r}", "keys", keys)
    layout = layout_of(
        name,
        partition_by=partition_by,
        cluster_by=cluster_by,
        properties=properties,
        comment=comment,
        comments=comments,
        keep=keep,
        keep_by=keep_by,
        replaces_rows=mode == "update",
    )
    return DeltaTarget(name, tuple(keys), mode, layout=layout)
