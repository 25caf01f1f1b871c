"""A count-window stage. It has no state of Spark's: the rows of windows that are not full wait below the checkpoint.

Which window a row is in depends on all rows of its key before it, so it is not known until the watermark has reached
the row. The query counts the rows; the batch reads them, numbers those that the watermark has reached, and appends the
windows that became full.
"""

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.log import last_entry
from headwater_streams.operators.recording import Place, counting
from headwater_streams.operators.windows.count import CountWindow, placing
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.check_memory import CheckMemory
from headwater_streams.runtime.stages.gates import CheckGate, checks_extra
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.runtime.stages.kept_input import KeptInput
from headwater_streams.runtime.stages.open_rows import OpenRows
from headwater_streams.runtime.stages.stateful import late_terms, observed, read_metric, sources_of
from headwater_streams.runtime.stages.watermark import Watermark
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.sources.coordinates import ROW_COLUMNS, ROWS, SOURCES, commit_columns
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.hidden_columns import hide, reveal
from headwater_streams.spark.observations import Observed


class CountStage:
    """Runs the batches of a job with count windows."""

    is_stateful = True
    writes_without_rows = False
    values: BatchValues | None = None

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        assert isinstance(plan.operator, CountWindow)
        self._context, self._plan, self._generation = context, plan, generation
        self._memory = CheckMemory(context, plan.job)
        self._job, self._spec = plan.job, plan.operator
        ((self._name, declared),) = self._job.inputs.items()
        assert declared.watermark is not None, "the plan was checked"
        self._delay_us = in_micros(parse_duration(declared.watermark))
        self._input = KeptInput(context, plan, generation, self._name, self._spec.closes)
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        checkpoint = context.home.checkpoint(self._job.name, generation)
        self._open = OpenRows(context.spark, checkpoint, self._job.name)
        self._watermark = Watermark()
        self.stateful_inputs = {self._name: self._input}
        self.watermarks: InputWatermarks | None = InputWatermarks(context.spark, [self._input])
        self.readers = [self._input.reader]

    def prepare(self) -> None:
        """Makes the tables and takes up the watermark and the open rows of the last commit."""
        last = last_entry(self._table, self._job.name, self._generation)
        self._input.prepare(last)
        prepare_tables(self._context, self._plan)
        if last is not None:
            self._watermark = Watermark.of(last)
            self._open.resume(last)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""
        return "append"

    def stream(self) -> DataFrame:
        """The input, to be counted; the rows themselves are read in the batch."""
        return self._input.stream().select(F.lit(1).alias("row"))

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
            DataLossError: The files do not hold the windows that became full.
        """
        transaction = self._context.transaction(self._table)
        if self._name not in inputs or transaction.last_batch(self._app_id) >= batch:
            return
        watermark = self._watermark.after(inputs[self._name], self._delay_us)
        if not inputs[self._name].went_on:
            return
        metrics = result.metrics
        split = self._input.divert(batch, inputs[self._name], metrics)
        gate = CheckGate(self._job, "output")
        of_input = self._input.judge(batch, split, metrics)
        entered, full = Observed(), Observed()

        def count(rows: DataFrame, _place: Place) -> DataFrame:
            return entered.over(rows, F.count(F.lit(1)).alias("rows"))

        place = partial(self._open.place, before=self._watermark, now=watermark)
        with counting(count), placing(place):
            placed = self._job.function(**{self._name: hide(split.in_time, ROW_COLUMNS)})
        terms = [F.count(F.lit(1)).alias("windows"), F.coalesce(F.sum(ROWS), F.lit(0)).alias("rows")]
        windows = full.over(reveal(placed, [ROWS, SOURCES]), *terms, *gate.aggregates())
        try:
            files = transaction.write(windows.withColumns(commit_columns(batch, self._generation)))
            gate.judge(full.get(), batch, before=self._memory.before)
            parts = self._open.write(batch, self._spec)
        finally:
            self._open.release()
        folded, emitted = entered.get()["rows"], full.get()["rows"]
        if files.rows != full.get()["windows"]:
            raise DataLossError(
                f"job {self._job.name!r}, batch {batch}: {files.rows} windows were written where "
                f"{full.get()['windows']} were full; nothing was committed, and the job can be started again"
            )
        extra = {**late_terms(self._job), **watermark.ledger_extra(), **parts}
        warnings = [*of_input.warnings, *gate.warnings]
        if warnings:
            extra[Extra.WARNINGS] = warnings
        extra |= checks_extra(of_input, gate)
        terms_of_input = {
            "read": observed(metrics, read_metric(self._name)),
            "folded": folded,
            "filtered": observed(metrics, read_metric(self._name), "kept") - folded,
            "late": split.late,
            "quarantined": split.quarantined,
            "emitted": emitted,
            "open": folded - emitted,
        }
        entry = LedgerEntry(
            job=self._job.name,
            generation=self._generation,
            batch=batch,
            table=self._job.target.name,
            kind="window",
            sources=sources_of(inputs),
            accounting={self._name: terms_of_input},
            fingerprint=self._job.fingerprint,
            extra=extra,
            partitions=split.partitions,
        )
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._watermark = watermark
        self._open.committed(batch)
        self._context.step(self._job.name, "after commit", batch)
