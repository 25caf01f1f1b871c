"""Plans a backfill: from the range that was asked for to offsets, windows, chunks and pinned versions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.repair import row_planning
from headwater_streams.backfill.repair.jobs import planned_job
from headwater_streams.backfill.repair.selection import Moment, Selection
from headwater_streams.backfill.repair.spec import WINDOW_START, BackfillPlan, Chunk, PinnedInput, in_ranges
from headwater_streams.backfill.repair.window_replay import WINDOW_US, WindowReplay
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.backfill.values import Span, iso
from headwater_streams.durations import parse_duration
from headwater_streams.ledger.entry import Ranges, merge_ranges
from headwater_streams.plural import counted
from headwater_streams.runtime.compatibility import Difference, since_last_run, why_incompatible
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.delta_table import read_version
from headwater_streams.sources.coordinates import OFFSET, ORIGIN, PARTITION, PLACE, ROWS, TIMESTAMP, TOPIC
from headwater_streams.sources.inputs import TableInput
from headwater_streams.windows.tumbling import TumblingWindow

_US_PER_S = 1_000_000
_ROWS_PER_CHUNK = {"row": 1_000_000, "window": 10_000_000}


@dataclass(frozen=True)
class _Window:
    start_us: int
    rows: int
    wanted: int


def plan(
    context: StageContext,
    job: Job,
    *,
    offsets: Ranges | None = None,
    timestamps: tuple[Moment, Moment] | None = None,
    event_time: tuple[Moment, Moment] | None = None,
    since_version: int | None = None,
    reference: str = "",
    rows_per_chunk: int | None = None,
    lookups: Literal["as_read", "newest"] = "as_read",
) -> BackfillPlan:
    """Plans the repair of a range and stores the plan; the same range, code and tables give the same plan.

    Every range is half-open. Without one, all that the live job has read is meant.

    Args:
        context: The session, the home, the record source.
        job: The job, as its code is now.
        offsets: Topic -> partition -> (start, end).
        timestamps: (start, end) of the records' timestamps. For a row-by-row job they become offsets as Kafka's tools
            tell them: from each partition's first record that is not before the start to the first not before the end.
        event_time: (start, end) of the input's event-time column; for a windowed job aligned outwards to windows.
        since_version: What the job committed after this version of its target.
        reference: Where the job was loaded from; the command line loads it from there again.
        rows_per_chunk: About how many rows are read in one step of the run; by default a million records of a topic,
            ten million rows of a window's input, which take as long to fold.
        lookups: `"as_read"` reads look-ups at the versions that the live batches read, `"newest"` as they are now.

    Returns:
        The plan, as it stands in `<home>/backfills/<id>/plan.json`.

    Raises:
        BackfillError: Nothing is in the range, or the job or the range cannot be repaired.
        DataLossError: Records of the range are gone from the topic.
    """
    selection = Selection.of(offsets, timestamps, event_time, since_version)
    job_plan = planned_job(context, job)
    target = job_plan.job.target.name
    history = TableHistory(context.home.table(target), target, job_plan.job.name)
    if since_version is not None and since_version >= history.version:
        raise BackfillError(
            f"{target} is at version {history.version}, so nothing was committed after version {since_version}"
        )
    _require_columns(context, job_plan)
    differences = since_last_run(context, job_plan)
    _require_same_keys(job_plan, differences)
    halts = why_incompatible(job_plan.job.name, differences)
    draft = BackfillPlan(
        id="",
        job=job_plan.job.name,
        reference=reference,
        kind="window" if job_plan.kind == "window" else "row",
        target=target,
        quarantine=job_plan.job.target.quarantine_table,
        input_name=next(iter(job_plan.job.inputs)),
        keys=_keys(job_plan),
        columns=_columns(job_plan),
        fingerprint=job_plan.job.fingerprint,
        asked=selection.to_json(),
        ranges={},
        windows=(),
        rows=0,
        chunks=(),
        base_version=history.version,
        generation=history.last_entry().generation,
        batch=history.last_entry().batch,
        pinned=None,
        notes=() if halts is None else (f"the repair does not change that {halts}",),
        created_at="",
    )
    if job_plan.kind == "window":
        made = _plan_windows(
            context, job_plan, history, selection, draft, rows_per_chunk or _ROWS_PER_CHUNK["window"]
        )
    else:
        made = row_planning.plan_rows(
            context,
            job_plan,
            history,
            selection,
            draft,
            rows_per_chunk or _ROWS_PER_CHUNK["row"],
            newest_lookups=lookups == "newest",
        )
    return stored(context.home, made, context.now_ms())


_APART = frozenset({"kind", "operator", "target keys"})
"""Differences of a job from its last run by which its rows would stand beside those that they should replace."""


def _require_same_keys(job_plan: JobPlan, differences: Sequence[Difference]) -> None:
    differs = [each for each in differences if each.what in _APART]
    if differs:
        raise BackfillError(
            f"the job {job_plan.job.name!r} differs from its last run ({'; '.join(map(str, differs))}), so rows of two "
            f"kinds would stand in {job_plan.job.target.name}; build all of them again: headwater backfill plan JOB "
            "--rebuild"
        )


def _require_columns(context: StageContext, job_plan: JobPlan) -> None:
    target = job_plan.job.target.name
    there = context.spark.read.format("delta").load(str(context.home.table(target))).schema
    types = {f.name: f.dataType.simpleString() for f in there.fields}
    for field in job_plan.target_schema.fields:
        kind = field.dataType.simpleString()
        if types.get(field.name) != kind:
            has = f"has it as {types[field.name]}" if field.name in types else "does not have it"
            raise BackfillError(
                f"the job {job_plan.job.name!r} gives a column {field.name} {kind}, and {target} {has}; a new one is "
                "added when the job is started, one of another type needs another name"
            )


def _keys(job_plan: JobPlan) -> tuple[str, ...]:
    return job_plan.job.target.keys if job_plan.kind == "window" else PLACE


def _columns(job_plan: JobPlan) -> tuple[str, ...]:
    own = tuple(job_plan.result.fieldNames())
    return (*own, ROWS) if job_plan.kind == "window" else (*own, TIMESTAMP, ORIGIN)


def _plan_windows(
    context: StageContext,
    job_plan: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
) -> BackfillPlan:
    if WINDOW_START not in job_plan.result.fieldNames():
        raise BackfillError(
            f"{draft.target} has no column {WINDOW_START!r}, by which windows are replaced; "
            "keep it in the function's result"
        )
    pinned, input_history = _pin(context, job_plan, history)
    replay = WindowReplay(context, job_plan, pinned)
    size_us = _size_us(job_plan)
    notes = [*draft.notes]
    if selection.offsets is not None:
        row_planning.require_read(selection.offsets, input_history.read_ranges(), draft.job)
    windows, ranges = _histogram(replay, _wanted(selection, history, size_us))
    touched = [w for w in windows if w.wanted]
    spans = _merged([(w.start_us, w.start_us + size_us) for w in touched])
    if selection.event_time is not None:
        aligned = _aligned(selection.event_time, size_us)
        spans = [aligned]
        if aligned != selection.event_time:
            notes.append(
                f"the range was aligned outwards to whole windows: [{iso(aligned[0])}, {iso(aligned[1])})"
            )
    elif selection == Selection():
        spans = _whole(context, draft, spans, size_us)
    elif not touched:
        raise BackfillError(f"no row of {pinned.table} is in the range, so there is nothing to mend")
    rows = sum(w.rows for w in touched)
    still_open = _open_windows(job_plan, input_history, [w.start_us + size_us for w in touched])
    if still_open:
        notes.append(
            f"windows of {counted(still_open, 'start time')} are still open in the live job: when more rows of "
            "them come it writes them again from its own state, without this repair; plan again once they are closed"
        )
    return replace(
        draft,
        ranges=ranges,
        windows=tuple(spans),
        rows=rows,
        chunks=_chunks(touched, spans, rows_per_chunk),
        pinned=pinned,
        notes=tuple(notes),
    )


def _pin(context: StageContext, job_plan: JobPlan, history: TableHistory) -> tuple[PinnedInput, TableHistory]:
    (declared,) = job_plan.job.inputs.values()
    assert isinstance(declared, TableInput)
    source = next((s for s in history.last_entry().sources if s.versions is not None), None)
    assert source is not None, "a windowed job reads a table"
    assert source.versions is not None
    path = context.home.table(declared.name)
    version, unread = source.versions[1] - 1, 0
    for commit in TableHistory(path, declared.name).commits:
        if commit.version <= version:
            continue
        if commit.is_append:
            unread += 1
        elif not unread:
            version = commit.version  # what a swap rewrote is no news to the live job, but it is to be folded
        elif commit.data_changed:
            raise BackfillError(
                f"the job {job_plan.job.name!r} has not read {counted(unread, 'commit')} of {declared.name} that came "
                "before its rows were rewritten; let the job catch up, then plan again"
            )
    read = TableHistory(path, declared.name, until=version)
    last = read.last_entry()
    rewritten = any(c.data_changed and c.removed_files for c in read.commits)
    return PinnedInput(declared.name, version, (last.generation, last.batch), rewritten), read


def _wanted(selection: Selection, history: TableHistory, size_us: int) -> Column:
    """Which rows of the input the range names, as a column over them."""
    if selection.offsets is not None:
        return in_ranges(selection.offsets)
    if selection.since_version is not None:
        return in_ranges(history.read_ranges(since=selection.since_version))
    if selection.timestamps is not None:
        start, end = selection.timestamps
        time_us = F.unix_micros(TIMESTAMP)
        return (time_us >= start) & (time_us < end)
    if selection.event_time is not None:
        start, end = _aligned(selection.event_time, size_us)
        return (F.col(WINDOW_US) >= start) & (F.col(WINDOW_US) < end)
    return F.lit(True)


def _histogram(replay: WindowReplay, wanted: Column) -> tuple[list[_Window], Ranges]:
    """The window starts with their rows, and the offsets of those that hold a wanted row."""
    grouped = replay.rows().groupBy(WINDOW_US, TOPIC, PARTITION)
    found = grouped.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(wanted).alias("wanted"),
        F.min(OFFSET).alias("start"),
        (F.max(OFFSET) + 1).alias("end"),
    ).collect()
    windows: dict[int, _Window] = {}
    for row in found:
        known = windows.get(row[WINDOW_US], _Window(row[WINDOW_US], 0, 0))
        windows[row[WINDOW_US]] = _Window(
            known.start_us, known.rows + row["rows"], known.wanted + row["wanted"]
        )
    ranges = merge_ranges(
        [
            {row[TOPIC]: {row[PARTITION]: (row["start"], row["end"])}}
            for row in found
            if windows[row[WINDOW_US]].wanted
        ]
    )
    return sorted(windows.values(), key=lambda w: w.start_us), ranges


def _whole(context: StageContext, draft: BackfillPlan, spans: Sequence[Span], size_us: int) -> list[Span]:
    """One stretch over all windows of the input and of the target, which may have some that it should not."""
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    start_us = F.unix_micros(WINDOW_START)
    row = target.agg(F.min(start_us).alias("first"), F.max(start_us).alias("last")).first()
    assert row is not None
    bounds = [*spans, *([] if row["first"] is None else [(row["first"], row["last"] + size_us)])]
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
            chunks.append(Chunk(len(chunks), rows, span=(start, window.start_us)))
            start, rows = window.start_us, 0
        rows += window.rows
    return (*chunks, Chunk(len(chunks), rows, span=(start, end)))


def _open_windows(job_plan: JobPlan, history: TableHistory, ends: Sequence[int]) -> int:
    newest = max(
        (e.max_event_time_us for e in history.entries() if e.max_event_time_us is not None), default=None
    )
    (declared,) = job_plan.job.inputs.values()
    if newest is None or declared.watermark is None:
        return 0
    closed_until = newest - round(parse_duration(declared.watermark).total_seconds() * _US_PER_S)
    return sum(end > closed_until for end in ends)


def _size_us(job_plan: JobPlan) -> int:
    assert isinstance(job_plan.operator, TumblingWindow)
    return round(job_plan.operator.size.total_seconds() * _US_PER_S)


def _aligned(span: Span, size_us: int) -> Span:
    start, end = span
    return start - start % size_us, end + -end % size_us


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
