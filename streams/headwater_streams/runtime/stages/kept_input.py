"""An input of a stateful stage over a table that keeps its rows: the ingest table, or one of a row-by-row job.

Whether a row is late or bad depends on the row alone, with `_seen_until`, so that every reading decides alike: the
batch reads its rows back from the same files, and commits them to the side tables before the main table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.names import RECORD_COLUMNS, is_reserved
from headwater_streams.delta.side import MISSED, late_schema
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.windows.spec import CLOSED_UNTIL, FoldedWindow
from headwater_streams.plan.requirements import require_ingest
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.failing_rows import failed_before
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.stateful import (
    LATE,
    NEWEST,
    PARTLY_LATE,
    SplitBatch,
    StatefulInput,
    observed,
    read_metric,
)
from headwater_streams.sources.coordinates import (
    INPUT,
    PARTITION,
    PLACE,
    ROW_COLUMNS,
    SEEN_UNTIL,
    TOPIC,
    changing,
    commit_columns,
)
from headwater_streams.sources.decode import BAD, VALUE, Decoded, RowDecoder
from headwater_streams.sources.inputs import TableInput
from headwater_streams.spark.checkpoint import next_batch
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.storage.delta_rows import data_files

_LAST_US = 253_402_300_799_999_999
"""The end of the year 9999."""


def gone_until(delay: str, floor_us: int | None = None) -> Column:
    """The time up to which state is gone when a row comes, by what had been seen before it; NULL before anything was
    seen.

    Args:
        delay: How long rows are waited for, "1 hour".
        floor_us: State that ends here or before is gone in any case.
    """
    # In microseconds: to subtract an interval, Spark makes a date in a time zone of each row's time.
    until_us = F.unix_micros(SEEN_UNTIL) - F.lit(in_micros(parse_duration(delay)))
    # The greatest of a time and NULL is that time.
    return F.timestamp_micros(until_us if floor_us is None else F.greatest(until_us, F.lit(floor_us)))


@dataclass(frozen=True)
class KeptBatch(SplitBatch):
    """See `SplitBatch`.

    Attributes:
        in_time: The rows that state was fed with, with their coordinates.
    """

    in_time: DataFrame


class KeptInput(StatefulInput):
    """See `StatefulInput`."""

    _floor_us: int | None = None

    def prepare(self, last: LedgerEntry | None) -> None:
        """See `StatefulInput`: the table says of each row what had been seen before it."""
        if isinstance(self._plan.operator, FoldedWindow | IntervalJoin):
            # Spark drops what is at 1970 or before in a query that an older Headwater began, and that has no watermark.
            self._floor_us = 0 if next_batch(self._checkpoint)[1] == 0 else None
        if self._closes is not None:
            assert isinstance(self._declared, TableInput)
            require_ingest(self._plan.job, self._declared, self.reader.schema)
        again = self._read_again(last)
        if again is not None and again.versions is not None:
            self.reader.begin_at(again.versions[0])

    def stream(self) -> DataFrame:
        """See `StatefulInput`."""
        split = self._split(self.reader.stream())
        marks, hidden = [LATE, BAD], list(ROW_COLUMNS)
        kept = ~F.col(LATE) & ~F.col(BAD)
        counts = [F.count(F.lit(1)).alias("rows"), F.count(F.when(kept, 1)).alias("kept")]
        if self._plan.kind == "join":
            counts.append(
                F.max(F.when(kept, F.unix_micros(col(str(self._declared.event_time))))).alias(NEWEST)
            )
        if self._overlap is not None:
            counts.append(F.count(F.when(kept & F.col(PARTLY_LATE), 1)).alias("partly_late"))
            marks.append(PARTLY_LATE)
            hidden.append(CLOSED_UNTIL)
        # Taken from the value below the observation: above it Spark would make the whole value of each row first.
        narrow = split.frame.select(*split.columns.values(), *hidden, *marks)
        in_time = narrow.observe(read_metric(self.name), *counts).filter(kept).drop(*marks)
        return hide(self._with_watermark(in_time), hidden)

    def divert(self, batch: int, batch_input: BatchInput, metrics: Mapping[str, Any]) -> KeptBatch:
        """See `StatefulInput`; where the stream kept every row there is nothing to divert."""
        read = read_metric(self.name)
        partly_late = observed(metrics, read, "partly_late")
        self._none_rejected(observed(metrics, read))
        all_kept = observed(metrics, read) == observed(metrics, read, "kept")
        if all_kept and not partly_late:
            rows = self.reader.read_back(batch_input).select(*cols(self._columns), *ROW_COLUMNS)
            return KeptBatch(0, 0, _all_kept_terms(batch_input.files), 0, rows)
        decoded = self._split(self.reader.read_back(batch_input))
        split = decoded.frame.persist()
        try:
            bad = F.col(BAD)
            bad_rows = split.filter(bad)
            partitions = _terms_by_partition(split, bad)
            terms = [terms for of_topic in partitions.values() for terms in of_topic.values()]
            late, quarantined = (sum(t[name] for t in terms) for name in ("late", "quarantined"))
            if quarantined:
                self._quarantine(
                    decoded.rejected(bad_rows), batch, batch_input, quarantined, observed(metrics, read)
                )
            if (late or partly_late) and self._plan.job.late == "table":
                self._context.step(self._plan.job.name, "before late", batch)
                missed = F.col(LATE) if self._overlap is None else F.col(LATE) | F.col(PARTLY_LATE)
                rows = self._late_rows(split.filter(~bad & missed), batch)
                total = late + partly_late
                self._write_side("late", self._plan.job.target.late_table, rows, batch, batch_input, total)
        finally:
            split.unpersist()
        in_time = split.filter(~bad & ~F.col(LATE)).select(*decoded.columns.values(), *ROW_COLUMNS)
        return KeptBatch(late, quarantined, partitions, partly_late, in_time)

    def rows_for_function(self, batch_input: BatchInput, watermark_ms: int) -> DataFrame:
        """See `StatefulInput`."""
        return self._in_time(self._split(self.reader.read_back(batch_input)))

    def earlier_rows_for_function(
        self, batch_input: BatchInput, times_us: tuple[int, int] | None
    ) -> DataFrame:
        """See `StatefulInput`."""
        assert batch_input.source.versions is not None
        start_us, end_us = (None, _LAST_US + 1) if times_us is None else times_us
        start_us = None if start_us is None or start_us < -_LAST_US else start_us
        return self.in_time_between(batch_input.source.versions[0] - 1, start_us, min(end_us, _LAST_US + 1))

    def judge(self, batch: int, split: SplitBatch, metrics: Mapping[str, Any]) -> CheckGate:
        """See `StatefulInput`."""
        assert isinstance(split, KeptBatch)
        gate = CheckGate(self._plan.job, "input").over(split.in_time)
        gate.judge_rows(split.in_time, batch, before=self._memory.before)
        gate.results = {**self._rejected_by, **gate.results}
        return gate

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
        time_us = F.unix_micros(col(str(self._declared.event_time)))
        inside = time_us < changing(F.lit(end_us))
        if start_us is not None:
            inside &= time_us >= changing(F.lit(start_us))
        near = rows.filter(inside)
        if self._failed is not None:
            near = near.join(F.broadcast(self._failed), list(PLACE), "left_anti")
        return self._in_time(self._split(near))

    @cached_property
    def _failed(self) -> DataFrame | None:
        # A table: in a condition each of them would make the plan of every batch longer.
        return failed_before(
            self._context.spark, self._context.home.table(self._plan.job.target.quarantine_table)
        )

    @cached_property
    def _columns(self) -> list[str]:
        return self._plan.inputs[self.name].fieldNames()

    def _split(self, rows: DataFrame) -> Decoded:
        """Every row with `_bad` and `_late`."""
        decoder = RowDecoder(self._declared, self._columns, self._quarantining(rows))
        decoded = self._without_failing(decoder.decode(rows))
        if self._closes is None:
            return self._marked(decoded, None)
        assert self._declared.watermark is not None
        return self._marked(decoded, gone_until(self._declared.watermark, self._floor_us))

    def _late_rows(self, late: DataFrame, batch: int) -> DataFrame:
        present = set(self._columns)
        columns = [
            col(VALUE, f.name).cast(f.dataType).alias(f.name)
            if f.name in present
            else F.lit(None).cast(f.dataType).alias(f.name)
            for f in late_schema(self._plan.inputs).fields
            if not is_reserved(f.name) or f.name in RECORD_COLUMNS
        ]
        missed: list[Column] = []
        if self._overlap is not None:
            late = late.select("*", col(VALUE, str(self._declared.event_time)))
            closed = F.filter(self._overlap.windows(), lambda w: w["end"] <= F.col(CLOSED_UNTIL))
            missed = [closed.alias(MISSED)]
        return late.select(
            *columns,
            F.lit(self.name).alias(INPUT),
            *missed,
            *ROW_COLUMNS,
        ).withColumns(commit_columns(batch, self._generation))


def _all_kept_terms(files: Sequence[str]) -> dict[str, dict[int, dict[str, int]]]:
    if not files:
        return {}
    rows = data_files(files, dictionaries=[TOPIC]).to_table([TOPIC, PARTITION]).unify_dictionaries()
    places = rows.group_by([TOPIC, PARTITION])
    partitions: dict[str, dict[int, dict[str, int]]] = {}
    for row in places.aggregate([([], "count_all")]).to_pylist():
        count = row["count_all"]
        terms = {"read": count, "kept": count, "late": 0, "quarantined": 0}
        partitions.setdefault(row[TOPIC], {})[row[PARTITION]] = terms
    return partitions


def _terms_by_partition(split: DataFrame, bad: Column) -> dict[str, dict[int, dict[str, int]]]:
    rows = split.groupBy(TOPIC, PARTITION).agg(
        F.count(F.lit(1)).alias("read"),
        F.count_if(~bad & ~F.col(LATE)).alias("kept"),
        F.count_if(~bad & F.col(LATE)).alias("late"),
        F.count_if(bad).alias("quarantined"),
    )
    partitions: dict[str, dict[int, dict[str, int]]] = {}
    for row in rows.collect():
        terms = {name: row[name] for name in ("read", "kept", "late", "quarantined")}
        partitions.setdefault(row[TOPIC], {})[row[PARTITION]] = terms
    return partitions
