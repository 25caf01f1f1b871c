"""Work on frames that PySpark does by way of Python, done in the JVM alone."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from headwater_streams.spark.gateway import jvm_class
from headwater_streams.spark.plain_ways import or_plainly


def _write_nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _of_python(spark: SparkSession, schema: T.StructType) -> DataFrame:
    return spark.createDataFrame([], schema)


@or_plainly(_write_nowhere)
def compute(rows: DataFrame) -> None:
    """Computes every column of every row, and keeps nothing: no column is left out, and no writer logs its errors."""
    rows._jdf.queryExecution().toRdd().count()  # noqa: SLF001 - PySpark's own makes Python rows of them


@or_plainly(_of_python)
def empty_frame(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """A frame without rows, on which functions are analysed. It takes an eighth of the time of PySpark's, which goes
    through Python. Spark sees that the frame is empty, and runs nothing of its plan, observations included."""
    none = jvm_class(spark, "java.util.ArrayList")()
    session: Any = spark._jsparkSession  # noqa: SLF001 - PySpark makes frames of rows that Python sends
    return DataFrame(session.createDataFrame(none, session.parseDataType(schema.json())), spark)
