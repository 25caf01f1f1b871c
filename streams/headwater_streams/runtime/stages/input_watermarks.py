"""The watermark of each input of a stateful stage, kept over restarts; Spark's watermark is the least of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS, LedgerEntry
from headwater_streams.runtime.stages.stateful import NEWEST, StatefulInput, read_metric
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.spark.watermark import put_back


class InputWatermarks:
    """The watermark of each input of a running job, by the input's name."""

    def __init__(self, spark: SparkSession, inputs: Iterable[StatefulInput]) -> None:
        self._spark, self._inputs = spark, {each.name: each for each in inputs}
        self._watermarks: dict[str, int] = {}
        self._is_put_back = False

    def resume(self, last: LedgerEntry | None) -> None:
        """Takes up what the newest entry says. Where an older Headwater wrote it, it takes what the inputs' tables
        say."""
        if last is None:
            return
        again = WarmUp.of(last)
        of_entry = last.input_watermarks_ms if again is None else again.input_watermarks_ms
        for name, stateful in self._inputs.items():
            watermark_ms = of_entry[name] if name in of_entry else stateful.watermark_read(last)
            if watermark_ms is not None:
                self._watermarks[name] = watermark_ms

    def put_back(self, execution: Any) -> None:
        """Gives them to Spark, once. Call it in each batch, with the `MicroBatchExecution` that runs it."""
        if not self._is_put_back:
            nodes = {name: each.watermark_node for name, each in self._inputs.items()}
            by_node = {
                node: self._watermarks.get(name, NO_WATERMARK_MS)
                for name, node in nodes.items()
                if node is not None
            }
            put_back(self._spark, execution, by_node)
            self._is_put_back = True

    def after(self, metrics: Mapping[str, Any]) -> ExtraValues:
        """What the entry of a batch says of them in its `extra`, by what the stream observed."""
        for name, stateful in self._inputs.items():
            newest_us = metrics.get(read_metric(name), {}).get(NEWEST)
            if newest_us is not None:
                watermark_ms = stateful.watermark_at(int(newest_us))
                self._watermarks[name] = max(watermark_ms, self._watermarks.get(name, watermark_ms))
        return {Extra.WATERMARKS_MS: {name: self._watermarks.get(name) for name in self._inputs}}
