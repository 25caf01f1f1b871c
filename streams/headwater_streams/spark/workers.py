"""Whether a session has anything that runs its tasks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_worker(spark: "SparkSession") -> bool:
    """Whether there is an executor; a session in one process is its own."""
    sc = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no door to executors
    return bool(sc.isLocal()) or len(sc.statusTracker().getExecutorInfos()) > 1  # the driver is one
