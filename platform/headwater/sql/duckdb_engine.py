"""Runs statements in DuckDB over Delta tables: no JVM, answers in a fraction of a second."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import DependencyError
from headwater.sql.catalog import Catalog, TableRef
from headwater.sql.delta import At, OpenTable, damage_of, open_table
from headwater.sql.errors import SqlError, UnknownTableError, misses
from headwater.sql.result import Result
from headwater.sql.variant import JSON_FIELD

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyRelation

T = TypeVar("T")

_VARIANT = re.compile(r"\bVARIANT\b")
_MISSING_TABLE = re.compile(r'(?:Table|View) with name "?(?P<name>[^"]+?)"? does not exist')
_READING = "reading the stream"
"""DuckDB's message for an error of Arrow's begins so."""
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    # Keeps HUGEINT apart from DECIMAL(38, 0): one prints as a number, the other as text.
    "SET arrow_lossless_conversion = true",
    # A name is a table of the home or an error, never a variable of this program or a download.
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
)


class DuckDBEngine:
    """One in-memory DuckDB; every statement sees the named tables as they are when it starts.

    Args:
        catalog: Where the tables are.
        at: A version or a moment to read every table at, instead of the newest.
        versions: The versions of tables, by their names, that are read at one of their own.
    """

    def __init__(
        self, catalog: Catalog, at: At = None, *, versions: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise DependencyError("DuckDB is not installed: run pip install 'headwater[spark]'") from error
        self._catalog = catalog
        self._at, self._versions = at, versions
        self._connection = duckdb.connect(":memory:")
        for setting in _SETTINGS:
            self._connection.execute(setting)
        # In a notebook without ipywidgets there is no bar, and DuckDB refuses this as well.
        with suppress(duckdb.InvalidInputException):
            self._connection.execute("SET enable_progress_bar = false")

    def run(self, statement: str) -> Result | None:
        """Runs one statement; None if it has no rows to give.

        Raises:
            SqlError: The statement is wrong or failed.
        """
        return self._answer(
            statement, lambda relation: None if relation is None else Result.from_arrow(_arrow_of(relation))
        )

    def batches(self, statement: str, rows: int) -> Iterator["pa.RecordBatch"]:
        """Runs one statement, and gives its rows as they come, so many at once, for results that memory may not hold.

        Raises:
            SqlError: The statement is wrong or failed.
        """
        import duckdb

        names, reader = self._answer(
            statement, lambda relation: (relation.columns, _readable(relation).to_arrow_reader(rows))
        )
        try:
            yield from (batch.rename_columns(names) for batch in reader)
        except (duckdb.Error, OSError) as error:
            raise SqlError(str(error).partition("\n\nStack Trace")[0].strip()) from error

    def _answer(self, statement: str, take: Callable[[Any], T]) -> T:
        import duckdb

        unopened: dict[str, SqlError] = {}
        opened: list[TableRef] = []
        for ref in self._catalog.named_in(statement, "duckdb"):
            try:
                self._bind(open_table(ref, self._versions.get(ref.qualified_name, self._at)))
                opened.append(ref)
            except SqlError as error:  # its name may stand in a text only
                self._forget(ref)
                unopened[ref.qualified_name] = error
        try:
            return take(self._connection.sql(statement))
        except duckdb.Error as error:
            raise self._explained(error, unopened, opened) from error

    def _bind(self, table: OpenTable) -> None:
        source = f"{table.ref.qualified_name}@v{table.version}"
        self._connection.register(source, table.dataset())
        view = table.ref.quoted_name
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(table.ref.schema)}")
        self._connection.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {_quoted(source)}")

    def _forget(self, ref: TableRef) -> None:
        """Drops the view: a statement must not read the state that an earlier one read."""
        import duckdb

        with suppress(duckdb.CatalogException):  # there is no such schema yet
            self._connection.execute(f"DROP VIEW IF EXISTS {ref.quoted_name}")

    def _explained(
        self, error: Exception, unopened: Mapping[str, SqlError], opened: Sequence[TableRef]
    ) -> SqlError:
        message = str(error).partition("\n\nStack Trace")[0].strip()
        missing = _MISSING_TABLE.search(message)
        if missing:
            for name, reason in unopened.items():
                if misses(missing["name"], name):
                    return reason
            existing = [table.qualified_name for table in self._catalog.tables()]
            return UnknownTableError(missing["name"], existing, self._catalog.tables_dir)
        if _READING in message:
            damaged = (damage_of(ref) for ref in opened)
            return next((each for each in damaged if each is not None), SqlError(message))
        return SqlError(message)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def _arrow_of(relation: "DuckDBPyRelation") -> "pa.Table":
    return _readable(relation).to_arrow_table().rename_columns(relation.columns)


def _readable(relation: "DuckDBPyRelation") -> "DuckDBPyRelation":
    """The rows, with columns of VARIANTs, which would be two binaries each, as JSON; columns have other names then."""
    kinds = [str(kind) for kind in relation.types]
    if not any(map(_VARIANT.search, kinds)):
        return relation
    columns = [
        f"CASE WHEN #{place} IS NOT NULL THEN {{'{JSON_FIELD}': CAST(CAST(#{place} AS JSON) AS VARCHAR)}} END"
        if _VARIANT.search(kind)
        else f"#{place}"
        for place, kind in enumerate(kinds, 1)
    ]
    return relation.project(", ".join(columns))


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
