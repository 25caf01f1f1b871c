"""Runs statements in Spark SQL, for what DuckDB cannot do: Spark's functions, DESCRIBE HISTORY, changes."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.sql.catalog import Catalog, TableRef
from headwater.sql.delta import At, open_table
from headwater.sql.errors import SqlError, UnknownTableError
from headwater.sql.result import Result
from headwater.stack.session import spark_session

if TYPE_CHECKING:
    from pyspark.errors import PySparkException


_DROP = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/)*drop\s", re.IGNORECASE | re.DOTALL)


class SparkEngine:
    """One Spark session whose catalog knows the tables of the home by their names.

    Args:
        catalog: Where the tables are.
        at: A version or a moment to read every table at; tables are then views that cannot be changed.
    """

    def __init__(self, catalog: Catalog, at: At = None) -> None:
        self._catalog = catalog
        self._at = at
        # Spark's catalog wants a folder for each schema; they must not appear among the person's own.
        self._schemas_dir = Path(tempfile.mkdtemp(prefix="headwater-sql-"))
        self._bound: set[str] = set()
        try:
            self._spark = spark_session(
                catalog.home,
                app_name="headwater sql",
                extra={"spark.sql.warehouse.dir": str(self._schemas_dir)},
            )
        except BaseException:
            shutil.rmtree(self._schemas_dir, ignore_errors=True)
            raise

    def run(self, statement: str) -> Result | None:
        """Runs one statement; None if it has no rows to give.

        Raises:
            SqlError: The statement is wrong or failed.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if _DROP.match(statement):
            raise SqlError(
                "DROP would only have this session forget a table: remove its folder to be rid of it; "
                "headwater jobs rebuild fills a job's table anew"
            )
        try:
            for ref in self._catalog.named_in(statement):
                self._bind(ref)
            frame = self._spark.sql(statement)
            return Result.from_arrow(frame.toArrow()) if frame.columns else None
        except PySparkException as error:
            raise self._explained(error) from error
        except Py4JError as error:
            raise SqlError(str(error).splitlines()[0]) from error

    def _bind(self, ref: TableRef) -> None:
        if ref.qualified_name in self._bound:
            return
        schema, name = _quoted(ref.schema), _quoted(ref.name)
        location = (self._schemas_dir / ref.schema).as_uri()
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema} LOCATION '{location}'")
        if self._at is None:
            path = str(ref.path).replace("\\", "\\\\").replace("'", "\\'")
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {schema}.{name} USING delta LOCATION '{path}'")
        else:
            version = open_table(ref, self._at).version
            source = f"delta.{_quoted(str(ref.path))} VERSION AS OF {version}"
            self._spark.sql(f"CREATE VIEW {schema}.{name} AS SELECT * FROM {source}")
        self._bound.add(ref.qualified_name)

    def _explained(self, error: "PySparkException") -> SqlError:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            parameters = error.getMessageParameters() or {}
            name = parameters.get("relationName", "").replace("`", "")
            existing = [table.qualified_name for table in self._catalog.tables()]
            return UnknownTableError(name, existing, self._catalog.tables_dir)
        message = str(error).split("\n\nJVM stacktrace")[0].strip()
        return SqlError(message.split(";\n'")[0])

    def close(self) -> None:
        """Stops the session and removes what it kept for its schemas."""
        self._spark.stop()
        shutil.rmtree(self._schemas_dir, ignore_errors=True)


def _quoted(identifier: str) -> str:
    return "`" + identifier.replace("`", "``") + "`"
