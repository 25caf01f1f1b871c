"""What window and join stages share: rows split before Spark's watermark could drop them without a trace.

A row is *bad* when it has no event time or fails a quarantine check, *late* when its state is gone: both are decided
on the row alone, with `_seen_until`, so that every reading of it decides alike. The stream drops both; the batch reads
its rows back from the same files, and commits them to the side tables before the main table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.durations import interval_sql, parse_duration
from headwater_streams.ledger.entry import LedgerEntry, Partitions, SourceRange
from headwater_streams.quality.check import Check
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.operators import Place
from headwater_streams.runtime.plan import JobPlan, require_ingest
from headwater_streams.sinks.delta_table import ensure_table
from headwater_streams.sinks.side import INPUT, late_schema, quarantine_rows, quarantine_schema, write_side
from headwater_streams.sources.coordinates import (
    PARTITION,
    ROW_COLUMNS,
    SEEN_UNTIL,
    TOPIC,
    commit_columns,
    hide,
)
from headwater_streams.sources.decode import BAD, VALUE, Decoded, RowDecoder
from headwater_streams.sources.inputs import TableInput

_LATE = "_late"


@dataclass(frozen=True)
class SplitBatch:
    """One input's rows of a batch, read back.

    Attributes:
        in_time: The rows that state was fed with, with their coordinates.
        late: How many were late.
        quarantined: How many were bad.
        partitions: The same by topic and partition: `read`, `kept`, `late`, `quarantined`.
    """

    in_time: DataFrame
    late: int
    quarantined: int
    partitions: Partitions


class StatefulInput:
    """One input of a stateful stage: the stream into the state, and the read-back of a batch."""

    def __init__(
        self, context: StageContext, plan: JobPlan, generation: int, name: str, closes: Callable[[], Column]
    ) -> None:
        """Args: what the stage has; the input's name; when the state of a row is gone, as a column over its rows."""
        declared = plan.job.inputs[name]
        assert isinstance(declared, TableInput), "the runner puts an ingest table before a topic"
        assert declared.event_time is not None
        assert declared.watermark is not None
        self.name = name
        self.reader = InputReader(context, name, declared, plan.job.name)
        self._context, self._plan, self._generation = context, plan, generation
        self._declared, self._event_time, self._delay = declared, declared.event_time, declared.watermark
        self._closes = closes
        self._columns = plan.inputs[name].fieldNames()

    def prepare(self) -> None:
        """Checks that lateness can be told of the table's rows."""
        require_ingest(self._plan.job, self._declared, self.reader.schema)

    def stream(self) -> DataFrame:
        """The rows for the function: in time, with Spark's watermark, coordinates hidden."""
        rows = self.reader.stream().observe(f"{self.name}_read", F.count(F.lit(1)).alias("rows"))
        split = self._split(rows)
        in_time = split.frame.filter(~F.col(_LATE) & ~F.col(BAD))
        kept = in_time.select(*split.columns.values(), *ROW_COLUMNS).observe(
            f"{self.name}_kept", F.count(F.lit(1)).alias("rows")
        )
        return hide(kept.withWatermark(self._event_time, self._delay), ROW_COLUMNS)

    def divert(self, batch: int, batch_input: BatchInput, metrics: Mapping[str, Any]) -> SplitBatch:
        """Commits a batch's bad and late rows to their side tables.

        Args:
            batch: The batch.
            batch_input: What it read.
            metrics: What the stream observed; where it kept every row there is nothing to divert.
        """
        if observed(metrics, f"{self.name}_read") == observed(metrics, f"{self.name}_kept"):
            rows = self.reader.read_back(batch_input).select(*self._columns, *ROW_COLUMNS)
            return SplitBatch(rows, 0, 0, _all_kept(batch_input.files))
        decoded = self._split(self.reader.read_back(batch_input))
        split = decoded.frame.persist()
        try:
            bad = F.col(BAD)
            late_rows, bad_rows = split.filter(~bad & F.col(_LATE)), split.filter(bad)
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
            if late and self._plan.job.late == "table":
                self._context.step(self._plan.job.name, "before late", batch)
                rows = self._late_rows(late_rows, batch)
                self._write("late", self._plan.job.target.late_table, rows, batch, batch_input, late)
        finally:
            split.unpersist()
        in_time = split.filter(~bad & ~F.col(_LATE)).select(*decoded.columns.values(), *ROW_COLUMNS)
        return SplitBatch(in_time, late, quarantined, partitions)

    def _split(self, rows: DataFrame) -> Decoded:
        """Every row with `_bad` and `_late`."""
        checks: tuple[Check, ...] = tuple(
            check
            for check in self._plan.job.checks_for("input", "row")
            if check.action == "quarantine" and _speaks_of(rows, check)
        )
        decoded = RowDecoder(self._declared, self._columns, checks).decode(rows)
        threshold = F.col(SEEN_UNTIL) - F.expr(interval_sql(parse_duration(self._delay)))
        names = decoded.frame.columns
        closes = decoded.frame.select("*", *decoded.columns.values()).select(
            *names, self._closes().alias("_closes")
        )
        late = F.coalesce(F.col("_closes") <= threshold, F.lit(False))
        return replace(decoded, frame=closes.withColumn(_LATE, late))

    def _late_rows(self, late: DataFrame, batch: int) -> DataFrame:
        there = set(self._columns)
        columns = [
            F.col(f"{VALUE}.`{f.name}`").cast(f.dataType).alias(f.name)
            if f.name in there
            else F.lit(None).cast(f.dataType).alias(f.name)
            for f in late_schema(self._plan.inputs).fields
            if not f.name.startswith("_")
        ]
        return late.select(
            *columns,
            F.lit(self.name).alias(INPUT),
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


def prepare_tables(context: StageContext, plan: JobPlan) -> None:
    """Makes the target and its side tables; they exist, empty, from the first start."""
    target = plan.job.target
    for name, schema in (
        (target.name, plan.target_schema),
        (target.quarantine_table, quarantine_schema()),
        (target.late_table, late_schema(plan.inputs)),
    ):
        ensure_table(context.spark, context.home.table(name), name, schema)


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


def _speaks_of(rows: DataFrame, check: Check) -> bool:
    from pyspark.errors import AnalysisException

    try:
        rows.filter(check.passes_sql)
    except AnalysisException:
        return False
    return True
