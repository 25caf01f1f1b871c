"""Rows for which a join's function raises together with a row of the other side, and not alone.

    return found.select("id", F.expr("a / b").alias("share"))       b is 0 in a right row: it raises for its pairs

The batch's rows are joined once more, with each other and with those of batches before that may be their partners. The
function is computed for parts of these pairs, which shows the rows to blame; see `pairs`. That costs the join of one
batch, and some twenty parts of its pairs for each row.

Pairs of two rows of batches before are left out: they were computed when the later row came.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros
from headwater_streams.base.ledger_entry import Ranges, count_of
from headwater_streams.operators.joins.columns import READ_BEFORE
from headwater_streams.operators.joins.interval import PAIR, IntervalJoin, pairs_of
from headwater_streams.operators.recording import recording
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.failing_rows import FailingByInput, find_failing
from headwater_streams.runtime.stages.narrowing import (
    Place,
    is_of_others,
    key_of,
    may_be_of_rows,
    place_key,
    problem_of,
    require_few,
    spell_place,
)
from headwater_streams.runtime.stages.pairs import NotOfPairsError, Pair, Which, blamed
from headwater_streams.runtime.stages.stateful import StatefulInput
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS, SOURCES
from headwater_streams.spark.columns import col
from headwater_streams.spark.frames import compute
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.spark.spark_errors import row_error_message

_AS_A_PAIR = "(as a pair with"
_NUMBER, _LEFT, _RIGHT = "_number", "_left_key", "_right_key"


@dataclass(frozen=True)
class SideRows:
    """The rows of one input, as the function gets them, with their coordinates.

    Attributes:
        rows: Those of the batch.
        before: Those of batches before that they may be paired with; None where there are none.
    """

    rows: DataFrame
    before: DataFrame | None = None


def find_failing_pairs(
    plan: JobPlan,
    sides: Mapping[str, SideRows],
    ranges: Mapping[str, Ranges],
    who: str,
    preferred: FailingByInput,
    batches: int = 1,
) -> FailingByInput:
    """The rows of a batch that are to blame for the pairs for which the function raises.

    Args:
        plan: The job, which joins two streams within a bound of time.
        sides: The rows of both inputs.
        ranges: The offsets of those of the batch, by input.
        who: The job and the batch, for a sentence.
        preferred: Rows that are to blame sooner than others.
        batches: Of how many batches of the job the rows are.

    Returns:
        It is empty where no pair is to blame.

    Raises:
        RowErrorsError: There are more of them than the job allows.
    """
    assert isinstance(plan.operator, IntervalJoin)
    records = sum(map(count_of, ranges.values()))
    most = plan.job.max_errors.most(records, batches)
    sooner = [(side, place) for side, name in enumerate(plan.sides) for place in preferred.get(name, ())]
    failing: dict[str, dict[Place, str]] = {}
    with ExitStack() as kept:
        pairs = _Pairs(plan, sides, kept)
        # Behind a semi join the function gets left rows alone.
        falls_on = 0 if plan.operator.how == "semi" else 1
        try:
            for each in blamed(pairs, preferred=sooner, falls_on=falls_on):
                side, place = each.member
                other = spell_place(each.pair.places[1 - side])
                reason = f"{row_error_message(each.error)} {_AS_A_PAIR} {other})"
                failing.setdefault(plan.sides[side], {})[place] = reason
                rows = [row for of_input in failing.values() for row in of_input.items()]
                require_few(rows, most, records, who)
        except NotOfPairsError:
            return {}
    return failing


def find_in_batch(
    plan: JobPlan,
    stateful: Mapping[str, StatefulInput],
    inputs: Mapping[str, BatchInput],
    watermark_ms: int,
    who: str,
    error: Exception,
    preferred: FailingByInput,
) -> FailingByInput:
    """The rows of a running job's batch for which the function raises; where that is no row alone, those of pairs.

    Args:
        plan: The job.
        stateful: Its inputs of which the batch reads something.
        inputs: What it reads of them.
        watermark_ms: The watermark that it runs with.
        who: The job and the batch, for a sentence.
        error: What the batch ended with.
        preferred: Rows that are to blame for a pair sooner than others.

    Raises:
        RowErrorsError: There are more of them than the job allows.
    """
    frames = {name: each.rows_for_function(inputs[name], watermark_ms) for name, each in stateful.items()}
    ranges = {name: inputs[name].source.ranges for name in stateful}
    failing = find_failing(plan, frames, ranges, who, error)
    if failing or not isinstance(plan.operator, IntervalJoin) or {*stateful} != {*plan.sides}:
        return failing
    times_us = _times_of_partners(plan, frames)
    sides = {
        name: SideRows(frames[name], each.earlier_rows_for_function(inputs[name], times_us))
        for name, each in stateful.items()
    }
    return find_failing_pairs(plan, sides, ranges, who, preferred)


def find_all_failing(
    plan: JobPlan,
    frames: Mapping[str, DataFrame],
    ranges: Mapping[str, Ranges],
    who: str,
    error: Exception,
    preferred: Callable[[], FailingByInput],
    batches: int = 1,
) -> FailingByInput:
    """The rows for which the function raises, alone or in a pair, among all rows that may be partners.

    Args:
        plan: The job.
        frames: The rows that the function gets, with their coordinates, by input.
        ranges: Their offsets, by input.
        who: The job and the step, for a sentence.
        error: What this ended with.
        preferred: Gives the rows that are to blame for a pair sooner than others; it is called where pairs are tried.
        batches: Of how many batches of the job the rows are.

    Raises:
        RowErrorsError: There are more of them than the job allows.
    """
    failing = find_failing(plan, frames, ranges, who, error, batches)
    if not isinstance(plan.operator, IntervalJoin) or not may_be_of_rows(plan.job, error):
        return failing
    sides = {name: SideRows(rows) for name, rows in without_rows(frames, failing).items()}
    return merged(failing, find_failing_pairs(plan, sides, ranges, who, preferred(), batches))


def without_rows(frames: Mapping[str, DataFrame], failing: FailingByInput) -> dict[str, DataFrame]:
    """The rows of each input but the failing ones."""
    return {
        name: rows.filter(~problem_of(failing[name]).condition) if failing.get(name) else rows
        for name, rows in frames.items()
    }


def merged(one: FailingByInput, other: FailingByInput) -> FailingByInput:
    """The failing rows of both."""
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {*one, *other}}


def blamed_for_pairs(rows: Mapping[Place, str]) -> list[Place]:
    """Those of some failing rows, with their reasons, that are to blame for a pair."""
    return [place for place, why in rows.items() if _AS_A_PAIR in why]


def _times_of_partners(plan: JobPlan, frames: Mapping[str, DataFrame]) -> tuple[int, int] | None:
    """The event times that partners of some rows may have, in microseconds, `[start, end)`; None where any may be."""
    assert isinstance(plan.operator, IntervalJoin)
    if plan.foreign_time is not None:
        return None
    bounds: list[int] = []
    for name, rows in frames.items():
        time_us = F.unix_micros(col(str(plan.job.inputs[name].event_time)))
        first_and_last = rows.agg(F.min(time_us), F.max(time_us)).first()
        assert first_and_last is not None
        bounds += [each for each in first_and_last if each is not None]
    within_us = in_micros(plan.operator.within)
    return (min(bounds) - within_us, max(bounds) + within_us + 1) if bounds else (0, 0)


class _Pairs:
    """The pairs of two sides, joined once and kept; see `pairs.Pairs`."""

    def __init__(self, plan: JobPlan, sides: Mapping[str, SideRows], kept: ExitStack) -> None:
        assert isinstance(plan.operator, IntervalJoin)
        self._function = plan.job.function
        names = [*ROW_COLUMNS, READ_BEFORE]
        self._inputs = {name: hide(_both(side), names) for name, side in sides.items()}
        with recording() as recorder:
            self._function(**self._inputs)
        handed = recorder.uses[0].handed
        pairs = pairs_of(handed["left"], handed["right"], plan.operator)
        self._columns = [name for name in pairs.columns if name not in (*ROW_COLUMNS, SOURCES, PAIR)]
        keyed = pairs.withColumn(_LEFT, place_key(f"{PAIR}.left."))
        keyed = keyed.withColumn(_RIGHT, place_key(f"{PAIR}.right."))
        order = [F.col(f"{PAIR}.{side}.{name}") for side in ("right", "left") for name in PLACE]
        # In one partition the numbers have no gaps; a window without partitions would give a warning of Spark's.
        numbered = keyed.repartition(1).sortWithinPartitions(*order)
        self._pairs = numbered.withColumn(_NUMBER, F.monotonically_increasing_id()).persist()
        kept.callback(self._pairs.unpersist)
        self.count = self._pairs.count()

    def error_of(self, which: Which) -> Exception | None:
        """See `Pairs`."""
        hidden = [*ROW_COLUMNS, SOURCES]
        some = self._pairs.filter(_condition(which)).select(*map(col, self._columns), *hidden)
        try:
            with recording(standing_in=lambda _joined: hide(some, hidden)):
                result = self._function(**self._inputs)
            compute(result)
        except Exception as error:
            if is_of_others(error):
                raise
            return error
        return None

    def numbers(self, which: Which) -> Sequence[int]:
        """See `Pairs`."""
        numbers = self._pairs.filter(_condition(which)).select(_NUMBER)
        return sorted(row[0] for row in numbers.collect())

    def at(self, number: int) -> Pair:
        """See `Pairs`."""
        row = self._pairs.filter(F.col(_NUMBER) == number).select(f"{PAIR}.left", f"{PAIR}.right").first()
        assert row is not None
        left, right = row
        return Pair((_place(left), _place(right)), (not left[READ_BEFORE], not right[READ_BEFORE]))


def _both(side: SideRows) -> DataFrame:
    rows = side.rows.withColumn(READ_BEFORE, F.lit(False))
    if side.before is None:
        return rows
    return rows.unionByName(side.before.withColumn(READ_BEFORE, F.lit(True)))


def _condition(which: Which) -> Column:
    condition = (F.col(_NUMBER) >= which.start) & (F.col(_NUMBER) < which.end)
    if which.of is not None:
        side, place = which.of
        condition &= F.col((_LEFT, _RIGHT)[side]) == key_of(place)
    for side, name in enumerate((_LEFT, _RIGHT)):
        without = [F.lit(key_of(place)) for of_side, place in sorted(which.without) if of_side == side]
        if without:
            condition &= ~F.array_contains(F.array(*without), F.col(name))
    return condition


def _place(row: Sequence[object]) -> Place:
    topic, partition, offset = row[: len(PLACE)]
    return str(topic), int(str(partition)), int(str(offset))
