"""Runs statements in Spark SQL, for what DuckDB cannot do: Spark's functions, DESCRIBE HISTORY, changes."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.sql.catalog import Catalog, TableRef
from headwater.sql.delta import At, damage_of, open_table
from headwater.sql.errors import SqlError, UnknownTableError, misses
from headwater.sql.lexer import without_comments
from headwater.sql.result import Result
from headwater.sql.variant import JSON_FIELD
from headwater.stack.session import spark_session
from headwater_streams.base.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


_JAVA_CLASS = re.compile(r"^(?:\w+\.)+\w+: ")
# Only the session's catalog would forget the table: its folder would stay.
_DROP = re.compile(r"\s*drop\s+(?:table|schema|database|namespace)\b", re.IGNORECASE)


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
        from pyspark.errors import PySparkException

        from headwater_streams.spark.spark_errors import AnyJvmError

        if _DROP.match(without_comments(statement, "spark")):
            raise SqlError(
                "DROP would only have this session forget a table: remove its folder to be rid of it; "
                "headwater jobs rebuild fills a job's table anew"
            )
        unopened: dict[str, SqlError] = {}
        for ref in self._catalog.named_in(statement, "spark"):
            try:
                self._bind(ref)
            except SqlError as error:  # its name may stand in a text only
                unopened[ref.qualified_name] = error
            except (PySparkException, AnyJvmError) as error:
                reason = str(self._explained(error, {})).splitlines()[0]
                failure = SqlError(f"cannot open table {ref.qualified_name}: {reason}")
                unopened[ref.qualified_name] = damage_of(ref) or failure
        try:
            frame = self._spark.sql(statement)
            return Result.from_arrow(arrow_of(frame)) if frame.columns else None
        except (PySparkException, AnyJvmError) as error:
            raise self._explained(error, unopened) from error

    def _bind(self, ref: TableRef) -> None:
        if ref.qualified_name in self._bound:
            return
        schema, name = quoted(ref.schema), quoted(ref.name)
        location = (self._schemas_dir / ref.schema).as_uri()
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema} LOCATION '{location}'")
        if self._at is None:
            path = str(ref.path).replace("\\", "\\\\").replace("'", "\\'")
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {schema}.{name} USING delta LOCATION '{path}'")
        else:
            version = open_table(ref, self._at).version
            source = f"delta.{quoted(str(ref.path))} VERSION AS OF {version}"
            self._spark.sql(f"CREATE VIEW {schema}.{name} AS SELECT * FROM {source}")
        self._bound.add(ref.qualified_name)

    def _explained(self, error: Exception, unopened: Mapping[str, SqlError]) -> SqlError:
        from pyspark.errors import PySparkException

        from headwater_streams.spark.damage_behind import damage_behind
        from headwater_streams.storage.home import Home

        damaged = damage_behind(error, Home(self._catalog.home.resolve()))
        if damaged is not None:
            return SqlError(str(damaged))
        if not isinstance(error, PySparkException):
            # Java's own exceptions: their message, without the call of Py4J.
            java = getattr(error, "java_exception", None)
            message = str(error if java is None else java.toString()).splitlines()[0]
            return SqlError(_JAVA_CLASS.sub("", message))
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            parameters = error.getMessageParameters() or {}
            name = parameters.get("relationName", "").replace("`", "")
            for table, reason in unopened.items():
                if misses(name, table):
                    return reason
            existing = [table.qualified_name for table in self._catalog.tables()]
            return UnknownTableError(name, existing, self._catalog.tables_dir)
        message = str(error).split("\n\nJVM stacktrace")[0].strip()
        if error.getCondition() == "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION":
            message += " Cast that column to STRING."
        return SqlError(message.split(";\n'")[0])

    def close(self) -> None:
        """Stops the session and removes its schemas' folders."""
        self._spark.stop()
        shutil.rmtree(self._schemas_dir, ignore_errors=True)


def arrow_of(frame: "DataFrame") -> "pa.Table":
    """The rows, with columns of VARIANTs, of which PySpark makes two binaries each, as JSON."""
    from pyspark.sql import functions as F

    with_variants = [_holds_variant(field.dataType) for field in frame.schema]
    if not any(with_variants):
        return frame.toArrow()
    names = [f"column_{place}" for place in range(len(with_variants))]  # the frame's own may repeat
    columns = [
        F.struct(F.to_json(name, {"ignoreNullFields": "false"}).alias(JSON_FIELD)).alias(name)
        if has
        else F.col(name)
        for name, has in zip(names, with_variants, strict=True)
    ]
    return frame.toDF(*names).select(*columns).toArrow().rename_columns(frame.columns)


def _holds_variant(kind: "DataType") -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return any(_holds_variant(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _holds_variant(kind.elementType)
    if isinstance(kind, T.MapType):
        return _holds_variant(kind.valueType)
    return isinstance(kind, T.VariantType)
