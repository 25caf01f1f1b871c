"""What goes wrong in a statement, as a sentence for the person who typed it."""

import difflib
import re
from collections.abc import Sequence

from headwater.errors import UserError
from headwater_streams.base.nearest import nearest


class SqlError(UserError):
    """A statement that an engine refused, or that failed while it ran (exit status 1)."""


class NoVersionError(SqlError):
    """A sound table that lacks the requested version."""


class UnknownTableError(SqlError):
    """A table that does not exist; the message names the nearest ones."""

    def __init__(self, name: str, existing: Sequence[str], tables_dir: object) -> None:
        super().__init__(_unknown_table_message(name, existing, tables_dir))
        self.name = name


def misses(missing: str, table: str) -> bool:
    """Whether the name that an engine misses, `name` or `schema.name` in any quotes, is this table's."""
    name = re.sub(r"[\"`]", "", missing).lower()
    return table.lower() == name or table.lower().endswith(f".{name}") or name.endswith(f".{table.lower()}")


def _unknown_table_message(name: str, existing: Sequence[str], tables_dir: object) -> str:
    if not existing:
        return f"there is no table {name}: there are no tables under {tables_dir} yet"
    meant = nearest_tables(name, existing)
    hint = f"did you mean {' or '.join(meant)}? " if meant else ""
    return f"there is no table {name}: {hint}the tables are {nearest(name, existing)}"


def nearest_tables(name: str, existing: Sequence[str]) -> list[str]:
    """The two tables whose names are most like `name`, those with the same last part first."""
    lowered = name.lower()
    bare = lowered.rpartition(".")[2]
    same_bare = [table for table in existing if table.lower().rpartition(".")[2] == bare]
    by_name = {table.lower(): table for table in existing}
    alike = [by_name[match] for match in difflib.get_close_matches(lowered, by_name, n=2, cutoff=0.6)]
    return list(dict.fromkeys(same_bare + alike))[:2]
