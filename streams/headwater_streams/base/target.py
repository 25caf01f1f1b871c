"""Where a job writes: a Delta table by name, its keys and its mode."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from headwater_streams.base.arguments import require_list
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import require_table_name

Mode = Literal["append", "update"]
LATE_SUFFIX, QUARANTINE_SUFFIX, CHANGES_SUFFIX = _SIDES = "__late", "__quarantine", "__changes"
_OWN_SCHEMA, _OWN_PARTS = "headwater", re.compile("__ingest_|__step_[0-9]")


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table that one job writes.

    Attributes:
        name: `"schema.table"`.
        keys: The columns that name a row; needed by `update`.
        mode: `"append"` adds final rows; `"update"` keeps the newest row of each key, open windows included.
        sides_of: The table whose side tables are used; its own by default.
    """

    name: str
    keys: tuple[str, ...] = ()
    mode: Mode = "append"
    sides_of: str | None = None

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


def delta(name: str, *, keys: list[str] | tuple[str, ...] = (), mode: Mode = "append") -> DeltaTarget:
    """Declares a Delta target; see `DeltaTarget` for the arguments."""
    require_list(f"table {name!r}", "keys", keys)
    return DeltaTarget(name, tuple(keys), mode)
