"""Whether a session has an executor."""

from typing import TYPE_CHECKING

from headwater_streams.spark.plain_ways import or_plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _may_have(_: "SparkSession") -> bool:
    return True


@or_plainly(_may_have)
def has_worker(spark: "SparkSession") -> bool:
    """Whether there is an executor; a local session is its own."""
    sc = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no door to executors
    return bool(sc.isLocal()) or len(sc.statusTracker().getExecutorInfos()) > 1  # the driver is one
