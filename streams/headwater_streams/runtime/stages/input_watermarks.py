"""How far each input of a stateful stage has come: what Spark's watermark is the least of, kept over restarts."""

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
        self._known: dict[str, int] = {}
        self._is_put_back = False

    def resume(self, last: LedgerEntry | None) -> None:
        """Takes up what the newest entry says; of one that is older than this, what the inputs' tables say."""
        if last is None:
            return
        again = WarmUp.of(last)
        told = last.input_watermarks_ms if again is None else again.input_watermarks_ms
        for name, stateful in self._inputs.items():
            found = told[name] if name in told else stateful.watermark_read(last)
            if found is not None:
                self._known[name] = found

    def put_back(self, execution: Any) -> None:
        """Tells Spark, once; call it in each batch, with the `MicroBatchExecution` that runs it."""
        if not self._is_put_back:
            nodes = {name: each.watermark_node for name, each in self._inputs.items()}
            known = {
                node: self._known.get(name, NO_WATERMARK_MS)
                for name, node in nodes.items()
                if node is not None
            }
            put_back(self._spark, execution, known)
            self._is_put_back = True

    def after(self, metrics: Mapping[str, Any]) -> ExtraValues:
        """What the entry of a batch says of them in its `extra`, by what the stream observed."""
        for name, stateful in self._inputs.items():
            newest_us = metrics.get(read_metric(name), {}).get(NEWEST)
            if newest_us is not None:
                found = stateful.watermark_at(int(newest_us))
                self._known[name] = max(found, self._known.get(name, found))
        return {Extra.WATERMARKS_MS: {name: self._known.get(name) for name in self._inputs}}
