"""Numbers in a stream's plan that change from batch to batch: the batch's number, and its watermark.

A stream's plan is made once, and a literal in it never changes. But the plan refers to an array by reference: Spark
optimises the plan anew for each batch, and sends the array with its tasks as it is by then.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS
from headwater_streams.spark.checkpoint import next_batch
from headwater_streams.spark.expressions import column_of
from headwater_streams.spark.gateway import jvm_class

_CATALYST = "org.apache.spark.sql.catalyst"
_BATCH, _WATERMARK_US = range(2)
_US_PER_MS = 1000


class BatchValues:
    """The numbers that a query's plan takes from the batch that it runs."""

    def __init__(self, spark: SparkSession) -> None:
        """Args: the session of the query."""
        java: Any = spark._jsparkSession  # noqa: SLF001 - a literal that can be written has no public door
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        numbers = gateway.new_array(jvm_class(spark, "java.lang.Object"), 2)
        self._numbers = jvm_class(spark, f"{_CATALYST}.util.GenericArrayData")(numbers)
        self._set(0, NO_WATERMARK_MS)
        kind = java.parseDataType(T.ArrayType(T.LongType(), containsNull=False).json())
        literal = jvm_class(spark, f"{_CATALYST}.expressions.Literal")(self._numbers, kind)
        self._array = column_of(literal)

    @property
    def batch(self) -> Column:
        """The number of the batch, a BIGINT."""
        return self._at(_BATCH)

    def watermark(self, later_us: int = 0) -> Column:
        """The batch's watermark plus `later_us`, a TIMESTAMP; before all history while there is no watermark."""
        at_us = self._at(_WATERMARK_US)
        return F.timestamp_micros(at_us + F.lit(later_us) if later_us else at_us)

    def resume(self, checkpoint: Path) -> None:
        """Takes the batch that Spark runs next from the query's checkpoint, before the query starts."""
        self._set(*next_batch(checkpoint))

    def advance(self, batch: int, execution: Any) -> None:
        """Takes the next batch's numbers from a batch that is done except for Spark's own commit.

        Args:
            batch: The batch that is done.
            execution: The `MicroBatchExecution` that runs it.
        """
        # Spark does the same as soon as the batch function returns; doing it twice changes nothing.
        tracker = execution.watermarkTracker()
        tracker.updateWatermark(execution.lastExecution().executedPlan())
        self._set(batch + 1, int(tracker.currentWatermark()))

    def require(self, batch: int, watermark_ms: int) -> None:
        """Checks that a batch ran with its own numbers.

        Raises:
            DataLossError: It did not, so rows may have been judged late that were in time.
        """
        if self._now != (batch, watermark_ms):
            raise DataLossError(
                f"batch {batch} has the watermark {watermark_ms} ms, and its rows were split as those of batch "
                f"{self._now[0]} by {self._now[1]} ms; nothing was committed, and the job can be started again"
            )

    def _set(self, batch: int, watermark_ms: int) -> None:
        self._now = (batch, watermark_ms)
        self._numbers.setLong(_BATCH, batch)
        self._numbers.setLong(_WATERMARK_US, watermark_ms * _US_PER_MS)

    def _at(self, place: int) -> Column:
        # Spark would fold a constant look-up, and then compile Java with the number for each batch.
        return F.get(self._array, F.lit(place) + F.spark_partition_id() * 0)
