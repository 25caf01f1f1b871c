"""Fills the facts that the repair of sessions is planned by: the sessions of all rows, and those that are written."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.failing import found_among
from headwater_streams.backfill.repair.input import first_to_last
from headwater_streams.backfill.repair.pinning import pin_input, pinned_at
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.windows.asked import is_asked, rejected_rows, wanted_rows
from headwater_streams.backfill.repair.windows.sessions.chains import (
    END_US,
    MADE,
    OPEN,
    START_US,
    chained,
    chains_of,
    unknown,
)
from headwater_streams.backfill.repair.windows.sessions.planning import (
    Begun,
    SessionFacts,
    TouchedFacts,
    chunks_of,
    times_of,
    unread_offsets,
    without_bounds,
)
from headwater_streams.backfill.repair.windows.sessions.replay import TIME_US, SessionReplay
from headwater_streams.backfill.values import Span
from headwater_streams.base.durations import in_micros
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges
from headwater_streams.delta.delta_table import read_version
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.operators.windows.spec import WINDOW, WINDOW_END, WINDOW_KEY, WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.failing_rows import compute_function
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.sources.coordinates import ROWS
from headwater_streams.spark.columns import cols

_STEP = "_step"
_MINUTE_US = 60_000_000


def session_facts(
    context: StageContext,
    part: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
) -> SessionFacts | Refusal:
    """What the repair of sessions follows from."""
    read = without_bounds(part) or pin_input(context, part.job, history, draft.input_name)
    if isinstance(read, Refusal):
        return read
    refusal = unread_offsets(selection, read, draft.job)
    if refusal is not None:
        return refusal
    pinned = pinned_at(read)
    replay = SessionReplay(context, part, pinned, history.closed_until_us)
    failing = _failing(part, replay, history.entries(), draft)
    replay = replay.leaving_out(failing)
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    sessions = _Sessions(part, replay, target, history)
    rejected = rejected_rows(context, draft, replay.rows()) if selection.rows == "quarantined" else None
    touched = TouchedFacts(
        draft=draft,
        selection=selection,
        read=read,
        touched=sessions.touched(selection, rejected, was_rewritten=pinned.was_rewritten),
        late_and_open=sessions.late_and_open(),
        chains=chains_of(sessions.chained),
        rejected=0 if rejected is None else rejected.count,
    )
    times = times_of(touched)
    if isinstance(times, Refusal):
        return times
    closed, still_open = sessions.count(times.spans)
    chunks = chunks_of(sessions.begun(), times.spans, rows_per_chunk)
    return SessionFacts(
        touched=touched,
        times=times,
        history=history,
        closed=closed,
        still_open=still_open,
        are_named_otherwise=not pinned.was_rewritten and sessions.are_named_otherwise(times.spans),
        chunks=chunks,
        ranges=sessions.ranges([chunk.moments for chunk in chunks if chunk.moments is not None]),
        failing=failing,
    )


def _failing(
    part: JobPlan, replay: SessionReplay, live: Sequence[LedgerEntry], draft: BackfillPlan
) -> Mapping[Place, str]:
    """The rows for which the function raises, of all: a session may be two, or begin later, without one of them."""
    given = {draft.input_name: replay.given()}
    try:
        compute_function(part, given)
    except Exception as error:
        return found_among(part, given, live, f"job {draft.job!r}", error)[draft.input_name]
    return {}


class _Sessions:
    """The sessions of all rows, and those that are written, by their bounds."""

    def __init__(
        self, part: JobPlan, replay: SessionReplay, target: DataFrame, history: TableHistory
    ) -> None:
        window = part.operator
        assert isinstance(window, SessionWindow)
        self._history, self._whose = history, cols(window.by)
        # Hardly two sessions begin at one time; those of a while are taken together.
        self._step_us = max(in_micros(window.gap), _MINUTE_US)
        self._rows = replay.rows()
        bounds = {START_US: F.unix_micros(WINDOW_START), END_US: F.unix_micros(WINDOW_END)}
        self._written = target.withColumns(bounds)
        # A condition on bounds would be moved below the grouping: see `operators.windows.session`.
        made = replay.sessions(self._rows).localCheckpoint()
        self._made = made.select(WINDOW_KEY, ROWS, f"{WINDOW_KEY}.*").withColumns(bounds)
        late = replay.late(self._rows, self._made, history.folded())
        self._late = (
            late.select(F.unix_micros(f"{WINDOW}.start").alias(START_US)).distinct().localCheckpoint()
        )
        named = [*self._whose, *map(F.col, (START_US, END_US, MADE, OPEN, ROWS))]
        is_made = {MADE: F.lit(True), OPEN: ~replay.is_closed()}
        is_written = {MADE: F.lit(False), OPEN: F.lit(False)}
        self._both = (
            self._made.withColumns(is_made)
            .select(*named)
            .union(self._written.withColumns(is_written).select(*named))
        )
        # Those that have to be replaced together; see `chains`.
        self.chained = chained(self._both, self._whose).localCheckpoint()

    def touched(self, selection: Selection, rejected: Offsets | None, *, was_rewritten: bool) -> list[Span]:
        """When the sessions begin that a range touches or names, see `TouchedFacts`.

        Args:
            selection: The range.
            rejected: The rows in quarantine, where it names these.
            was_rewritten: Whether rows of the input were replaced since they were read.
        """
        if selection.rows == "late":
            return self._spans(self._late)
        if selection == Selection():
            return self._spans(self._both)
        if selection.event_time is not None:
            return self._touching([selection.event_time])
        rows = self._rows.filter(wanted_rows(selection, self._history, rejected))
        touched = self._touching(self._spans(rows.select(F.col(TIME_US).alias(START_US))))
        named = is_asked(selection, self._history, was_rewritten=was_rewritten)
        return [*touched, *self._spans(self._written.filter(named))]

    def late_and_open(self) -> list[Span]:
        """When those begin that have late rows and are not closed."""
        return self._spans(self._late.join(self._both.filter(OPEN).select(START_US), START_US, "left_semi"))

    def are_named_otherwise(self, spans: Sequence[Span]) -> bool:
        """Whether written sessions begin in spans at times at which there is no row, of any key."""
        gone = unknown(self.chained).filter(_begins_in(spans))
        times = self._rows.select(F.col(TIME_US).alias(START_US)).distinct()
        return not gone.join(times, START_US, "left_anti").isEmpty()

    def count(self, spans: Sequence[Span]) -> tuple[int, int]:
        """How many begin in spans and are closed or written, and how many are open."""
        inside = self._both.filter(_begins_in(spans))
        found = inside.agg(F.count_if(~F.col(OPEN)).alias("closed"), F.count_if(OPEN).alias("open")).first()
        assert found is not None
        return found["closed"], found["open"]

    def begun(self) -> list[Begun]:
        """The sessions of all rows, in the order of their starts."""
        found = self._made.groupBy(self._step()).agg(
            F.min(START_US).alias("first"),
            F.max(START_US).alias("last"),
            F.max(END_US).alias("end"),
            F.sum(ROWS).alias("rows"),
        )
        begun = [Begun(row["first"], row["last"], row["end"], row["rows"]) for row in found.collect()]
        return sorted(begun, key=lambda one: one.first)

    def ranges(self, moments: Sequence[Span]) -> Ranges:
        """The offsets of the rows of some times."""
        time_us = F.col(TIME_US)
        near = self._rows.filter(any_of([(time_us >= start) & (time_us < end) for start, end in moments]))
        return first_to_last(near)

    def _touching(self, spans: Sequence[Span]) -> list[Span]:
        """When the sessions begin that hold some of these times."""
        start, end = F.col(START_US), F.col(END_US)
        return self._spans(self._both.filter(any_of([(start < high) & (end > low) for low, high in spans])))

    def _spans(self, begun: DataFrame) -> list[Span]:
        """The times of `_start_us`, those that are not far from each other together."""
        found = begun.groupBy(self._step()).agg(F.min(START_US).alias("first"), F.max(START_US).alias("last"))
        spans: list[Span] = []
        for first, last in sorted((row["first"], row["last"]) for row in found.collect()):
            if spans and first - spans[-1][1] < self._step_us:
                spans[-1] = (spans[-1][0], last + 1)
            else:
                spans.append((first, last + 1))
        return spans

    def _step(self) -> Column:
        return F.floor(F.col(START_US) / F.lit(self._step_us)).alias(_STEP)


def _begins_in(spans: Sequence[Span]) -> Column:
    start = F.col(START_US)
    return any_of([(start >= low) & (start < high) for low, high in spans])
