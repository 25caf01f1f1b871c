"""Where a job writes: a Delta table by name, its keys and its mode."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from headwater_streams.errors import JobDefinitionError

Mode = Literal["append", "update"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")
LATE_SUFFIX, QUARANTINE_SUFFIX = "__late", "__quarantine"


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
        if not is_table_name(self.name):
            raise JobDefinitionError(
                f"table {self.name!r}: write schema.table, both of letters, digits and '_'"
            )
        if self.mode not in get_args(Mode):
            raise JobDefinitionError(
                f"table {self.name!r}: mode {self.mode!r} is not one of {get_args(Mode)}; "
                "slowly changing dimensions are hw.scd1(...) and hw.scd2(...)"
            )
        if self.mode == "update" and not self.keys:
            raise JobDefinitionError(
                f"table {self.name!r}: mode 'update' needs keys=[...], the columns that name a row"
            )

    @property
    def late_table(self) -> str:
        """The table of rows that came after their window closed or their state was gone."""
        return (self.sides_of or self.name) + LATE_SUFFIX

    @property
    def quarantine_table(self) -> str:
        """The table of rejected rows."""
        return (self.sides_of or self.name) + QUARANTINE_SUFFIX


def is_table_name(name: str) -> bool:
    """Whether a name is `schema.table`."""
    return _NAME.fullmatch(name) is not None


def delta(name: str, *, keys: list[str] | tuple[str, ...] = (), mode: Mode = "append") -> DeltaTarget:
    """Declares a Delta target; see `DeltaTarget` for the arguments."""
    return DeltaTarget(name, tuple(keys), mode)
