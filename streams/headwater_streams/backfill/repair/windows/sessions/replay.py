"""Sessions folded again from all their rows: the job's function over a part of its input table, as a batch.

Which session a row is in follows from the rows around it, so each step reads whole sessions, also those that begin
before it and reach into it, which it leaves out:

    sessions that begin in [10:00, 11:00) are replaced       09:50     10:00     10:30     11:00     11:15
    UA  begins before, and is left out                         |---------------|
    DL  is replaced                                                        |--------------------------|
    rows of these times are read                               [---------------------------------------)
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.backfill.history import Folded
from headwater_streams.backfill.repair.commits import with_live_commits
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, PinnedInput, whole
from headwater_streams.backfill.repair.windows.folding import Replayed, folded_before
from headwater_streams.backfill.repair.windows.input import CLOSED_US, WindowInput, good, is_bad
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import Span
from headwater_streams.base.durations import in_micros
from headwater_streams.delta.side import quarantine_rows
from headwater_streams.operators.windows.provenance import entering, with_sources
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.operators.windows.spec import WINDOW, WINDOW_END, WINDOW_KEY, WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.sources.coordinates import BATCH, GENERATION, PLACE, ROW_COLUMNS, ROWS
from headwater_streams.sources.decode import VALUE, Decoded
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hidden_columns import hide, reveal
from headwater_streams.spark.observations import Observed

TIME_US = "_time_us"
"""A row's event time, in microseconds."""


class SessionReplay:
    """The input of a job of sessions at one version, and its sessions folded again."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        pinned: PinnedInput,
        closed_until_us: int,
        failing: Mapping[Place, str] = MappingProxyType({}),
    ) -> None:
        """Args: the job; its input; sessions that end at `closed_until_us` or before are written, and the live job will
        write the others; the rows for which the function is known to raise."""
        assert isinstance(plan.operator, SessionWindow)
        self._context, self._plan, self._window = context, plan, plan.operator
        self._input = WindowInput(context, plan, pinned, failing)
        self._closed_until_us = closed_until_us

    def leaving_out(self, failing: Mapping[Place, str]) -> "SessionReplay":
        """The same without some rows, for which the function raises."""
        return SessionReplay(self._context, self._plan, self._input.pinned, self._closed_until_us, failing)

    def rows(self, moments: Span | None = None) -> DataFrame:
        """The input's rows with an event time, decoded, each with that as `_time_us`; those of some times, or all."""
        return self._decoded(moments).frame

    def _decoded(self, moments: Span | None) -> Decoded:
        return self._input.decoded(moments, {TIME_US: F.unix_micros(col(self._window.time))})

    def given(self) -> DataFrame:
        """All rows that the function is given, with their coordinates."""
        return good(self.rows())

    def read_by(self, planned: BackfillPlan) -> DataFrame:
        """The rows that a repair reads."""
        moments = [chunk.moments for chunk in planned.chunks if chunk.moments is not None]
        return self.rows().filter(_in(moments))

    def sessions(self, rows: DataFrame) -> DataFrame:
        """The sessions of rows, closed or not, as `_rows` and `_window_key`, whatever the function makes of them."""
        entered = entering(self._plan.job.function, self._input.name, good(rows))
        found, window = self._window.grouping(entered)
        grouped = found.groupBy(*cols(self._window.by), window.alias(WINDOW)).agg(F.count("*").alias(ROWS))
        return grouped.select(ROWS, self._window.key().alias(WINDOW_KEY))

    def late(self, rows: DataFrame, sessions: DataFrame, earlier: Sequence[Folded]) -> DataFrame:
        """The rows that came too late and are in some sessions, as `_window`, one row each; not those folded before.

        Args:
            rows: Rows of the input.
            sessions: Sessions, with their `_window_key`.
            earlier: The late rows that backfills folded in.
        """
        came_late = F.col(TIME_US) + F.lit(in_micros(self._window.gap)) <= F.col(CLOSED_US)
        commit = (GENERATION, BATCH)
        found = rows.filter(~is_bad() & came_late).select(f"{VALUE}.*", *ROW_COLUMNS, *commit)
        entered = entering(self._plan.job.function, self._input.name, found, (*ROW_COLUMNS, *commit))
        placed = self._window.placed(entered, sessions)
        return placed.filter(~folded_before(earlier, F.unix_micros(f"{WINDOW}.start")))

    def is_closed(self) -> Column:
        """True for a session, by its `_window_key`, that is written."""
        return F.unix_micros(f"{WINDOW_KEY}.window_end") <= self._closed_until_us

    def fold(self, backfill: BackfillPlan, chunk: Chunk, earlier: Sequence[Folded]) -> Replayed:
        """The closed sessions of a step, whole; see `Replay.fold`."""
        assert chunk.span is not None
        assert chunk.moments is not None
        affected = backfill.affected.between(*chunk.span)
        decoded = self._decoded(chunk.moments)
        rows, given = decoded.frame, good(decoded.frame)
        entered = entering(self._plan.job.function, self._input.name, given)
        begins = F.unix_micros(f"{WINDOW_KEY}.window_start")
        made = self._plan.job.function(**{self._input.name: hide(given, ROW_COLUMNS)})
        # A condition on a session's bounds would be moved below the grouping: see `operators.windows.session`.
        made = reveal(made, [ROWS, WINDOW_KEY]).localCheckpoint()
        self._require_named(made)
        result = made.filter(affected.of_times(begins) & self.is_closed())
        late = self.late(rows, result, earlier)
        in_windows = Observed()
        written = with_sources(result, self._window, entered, in_windows)
        # Steps read rows of sessions that reach from one into the next; each row is counted in the first.
        before = [of.moments for of in backfill.chunks[: chunk.number] if of.moments is not None]
        new = ~_in(before)
        counts = rows.agg(F.count_if(new).alias("read"), F.count_if(new & is_bad()).alias("quarantined"))

        def terms() -> dict[str, int]:
            seen = counts.first()
            assert seen is not None
            read, quarantined = int(seen["read"]), int(seen["quarantined"])
            time_us = F.unix_micros(col(self._window.time))
            folded = entered.filter(~_in(before, time_us)).count()
            return {
                "read": read,
                "quarantined": quarantined,
                "filtered": read - quarantined - folded,
                "folded": folded,
                "placed": int(in_windows.get()["rows"]),
                "late_folded": late.count(),
            }

        bad = decoded.rejected(rows.filter(new & is_bad()))
        return Replayed(
            with_live_commits(self._context, backfill, written, affected.condition()),
            CheckGate(self._plan.job, "input"),
            terms,
            quarantine_rows(bad, backfill.batch, backfill.generation),
            {self._input.name: given},
        )

    def unplaced(self, planned: BackfillPlan, which: Column) -> DataFrame | None:
        """See `Replay.unplaced`: a session may begin before those of the range and reach into it, or not be closed."""
        rows = self.rows(whole(planned.chunks).moments)
        begins = F.unix_micros(f"{WINDOW_KEY}.window_start")
        # As in `fold`: a condition on a session's bounds would be moved below the grouping.
        made = self.sessions(rows).localCheckpoint()
        made = made.filter(planned.affected.of_times(begins) & self.is_closed())
        entered = entering(self._plan.job.function, self._input.name, good(rows.filter(which)))
        placed = self._window.placed(entered, made).select(*PLACE)
        return entered.select(*PLACE).join(placed, list(PLACE), "left_anti")

    def _require_named(self, result: DataFrame) -> None:
        """Sees to it that sessions are those that their columns name: by these they are told from those written."""
        names = (*self._window.by, WINDOW_START, WINDOW_END)
        for name in names:
            differs = ~col(name).eqNullSafe(F.col(WINDOW_KEY)[name])
            if not result.filter(differs).isEmpty():
                raise BackfillError(
                    f"the job {self._plan.job.name!r} gives {name!r} another value than its sessions have, so those "
                    "that are written cannot be told by it; build all of them again: headwater backfill plan JOB "
                    "--rebuild"
                )

    def judge_input(self, backfill: BackfillPlan, chunk: Chunk, gate: CheckGate) -> None:
        """See `Replay.judge_input`."""
        del backfill
        self._input.judge(self.rows(chunk.moments), gate, chunk.number)


def _in(moments: Sequence[Span], time_us: Column | None = None) -> Column:
    time_us = F.col(TIME_US) if time_us is None else time_us
    return any_of([(time_us >= start) & (time_us < end) for start, end in moments])
