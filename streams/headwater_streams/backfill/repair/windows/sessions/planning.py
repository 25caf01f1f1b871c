"""Plans the repair of sessions: from the range that was asked for to times in which whole sessions are folded again.

Sessions are replaced by when they begin. One of all its rows may stand in the table in parts, as when a late row joins
two; then all of the parts begin in the times, or none:

    written       10:00 |------| 10:30      10:50 |-------| 11:20
    a late row                  10:25 a---------+
    of all rows   10:00 |---------------------------------| 11:20
    asked for [10:45, 11:00): the sessions that begin in [10:00, 10:50] are folded again

A session that is not closed yet is written by the live job; where a part of it is written already, or it has late rows,
that is left as it is until it is closed. What else has to be replaced together: see `chains`.

Everything here is decided by facts; `facts` has what fills them, `TouchedFacts` first and, where the times are known,
`SessionFacts`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import unread
from headwater_streams.backfill.repair.pinning import pinned_at
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spans import merged, overlaps, widened, without
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.repair.windows.asked import keys_of, none_late, none_rejected
from headwater_streams.backfill.repair.windows.sessions.chains import Chain
from headwater_streams.backfill.values import Span
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.stages.narrowing import Place

_SPELLED = 3


@dataclass(frozen=True, kw_only=True)
class TouchedFacts:
    """What decides the times in which sessions begin that are folded again.

    Attributes:
        draft: The plan, as far as the job decides it.
        selection: The range.
        read: The commits of the input, up to the version that is read.
        touched: When the sessions begin that the range touches or names, of all rows and written ones: all sessions
            where all are meant, those with late rows where these are.
        late_and_open: When those begin that have late rows and are not closed.
        chains: Those that have to be replaced together.
        rejected: How many rows are in quarantine, where these are meant.
    """

    draft: BackfillPlan
    selection: Selection
    read: TableHistory
    touched: Sequence[Span] = ()
    late_and_open: Sequence[Span] = ()
    chains: Sequence[Chain] = ()
    rejected: int = 0


@dataclass(frozen=True, kw_only=True)
class Times:
    """When the sessions of a range begin.

    Attributes:
        spans: Those that are folded again.
        apart: Those that are left as they are, though the range, or one that has to be replaced with its own, has them.
    """

    spans: Sequence[Span]
    apart: Sequence[Span]


@dataclass(frozen=True)
class Begun:
    """The sessions of all rows that begin in one step of time: the first start, the last one and the last end."""

    first: int
    last: int
    end: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class SessionFacts:
    """What the repair of the sessions of some times follows from.

    Attributes:
        touched: What decided the times.
        times: The times.
        history: The target's commits.
        closed: How many sessions begin in the times and are closed or written.
        still_open: How many begin there and are neither.
        are_named_otherwise: Whether written ones begin there at times at which there is no row, of any key.
        chunks: The steps.
        ranges: The offsets of the rows that these read.
        failing: The rows for which the function raises.
    """

    touched: TouchedFacts
    times: Times
    history: TableHistory
    closed: int
    still_open: int = 0
    are_named_otherwise: bool = False
    chunks: tuple[Chunk, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    failing: Mapping[Place, str] = field(default_factory=dict)


def without_bounds(part: JobPlan) -> Refusal | None:
    """Refuses a target whose sessions do not say whose they are, when they begin and when they end."""
    keys = keys_of(part)
    if isinstance(keys, Refusal):
        return keys
    named = part.result.fieldNames()
    missing = [name for name in (WINDOW_START, WINDOW_END, *part.window.by) if name not in named]
    if not missing:
        return None
    return Refusal(
        f"{part.job.target.name} has no column {missing[0]!r}, by which sessions are told apart; keep it in the "
        "function's result"
    )


def unread_offsets(selection: Selection, read: TableHistory, job: str) -> Refusal | None:
    """Refuses a range of offsets that the job has not read."""
    return None if selection.offsets is None else unread(selection.offsets, read.read_ranges(), job)


def times_of(facts: TouchedFacts) -> Times | Refusal:
    """In which times sessions begin that are folded again, whole ones that are closed."""
    selection, draft = facts.selection, facts.draft
    if selection.rows == "quarantined" and not facts.rejected:
        return none_rejected(draft)
    requested = _requested(facts)
    if not requested:
        if selection.rows == "late":
            return none_late(draft)
        return Refusal(f"no row of {facts.read.name} is in the range, so there is nothing to mend")
    chains = [chain.begins for chain in facts.chains]
    half = [chain.begins for chain in facts.chains if chain.is_half_written]
    whole = widened(requested, chains)
    spans = without(whole, widened([*half, *facts.late_and_open], chains))
    return Times(spans=spans, apart=without(whole, spans))


def plan_sessions(facts: SessionFacts) -> BackfillPlan | Refusal:
    """Adds to a plan in which times sessions are folded again, of which offsets, and in which steps."""
    draft, selection, read = facts.touched.draft, facts.touched.selection, facts.touched.read
    spans, apart, pinned = facts.times.spans, facts.times.apart, pinned_at(facts.touched.read)
    if not facts.closed:
        return Refusal(
            "of sessions that have to be replaced with those of the range some are not closed yet, so all are left as "
            "they are; plan again once the watermark has passed them"
            if apart
            else f"the sessions of the range are not all closed yet, so they are not in {draft.target}; the job "
            f"{draft.job!r} writes them itself once they are, of all rows that it reads"
        )
    if not pinned.was_rewritten and facts.are_named_otherwise:
        return Refusal(
            f"sessions of {draft.target} begin at times at which {read.name} has no row, so the code of then gave them "
            "other bounds, by which they cannot be told; build all of them again: headwater backfill plan JOB --rebuild"
        )
    notes = [*draft.notes]
    if selection.event_time is not None and [*spans] != [selection.event_time]:
        spelled = ", ".join(f"[{iso(start)}, {iso(end)})" for start, end in spans[:_SPELLED])
        more = f" and {len(spans) - _SPELLED} more such times" if len(spans) > _SPELLED else ""
        notes.append(f"the range was widened to whole sessions: those that begin in {spelled}{more}")
    if facts.still_open:
        are = "is" if facts.still_open == 1 else "are"
        notes.append(
            f"{quantity(facts.still_open, 'session')} of the range {are} not closed yet and left out: the live job "
            "writes each once it is, of what it has read"
        )
    if apart:
        notes.append(
            f"sessions that begin in {quantity(len(apart), 'stretch', 'stretches')} of the range, the first at "
            f"{iso(apart[0][0])}, are left as they are: of one of them rows are written or late and it is not closed "
            "yet; plan again once it is"
        )
    return replace(
        draft,
        ranges=facts.ranges,
        windows=tuple(spans),
        rows=sum(chunk.rows for chunk in facts.chunks),
        chunks=facts.chunks,
        pinned=pinned,
        closed_until_us=facts.history.closed_until_us,
        notes=tuple(notes),
        failing=facts.failing,
    )


def _requested(facts: TouchedFacts) -> list[Span]:
    """When the sessions begin that a range asks for."""
    selection, touched = facts.selection, [*facts.touched]
    if selection.rows == "late":
        apart = [chain.begins for chain in facts.chains if chain.is_apart and not chain.is_open]
        return merged([*touched, *apart])
    if selection == Selection():
        return _over(touched)
    if selection.event_time is not None:
        return _over([*touched, selection.event_time]) if touched else []
    return merged(touched)


def _over(spans: Sequence[Span]) -> list[Span]:
    """One stretch over all of them, if there are any."""
    return [(min(start for start, _ in spans), max(end for _, end in spans))] if spans else []


def chunks_of(begun: Sequence[Begun], spans: Sequence[Span], rows_per_chunk: int) -> tuple[Chunk, ...]:
    """Stretches of time, oldest first, that tile the spans from their first to their last moment; of no span none."""
    if not spans:
        return ()
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


def _moments(begun: Sequence[Begun], start: int, end: int) -> Span:
    """The times of the rows of sessions that begin in `[start, end)`, and of those that reach into it from before."""
    before = [b.first for b in begun if b.first < start <= b.end]
    inside = [b.end for b in begun if b.first < end and start <= b.last]
    return min([start, *before]), max([end, *inside])
