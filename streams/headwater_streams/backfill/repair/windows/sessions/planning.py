"""Plans the repair of sessions: from the range that was asked for to times in which whole sessions are folded again.

Sessions are replaced by when they begin. One of all its rows may stand in the table in parts, as when a late row joins
two; then all of the parts begin in the times, or none:

    written       10:00 |------| 10:30      10:50 |-------| 11:20
    a late row                  10:25 a---------+
    of all rows   10:00 |---------------------------------| 11:20
    asked for [10:45, 11:00): the sessions that begin in [10:00, 10:50] are folded again

A session that is not closed yet is written by the live job; where a part of it is written already, or it has late rows,
that is left as it is until it is closed. What else has to be replaced together: see `chains`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.failing import found_among
from headwater_streams.backfill.repair.input import first_to_last, require_read
from headwater_streams.backfill.repair.pinning import pin_input
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spans import merged, overlaps, widened, without
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.repair.windows.asked import (
    is_asked,
    keys_of,
    nothing_late,
    require_rejected,
    wanted_rows,
)
from headwater_streams.backfill.repair.windows.sessions.chains import (
    END_US,
    MADE,
    OPEN,
    START_US,
    Chain,
    chained,
    chains_of,
    unknown,
)
from headwater_streams.backfill.repair.windows.sessions.replay import TIME_US, SessionReplay
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import Span, iso
from headwater_streams.base.durations import in_micros
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges
from headwater_streams.base.plural import quantity
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
_TOLD = 3


def plan_sessions(
    context: StageContext,
    job_plan: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
) -> BackfillPlan:
    """Adds to a plan in which times sessions are folded again, of which offsets, and in which steps.

    Raises:
        BackfillError: Nothing of the range can be repaired.
    """
    window = job_plan.operator
    assert isinstance(window, SessionWindow)
    _require_bounds(job_plan, window)
    pinned, input_history = pin_input(context, job_plan, history, draft.input_name)
    if selection.offsets is not None:
        require_read(selection.offsets, input_history.read_ranges(), draft.job)
    replay = SessionReplay(context, job_plan, pinned, history.closed_until_us)
    failing = _failing(job_plan, replay, history.entries(), draft)
    replay = replay.leaving_out(failing)
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    found = _Sessions(window, replay, target, history, was_rewritten=pinned.was_rewritten)
    rejected = require_rejected(context, draft, replay.rows()) if selection.rows == "quarantined" else None
    asked = found.asked(selection, rejected)
    if not asked:
        if selection.rows == "late":
            raise nothing_late(draft)
        raise BackfillError(f"no row of {pinned.table} is in the range, so there is nothing to mend")
    whole = widened(asked, [chain.begins for chain in found.chains])
    spans = without(whole, found.left_out)
    closed, still_open = found.count(spans)
    apart = without(whole, spans)
    if not closed:
        raise BackfillError(
            "of sessions that have to be replaced with those of the range some are not closed yet, so all are left as "
            "they are; plan again once the watermark has passed them"
            if apart
            else f"the sessions of the range are not all closed yet, so they are not in {draft.target}; the job "
            f"{draft.job!r} writes them itself once they are, of all rows that it reads"
        )
    if not pinned.was_rewritten and found.are_named_otherwise(spans):
        raise BackfillError(
            f"sessions of {draft.target} begin at times at which {pinned.table} has no row, so the code of then gave "
            "them other bounds, by which they cannot be told; build all of them again: headwater backfill plan JOB "
            "--rebuild"
        )
    notes = [*draft.notes]
    if selection.event_time is not None and spans != [selection.event_time]:
        told = ", ".join(f"[{iso(start)}, {iso(end)})" for start, end in spans[:_TOLD])
        more = f" and {len(spans) - _TOLD} more such times" if len(spans) > _TOLD else ""
        notes.append(f"the range was widened to whole sessions: those that begin in {told}{more}")
    if still_open:
        of = f"{quantity(still_open, 'session')} of the range {'is' if still_open == 1 else 'are'}"
        notes.append(
            f"{of} not closed yet and left out: the live job writes each once it is, of what it has read"
        )
    if apart:
        notes.append(
            f"sessions that begin in {quantity(len(apart), 'stretch', 'stretches')} of the range, the first at "
            f"{iso(apart[0][0])}, are left as they are: of one of them rows are written or late and it is not closed "
            "yet; plan again once it is"
        )
    chunks = _chunks(found.begun(), spans, rows_per_chunk)
    return replace(
        draft,
        ranges=found.ranges([chunk.moments for chunk in chunks if chunk.moments is not None]),
        windows=tuple(spans),
        rows=sum(chunk.rows for chunk in chunks),
        chunks=chunks,
        pinned=pinned,
        closed_until_us=history.closed_until_us,
        notes=tuple(notes),
        failing=failing,
    )


def _failing(
    job_plan: JobPlan, replay: SessionReplay, live: Sequence[LedgerEntry], draft: BackfillPlan
) -> Mapping[Place, str]:
    """The rows for which the function raises, of all: a session may be two, or begin later, without one of them."""
    given = {draft.input_name: replay.given()}
    try:
        compute_function(job_plan, given)
    except Exception as error:
        return found_among(job_plan, given, live, f"job {draft.job!r}", error)[draft.input_name]
    return {}


def _require_bounds(job_plan: JobPlan, window: SessionWindow) -> None:
    keys_of(job_plan)
    named = job_plan.result.fieldNames()
    missing = [name for name in (WINDOW_START, WINDOW_END, *window.by) if name not in named]
    if missing:
        raise BackfillError(
            f"{job_plan.job.target.name} has no column {missing[0]!r}, by which sessions are told apart; keep it in "
            "the function's result"
        )


@dataclass(frozen=True)
class _Begun:
    """The sessions of all rows that begin in one step of time: the first start, the last one and the last end."""

    first: int
    last: int
    end: int
    rows: int


class _Sessions:
    """The sessions of all rows, and those that are written, by their bounds."""

    def __init__(
        self,
        window: SessionWindow,
        replay: SessionReplay,
        target: DataFrame,
        history: TableHistory,
        *,
        was_rewritten: bool,
    ) -> None:
        self._history, self._was_rewritten, self._whose = history, was_rewritten, cols(window.by)
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
        self._chained = chained(self._both, self._whose).localCheckpoint()

    @cached_property
    def chains(self) -> list[Chain]:
        """Those that have to be replaced together; not each that is one session, as it was written."""
        return chains_of(self._chained)

    def are_named_otherwise(self, spans: Sequence[Span]) -> bool:
        """Whether written sessions begin in spans at times at which there is no row, of any key."""
        gone = unknown(self._chained).filter(_begins_in(spans))
        times = self._rows.select(F.col(TIME_US).alias(START_US)).distinct()
        return not gone.join(times, START_US, "left_anti").isEmpty()

    @cached_property
    def left_out(self) -> list[Span]:
        """When those begin that are not closed, and of which something is written or late."""
        late = self._late.join(self._both.filter(OPEN).select(START_US), START_US, "left_semi")
        half = [chain.begins for chain in self.chains if chain.is_half_written]
        return widened([*half, *self._spans(late)], [chain.begins for chain in self.chains])

    def asked(self, selection: Selection, rejected: Offsets | None) -> list[Span]:
        """When the sessions begin that a range asks for, or those of rejected rows."""
        if selection.rows == "late":
            apart = [chain.begins for chain in self.chains if chain.is_apart and not chain.is_open]
            return merged([*self._spans(self._late), *apart])
        if selection == Selection():
            return _over(self._spans(self._both))
        if selection.event_time is not None:
            touched = self._touching([selection.event_time])
            return _over([*touched, selection.event_time]) if touched else []
        wanted = self._rows.filter(wanted_rows(selection, self._history, rejected))
        touched = self._touching(self._spans(wanted.select(F.col(TIME_US).alias(START_US))))
        named = is_asked(selection, self._history, was_rewritten=self._was_rewritten)
        return merged([*touched, *self._spans(self._written.filter(named))])

    def count(self, spans: Sequence[Span]) -> tuple[int, int]:
        """How many begin in spans and are closed or written, and how many are open."""
        inside = self._both.filter(_begins_in(spans))
        found = inside.agg(F.count_if(~F.col(OPEN)).alias("closed"), F.count_if(OPEN).alias("open")).first()
        assert found is not None
        return found["closed"], found["open"]

    def begun(self) -> list[_Begun]:
        """The sessions of all rows, in the order of their starts."""
        found = self._made.groupBy(self._step()).agg(
            F.min(START_US).alias("first"),
            F.max(START_US).alias("last"),
            F.max(END_US).alias("end"),
            F.sum(ROWS).alias("rows"),
        )
        begun = [_Begun(row["first"], row["last"], row["end"], row["rows"]) for row in found.collect()]
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


def _over(spans: Sequence[Span]) -> list[Span]:
    """One stretch over all of them, if there are any."""
    return [(min(start for start, _ in spans), max(end for _, end in spans))] if spans else []


def _chunks(begun: Sequence[_Begun], spans: Sequence[Span], rows_per_chunk: int) -> tuple[Chunk, ...]:
    """Stretches of time, oldest first, that tile the spans from their first to their last moment."""
    start, end = spans[0][0], spans[-1][1]
    inside = [one for one in begun if overlaps(spans, (one.first, one.last + 1))]
    cuts, rows, counts = [start], 0, []
    for one in inside:
        if rows and rows + one.rows > rows_per_chunk and cuts[-1] < one.first < end:
            cuts.append(one.first)
            counts.append(rows)
            rows = 0
        rows += one.rows
    bounds = zip(cuts, [*cuts[1:], end], [*counts, rows], strict=True)
    return tuple(
        Chunk(number=number, rows=some, span=(low, high), moments=_moments(begun, low, high))
        for number, (low, high, some) in enumerate(bounds)
    )


def _moments(begun: Sequence[_Begun], start: int, end: int) -> Span:
    """The times of the rows of sessions that begin in `[start, end)`, and of those that reach into it from before."""
    before = [b.first for b in begun if b.first < start <= b.end]
    inside = [b.end for b in begun if b.first < end and start <= b.last]
    return min([start, *before]), max([end, *inside])
