"""An as-of join of two streams. It needs no state of Spark's, as both ingest tables hold every row that was read.

The rows that wait follow from the left table and the right side's watermark: those that were read and are not final at
the watermark of the last commit. A batch reads those that become final again, by their times, from the table as it was
before; the right rows that may be their answers likewise.
"""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.log import last_entry
from headwater_streams.operators.joins.as_of import Answering, AsOf, answering
from headwater_streams.operators.joins.columns import READ_BEFORE
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.check_memory import CheckMemory
from headwater_streams.runtime.stages.gates import CheckGate, checks_extra
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.runtime.stages.kept_input import KeptBatch, KeptInput
from headwater_streams.runtime.stages.stateful import (
    late_terms,
    observed,
    read_metric,
    sources_of,
)
from headwater_streams.runtime.stages.watermark import Watermark
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.sources.coordinates import ROW_COLUMNS, SOURCES, commit_columns
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.columns import col
from headwater_streams.spark.hidden_columns import hide, reveal
from headwater_streams.spark.observations import Observed
from headwater_streams.storage.delta_rows import data_files

_US = timedelta(microseconds=1)


class AsOfStage:
    """Runs the batches of a job that joins two streams as of a time."""

    is_stateful = True
    writes_without_rows = False
    values: BatchValues | None = None

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        assert isinstance(plan.operator, AsOf)
        self._context, self._plan, self._generation = context, plan, generation
        self._memory = CheckMemory(context, plan.job)
        self._job, self._spec = plan.job, plan.operator
        self._left_name, self._right_name = plan.sides
        self._left = KeptInput(context, plan, generation, self._left_name, closes=None)
        self._right = KeptInput(context, plan, generation, self._right_name, self._right_time)
        self._inputs = {s.name: s for s in (self._left, self._right)}
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self.stateful_inputs = self._inputs
        self.readers = [stateful.reader for stateful in self._inputs.values()]
        delay = self._job.inputs[self._right_name].watermark
        assert delay is not None
        self._delay_us = parse_duration(delay) // _US
        self._watermark = Watermark()
        self.watermarks: InputWatermarks | None = InputWatermarks(context.spark, self._inputs.values())

    def prepare(self) -> None:
        """Makes the tables and takes up the watermark of the last commit."""
        last = last_entry(self._table, self._job.name, self._generation)
        for stateful in self._inputs.values():
            stateful.prepare(last)
        prepare_tables(self._context, self._plan)
        if last is not None:
            self._watermark = Watermark.of(last)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""
        return "append"

    def stream(self) -> DataFrame:
        """Both inputs, to be counted; the rows themselves are read in the batch."""
        left, right = (
            stateful.stream().select(F.lit(name).alias("input")) for name, stateful in self._inputs.items()
        )
        return left.unionByName(right)

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
            DataLossError: The files do not hold the answers that were counted.
        """
        transaction = self._context.transaction(self._table)
        if transaction.last_batch(self._app_id) >= batch:
            return
        watermark = self._watermark.after(inputs.get(self._right_name), self._delay_us)
        before_us, now_us = self._watermark.at_us, watermark.at_us
        if not any(each.went_on for each in inputs.values()):
            return
        metrics = result.metrics
        splits = {
            name: stateful.divert(batch, inputs[name], metrics)
            for name, stateful in self._inputs.items()
            if name in inputs
        }
        gates = [self._inputs[name].judge(batch, split, metrics) for name, split in splits.items()]
        answer = Answering(before_us, now_us)
        with answering(answer):
            rows = reveal(self._job.function(**self._frames(inputs, splits, answer)), [*ROW_COLUMNS, SOURCES])
        gate, judged = CheckGate(self._job, "output"), Observed()
        if gate:
            rows = judged.over(rows, *gate.aggregates())
        files = transaction.write(rows.withColumns(commit_columns(batch, self._generation)))
        if gate:
            gate.judge(judged.get(), batch, before=self._memory.before)
        answers = answer.answers.get()
        written = answers["matched"] + (answers["unmatched"] if self._spec.how == "left" else 0)
        if files.rows != written:
            raise DataLossError(
                f"job {self._job.name!r}, batch {batch}: {files.rows} rows were written where {written} were answered; "
                "nothing was committed, and the job can be started again"
            )
        extra: ExtraValues = {
            **watermark.ledger_extra(),
            Extra.HOW: self._spec.how,
            Extra.LEFT: self._left_name,
        }
        extra |= late_terms(self._job)
        warnings = [warning for each in (*gates, gate) for warning in each.warnings]
        if warnings:
            extra[Extra.WARNINGS] = warnings
        extra |= checks_extra(*gates, gate)
        entry = LedgerEntry(
            job=self._job.name,
            generation=self._generation,
            batch=batch,
            table=self._job.target.name,
            kind="as_of",
            sources=sources_of(inputs),
            accounting=self._accounting(metrics, splits, answer),
            fingerprint=self._job.fingerprint,
            extra=extra,
            partitions={topic: terms for s in splits.values() for topic, terms in s.partitions.items()},
        )
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._context.step(self._job.name, "after commit", batch)
        self._watermark = watermark

    def _frames(
        self, inputs: dict[str, BatchInput], splits: dict[str, KeptBatch], answer: Answering
    ) -> dict[str, DataFrame]:
        """Both sides for the function: the batch's rows, and of the earlier ones those that may matter."""
        before_us, now_us = answer.before_us, answer.now_us
        ahead_us = self._spec.looks_ahead // _US
        # Rows that waited: what was final before, at the latest `ahead_us` after its time, is answered.
        since_us = None if before_us is None else before_us - ahead_us
        waits = now_us is not None and now_us != before_us
        oldest_us = min(
            (t for t in (since_us, self._oldest(inputs)) if t is not None and before_us is not None),
            default=None,
        )
        tolerance = self._spec.tolerance
        answers_since_us = (
            None if oldest_us is None or tolerance is None else oldest_us - tolerance // _US - 1
        )
        return {
            self._left_name: self._both(self._left, inputs, splits, since_us, now_us if waits else None),
            self._right_name: self._both(self._right, inputs, splits, answers_since_us, now_us),
        }

    def _oldest(self, inputs: dict[str, BatchInput]) -> int | None:
        """The least time of the batch's left rows."""
        files = inputs[self._left_name].files if self._left_name in inputs else ()
        if not files:
            return None
        times = data_files(files).to_table([self._spec.left_time])[self._spec.left_time]
        least: int | None = pc.min(times).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
        return least

    def _both(
        self,
        stateful: KeptInput,
        inputs: dict[str, BatchInput],
        splits: dict[str, KeptBatch],
        low_us: int | None,
        high_us: int | None,
    ) -> DataFrame:
        """The rows of a side that are in time: those of the batch, and earlier ones with times in `(low_us,
        high_us]`."""
        name, before, end_us = stateful.name, -1, 0
        if name in inputs and high_us is not None:
            versions = inputs[name].source.versions
            assert versions is not None
            before, end_us = versions[0] - 1, high_us + 1
        start_us = None if low_us is None else low_us + 1
        rows = stateful.in_time_between(before, start_us, end_us).withColumn(READ_BEFORE, F.lit(True))
        if name in splits:
            rows = rows.unionByName(splits[name].in_time.withColumn(READ_BEFORE, F.lit(False)))
        return hide(rows, [*ROW_COLUMNS, READ_BEFORE])

    def _accounting(
        self, metrics: dict[str, Any], splits: dict[str, KeptBatch], answer: Answering
    ) -> dict[str, dict[str, int]]:
        answers = answer.answers.get()
        read = {name: observed(metrics, read_metric(name)) for name in self._inputs}
        kept = {name: observed(metrics, read_metric(name), "kept") for name in self._inputs}
        quarantined = {name: splits[name].quarantined if name in splits else 0 for name in self._inputs}
        left, right = self._left_name, self._right_name
        entered = {left: answer.left.get()["fresh"], right: answer.right.get()["fresh"]}
        return {
            left: {
                "read": read[left],
                "matched": answers["matched"],
                "unmatched": answers["unmatched"],
                "waiting": answers["waiting"] - answers["released"],
                "filtered": kept[left] - entered[left],
                "quarantined": quarantined[left],
            },
            right: {
                "read": read[right],
                "kept": entered[right],
                "filtered": kept[right] - entered[right],
                "late": splits[right].late if right in splits else 0,
                "quarantined": quarantined[right],
            },
        }

    def _right_time(self) -> Column:
        return col(self._spec.right_time)
