"""Which Delta tables a home holds, and which of them a statement names. Opens nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from headwater.sql.errors import UnknownTableError

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class TableRef:
    """A Delta table under `<home>/tables/<schema>/<name>`."""

    schema: str
    name: str
    path: Path

    @property
    def qualified_name(self) -> str:
        """`schema.name`, as people write it."""
        return f"{self.schema}.{self.name}"

    @property
    def words(self) -> frozenset[str]:
        """The words that a statement which names this table must contain."""
        return frozenset(_WORD.findall(self.qualified_name.lower()))


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables of one home; looks at the folder anew each time, since jobs create tables while we run."""

    home: Path

    @property
    def tables_dir(self) -> Path:
        """The folder whose sub-folders are the schemas."""
        return self.home / "tables"

    def tables(self) -> list[TableRef]:
        """Every table that has at least one commit, by name."""
        found = []
        for log_dir in self.tables_dir.glob("*/*/_delta_log"):
            # A folder without a commit is a table that a job is just about to create.
            if any(log_dir.glob("*.json")) or any(log_dir.glob("*.checkpoint*.parquet")):
                table_dir = log_dir.parent
                found.append(TableRef(table_dir.parent.name, table_dir.name, table_dir.resolve()))
        return sorted(found, key=lambda table: table.qualified_name)

    def table(self, name: str) -> TableRef:
        """The table that `name` stands for: `schema.name`, in any case, quoted or not.

        Raises:
            UnknownTableError: There is none; the message names the nearest.
        """
        tables = self.tables()
        wanted = name.replace('"', "").replace("`", "").lower()
        for table in tables:
            if table.qualified_name.lower() == wanted:
                return table
        raise UnknownTableError(name, [table.qualified_name for table in tables], self.tables_dir)

    def named_in(self, statement: str) -> list[TableRef]:
        """The tables whose schema and name both occur as words in the statement.

        A superset of those that it reads (a string or a comment may hold the words as well): opening one too
        many costs some milliseconds, while a parser of each engine's dialect would cost far more.
        """
        words = frozenset(_WORD.findall(statement.lower()))
        return [table for table in self.tables() if table.words <= words]
