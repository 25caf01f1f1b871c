"""Runs statements in DuckDB over Delta tables: no JVM, answers in a fraction of a second."""

import re
from contextlib import suppress

from headwater.errors import DependencyError
from headwater.sql.catalog import Catalog
from headwater.sql.delta import At, OpenTable, open_table
from headwater.sql.errors import SqlError, UnknownTableError
from headwater.sql.result import Result

_MISSING_TABLE = re.compile(r'(?:Table|View) with name "?(?P<name>[^"]+?)"? does not exist')
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
    """

    def __init__(self, catalog: Catalog, at: At = None) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise DependencyError("DuckDB is not installed: run pip install 'headwater[spark]'") from error
        self._catalog = catalog
        self._at = at
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
        import duckdb

        for ref in self._catalog.named_in(statement):
            self._bind(open_table(ref, self._at))
        try:
            relation = self._connection.sql(statement)
            return None if relation is None else Result.from_arrow(relation.to_arrow_table())
        except duckdb.Error as error:
            raise self._explained(error) from error

    def _bind(self, table: OpenTable) -> None:
        source = f"{table.ref.qualified_name}@v{table.version}"
        schema, name = _quoted(table.ref.schema), _quoted(table.ref.name)
        self._connection.register(source, table.dataset())
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self._connection.execute(f"CREATE OR REPLACE VIEW {schema}.{name} AS SELECT * FROM {_quoted(source)}")

    def _explained(self, error: Exception) -> SqlError:
        message = str(error).partition("\n\nStack Trace")[0].strip()
        missing = _MISSING_TABLE.search(message)
        if missing:
            existing = [table.qualified_name for table in self._catalog.tables()]
            return UnknownTableError(missing["name"], existing, self._catalog.tables_dir)
        return SqlError(message)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
