"""What window and join stages share: rows split before Spark's watermark could drop them without a trace.

A row is *bad* when it has no event time or fails a quarantine check, *late* when its state is gone: both are decided
on the row alone, with `_seen_until`, so that every reading of it decides alike. The stream drops both; the batch reads
its rows back from the same files, and commits them to the side tables before the main table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.durations import interval_sql, parse_duration
from headwater_streams.ledger.entry import LedgerEntry, Partitions, SourceRange
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.gates import speaking_of
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.operators import Place
from headwater_streams.runtime.plan import JobPlan, require_ingest
from headwater_streams.sinks.side import MISSED, late_schema, quarantine_rows, write_side
from headwater_streams.sources.coordinates import (
    INPUT,
    PARTITION,
    ROW_COLUMNS,
    SEEN_UNTIL,
    TOPIC,
    changing,
    commit_columns,
    hide,
)
from headwater_streams.sources.decode import BAD, VALUE, Decoded, RowDecoder
from headwater_streams.sources.inputs import TableInput
from headwater_streams.windows.spec import CLOSED_UNTIL

_LATE, _PARTLY = "_late", "_partly_late"


class Overlap(Protocol):
    """How a row's windows close one after the other; see `windows.overlapping`."""

    def first_closes(self) -> Column:
        """When the first of a row's windows closes."""

    def windows(self) -> Column:
        """A row's windows, in the order of their ends."""


@dataclass(frozen=True)
class SplitBatch:
    """One input's rows of a batch, read back.

    Attributes:
        in_time: The rows that state was fed with, with their coordinates.
        late: How many were late.
        quarantined: How many were bad.
        partitions: The same by topic and partition: `read`, `kept`, `late`, `quarantined`.
        partly_late: How many of those in time came when some of their windows were closed.
    """

    in_time: DataFrame
    late: int
    quarantined: int
    partitions: Partitions
    partly_late: int = 0


class StatefulInput:
    """One input of a stateful stage: the stream into the state, and the read-back of a batch."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        generation: int,
        name: str,
        closes: Callable[[], Column] | None,
        overlap: Overlap | None = None,
    ) -> None:
        """Prepares to read one input.

        Args:
            context: What the stage has.
            plan: The job.
            generation: Its generation.
            name: The input's name.
            closes: When the state of a row is gone, as a column over its rows; None where state is never dropped.
            overlap: How the windows of a row close, where it is in several.
        """
        declared = plan.job.inputs[name]
        assert isinstance(declared, TableInput), "the runner puts an ingest table before a topic"
        self.name = name
        self.reader = InputReader(context, name, declared, plan.job.name)
        self._context, self._plan, self._generation = context, plan, generation
        self._declared = declared
        self._closes, self._overlap = closes, overlap
        self._columns = plan.inputs[name].fieldNames()

    def prepare(self) -> None:
        """Checks that lateness can be told of the table's rows."""
        if self._closes is not None:
            require_ingest(self._plan.job, self._declared, self.reader.schema)

    def stream(self) -> DataFrame:
        """The rows for the function: in time, with Spark's watermark, coordinates hidden."""
        rows = self.reader.stream().observe(f"{self.name}_read", F.count(F.lit(1)).alias("rows"))
        split = self._split(rows)
        in_time = split.frame.filter(~F.col(_LATE) & ~F.col(BAD))
        counts = [F.count(F.lit(1)).alias("rows")]
        hidden = list(ROW_COLUMNS)
        if self._overlap is not None:
            counts.append(F.count(F.when(F.col(_PARTLY), 1)).alias("partly_late"))
            hidden.append(CLOSED_UNTIL)
        kept = in_time.observe(f"{self.name}_kept", *counts).select(*split.columns.values(), *hidden)
        if self._closes is not None:
            assert self._declared.event_time is not None
            assert self._declared.watermark is not None
            kept = kept.withWatermark(self._declared.event_time, self._declared.watermark)
        return hide(kept, hidden)

    def divert(self, batch: int, batch_input: BatchInput, metrics: Mapping[str, Any]) -> SplitBatch:
        """Commits a batch's bad and late rows to their side tables.

        Args:
            batch: The batch.
            batch_input: What it read.
            metrics: What the stream observed; where it kept every row there is nothing to divert.
        """
        partly_late = observed(metrics, f"{self.name}_kept", "partly_late")
        all_kept = observed(metrics, f"{self.name}_read") == observed(metrics, f"{self.name}_kept")
        if all_kept and not partly_late:
            rows = self.reader.read_back(batch_input).select(*self._columns, *ROW_COLUMNS)
            return SplitBatch(rows, 0, 0, _all_kept(batch_input.files))
        decoded = self._split(self.reader.read_back(batch_input))
        split = decoded.frame.persist()
        try:
            bad = F.col(BAD)
            bad_rows = split.filter(bad)
            partitions = _counted(split, bad)
            terms = [terms for found in partitions.values() for terms in found.values()]
            late, quarantined = (sum(t[name] for t in terms) for name in ("late", "quarantined"))
            if quarantined:
                self._context.step(self._plan.job.name, "before quarantine", batch)
                rows = quarantine_rows(decoded.rejected(bad_rows), batch, self._generation)
                self._write(
                    "quarantined",
                    self._plan.job.target.quarantine_table,
                    rows,
                    batch,
                    batch_input,
                    quarantined,
                )
            if (late or partly_late) and self._plan.job.late == "table":
                self._context.step(self._plan.job.name, "before late", batch)
                missed = F.col(_LATE) if self._overlap is None else F.col(_LATE) | F.col(_PARTLY)
                rows = self._late_rows(split.filter(~bad & missed), batch)
                total = late + partly_late
                self._write("late", self._plan.job.target.late_table, rows, batch, batch_input, total)
        finally:
            split.unpersist()
        in_time = split.filter(~bad & ~F.col(_LATE)).select(*decoded.columns.values(), *ROW_COLUMNS)
        return SplitBatch(in_time, late, quarantined, partitions, partly_late)

    def in_time_between(self, version: int, start_us: int | None, end_us: int) -> DataFrame:
        """The rows in time of the table's versions up to this one whose event time is in `[start_us, end_us)`.

        Args:
            version: The version; -1 for a table without rows.
            start_us: The first microsecond since the epoch; None for all that is before `end_us`.
            end_us: One past the last.

        Raises:
            DataLossError: The log of that version is gone.
        """
        rows = self.reader.read_between(version, start_us, end_us)
        time_us = F.unix_micros(F.col(f"`{self._declared.event_time}`"))
        inside = time_us < changing(F.lit(end_us))
        if start_us is not None:
            inside &= time_us >= changing(F.lit(start_us))
        split = self._split(rows.filter(inside))
        in_time = split.frame.filter(~F.col(BAD) & ~F.col(_LATE))
        return in_time.select(*split.columns.values(), *ROW_COLUMNS)

    def _split(self, rows: DataFrame) -> Decoded:
        """Every row with `_bad` and `_late`; where windows overlap also with `_partly_late` and `_missed`."""
        taking_aside = [c for c in self._plan.job.checks_for("input", "row") if c.action == "quarantine"]
        checks = speaking_of(rows, taking_aside)
        decoded = RowDecoder(self._declared, self._columns, checks).decode(rows)
        if self._closes is None:
            return replace(decoded, frame=decoded.frame.withColumn(_LATE, F.lit(False)))
        assert self._declared.watermark is not None
        threshold = F.col(SEEN_UNTIL) - F.expr(interval_sql(parse_duration(self._declared.watermark)))
        late = F.coalesce(self._closes() <= threshold, F.lit(False))
        marks = {_LATE: late}
        if self._overlap is not None:
            first = F.coalesce(self._overlap.first_closes() <= threshold, F.lit(False))
            marks |= {_PARTLY: ~late & first, CLOSED_UNTIL: threshold}
        # The windows speak of the function's columns, which stand in `columns`; the frame has them for this step.
        names = decoded.frame.columns
        wide = decoded.frame.select("*", *decoded.columns.values())
        frame = wide.select(*names, *[mark.alias(name) for name, mark in marks.items()])
        return replace(decoded, frame=frame)

    def _late_rows(self, late: DataFrame, batch: int) -> DataFrame:
        there = set(self._columns)
        columns = [
            F.col(f"{VALUE}.`{f.name}`").cast(f.dataType).alias(f.name)
            if f.name in there
            else F.lit(None).cast(f.dataType).alias(f.name)
            for f in late_schema(self._plan.inputs).fields
            if not f.name.startswith("_")
        ]
        missed: list[Column] = []
        if self._overlap is not None:
            late = late.select("*", F.col(f"{VALUE}.`{self._declared.event_time}`"))
            closed = F.filter(self._overlap.windows(), lambda w: w["end"] <= F.col(CLOSED_UNTIL))
            missed = [closed.alias(MISSED)]
        return late.select(
            *columns,
            F.lit(self.name).alias(INPUT),
            *missed,
            *ROW_COLUMNS,
        ).withColumns(commit_columns(batch, self._generation))

    def _write(
        self, term: str, table: str, rows: DataFrame, batch: int, batch_input: BatchInput, expected: int
    ) -> None:
        job = self._plan.job
        entry = LedgerEntry(
            job.name,
            self._generation,
            batch,
            table,
            "side",
            (batch_input.source,),
            {self.name: {term: expected}},
            job.fingerprint,
        )
        # Each input commits on its own, so each has a mark of its own.
        app_id = f"{job.app_id(self._generation)}/{self.name}"
        transaction = self._context.transaction(self._context.home.table(table))
        write_side(transaction, rows, app_id, entry, expected)


def _all_kept(files: Sequence[str]) -> dict[str, dict[int, dict[str, int]]]:
    if not files:
        return {}
    places = ds.dataset(list(files)).to_table([TOPIC, PARTITION]).group_by([TOPIC, PARTITION])
    found: dict[str, dict[int, dict[str, int]]] = {}
    for row in places.aggregate([([], "count_all")]).to_pylist():
        count = row["count_all"]
        terms = {"read": count, "kept": count, "late": 0, "quarantined": 0}
        found.setdefault(row[TOPIC], {})[row[PARTITION]] = terms
    return found


def _counted(split: DataFrame, bad: Column) -> dict[str, dict[int, dict[str, int]]]:
    rows = split.groupBy(TOPIC, PARTITION).agg(
        F.count(F.lit(1)).alias("read"),
        F.count_if(~bad & ~F.col(_LATE)).alias("kept"),
        F.count_if(~bad & F.col(_LATE)).alias("late"),
        F.count_if(bad).alias("quarantined"),
    )
    found: dict[str, dict[int, dict[str, int]]] = {}
    for row in rows.collect():
        terms = {name: row[name] for name in ("read", "kept", "late", "quarantined")}
        found.setdefault(row[TOPIC], {})[row[PARTITION]] = terms
    return found


def late_terms(job: Job) -> dict[str, Any]:
    """What an entry's `extra` says of late rows: that they stand in no table, where they are only counted."""
    return {"late": "count"} if job.late == "count" else {}


def count_entering(rows: DataFrame, place: Place) -> DataFrame:
    """Observes the rows that a stream's function hands to its operator; see `entered`."""
    return rows.observe(f"headwater_entered_{place}", F.count(F.lit(1)).alias("rows"))


def entered(metrics: Mapping[str, Any], place: Place) -> int:
    """How many rows the operator was given in this batch; the others were filtered by the job's function."""
    return observed(metrics, f"headwater_entered_{place}")


def sources_of(inputs: Mapping[str, BatchInput]) -> tuple[SourceRange, ...]:
    """The ranges of all inputs, for the ledger entry."""
    return tuple(batch_input.source for batch_input in inputs.values())


def observed(metrics: Mapping[str, Any], name: str, term: str = "rows") -> int:
    """A count that the stream observed in this batch, 0 where nothing flowed."""
    return int(metrics.get(name, {}).get(term) or 0)
