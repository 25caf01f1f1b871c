"""Plans the repair of windows of fixed times: from a range to the windows that it touches, and their offsets.

Everything here is decided by facts; `facts` has what fills them.
"""

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, replace

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import unread
from headwater_streams.backfill.repair.pinning import pinned_at
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spans import merged
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.repair.windows.asked import none_late, none_rejected
from headwater_streams.backfill.values import Span
from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.repairs import again
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.spec import WINDOW_START
from headwater_streams.plan.plan import JobPlan


@dataclass(frozen=True)
class RowGroup:
    """Rows of the input that are in the same windows, of one partition.

    Attributes:
        bounds: The first and the last start of these windows, microseconds.
        rows: How many rows.
        in_range: How many of them the range names.
        ranges: From the first of them to past the last.
    """

    bounds: Span
    rows: int
    in_range: int
    ranges: Ranges

    def starts(self, period_us: int) -> range:
        """The starts of their windows."""
        return range(self.bounds[0], self.bounds[1] + 1, period_us)


@dataclass(frozen=True, kw_only=True)
class FixedFacts:
    """What the repair of windows of fixed times follows from.

    Attributes:
        draft: The plan, as far as the job decides it.
        part: The job.
        selection: The range.
        history: The target's commits.
        read: Those of the input, up to the version that is read.
        groups: The rows of the input.
        named: When the windows of the target begin that the range names by themselves, microseconds.
        bounds: When the first window of the target begins, and the last, where all are meant; None where it has none.
        rejected: How many rows are in quarantine, where these are meant.
    """

    draft: BackfillPlan
    part: JobPlan
    selection: Selection
    history: TableHistory
    read: TableHistory
    groups: Sequence[RowGroup]
    named: Collection[int] = frozenset()
    bounds: Span | None = None
    rejected: int = 0

    @property
    def window(self) -> FixedWindow:
        """The operator."""
        assert isinstance(self.part.operator, FixedWindow)
        return self.part.operator

    @property
    def aligned(self) -> Span | None:
        """When the windows begin that hold any of a range of event times."""
        times = self.selection.event_time
        return None if times is None else self.window.starts_over(*times)

    @property
    def closed_until(self) -> int | None:
        """Until when windows are closed in the live job, by what it has read; None where it cannot tell."""
        times = [e.max_event_time_us for e in self.read.entries() if e.max_event_time_us is not None]
        (declared,) = self.part.job.inputs.values()
        if not times or declared.watermark is None:
            return None
        return max(times) - in_micros(parse_duration(declared.watermark))


@dataclass(frozen=True)
class _Window:
    start_us: int
    rows: int
    in_range: int


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Windows to fold again: those with rows, the stretches that all are in, the notes on them, and those open yet."""

    touched: Sequence[_Window]
    spans: Sequence[Span]
    notes: tuple[str, ...] = ()
    still_open: Span | None = None


def without_starts(draft: BackfillPlan, part: JobPlan) -> Refusal | None:
    """Refuses a target whose windows do not say when they begin."""
    if WINDOW_START in part.result.fieldNames():
        return None
    return Refusal(
        f"{draft.target} has no column {WINDOW_START!r}, by which windows are replaced; keep it in the function's "
        "result"
    )


def plan_fixed(facts: FixedFacts, rows_per_chunk: int) -> BackfillPlan | Refusal:
    """Adds to a plan which windows are folded again, of which offsets, and in which steps.

    Windows that are written once they are closed are repaired once they are: the live job writes the others itself.
    """
    chosen = _touched(facts)
    if isinstance(chosen, Refusal):
        return chosen
    is_final = facts.part.job.target.mode == "append"
    chosen = _closed(facts, chosen) if is_final else _noting_open(facts, chosen)
    if isinstance(chosen, Refusal):
        return chosen
    period_us, starts = in_micros(facts.window.period), {w.start_us for w in chosen.touched}
    return replace(
        facts.draft,
        ranges=_ranges(facts.groups, starts, period_us),
        windows=tuple(chosen.spans),
        rows=sum(f.rows for f in facts.groups if starts.intersection(f.starts(period_us))),
        chunks=_chunks(chosen.touched, chosen.spans, rows_per_chunk),
        pinned=pinned_at(facts.read),
        notes=(*facts.draft.notes, *chosen.notes),
        open=chosen.still_open,
    )


def _touched(facts: FixedFacts) -> _Chosen | Refusal:
    """The windows that a range touches."""
    selection, draft, aligned = facts.selection, facts.draft, facts.aligned
    if selection.offsets is not None:
        refusal = unread(selection.offsets, facts.read.read_ranges(), draft.job)
        if refusal is not None:
            return refusal
    if selection.rows == "quarantined" and not facts.rejected:
        return none_rejected(draft)
    period_us = in_micros(facts.window.period)
    touched = [
        w
        for w in _by_start(facts.groups, period_us)
        if (w.in_range or w.start_us in facts.named)
        and (aligned is None or aligned[0] <= w.start_us < aligned[1])
    ]
    spans = merged([(at, at + period_us) for at in {*facts.named, *(w.start_us for w in touched)}])
    if aligned is not None:
        note = f"the range was aligned outwards to whole windows: {_spelled(aligned, facts.window)}"
        notes = (note,) if aligned != selection.event_time else ()
        return _Chosen(touched=touched, spans=[aligned], notes=notes)
    if selection == Selection():
        # The target may have windows that it should not.
        bounds = [*spans, *([] if facts.bounds is None else [(facts.bounds[0], facts.bounds[1] + period_us)])]
        if not bounds:
            return Refusal(f"{draft.target} and its input are empty, so there is nothing to mend")
        whole = (min(start for start, _ in bounds), max(end for _, end in bounds))
        return _Chosen(touched=touched, spans=[whole])
    if not touched and selection.rows == "late":
        return none_late(draft)
    if not spans:
        return Refusal(f"no row of {facts.read.name} is in the range, so there is nothing to mend")
    return _Chosen(touched=touched, spans=spans)


def _closed(facts: FixedFacts, chosen: _Chosen) -> _Chosen | Refusal:
    """Of windows that are written once they are closed those that are."""
    draft, period_us, size_us = facts.draft, in_micros(facts.window.period), in_micros(facts.window.size)
    # The first start whose windows are not all closed.
    closed = facts.history.closed_until_us - size_us
    limit = closed - closed % period_us + period_us
    later = sum(w.start_us >= limit for w in chosen.touched)
    spans = [(start, min(end, limit)) for start, end in chosen.spans if start < limit]
    if not spans:
        return Refusal(
            f"the windows of the range are not all closed yet, so they are not in {draft.target}; the job "
            f"{draft.job!r} writes them itself once they are, of all rows that it reads"
        )
    left_out = (
        f"windows of {quantity(later, 'start time')} are left out: they are not all closed, and the live job writes "
        "each once it is; what its code of then gave stays in its state"
    )
    return _Chosen(
        touched=[w for w in chosen.touched if w.start_us < limit],
        spans=spans,
        notes=(*chosen.notes, left_out) if later else chosen.notes,
    )


def _noting_open(facts: FixedFacts, chosen: _Chosen) -> _Chosen:
    """Of windows that are written as their rows come all, with a note of those that the live job may write again."""
    size_us, until = in_micros(facts.window.size), facts.closed_until
    opens = [w.start_us for w in chosen.touched if until is not None and w.start_us + size_us > until]
    if not opens:
        return chosen
    still_open = (opens[0], opens[-1] + size_us)
    note = (
        f"windows of {quantity(len(opens), 'start time')} are still open in the live job: when more rows of them come "
        "it writes them again from its own state, without this repair, and headwater audit has a note of it; once they "
        f"are closed, repair them again: {again(facts.draft.job, *map(iso, still_open))}"
    )
    return replace(chosen, notes=(*chosen.notes, note), still_open=still_open)


def _by_start(groups: Sequence[RowGroup], period_us: int) -> list[_Window]:
    rows: Counter[int] = Counter()
    in_range: Counter[int] = Counter()
    for some in groups:
        for start in some.starts(period_us):
            rows[start] += some.rows
            in_range[start] += some.in_range
    return [_Window(start, rows[start], in_range[start]) for start in sorted(rows)]


def _ranges(groups: Sequence[RowGroup], starts: Set[int], period_us: int) -> Ranges:
    """The offsets of the rows in windows of these starts."""
    return merge_ranges([some.ranges for some in groups if not starts.isdisjoint(some.starts(period_us))])


def _chunks(windows: Sequence[_Window], spans: Sequence[Span], rows_per_chunk: int) -> tuple[Chunk, ...]:
    """Stretches of whole windows, oldest first, that tile the spans from their first to their last moment."""
    start, end = spans[0][0], spans[-1][1]
    chunks: list[Chunk] = []
    rows = 0
    for window in windows:
        if rows and rows + window.rows > rows_per_chunk:
            chunks.append(Chunk(number=len(chunks), rows=rows, span=(start, window.start_us)))
            start, rows = window.start_us, 0
        rows += window.rows
    return (*chunks, Chunk(number=len(chunks), rows=rows, span=(start, end)))


def _spelled(span: Span, window: FixedWindow) -> str:
    begin = "" if window.period == window.size else "those that begin in "
    return f"{begin}[{iso(span[0])}, {iso(span[1])})"
