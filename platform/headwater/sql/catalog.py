"""Which Delta tables a home holds, and which of them a statement names. Opens nothing."""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headwater.sql.errors import UnknownTableError
from headwater.sql.lexer import Dialect, without_comments

_NAME = r"""(?:\w+|"(?:[^"]|"")+"|`(?:[^`]|``)+`)"""
_DOTTED = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})+")


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
    def quoted_name(self) -> str:
        """The same as a statement has it, whatever characters are in it: `"schema"."name"`."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


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
        refs = []
        for log_dir in self.tables_dir.glob("*/*/_delta_log"):
            # A folder without a commit is a table that a job is just about to create.
            if any(log_dir.glob("*.json")) or any(log_dir.glob("*.checkpoint*.parquet")):
                table_dir = log_dir.parent
                refs.append(TableRef(table_dir.parent.name, table_dir.name, table_dir.resolve()))
        return sorted(refs, key=lambda table: table.qualified_name)

    def table(self, name: str) -> TableRef:
        """The table that `name` stands for: `schema.name`, in any case, quoted or not.

        Raises:
            UnknownTableError: There is none; the message names the nearest.
        """
        tables = self.tables()
        plain_name = name.replace('"', "").replace("`", "").lower()
        for table in tables:
            if table.qualified_name.lower() == plain_name:
                return table
        raise UnknownTableError(name, [table.qualified_name for table in tables], self.tables_dir)

    def named_in(self, statement: str, dialect: Dialect = "duckdb") -> list[TableRef]:
        """The tables that stand in the statement as `schema.name`, quoted or not, outside of comments.

        A superset of those that it reads: the name may be a text's, or a column's behind an alias. Opening one too
        many costs some milliseconds, while a parser of each engine's dialect would cost far more. If one cannot be
        opened, that matters only if the engine misses it.
        """
        named = set()
        for dotted in _DOTTED.findall(without_comments(statement, dialect)):
            parts = [_plain(part).lower() for part in re.findall(_NAME, dotted)]
            named |= set(pairwise(parts))
        return [table for table in self.tables() if (table.schema.lower(), table.name.lower()) in named]


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '"`' else name
