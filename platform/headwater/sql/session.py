"""Statements in, results out: an engine, and the few commands that are ours (`tables`, `describe`, `trace`)."""

import re
from pathlib import Path
from typing import Protocol, get_args

from headwater.errors import UsageError
from headwater.sql.catalog import Catalog, TableRef
from headwater.sql.delta import At, open_table
from headwater.sql.errors import NoVersionError, SqlError
from headwater.sql.lexer import Dialect
from headwater.sql.result import Result
from headwater.sql.traces import is_trace, traced

EngineName = Dialect

_LIST_TABLES = re.compile(r"(?:show\s+)?tables|\\d|\\dt", re.IGNORECASE)
_DESCRIBE = re.compile(r"(?:describe|desc|\\d)\s+(?:table\s+)?(?P<name>[\w.\"`]+\.[\w\"`]+)", re.IGNORECASE)


class Engine(Protocol):
    """What runs one statement over the tables of a home."""

    def run(self, statement: str) -> Result | None:
        """Runs one statement; None if it has no rows to give."""

    def close(self) -> None:
        """Lets go of everything; the engine is not used again."""


class SqlSession:
    """Answers statements over the tables of a home.

    Use it in a `with` block; statements of one session share the engine's temporary views and settings.

    Args:
        home: The folder that holds `tables/`.
        engine: `"duckdb"` (no JVM) or `"spark"`.
        at: Reads every table at this version or moment.

    Example:
        >>> with SqlSession(Path("/nonexistent")) as session:
        ...     list(session.run("SELECT 40 + 2 AS answer").objects())
        [{'answer': 42}]
    """

    def __init__(self, home: Path | str, engine: EngineName = "duckdb", at: At = None) -> None:
        if engine not in get_args(EngineName):
            raise UsageError(f"engine {engine!r} is not one of {', '.join(get_args(EngineName))}")
        self.catalog = Catalog(Path(home))
        self.engine: EngineName = engine
        self._at = at
        self._started_engine: Engine | None = None

    def __enter__(self) -> "SqlSession":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._started_engine is not None:
            self._started_engine.close()

    def run(self, statement: str) -> Result:
        """Runs one statement in the engine's dialect, or one of the commands `tables`, `describe SCHEMA.TABLE` and
        `trace` (see `traces`).

        Raises:
            SqlError: The statement is wrong or failed.
        """
        if _LIST_TABLES.fullmatch(statement):
            return self.tables()
        described = _DESCRIBE.fullmatch(statement)
        if described:
            return self.describe(described["name"])
        if is_trace(statement):
            if self._at is not None:
                raise SqlError("trace goes through the tables as they are now; leave --at out")
            return traced(self.catalog.home, statement)
        result = self._started().run(statement)
        return Result.from_rows([], []) if result is None else result

    def tables(self) -> Result:
        """The tables, their versions and row counts (from Delta's log; null if it lacks the number for a file).

        `problem` says why a table cannot be opened; the others are listed all the same. The result is whole if no table
        is damaged; one that is younger than `at` is not damaged.
        """
        import pyarrow as pa

        kinds = {
            "table": pa.string(),
            "version": pa.int64(),
            "rows": pa.int64(),
            "files": pa.int64(),
            "problem": pa.string(),
        }
        states = [self._state(ref) for ref in self.catalog.tables()]
        rows = [dict(zip(kinds, state, strict=True)) for state, _ in states]
        listed = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
        return Result.from_arrow(listed, is_whole=not any(is_damaged for _, is_damaged in states))

    def _state(
        self, ref: TableRef
    ) -> tuple[tuple[str, int | None, int | None, int | None, str | None], bool]:
        """A table's row in the list, and whether the table is damaged."""
        try:
            table = open_table(ref, self._at)
            counts = table.row_counts()
        except SqlError as error:
            state = ref.qualified_name, None, None, None, str(error)
            return state, not isinstance(error, NoVersionError)
        row_count = None if None in counts else sum(count for count in counts if count is not None)
        return (ref.qualified_name, table.version, row_count, len(counts), None), False

    def describe(self, name: str) -> Result:
        """The columns of a table, with Delta's names for the types.

        Raises:
            UnknownTableError: There is no such table.
        """
        schema = open_table(self.catalog.table(name), self._at).delta.schema()
        rows = [(field.name, _type_text(field.type), field.nullable) for field in schema.fields]
        return Result.from_rows(["column", "type", "nullable"], rows)

    def _started(self) -> Engine:
        if self._started_engine is None:
            if self.engine == "spark":
                from headwater.sql.spark_engine import SparkEngine

                self._started_engine = SparkEngine(self.catalog, self._at)
            else:
                from headwater.sql.duckdb_engine import DuckDBEngine

                self._started_engine = DuckDBEngine(self.catalog, self._at)
        return self._started_engine


def _type_text(kind: object) -> str:
    """A Delta type as SQL writes it: `struct<cluster: string, offset: long>`."""
    from deltalake.schema import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{field.name}: {_type_text(field.type)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.value_type)}>"
    return str(getattr(kind, "type", kind))
