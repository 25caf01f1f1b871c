"""Windows folded again from all their rows: the job's function over a closed part of its input table, as a batch.

Every row of a window counts, late ones too: that is how a backfill folds late rows in. Of windows that overlap, a row
is in several, of which some may be replaced and others not:

    size 1 hour, every 20 minutes; windows that begin in [09:20, 09:40) are replaced
    [09:00, 10:00)   |--------------------------|
    [09:20, 10:20)            |==========================|
    09:45 a                              a               is read, folded into the second, and left out of the first
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.backfill.history import Folded
from headwater_streams.backfill.repair.commits import with_live_commits
from headwater_streams.backfill.repair.spec import Affected, BackfillPlan, Chunk, PinnedInput
from headwater_streams.backfill.repair.windows.folding import Replayed, folded_before
from headwater_streams.backfill.repair.windows.input import CLOSED_US, WindowInput, good, is_bad
from headwater_streams.base.durations import in_micros
from headwater_streams.delta.side import quarantine_rows
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.overlapping import OverlappingWindow
from headwater_streams.operators.windows.provenance import entering, with_sources
from headwater_streams.operators.windows.spec import WINDOW, WINDOW_KEY
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.sources.coordinates import ROW_COLUMNS, ROWS
from headwater_streams.sources.decode import Decoded
from headwater_streams.spark.hidden_columns import hide, reveal
from headwater_streams.spark.observations import Observed

FIRST_US, LAST_US = "_first_us", "_last_us"
"""The first and the last start of a row's windows, in microseconds; the same where it is in one."""
_WINDOWS = "_windows"


class FixedReplay:
    """The input of a windowed job at one version, and its windows folded again."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        pinned: PinnedInput,
        failing: Mapping[Place, str] = MappingProxyType({}),
    ) -> None:
        """Args: the job; its input; the rows of that for which the function is known to raise."""
        assert isinstance(plan.operator, FixedWindow)
        self._context, self._plan, self._window = context, plan, plan.operator
        self._input = WindowInput(context, plan, pinned, failing)

    def leaving_out(self, failing: Mapping[Place, str]) -> "FixedReplay":
        """The same without some rows, for which the function raises."""
        return FixedReplay(self._context, self._plan, self._input.pinned, failing)

    def rows(self, affected: Affected | None = None) -> DataFrame:
        """The input's rows that belong to a window, decoded, each with the starts `_first_us` and `_last_us`.

        Args:
            affected: Rows with a window among these; by default all.
        """
        return self._decoded(affected).frame

    def _decoded(self, affected: Affected | None) -> Decoded:
        beside = {FIRST_US: self._window.first_start(), LAST_US: self._window.last_start()}
        if isinstance(self._window, OverlappingWindow):
            beside[_WINDOWS] = self._window.windows()
        moments = self._moments(affected) if affected is not None and affected.windows else None
        found = self._input.decoded(moments, beside)
        # A row of the moments of one stretch has a window in it.
        if affected is None or len(affected.windows) == 1:
            return found
        return replace(found, frame=found.frame.filter(_of_rows(affected)))

    def read_by(self, planned: BackfillPlan) -> DataFrame:
        """The rows that a repair reads."""
        return self.rows(planned.affected)

    def is_late(self, earlier: Sequence[Folded]) -> Column:
        """True for a row that came too late for one of its windows, and that no backfill has folded in since.

        Args:
            earlier: The late rows that backfills folded in.
        """
        return ~is_bad() & (self._missed(None, earlier) > 0)

    def fold(self, backfill: BackfillPlan, chunk: Chunk, earlier: Sequence[Folded]) -> Replayed:
        """The windows of a step, whole.

        Args:
            backfill: The plan.
            chunk: The step.
            earlier: The late rows that earlier backfills folded in; they are not counted as late again.
        """
        affected = _of_chunk(backfill, chunk)
        decoded = self._decoded(affected)
        rows, given = decoded.frame, good(decoded.frame)
        gate = CheckGate(self._plan.job, "input")
        result = self._plan.job.function(**{self._input.name: hide(given, ROW_COLUMNS)})
        result = reveal(result, [ROWS, WINDOW_KEY])
        entering_rows = entering(self._plan.job.function, self._input.name, given)
        in_windows, within = Observed(), None
        if self._window.overlapping:
            result = result.filter(affected.of_times(F.unix_micros(f"{WINDOW_KEY}.window_start")))
            within = affected.of_times(F.unix_micros(f"{WINDOW}.start"))
        result = with_sources(result, self._window, entering_rows, in_windows, within)
        # What is observed on the way has all of the table's columns read and carried: what is counted here is counted
        # apart, and what enters the window by its sources. A row is counted in the step of its first affected window.
        before = backfill.affected.before(affected.windows[0][0])
        new = ~_of_rows(before)
        missed = F.when(is_bad(), 0).otherwise(self._missed(affected, earlier))
        counts = rows.agg(
            F.count_if(new).alias("read"),
            F.count_if(new & is_bad()).alias("quarantined"),
            F.coalesce(F.sum(missed), F.lit(0)).alias("late_folded"),
        )

        def terms() -> dict[str, int]:
            seen = counts.first()
            assert seen is not None
            found = {name: int(seen[name]) for name in ("read", "quarantined", "late_folded")}
            placed = int(in_windows.get()["rows"])
            if not self._window.overlapping:
                return found | {"filtered": found["read"] - found["quarantined"] - placed}
            first, last = self._window.first_start(), self._window.last_start()
            entered = entering_rows.filter(~_overlap(before, first, last)).count()
            filtered = found["read"] - found["quarantined"] - entered
            return found | {"filtered": filtered, "folded": entered, "placed": placed}

        rows_to_write = with_live_commits(self._context, backfill, result, affected.condition())
        bad = decoded.rejected(rows.filter(new & is_bad()))
        rejected = quarantine_rows(bad, backfill.batch, backfill.generation)
        return Replayed(rows_to_write, gate, terms, rejected, {self._input.name: given})

    def unplaced(self, planned: BackfillPlan, which: Column) -> DataFrame | None:
        """See `Replay.unplaced`: each row that is read is in an affected window."""
        del planned, which
        return None

    def judge_input(self, backfill: BackfillPlan, chunk: Chunk, gate: CheckGate) -> None:
        """Judges the checks of the input over the rows of a step.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        self._input.judge(self.rows(_of_chunk(backfill, chunk)), gate, chunk.number)

    def _missed(self, affected: Affected | None, earlier: Sequence[Folded]) -> Column:
        """How many of a row's (affected) windows were closed when it came, and no backfill has folded it in since."""
        size = F.lit(in_micros(self._window.size))
        if not self._window.overlapping:
            late = (F.col(LAST_US) + size <= F.col(CLOSED_US)) & ~folded_before(earlier, F.col(LAST_US))
            return F.coalesce(late, F.lit(False)).cast("int")

        def lacks_it(window: Column) -> Column:
            start, end = F.unix_micros(window["start"]), F.unix_micros(window["end"])
            late = (end <= F.col(CLOSED_US)) & ~folded_before(earlier, start)
            late = late if affected is None else late & affected.of_times(start)
            return F.coalesce(late, F.lit(False))

        return F.size(F.filter(_WINDOWS, lacks_it))

    def _moments(self, affected: Affected) -> tuple[int, int]:
        """The first moment of the affected windows and the one that is past them, in microseconds."""
        starts, ends = zip(*affected.windows, strict=True)
        first, period_us = min(starts), in_micros(self._window.period)
        past = max(ends) - period_us
        # Windows begin at whole periods, wherever a stretch does.
        return first + -first % period_us, past + -past % period_us + in_micros(self._window.size)


def _of_chunk(backfill: BackfillPlan, chunk: Chunk) -> Affected:
    """The affected windows of a step."""
    assert chunk.span is not None
    return backfill.affected.between(*chunk.span)


def _of_rows(affected: Affected) -> Column:
    """True for a row of the input that one of the windows holds, never NULL."""
    return _overlap(affected, F.col(FIRST_US), F.col(LAST_US))


def _overlap(affected: Affected, first_us: Column, last_us: Column) -> Column:
    return any_of([(last_us >= start) & (first_us < end) for start, end in affected.windows])
