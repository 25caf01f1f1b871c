"""Types as SQL has them, whatever characters their fields' names have."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T


def sql_of(spark: SparkSession, kind: T.DataType) -> str:
    """A type's text in SQL, the names of its fields quoted."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - PySpark's own text of a type quotes no field of a struct
    return str(session.parseDataType(kind.json()).sql())
