"""How far each input of a stateful stage has come: what Spark's watermark is the least of."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from headwater_streams.ledger.entry import NO_WATERMARK_MS
from headwater_streams.runtime.spark_watermark import put_back
from headwater_streams.runtime.stages.stateful import StatefulInput


class InputWatermarks:
    """The watermark of each input of a running job."""

    def __init__(self, spark: SparkSession, inputs: Iterable[StatefulInput]) -> None:
        self._spark, self._inputs = spark, tuple(inputs)
        self._is_put_back = False

    def put_back(self, execution: Any) -> None:
        """Tells Spark, once; call it in each batch, with the `MicroBatchExecution` that runs it."""
        if not self._is_put_back:
            nodes = (each.watermark_node for each in self._inputs)
            put_back(self._spark, execution, {node: NO_WATERMARK_MS for node in nodes if node is not None})
            self._is_put_back = True
