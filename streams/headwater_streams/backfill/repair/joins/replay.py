"""A join made again for some of its left rows: the job's function over them and the right rows near them, as a batch.

Late rows of both sides take part: that is how a repair folds them in.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.commits import with_live_commits
from headwater_streams.backfill.repair.input import RowInput, cut_at, first_to_last
from headwater_streams.backfill.repair.joins.alone import is_alone, keeps_rights, of_range
from headwater_streams.backfill.repair.joins.times import reach_us
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan, PinnedInput
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges
from headwater_streams.delta.side import quarantine_rows
from headwater_streams.operators.joins.as_of import Answering, AsOf, answering
from headwater_streams.operators.joins.columns import READ_BEFORE
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.recording import Place, counting
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.columns import speaking_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.failing_rows import FailingByInput
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.kept_input import gone_until
from headwater_streams.runtime.stages.narrowing import Place as RecordPlace
from headwater_streams.runtime.stages.narrowing import problem_of
from headwater_streams.runtime.stages.watermark import Watermark
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS, SOURCES
from headwater_streams.sources.decode import BAD, Decoded, RowDecoder
from headwater_streams.sources.inputs import TableInput
from headwater_streams.spark.columns import col
from headwater_streams.spark.hidden_columns import hide, reveal

_LATE, _TIME, _OTHER_TIME = "_late", "_time_us", "_other_time_us"
_LAST_US = 253_402_300_799_000_000
"""The end of the year 9999; as long before 1970 there are no times either."""


def count_joined(rows: DataFrame, plan: JobPlan) -> dict[str, int]:
    """`rows`, and how many left rows they have: `matched`, with a partner, and `unmatched`, without one; and
    `right_alone`, right rows without one."""
    assert isinstance(plan.operator, IntervalJoin | AsOf)
    # Of a semi join a row has a partner, which it does not name.
    unmatched = F.col(SOURCES)[1].isNull() & F.lit(plan.operator.how != "semi")
    each = rows.groupBy(*PLACE).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bool_and(is_alone()).alias("right_alone"),
        F.bool_and(unmatched).alias("unmatched"),
    )
    found = each.agg(
        F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"),
        F.count_if(~F.col("right_alone") & ~F.col("unmatched")).alias("matched"),
        F.count_if("unmatched").alias("unmatched"),
        F.count_if("right_alone").alias("right_alone"),
    ).first()
    assert found is not None
    return {name: int(value) for name, value in found.asDict().items()}


@dataclass(frozen=True)
class Joined:
    """A part of the result that is about to be computed.

    Attributes:
        rows: The rows, with the target's columns.
        terms: Gives the account, once the rows have been written; it is given them as they were.
        rejected: The bad rows that were read, as quarantine holds them, but right ones among those of earlier parts,
            which it is given; None where there are none.
        given: The rows that the function is given, with their coordinates, by input.
    """

    rows: DataFrame
    terms: Callable[[DataFrame], dict[str, int]]
    rejected: Callable[[DataFrame | None], DataFrame | None]
    given: Mapping[str, DataFrame]

    def release(self) -> None:
        """See `Prepared`: nothing is kept."""


class JoinReplay:
    """Both inputs of a join, each at one version, joined again."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        backfill: BackfillPlan,
        entries: Sequence[LedgerEntry],
        failing: FailingByInput = MappingProxyType({}),
    ) -> None:
        """Args: the job; its repair; its batches up to the version that was planned on; the rows for which the function
        is known to raise."""
        assert backfill.pinned is not None
        assert backfill.partner is not None
        self._context, self._plan, self._backfill = context, plan, backfill
        self._entries, self._failing = entries, failing
        self._is_as_of = isinstance(plan.operator, AsOf)
        self._left, self._right = plan.sides
        self._pinned: Mapping[str, PinnedInput] = {self._left: backfill.pinned, self._right: backfill.partner}
        self._watermark_us = Watermark.of(entries[-1]).at_us

    def leaving_out(self, failing: FailingByInput) -> "JoinReplay":
        """The same without some rows, for which the function raises."""
        return JoinReplay(self._context, self._plan, self._backfill, self._entries, failing)

    def read_by(self, lefts: Ranges, rights: Ranges) -> dict[str, Decoded]:
        """The rows of each side that are judged where the rows of some offsets are joined again."""
        of_left, of_right = Offsets.of([lefts]).condition(), Offsets.of([rights]).condition()
        return {
            self._left: self._decoded(self._left, of_left),
            self._right: self._decoded(self._right, self._near(lefts) | of_right),
        }

    def join(self, lefts: Ranges, rights: Ranges) -> Joined:
        """The rows of the result that belong to the left rows of some offsets, and to right rows of some alone."""
        of_left, of_right = Offsets.of([lefts]).condition(), Offsets.of([rights]).condition()
        near = of_left
        if rights:
            near |= Offsets.of([self._backfill.lefts]).condition() & self._near_rights(rights)
        left = self._decoded(self._left, near)
        right = self._decoded(self._right, self._near(lefts) | of_right)
        given = {self._left: good_of(left), self._right: good_of(right)}
        counts = left.frame.filter(of_left).agg(
            F.count(F.lit(1)).alias("read"),
            F.count_if(F.col(BAD)).alias("quarantined"),
            F.count_if(~F.col(BAD) & F.col(_LATE)).alias("late_folded"),
        )
        result, entered = self._answered(given) if self._is_as_of else self._paired(given, of_left)
        if keeps_rights(self._plan):
            result = of_range(self._context, self._backfill, result).filter(of_left | of_right)

        def terms(written: DataFrame) -> dict[str, int]:
            seen, joined, came = counts.first(), count_joined(written, self._plan), entered()
            assert seen is not None
            return {
                **{name: int(value) for name, value in seen.asDict().items()},
                "matched": joined["matched"],
                "unmatched": came - joined["matched"],
                "right_alone": joined["right_alone"],
                "filtered": int(seen["read"] - seen["quarantined"]) - came,
                "written": joined["rows"],
            }

        def rejected(before: DataFrame | None) -> DataFrame | None:
            sides = [self._quarantined(left, of_left), self._quarantined(right, F.lit(True))]
            if before is not None:
                sides[1] = sides[1].join(before.select(*PLACE), list(PLACE), "left_anti")
            both = sides[0].unionByName(sides[1])
            return None if both.isEmpty() else both

        made = with_live_commits(self._context, self._backfill, result, of_left | of_right)
        return Joined(made, terms, rejected, given)

    def _quarantined(self, decoded: Decoded, which: Column) -> DataFrame:
        bad = decoded.rejected(decoded.frame.filter(F.col(BAD) & which))
        return quarantine_rows(bad, self._backfill.batch, self._backfill.generation)

    def late_lefts(self) -> DataFrame:
        """The left rows that came too late for the live job."""
        return self._late(self._left)

    def late_rights(self) -> DataFrame:
        """The right rows that came too late for it."""
        return self._late(self._right)

    def rights(self, ranges: Ranges) -> DataFrame:
        """The right rows of some offsets."""
        return good_of(self._decoded(self._right, Offsets.of([ranges]).condition()))

    def partly_covered(self, rights: Collection[RecordPlace], lefts: Ranges) -> frozenset[RecordPlace]:
        """Those of some right rows that may have partners among the left rows of some offsets, and among others."""
        which = Offsets.at(rights)
        rows = pinned_table(self._context, self._pinned[self._right])
        near = rows.filter(which.condition() & self._near(lefts))
        near = near.select(*PLACE, F.unix_micros(self._time(self._right)).alias(_TIME))
        others = pinned_table(self._context, self._pinned[self._left])
        others = others.filter(~Offsets.of([lefts]).condition())
        others = others.select(F.unix_micros(self._time(self._left)).alias(_OTHER_TIME))
        before_us, after_us = reach_us(self._plan.operator)
        reaches = F.col(_OTHER_TIME).between(F.col(_TIME) - before_us, F.col(_TIME) + after_us)
        found = near.join(others, reaches, "left_semi").select(*PLACE).collect()
        return frozenset((topic, partition, offset) for topic, partition, offset in found)

    def rights_near(self, lefts: Ranges) -> Ranges:
        """The offsets, from the first to the last, of the right rows that may be partners of left rows, by their
        times."""
        return first_to_last(pinned_table(self._context, self._pinned[self._right]).filter(self._near(lefts)))

    def closed_rights(self, read: Ranges, until_us: int) -> tuple[Ranges, int]:
        """Of the offsets of right rows that were read, those before each partition's first row at a time or later.

        Args:
            read: The offsets.
            until_us: The time, microseconds.

        Returns:
            These offsets, and the earliest time of a row behind them that came in time; `until_us`, if none is earlier.
        """
        time_us = F.unix_micros(self._time(self._right))
        rows = pinned_table(self._context, self._pinned[self._right])
        rows = rows.filter(Offsets.of([read]).condition() & ~self._is_late(self._right))
        firsts = first_to_last(rows.filter(time_us >= until_us))
        closed, behind = cut_at(read, firsts)
        first = rows.filter(Offsets.of([behind]).condition()).agg(F.min(time_us)).first()
        assert first is not None
        return closed, min(until_us, until_us if first[0] is None else first[0])

    def lefts_near(self, rights: DataFrame, source: RowInput, read: Ranges) -> Ranges:
        """The offsets, of those that were read, of the left rows that may be partners of right rows, by their times.

        Args:
            rights: The right rows.
            source: The left input.
            read: The offsets.
        """
        times_us = self._times_us(self._right, rights)
        if times_us is None:
            return {}
        before_us, after_us = reach_us(self._plan.operator)
        return source.of_event_time(read, (times_us[0] - before_us, times_us[1] + after_us + 1))

    def judge_input(self, ranges: Ranges, chunk: int) -> None:
        """Judges the checks of the inputs over the left rows of some offsets; with the first step the right ones, too.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        gate = CheckGate(self._plan.job, "input")
        if not gate:
            return
        lefts = self._decoded(self._left, Offsets.of([ranges]).condition())
        sides = [lefts, *([] if chunk else [self._decoded(self._right)])]
        for side in sides:
            rows = good_of(side)
            gate.over(rows).judge_rows(rows, chunk)

    def _late(self, name: str) -> DataFrame:
        decoded = self._decoded(name)
        late = decoded.frame.filter(~F.col(BAD) & F.col(_LATE))
        return late.select(*decoded.columns.values(), *ROW_COLUMNS)

    def _near(self, lefts: Ranges) -> Column:
        """Which right rows may be partners of the left rows of some offsets, by their times."""
        before_us, after_us = reach_us(self._plan.operator)
        return self._around(self._right, self._left, lefts, after_us, before_us)

    def _near_rights(self, rights: Ranges) -> Column:
        """Which left rows may be partners of the right rows of some offsets, by their times."""
        before_us, after_us = reach_us(self._plan.operator)
        return self._around(self._left, self._right, rights, before_us, after_us)

    def _around(self, name: str, other: str, ranges: Ranges, before_us: int, after_us: int) -> Column:
        """Which rows of a side are, by their times, so long before or after the other side's rows of some offsets."""
        rows = pinned_table(self._context, self._pinned[other]).filter(Offsets.of([ranges]).condition())
        times_us = self._times_us(other, rows)
        if times_us is None:
            return F.lit(False)
        time = self._time(name)
        near = time <= F.timestamp_micros(F.lit(min(times_us[1] + after_us, _LAST_US)))
        return near & (time >= F.timestamp_micros(F.lit(max(times_us[0] - before_us, -_LAST_US))))

    def _time(self, name: str) -> Column:
        """The event time of an input."""
        return col(str(self._plan.job.inputs[name].event_time))

    def _times_us(self, name: str, rows: DataFrame) -> tuple[int, int] | None:
        """The first and the last event time of rows of an input, microseconds; None where there is no row."""
        time_us = F.unix_micros(self._time(name))
        found = rows.agg(F.min(time_us).alias("first"), F.max(time_us).alias("last")).first()
        assert found is not None
        return None if found["first"] is None else (found["first"], found["last"])

    def _decoded(self, name: str, which: Column | None = None) -> Decoded:
        """Some rows of a side, or all, bad ones and late ones marked."""
        rows, declared = pinned_table(self._context, self._pinned[name]), self._plan.job.inputs[name]
        assert isinstance(declared, TableInput)
        if which is not None:
            rows = rows.filter(which)
        checks = speaking_of(rows, self._plan.job.quarantining)
        columns = self._plan.inputs[name].fieldNames()
        decoded = RowDecoder(declared, columns, checks).decode(rows.withColumn(_LATE, self._is_late(name)))
        failing = self._failing.get(name)
        return decoded.with_problem(decoded.frame, problem_of(failing)) if failing else decoded

    def _is_late(self, name: str) -> Column:
        """True for a row of a side that came too late for the live job."""
        watermark = self._plan.job.inputs[name].watermark
        # The left side of an as-of join is never late: its rows can be answered whenever they come.
        if watermark is None or (self._is_as_of and name == self._left):
            return F.lit(False)
        return F.coalesce(self._time(name) <= gone_until(watermark), F.lit(False))

    def _paired(self, given: Mapping[str, DataFrame], of_left: Column) -> tuple[DataFrame, Callable[[], int]]:
        lefts: list[DataFrame] = []

        def take(rows: DataFrame, place: Place) -> DataFrame:
            if place == "left":
                lefts.append(rows)
            return rows

        with counting(take):
            result = self._plan.job.function(**{n: hide(rows, ROW_COLUMNS) for n, rows in given.items()})
        # Counted apart: where a side is empty Spark leaves out the other one, and what is observed of it.
        return reveal(result, [*ROW_COLUMNS, SOURCES]), lefts[0].filter(of_left).count

    def _answered(self, given: Mapping[str, DataFrame]) -> tuple[DataFrame, Callable[[], int]]:
        asked = Answering(None, self._watermark_us)
        hidden = [*ROW_COLUMNS, READ_BEFORE]
        inputs = {n: hide(rows.withColumn(READ_BEFORE, F.lit(False)), hidden) for n, rows in given.items()}
        with answering(asked):
            result = self._plan.job.function(**inputs)
        return reveal(result, [*ROW_COLUMNS, SOURCES]), lambda: int(asked.left.get()["fresh"])


def good_of(decoded: Decoded) -> DataFrame:
    """The rows that the function is given, with their coordinates."""
    return decoded.frame.filter(~F.col(BAD)).select(*decoded.columns.values(), *ROW_COLUMNS)
