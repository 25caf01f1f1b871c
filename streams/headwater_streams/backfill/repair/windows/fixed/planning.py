"""Plans the repair of windows of fixed times: from a range to the windows that it touches, and their offsets."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.repair.input import require_read
from headwater_streams.backfill.repair.pinning import pin_input
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spans import merged
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.repair.windows.asked import (
    is_asked,
    nothing_late,
    require_rejected,
    wanted_rows,
)
from headwater_streams.backfill.repair.windows.fixed.replay import FIRST_US, LAST_US, FixedReplay
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import Span, iso
from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.repairs import again
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.spec import WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import OFFSET, PARTITION, TOPIC


@dataclass(frozen=True)
class _Found:
    """Rows of the input that are in the same windows, of one partition."""

    bounds: Span
    rows: int
    wanted: int
    ranges: Ranges

    def starts(self, period_us: int) -> range:
        """The starts of their windows."""
        return range(self.bounds[0], self.bounds[1] + 1, period_us)


@dataclass(frozen=True)
class _Window:
    start_us: int
    rows: int
    wanted: int


def plan_fixed(
    context: StageContext,
    job_plan: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
) -> BackfillPlan:
    """Adds to a plan which windows are folded again, of which offsets, and in which steps.

    Windows that are written once they are closed are repaired once they are: the live job writes the others itself.

    Raises:
        BackfillError: Nothing of the range can be repaired.
    """
    window = job_plan.operator
    assert isinstance(window, FixedWindow)
    if WINDOW_START not in job_plan.result.fieldNames():
        raise BackfillError(
            f"{draft.target} has no column {WINDOW_START!r}, by which windows are replaced; "
            "keep it in the function's result"
        )
    pinned, input_history = pin_input(context, job_plan, history, draft.input_name)
    replay = FixedReplay(context, job_plan, pinned)
    notes = [*draft.notes]
    if selection.offsets is not None:
        require_read(selection.offsets, input_history.read_ranges(), draft.job)
    asked = None if selection.event_time is None else window.starts_over(*selection.event_time)
    late = replay.is_late(history.folded()) if selection.rows == "late" else None
    rejected = require_rejected(context, draft, replay.rows()) if selection.rows == "quarantined" else None
    found = _found(replay, wanted_rows(selection, history, rejected) if late is None else late)
    period_us = in_micros(window.period)
    windows = _by_start(found, period_us)
    named = is_asked(selection, history, was_rewritten=pinned.was_rewritten)
    written = _starts(context, draft, named)
    touched = [
        w
        for w in windows
        if (w.wanted or w.start_us in written) and (asked is None or asked[0] <= w.start_us < asked[1])
    ]
    spans = merged([(at, at + period_us) for at in {*written, *(w.start_us for w in touched)}])
    if asked is not None:
        spans = [asked]
        if asked != selection.event_time:
            notes.append(f"the range was aligned outwards to whole windows: {_told(asked, window)}")
    elif selection == Selection():
        spans = _whole(context, draft, spans, period_us)
    elif not touched and selection.rows == "late":
        raise nothing_late(draft)
    elif not spans:
        raise BackfillError(f"no row of {pinned.table} is in the range, so there is nothing to mend")
    size_us = in_micros(window.size)
    still_open: Span | None = None
    if job_plan.job.target.mode == "append":
        # The first start whose windows are not all closed.
        closed = history.closed_until_us - size_us
        limit = closed - closed % period_us + period_us
        later = sum(w.start_us >= limit for w in touched)
        touched = [w for w in touched if w.start_us < limit]
        spans = [(start, min(end, limit)) for start, end in spans if start < limit]
        if not spans:
            raise BackfillError(
                f"the windows of the range are not all closed yet, so they are not in {draft.target}; the job "
                f"{draft.job!r} writes them itself once they are, of all rows that it reads"
            )
        if later:
            notes.append(
                f"windows of {quantity(later, 'start time')} are left out: they are not all closed, and the live job "
                "writes each once it is; what its code of then gave stays in its state"
            )
    else:
        until = _closed_until(job_plan, input_history)
        opens = [w.start_us for w in touched if until is not None and w.start_us + size_us > until]
        if opens:
            still_open = (opens[0], opens[-1] + size_us)
            notes.append(
                f"windows of {quantity(len(opens), 'start time')} are still open in the live job: when more rows of "
                "them come it writes them again from its own state, without this repair, and headwater audit has a "
                f"note of it; once they are closed, repair them again: {again(draft.job, *map(iso, still_open))}"
            )
    starts = {w.start_us for w in touched}
    return replace(
        draft,
        ranges=_ranges(found, starts, period_us),
        windows=tuple(spans),
        rows=sum(f.rows for f in found if starts.intersection(f.starts(period_us))),
        chunks=_chunks(touched, spans, rows_per_chunk),
        pinned=pinned,
        notes=tuple(notes),
        open=still_open,
    )


def _found(replay: FixedReplay, wanted: Column) -> list[_Found]:
    grouped = replay.rows().groupBy(FIRST_US, LAST_US, TOPIC, PARTITION)
    rows = grouped.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(wanted).alias("wanted"),
        F.min(OFFSET).alias("start"),
        (F.max(OFFSET) + 1).alias("end"),
    ).collect()
    return [
        _Found(
            (row[FIRST_US], row[LAST_US]),
            row["rows"],
            row["wanted"],
            {row[TOPIC]: {row[PARTITION]: (row["start"], row["end"])}},
        )
        for row in rows
    ]


def _starts(context: StageContext, draft: BackfillPlan, which: Column) -> set[int]:
    """When some windows of the target begin, microseconds."""
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    start_us = F.unix_micros(WINDOW_START).alias("start_us")
    return {row["start_us"] for row in target.filter(which).select(start_us).distinct().collect()}


def _by_start(found: Sequence[_Found], period_us: int) -> list[_Window]:
    rows: Counter[int] = Counter()
    wanted: Counter[int] = Counter()
    for some in found:
        for start in some.starts(period_us):
            rows[start] += some.rows
            wanted[start] += some.wanted
    return [_Window(start, rows[start], wanted[start]) for start in sorted(rows)]


def _ranges(found: Sequence[_Found], starts: Set[int], period_us: int) -> Ranges:
    """The offsets of the rows in windows of these starts."""
    return merge_ranges([some.ranges for some in found if not starts.isdisjoint(some.starts(period_us))])


def _whole(context: StageContext, draft: BackfillPlan, spans: Sequence[Span], period_us: int) -> list[Span]:
    """One stretch over all windows of the input and of the target, which may have some that it should not."""
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    start_us = F.unix_micros(WINDOW_START)
    row = target.agg(F.min(start_us).alias("first"), F.max(start_us).alias("last")).first()
    assert row is not None
    bounds = [*spans, *([] if row["first"] is None else [(row["first"], row["last"] + period_us)])]
    if not bounds:
        raise BackfillError(f"{draft.target} and its input are empty, so there is nothing to mend")
    return [(min(start for start, _ in bounds), max(end for _, end in bounds))]


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


def _closed_until(job_plan: JobPlan, history: TableHistory) -> int | None:
    """Until when windows are closed in the live job, by what it has read; None where it cannot tell."""
    newest = max(
        (e.max_event_time_us for e in history.entries() if e.max_event_time_us is not None), default=None
    )
    (declared,) = job_plan.job.inputs.values()
    if newest is None or declared.watermark is None:
        return None
    return newest - in_micros(parse_duration(declared.watermark))


def _told(span: Span, window: FixedWindow) -> str:
    begin = "" if window.period == window.size else "those that begin in "
    return f"{begin}[{iso(span[0])}, {iso(span[1])})"
