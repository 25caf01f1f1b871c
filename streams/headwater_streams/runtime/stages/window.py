"""A window stage: Spark folds the rows in time, the batch commits the windows.

Updating targets have every window that a row fell into, merged by its keys; appending ones have each window once,
when the watermark has passed its end.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import DataLossError, IncompatibleStateError, JobDefinitionError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS, LedgerEntry
from headwater_streams.delta.delta_table import DeltaTransaction
from headwater_streams.delta.upsert import upsert_rows
from headwater_streams.ledger.log import last_entry, lineage, since_rebuilt
from headwater_streams.operators.recording import counting
from headwater_streams.operators.windows.overlapping import OverlappingWindow
from headwater_streams.operators.windows.provenance import entering, with_ranges, with_sources
from headwater_streams.operators.windows.spec import (
    PLACED_METRIC,
    SINCE,
    WINDOW_END,
    WINDOW_KEY,
    FoldedWindow,
)
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.check_memory import CheckMemory
from headwater_streams.runtime.stages.direct_input import input_kind
from headwater_streams.runtime.stages.gaps import gaps_extra
from headwater_streams.runtime.stages.gates import OUTPUT_METRIC, CheckGate, checks_extra, observe_output
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.runtime.stages.kept_input import KeptBatch, KeptInput
from headwater_streams.runtime.stages.read_ranges import ReadRanges
from headwater_streams.runtime.stages.stateful import (
    NEWEST,
    Entering,
    SplitBatch,
    batch_terms,
    observed,
    read_metric,
    sources_of,
)
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.sources.coordinates import ROWS, SOURCES, changing, commit_columns
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.columns import cols
from headwater_streams.spark.hidden_columns import reveal

_NOW, _BEFORE = "_now", "_before"
EMITTED_METRIC = "headwater_emitted"
"""The observation of the windows that Spark gave: how many (`windows`), the rows in them (`rows`), and where these are
to be found: the bounds of all windows (`start_us`, `end_us`), or the batch that read the first row (`since`)."""


class WindowStage:
    """Runs a windowed job's batches."""

    is_stateful = True

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        assert isinstance(plan.operator, FoldedWindow)
        self._context, self._plan, self._generation = context, plan, generation
        self._memory = CheckMemory(context, plan.job)
        self._job, self._window = plan.job, plan.operator
        self._is_final = plan.job.target.mode == "append"
        self._name = next(iter(self._job.inputs))
        self._entering = Entering({"window": self._name})
        overlap = self._window if isinstance(self._window, OverlappingWindow) else None
        closes = self._window.closes if self._window.closing else None
        declared = self._job.inputs[self._name]
        self.values = BatchValues(context.spark) if isinstance(declared, TopicInput) else None
        make = input_kind(declared)
        self._input = make(context, plan, generation, self._name, closes, overlap, self.values)
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self._ranges = ReadRanges(self._table, self._job.name)
        self._newest_us: int | None = None
        self._knows_newest = False
        self.stateful_inputs = {self._name: self._input}
        self.watermarks: InputWatermarks | None = InputWatermarks(context.spark, [self._input])
        self.readers = [self._input.reader]

    def prepare(self) -> None:
        """Makes the tables."""
        last = last_entry(self._table, self._job.name, self._generation)
        self._input.prepare(last)
        prepare_tables(self._context, self._plan)
        # A table's own entries say what had come by each of its commits.
        if self.values is not None:
            self._newest_us = last.max_event_time_us if last is not None else None
            begins = last is None or (last.batch < 0 and WarmUp.of(last) is None)
            self._knows_newest = begins or self._newest_us is not None

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query: windows each time that they change, or once when they are closed."""
        return self._job.target.mode

    @property
    def writes_without_rows(self) -> bool:
        """Whether windows are written as they close."""
        return self._is_final

    def stream(self) -> DataFrame:
        """The query's plan: rows in time, folded by the job's function."""
        with counting(self._entering.count):
            result = self._job.function(**{self._name: self._input.stream()})
        traced = self._is_final and self.values is not None
        result = reveal(result, [ROWS, WINDOW_KEY, *([SINCE] if traced else [])])
        if self._is_final:
            terms = [F.count(F.lit(1)).alias("windows"), F.coalesce(F.sum(ROWS), F.lit(0)).alias("rows")]
            start, end = (F.unix_micros(F.col(f"{WINDOW_KEY}.window_{bound}")) for bound in ("start", "end"))
            bounds = [F.min(start).alias("start_us"), F.max(end).alias("end_us")]
            terms += [F.min(SINCE).alias("since")] if traced else bounds
            result = result.observe(EMITTED_METRIC, *terms)
        return observe_output(self._job, result)

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
            DataLossError: Not every window that Spark gave would be written.
        """
        transaction = self._begin()
        if self._name not in inputs or transaction.last_batch(self._app_id) >= batch:
            return
        df, keyed = self._computed(result)
        metrics = result.metrics
        closed = observed(metrics, EMITTED_METRIC, "windows")
        if not (closed or inputs[self._name].went_on):
            return  # Spark's own batch, to move its watermark, and no window closed
        gate = CheckGate(self._job, "output")
        gate.judge(metrics.get(OUTPUT_METRIC, {}), batch, before=self._memory.before)
        split = self._input.divert(batch, inputs[self._name], metrics)
        of_input = self._input.judge(batch, split, metrics)
        warnings = [*of_input.warnings, *gate.warnings]
        accounting = {self._name: self._accounting(split, metrics)}
        extra = batch_terms(self._job, metrics)
        extra |= gaps_extra(self._context, self._job.name, sources_of(inputs), accounting)
        if warnings:
            extra[Extra.WARNINGS] = warnings
        extra |= checks_extra(of_input, gate)
        entry = LedgerEntry(
            job=self._job.name,
            generation=self._generation,
            batch=batch,
            table=self._job.target.name,
            kind="window",
            sources=sources_of(inputs),
            accounting=accounting,
            fingerprint=self._job.fingerprint,
            max_event_time_us=self._newest_by(metrics),
            extra=extra,
            partitions=split.partitions,
        )
        if self.values is not None:
            self._ranges.note(batch, inputs[self._name].source.ranges)
        if self._is_final:
            windows = self._with_all_sources(df, batch, inputs[self._name], metrics) if closed else None
            self._append(transaction, windows, closed, entry)
        else:
            self._update(self._with_sources(df, batch, split), keyed, entry)
        self._context.step(self._job.name, "after commit", batch)

    def warm_up(self, result: BatchResult, again: WarmUp) -> None:
        """See `Stage`: the open windows must hold the rows that the table and the ledger say.

        Raises:
            IncompatibleStateError: They hold other rows; nothing was written.
        """
        read = again.source(self._job.inputs[self._name])
        if self.values is not None and read is not None:
            self._ranges.note(0, read.ranges)
        entries = [c.entry for c in since_rebuilt(lineage(self._table)) if c.entry is not None]
        if self._is_final:
            metrics = result.metrics
            placed = observed(metrics, PLACED_METRIC, "placed") if self._window.overlapping else None
            waiting = self._entering.of(metrics, "window") if placed is None else placed
            waiting -= observed(metrics, EMITTED_METRIC)
            expected = sum(terms.get("open", 0) for entry in entries for terms in entry.accounting.values())
            if waiting != expected:
                self._refuse(f"{waiting} rows would wait in open windows, and {expected} do")
        # A repair folds rows that the state lacks.
        elif not any(entry.kind == "backfill" for entry in entries):
            self._require_table_windows(result.kept(), again)

    def _require_table_windows(self, df: DataFrame, again: WarmUp) -> None:
        """Compares the rows of each window that is open with those that it counts in the table."""
        table = self._context.spark.read.format("delta").load(str(self._table))
        since = again.watermark_ms
        warm, in_table, names_ends = df, table, True
        if since > NO_WATERMARK_MS:
            warm = df.filter(F.unix_millis(F.col(f"{WINDOW_KEY}.window_end")) > since)
            # A table without the windows' ends does not say which of them should be open either.
            names_ends = dict(table.dtypes).get(WINDOW_END) == "timestamp"
            in_table = table.filter(F.unix_millis(WINDOW_END) > since) if names_ends else table
        keys, nothing = cols(self._job.target.keys), F.lit(0).cast("long")
        now = warm.select(*keys, F.col(ROWS).alias(_NOW), nothing.alias(_BEFORE))
        before = in_table.select(*keys, nothing.alias(_NOW), F.col(ROWS).alias(_BEFORE))
        counts = now.union(before).groupBy(*keys).agg(*[F.sum(name).alias(name) for name in (_NOW, _BEFORE)])
        wrong = counts.filter((F.col(_NOW) != F.col(_BEFORE)) & ((F.col(_NOW) > 0) | F.lit(names_ends)))
        one = wrong.agg(F.count(F.lit(1)).alias("windows"), F.first(F.struct("*")).alias("one")).first()
        assert one is not None
        if one["windows"]:
            place = ", ".join(f"{key} {one['one'][key]}" for key in self._job.target.keys)
            self._refuse(
                f"{one['windows']} open windows would count other rows than in the table; that of {place} has "
                f"{one['one'][_BEFORE]} there, and would have {one['one'][_NOW]}"
            )

    def _refuse(self, difference: str) -> None:
        name = self._job.name
        raise IncompatibleStateError(
            f"job {name!r}: read again, its input does not give the state that the last generation had: {difference}. "
            "What can be done: put back what was changed in the job or its input, or begin a new generation with an "
            f"empty table: headwater jobs rebuild {name}"
        )

    def _newest_by(self, metrics: dict[str, Any]) -> int | None:
        """The greatest event time of a topic by now; None where older batches did not say it."""
        newest_us = metrics.get(read_metric(self._name), {}).get(NEWEST)
        if newest_us is not None and self._knows_newest:
            self._newest_us = (
                int(newest_us) if self._newest_us is None else max(int(newest_us), self._newest_us)
            )
        return self._newest_us

    def _computed(self, result: BatchResult) -> tuple[DataFrame, pa.Table | None]:
        """The windows of a batch, persisted, and the keys of those that replace others."""
        if self._is_final:
            return result.kept(), None
        return result.kept_with_columns(cols(self._job.target.keys))

    def _update(self, windows: DataFrame, keyed: pa.Table, entry: LedgerEntry) -> None:
        self._context.step(self._job.name, "before commit", entry.batch)
        try:
            upsert_rows(
                windows.withColumns(commit_columns(entry.batch, self._generation)),
                self._begin,
                keys=self._job.target.keys,
                keyed=keyed,
                updates={SOURCES: _MERGED_SOURCES},
                app_id=self._app_id,
                batch=entry.batch,
                user_metadata=entry.to_json(),
            )
        except JobDefinitionError as error:
            raise JobDefinitionError(f"job {self._job.name!r}: {self._job.target.name}: {error}") from error

    def _append(
        self, transaction: DeltaTransaction, windows: DataFrame | None, emitted: int, entry: LedgerEntry
    ) -> None:
        files = None
        if windows is not None:
            files = transaction.write(windows.withColumns(commit_columns(entry.batch, self._generation)))
            if files.rows != emitted:
                raise DataLossError(
                    f"{self._job.target.name}, batch {entry.batch}: {files.rows} windows to write where Spark closed "
                    f"{emitted}; nothing was committed, and the job can be started again"
                )
        self._context.step(self._job.name, "before commit", entry.batch)
        transaction.commit(self._app_id, entry.batch, entry.to_json(), files)

    def _with_sources(self, df: DataFrame, batch: int, split: SplitBatch) -> DataFrame:
        """Windows with the sources that this batch added to them."""
        if isinstance(split, KeptBatch):
            rows = entering(self._job.function, self._name, split.in_time)
            return with_sources(df, self._window, rows)
        now = changing(F.lit(batch).cast("long"))
        return with_ranges(df.withColumn(SINCE, now), self._ranges.between(batch, batch))

    def _with_all_sources(
        self, df: DataFrame, batch: int, batch_input: BatchInput, metrics: dict[str, Any]
    ) -> DataFrame:
        """Closed windows with their sources. Their rows came in earlier batches and are looked up in the input."""
        if not isinstance(self._input, KeptInput):
            since = observed(metrics, EMITTED_METRIC, "since")
            return with_ranges(df, self._ranges.between(since, batch))
        bounds = metrics[EMITTED_METRIC]
        assert batch_input.source.versions is not None
        version = batch_input.source.versions[1] - 1
        rows = self._input.in_time_between(version, bounds["start_us"], bounds["end_us"])
        return with_sources(df, self._window, entering(self._job.function, self._name, rows))

    def _accounting(self, split: SplitBatch, metrics: dict[str, Any]) -> dict[str, int]:
        folded = self._entering.of(metrics, "window")
        terms = {
            "read": observed(metrics, read_metric(self._name)),
            "folded": folded,
            "filtered": observed(metrics, read_metric(self._name), "kept") - folded,
            "late": split.late,
            "quarantined": split.quarantined,
        }
        if self._window.overlapping:
            terms["partly_late"] = split.partly_late
            terms["placed"] = observed(metrics, PLACED_METRIC, "placed")
            terms["missed"] = observed(metrics, PLACED_METRIC, "missed")
        if self._is_final:
            terms["emitted"] = observed(metrics, EMITTED_METRIC)
            terms["open"] = terms.get("placed", folded) - terms["emitted"]
        return terms

    def _begin(self) -> DeltaTransaction:
        return self._context.transaction(self._table)


_BOTH = f"concat(coalesce(t.{SOURCES}, array()), coalesce(s.{SOURCES}, array()))"
_SAME = "x -> x.topic = k.topic AND x.partition = k.partition"
_MERGED_SOURCES = (
    f"transform(array_sort(array_distinct(transform({_BOTH}, "
    "x -> struct(x.topic AS topic, x.partition AS partition)))), "
    "k -> struct(k.topic AS topic, k.partition AS partition, "
    f"array_min(transform(filter({_BOTH}, {_SAME}), x -> x.start)) AS start, "
    f"array_max(transform(filter({_BOTH}, {_SAME}), x -> x.end)) AS end))"
)
"""SQL over `t` and `s`: the ranges of both, one for each topic and partition, in their order."""
