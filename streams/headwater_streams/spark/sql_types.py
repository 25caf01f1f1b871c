"""Types of columns in SQL and in Arrow."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

if TYPE_CHECKING:
    import pyarrow as pa


def sql_of(spark: SparkSession, kind: T.DataType) -> str:
    """A type's text in SQL, with the names of its fields quoted."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - PySpark's own text of a type quotes no field of a struct
    return str(session.parseDataType(kind.json()).sql())


def arrow_of(kind: T.DataType) -> "pa.DataType":
    """The type of Arrow that Spark takes for one of its own."""
    from pyspark.sql.pandas.types import to_arrow_type  # which imports Arrow

    return to_arrow_type(kind, timestamp_utc=True)
