"""What window and join stages share: their inputs, split before Spark's watermark could drop rows without a trace.

A row is *bad* when it has no event time or fails a quarantine check, *late* when its state is gone. The stream drops
both. Where the job keeps late rows, a table between the topic and the job holds every row (`kept_input`); where they
are only counted, the job reads the topic itself (`direct_input`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.check import Check
from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import (
    LedgerEntry,
    Partitions,
    SourceRange,
    watermark_to_json,
)
from headwater_streams.delta.delta_table import WrittenFiles
from headwater_streams.delta.side import quarantine_rows, write_side
from headwater_streams.operators.recording import Place
from headwater_streams.operators.windows.spec import CLOSED_UNTIL, FoldedWindow
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.columns import speaking_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.stages.check_memory import CheckMemory
from headwater_streams.runtime.stages.failing_rows import FailingByInput, failing_to_come
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.narrowing import problem_of
from headwater_streams.runtime.stages.rejected_checks import Rejections, in_files, of_batch
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.sources.coordinates import ROW_COLUMNS
from headwater_streams.sources.decode import BAD, Decoded
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.columns import cols, with_watermark
from headwater_streams.spark.projection import only_projects
from headwater_streams.spark.watermark import watermark_node

_US_PER_MS = 1000
LATE, PARTLY_LATE = "_late", "_partly_late"
NEWEST = "newest_us"
"""The term of an input's observation (`read_metric`) that is the greatest event time among its rows in time; where it
is needed."""
BATCH_METRIC = "headwater_batch"
"""Among what was observed in a batch: the watermark that it ran with (`watermark_ms`)."""


class Overlap(Protocol):
    """How a row's windows close one after the other; see `operators.windows.overlapping`."""

    def first_closes(self) -> Column:
        """When the first of a row's windows closes."""

    def windows(self) -> Column:
        """A row's windows, in the order of their ends."""


@dataclass(frozen=True)
class SplitBatch:
    """What became of one input's rows of a batch.

    Attributes:
        late: How many were late.
        quarantined: How many were bad.
        partitions: The same by topic and partition: `read`, `kept`, `late`, `quarantined`; empty where that is not
            known.
        partly_late: How many of those in time came when some of their windows were closed.
    """

    late: int
    quarantined: int
    partitions: Partitions
    partly_late: int


class StatefulInput(ABC):
    """One input of a stateful stage: the stream into the state, and what became of a batch's rows."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        generation: int,
        name: str,
        closes: Callable[[], Column] | None,
        overlap: Overlap | None = None,
        values: BatchValues | None = None,
    ) -> None:
        """Prepares to read one input.

        Args:
            context: What the stage has.
            plan: The job.
            generation: Its generation.
            name: The input's name.
            closes: When the state of a row is gone, as a column over its rows; None where state is never dropped.
            overlap: How the windows of a row close, where it falls into several.
            values: What a topic's plan takes from each batch.
        """
        self.name = name
        self._rejected_by: dict[str, CheckResult] = {}
        self._context, self._plan, self._generation = context, plan, generation
        self._memory = CheckMemory(context, plan.job)
        self._declared = plan.job.inputs[name]
        self.reader = InputReader(context, name, self._declared, plan.job.name)
        self._closes, self._overlap, self._values = closes, overlap, values
        self.watermark_node: str | None = None
        """The id of the plan's node that Spark knows the input's watermark by; None before the stream is made, and
        where no row is ever late."""

    @abstractmethod
    def prepare(self, last: LedgerEntry | None) -> None:
        """Checks that late rows can be recognised, and takes up where the last run ended.

        Args:
            last: The generation's newest entry.
        """

    @abstractmethod
    def stream(self) -> DataFrame:
        """The rows for the function: in time, with Spark's watermark, coordinates hidden."""

    @abstractmethod
    def divert(self, batch: int, batch_input: BatchInput, metrics: Mapping[str, Any]) -> SplitBatch:
        """Commits a batch's bad and late rows to their side tables.

        Args:
            batch: The batch.
            batch_input: What it read.
            metrics: What the stream observed.
        """

    @abstractmethod
    def rows_for_function(self, batch_input: BatchInput, watermark_ms: int) -> DataFrame:
        """A batch's rows as the function gets them, read again, with their coordinates.

        Args:
            batch_input: What it read.
            watermark_ms: The watermark that it runs with.
        """

    @abstractmethod
    def earlier_rows_for_function(
        self, batch_input: BatchInput, times_us: tuple[int, int] | None
    ) -> DataFrame:
        """The rows that the function got in the batches before, read again, with their coordinates.

        Args:
            batch_input: What the batch read.
            times_us: Rows with event times in `[start, end)` are needed, others may be among them; None: all.
        """

    @abstractmethod
    def judge(self, batch: int, split: SplitBatch, metrics: Mapping[str, Any]) -> CheckGate:
        """Judges the input's checks over a batch's rows in time.

        Returns:
            The gate with what they came to, those that rejected rows among them.

        Raises:
            CheckFailedError: A check does not hold that stops the job.
        """

    def _without_failing(self, decoded: Decoded) -> Decoded:
        """The rows of a batch; those for which the function is known to raise are bad."""
        failing = self._failing.get(self.name)
        return decoded.with_problem(decoded.frame, problem_of(failing)) if failing else decoded

    @cached_property
    def _failing(self) -> FailingByInput:
        return failing_to_come(self._checkpoint)

    @property
    def _checkpoint(self) -> Path:
        return self._context.home.checkpoint(self._plan.job.name, self._generation)

    def _read_again(self, last: LedgerEntry | None) -> SourceRange | None:
        """What the generation reads again of the input before it begins, as long as that is not done; see `warm_up`."""
        warm_up = WarmUp.of(last)
        return warm_up.source(self._declared) if warm_up is not None else None

    def _marked(self, decoded: Decoded, threshold: Column | None) -> Decoded:
        """Every row with `_late`; where windows overlap also with `_partly_late` and `_closed_until`.

        Args:
            decoded: The rows.
            threshold: State that ends here or before is gone. It is not used where state is never dropped.
        """
        if self._closes is None:
            return replace(decoded, frame=decoded.frame.withColumn(LATE, F.lit(False)))
        assert threshold is not None
        late = F.coalesce(self._closes() <= threshold, F.lit(False))
        marks = {LATE: late}
        if self._overlap is not None:
            first = F.coalesce(self._overlap.first_closes() <= threshold, F.lit(False))
            marks |= {PARTLY_LATE: ~late & first, CLOSED_UNTIL: threshold}
        # The windows speak of the function's columns, which stand in `columns`; the frame has them for this step.
        names = decoded.frame.columns
        wide = decoded.frame.select("*", *decoded.columns.values())
        frame = wide.select(*cols(names), *[mark.alias(name) for name, mark in marks.items()])
        return replace(decoded, frame=frame)

    def _in_time(self, split: Decoded) -> DataFrame:
        """The good rows in time, as the function gets them, with their coordinates."""
        in_time = split.frame.filter(~F.col(BAD) & ~F.col(LATE))
        return in_time.select(*split.columns.values(), *ROW_COLUMNS)

    def _quarantining(self, rows: DataFrame) -> tuple[Check, ...]:
        """The quarantine checks that are about the columns of these rows."""
        return speaking_of(rows, self._plan.job.quarantining)

    def watermark_at(self, newest_us: int) -> int:
        """The input's watermark once this event time was seen of it, in milliseconds, as Spark computes it."""
        return newest_us // _US_PER_MS - self._delay_us // _US_PER_MS

    def watermark_read(self, last: LedgerEntry) -> int | None:
        """The input's watermark behind the batch of an entry that does not say it, by its table; None where
        nothing does."""
        versions = next((s.versions for s in last.sources if s.input == self.name and s.versions), None)
        newest_us = None if versions is None else self.reader.newest_until(versions[1])
        return None if newest_us is None else self.watermark_at(newest_us)

    @cached_property
    def _delay_us(self) -> int:
        """How far behind the greatest event time Spark is to hold the input's watermark."""
        assert self._declared.watermark is not None
        return in_micros(parse_duration(self._declared.watermark) + self._beyond)

    @property
    def _beyond(self) -> timedelta:
        """How far beyond a window's end the watermark goes before Spark closes it."""
        spec = self._plan.operator
        return spec.closes_beyond if isinstance(spec, FoldedWindow) else timedelta()

    def _with_watermark(self, rows: DataFrame) -> DataFrame:
        if self._closes is None:
            return rows
        assert self._declared.event_time is not None
        seen = with_watermark(rows, self._declared.event_time, f"{self._delay_us} microseconds")
        self.watermark_node = watermark_node(seen)
        # This is always true. As Spark does not know that, it moves none of the function's filters below the watermark,
        # where only rows that pass them would move it, and windows would stay open until the next such row.
        return seen.filter(F.spark_partition_id() >= 0)

    def _none_rejected(self, read: int) -> None:
        """Begins a batch of so many rows, of which the checks have rejected none yet."""
        results = Rejections().results(self._plan.job.quarantining, read)
        self._rejected_by = {check.name: result for check, result in results}

    def _quarantine(
        self, rejected: DataFrame, batch: int, batch_input: BatchInput, expected: int, read: int
    ) -> None:
        """Writes the rejected rows of a batch, and keeps what the checks came to that rejected them.

        Raises:
            CheckFailedError: One rejected more than it may; nothing of the input's rejected rows was committed, but for
                those for which the function raises.
        """
        self._context.step(self._plan.job.name, "before quarantine", batch)
        rows = quarantine_rows(rejected, batch, self._generation)
        table = self._plan.job.target.quarantine_table
        failing_rows = self._failing.get(self.name)
        if failing_rows:
            # They became known after a try of the batch that may have committed the others, so they have a commit and a
            # mark of their own.
            failing = F.coalesce(problem_of(failing_rows).condition, F.lit(False))
            count = rows.filter(failing).count()
            if count:
                of_function = rows.filter(failing)
                self._write_side("quarantined", table, of_function, batch, batch_input, count, "/failing")
            rows, expected = rows.filter(~failing), expected - count
        if not expected:
            return
        path, checks, found = self._context.home.table(table), self._plan.job.quarantining, list[Rejections]()
        gate = CheckGate(self._plan.job, "input")

        def judge(files: WrittenFiles) -> None:
            found.append(in_files(path, files.names))
            gate.take(found[0].results(checks, read), batch)

        self._write_side(
            "quarantined", table, rows, batch, batch_input, expected, judge=judge if checks else None
        )
        if checks:
            topics = [*batch_input.source.ranges]
            rejections = found[0] if found else of_batch(path, self._generation, batch, topics)
            self._rejected_by = {check.name: result for check, result in rejections.results(checks, read)}

    def _write_side(
        self,
        term: str,
        table: str,
        rows: DataFrame,
        batch: int,
        batch_input: BatchInput,
        expected: int,
        apart: str = "",
        judge: Callable[[WrittenFiles], None] | None = None,
    ) -> None:
        job = self._plan.job
        entry = LedgerEntry(
            job=job.name,
            generation=self._generation,
            batch=batch,
            table=table,
            kind="side",
            sources=(batch_input.source,),
            accounting={self.name: {term: expected}},
            fingerprint=job.fingerprint,
        )
        # Each input commits on its own, so each has a mark of its own.
        app_id = f"{job.app_id(self._generation)}/{self.name}{apart}"
        transaction = self._context.transaction(self._context.home.table(table))
        write_side(transaction, rows, app_id, entry, expected, judge)


def late_terms(job: Job) -> ExtraValues:
    """What an entry's `extra` says of late rows: that they stand in no table, where they are only counted."""
    return {Extra.LATE: "count"} if job.late == "count" else {}


class Entering:
    """Counts the rows that a stream's function hands to its operator; the others were filtered by it."""

    def __init__(self, inputs: Mapping[Place, str]) -> None:
        """Args: the input whose rows come to each place."""
        self._inputs = inputs
        self._as_kept: set[Place] = set()

    def count(self, rows: DataFrame, place: Place) -> DataFrame:
        """Observes the rows of a place, where the function may have filtered any."""
        if only_projects(rows, read_metric(self._inputs[place])):
            self._as_kept.add(place)
            return rows
        return rows.observe(f"headwater_entered_{place}", F.count(F.lit(1)).alias("rows"))

    def of(self, metrics: Mapping[str, Any], place: Place) -> int:
        """The number of rows of a place in a batch."""
        if place in self._as_kept:
            return observed(metrics, read_metric(self._inputs[place]), "kept")
        return observed(metrics, f"headwater_entered_{place}")


def sources_of(inputs: Mapping[str, BatchInput]) -> tuple[SourceRange, ...]:
    """The ranges of all inputs, for the ledger entry."""
    return tuple(batch_input.source for batch_input in inputs.values())


def batch_terms(job: Job, metrics: Mapping[str, Any]) -> ExtraValues:
    """What an entry's `extra` says of the batch itself: that late rows are only counted, and its watermark."""
    return late_terms(job) | {
        Extra.WATERMARK_MS: watermark_to_json(metrics[BATCH_METRIC][Extra.WATERMARK_MS])
    }


def read_metric(name: str) -> str:
    """The observation of an input's rows: how many were read (`rows`), and of these in time and good (`kept`)."""
    return f"{name}_read"


def observed(metrics: Mapping[str, Any], name: str, term: str = "rows") -> int:
    """A count that the stream observed in this batch, 0 where nothing flowed."""
    return int(metrics.get(name, {}).get(term) or 0)
