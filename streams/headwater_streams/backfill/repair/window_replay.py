"""Windows folded again from all their rows: the job's function over a closed part of its input table, as a batch.

Every row of a window counts, late ones too: that is how a backfill folds late rows in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from headwater_streams.backfill.history import Folded
from headwater_streams.backfill.repair.spec import Affected, BackfillPlan, PinnedInput
from headwater_streams.durations import interval_sql, parse_duration
from headwater_streams.quality.check import Check
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.sinks.delta_table import read_version
from headwater_streams.sources.coordinates import (
    BATCH,
    GENERATION,
    ROW_COLUMNS,
    ROWS,
    SEEN_UNTIL,
    hide,
    reveal,
)
from headwater_streams.sources.decode import BAD, VALUE, RowDecoder
from headwater_streams.sources.inputs import TableInput
from headwater_streams.windows.provenance import entering, with_sources
from headwater_streams.windows.spec import WINDOW_KEY
from headwater_streams.windows.tumbling import TumblingWindow

WINDOW_US = "_window_us"
"""The start of a row's window, in microseconds."""
_LATE = "_late"


@dataclass(frozen=True)
class Replayed:
    """A part of the result that is about to be computed.

    Attributes:
        rows: The rows, with the target's columns.
        counts: Of the rows that are read: how many they are, how many are bad, how many are folded in though late.
        entered: How many rows the function gave to its window; ready once the rows have been written.
        gate: The checks of the input, to be judged by `judge_input`.
    """

    rows: DataFrame
    counts: DataFrame
    entered: Observation
    gate: CheckGate


class WindowReplay:
    """The input of a windowed job at one version, and its windows folded again."""

    def __init__(self, context: StageContext, plan: JobPlan, pinned: PinnedInput) -> None:
        assert isinstance(plan.operator, TumblingWindow)
        self._context, self._plan, self._window = context, plan, plan.operator
        self._name, declared = next(iter(plan.job.inputs.items()))
        assert isinstance(declared, TableInput)
        assert declared.watermark is not None
        self._declared = declared
        self._delay = interval_sql(parse_duration(declared.watermark))
        self._path = context.home.table(pinned.table)
        self._pinned = pinned

    def rows(self, affected: Affected | None = None) -> DataFrame:
        """The input's rows that belong to a window, decoded, each with its window's start in `_window_us`.

        Args:
            affected: The windows, or a part of them; by default all.
        """
        rows = read_version(self._context.spark, self._path, self._pinned.version)
        if affected is not None and affected.windows:
            # Said of the column itself, so that files of other times are not read.
            time, (first, end) = F.col(f"`{self._window.time}`"), _bounds(affected)
            rows = rows.filter((time >= first) & (time < end))
        columns = self._plan.inputs[self._name].fieldNames()
        quarantining = [
            c
            for c in self._plan.job.checks_for("input", "row")
            if c.action == "quarantine" and _fits(rows, c)
        ]
        decoded = RowDecoder(self._declared, columns, quarantining).decode(rows).frame
        decoded = decoded.filter(F.col(f"{VALUE}.`{self._declared.event_time}`").isNotNull())
        window = self._window.column()
        threshold = F.col(SEEN_UNTIL) - F.expr(self._delay)
        placed = decoded.select("*", f"{VALUE}.*").select(*decoded.columns, window.alias("_window"))
        found = placed.select(
            *decoded.columns,
            F.unix_micros("_window.start").alias(WINDOW_US),
            F.coalesce(F.col("_window.end") <= threshold, F.lit(False)).alias(_LATE),
        )
        return found if affected is None else found.filter(affected.of_times(F.col(WINDOW_US)))

    def fold(self, backfill: BackfillPlan, affected: Affected, earlier: Sequence[Folded]) -> Replayed:
        """The affected windows, whole.

        Args:
            backfill: The plan.
            affected: The windows, or a part of them.
            earlier: The late rows that earlier backfills folded in; they are not counted as late again.
        """
        rows = self.rows(affected)
        gate = CheckGate(self._plan.job, "input")
        good = rows.filter(~_is_bad()).select(f"{VALUE}.*", *ROW_COLUMNS)
        # What is observed on the way has all of the table's columns read and carried: what is counted here is counted
        # apart, and what enters the window by its sources.
        late = F.col(_LATE) & ~_is_bad() & ~_folded_before(earlier)
        counts = rows.agg(
            F.count(F.lit(1)).alias("read"),
            F.count_if(_is_bad()).alias("quarantined"),
            F.count_if(late).alias("late_folded"),
        )
        result = self._plan.job.function(**{self._name: hide(good, ROW_COLUMNS)})
        result = reveal(result, [ROWS, WINDOW_KEY])
        entered = Observation()
        entering_rows = entering(self._plan.job.function, self._name, good)
        result = with_sources(result, self._window, entering_rows, entered)
        return Replayed(self._with_commit(result, backfill, affected), counts, entered, gate)

    def judge_input(self, affected: Affected, gate: CheckGate, chunk: int) -> None:
        """Judges the checks of the input over the rows of the affected windows.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        if not gate.aggregates():
            return
        rows = self.rows(affected).filter(~_is_bad()).select(f"{VALUE}.*")
        outcome = rows.agg(F.lit(True), *gate.aggregates()).first()
        assert outcome is not None
        gate.judge(outcome.asDict(), chunk)

    def _with_commit(self, result: DataFrame, backfill: BackfillPlan, affected: Affected) -> DataFrame:
        """A window that the live job has keeps the batch that touched it last."""
        target = self._context.home.table(backfill.target)
        live = read_version(self._context.spark, target, backfill.base_version).filter(affected.condition())
        keys = self._plan.job.target.keys
        names = {key: f"_live_{place}" for place, key in enumerate(keys)}
        live = live.select(
            *[F.col(f"`{key}`").alias(name) for key, name in names.items()],
            F.col(BATCH).alias("_live_batch"),
            F.col(GENERATION).alias("_live_generation"),
        )
        match: Column = F.lit(True)
        for key, name in names.items():
            match &= F.col(f"`{key}`").eqNullSafe(F.col(name))
        joined = result.join(live, match, "left")
        joined = joined.withColumn(BATCH, F.coalesce("_live_batch", F.lit(backfill.batch)))
        joined = joined.withColumn(GENERATION, F.coalesce("_live_generation", F.lit(backfill.generation)))
        return joined.drop(*names.values(), "_live_batch", "_live_generation")


def _bounds(affected: Affected) -> tuple[Column, Column]:
    """The first moment of the windows and the one that is past them."""
    starts, ends = zip(*affected.windows, strict=True)
    return F.timestamp_micros(F.lit(min(starts))), F.timestamp_micros(F.lit(max(ends)))


def _folded_before(earlier: Sequence[Folded]) -> Column:
    condition: Column = F.lit(False)
    for one in earlier:
        inside = Affected({}, one.windows).of_times(F.col(WINDOW_US))
        until = F.struct(F.lit(one.until[0]), F.lit(one.until[1]).cast("long"))
        condition |= inside & (F.struct(F.col(GENERATION), F.col(BATCH)) <= until)
    return F.coalesce(condition, F.lit(False))


def _fits(rows: DataFrame, check: Check) -> bool:
    try:
        rows.filter(check.passes_sql)
    except AnalysisException:
        return False
    return True


def _is_bad() -> Column:
    """True for a row that cannot be used. A function: PySpark makes no column without a session."""
    return F.col(BAD)
