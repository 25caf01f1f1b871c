"""Whether a session has a JVM, and an executor."""

from typing import TYPE_CHECKING

from headwater_streams.spark.plain_ways import or_plainly
from headwater_streams.spark.spark_errors import AnyJvmError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_alive(spark: "SparkSession") -> bool:
    """Whether the session's JVM answers."""
    try:
        return bool(spark.version)
    except (AnyJvmError, ConnectionError):
        return False


def _may_have(_: "SparkSession") -> bool:
    return True


@or_plainly(_may_have)
def has_worker(spark: "SparkSession") -> bool:
    """Whether there is an executor; a local session is its own."""
    sc = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no door to executors
    return bool(sc.isLocal()) or len(sc.statusTracker().getExecutorInfos()) > 1  # the driver is one
