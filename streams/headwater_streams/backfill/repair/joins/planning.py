"""Plans the repair of a join: offsets of its left rows, those whose partners have all come, in steps of many.

A row of the result belongs to its left row, so the left rows of some offsets say which rows of the target are made
anew. A left row that may still get a partner is left to the live job, which may have more rows to write for it:

    watermark                                     |
    left rows   ----a---------b--------------c----|---d--->
                    |<-within->|             |<-within->|
                    is repaired              is left to the live job, as d is
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory, count_of, intersection
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.input import RowInput, asked_of, first_to_last, require_read, row_input
from headwater_streams.backfill.repair.joins.replay import JoinReplay
from headwater_streams.backfill.repair.joins.times import require_own_times, settled_before_us
from headwater_streams.backfill.repair.pinning import is_of_input, pin_told_apart, pinned_table
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, PinnedInput
from headwater_streams.backfill.store import BackfillError
from headwater_streams.ledger.entry import Ranges, SourceRange, merge_ranges
from headwater_streams.plural import counted
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.delta_table import read_version
from headwater_streams.sources.coordinates import BATCH, GENERATION, OFFSET, PARTITION, TOPIC


def plan_joins(
    context: StageContext,
    job_plan: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
) -> BackfillPlan:
    """Adds to a plan which left rows are joined again, with what, and in which steps.

    Raises:
        BackfillError: Nothing of the range can be repaired, or the rows of a side cannot be told apart.
    """
    if selection.rows == "quarantined":
        raise BackfillError(
            f"which rows of {draft.target} the rows in quarantine belong to is not known; give the left rows' "
            "--event-time"
        )
    require_own_times(job_plan)
    left, right = job_plan.sides
    is_left, is_right = (is_of_input(job_plan.job, name) for name in job_plan.sides)
    pinned = pin_told_apart(context, job_plan, history, left)
    partner = pin_told_apart(context, job_plan, history, right)
    declared = job_plan.job.inputs[left]
    source, read = row_input(context, declared, pinned), history.read_ranges(of=is_left)
    replay = JoinReplay(context, job_plan, replace(draft, pinned=pinned, partner=partner), history.entries())
    if selection.offsets is not None:
        rights = history.read_ranges(of=is_right)
        asked = _of_offsets(replay, source, selection.offsets, read, rights, draft.job)
    elif selection.since_version is not None:
        asked = _since(context, draft, history, selection.since_version, is_left)
    elif selection.rows == "late":
        asked = _late(replay, source, read, draft.job)
    else:
        asked = asked_of(source, declared, selection, read, draft.job)
    ranges = intersection(asked, read)
    if not ranges:
        raise BackfillError(f"no row of {pinned.table} is in the range, so there is nothing to mend")
    settled, open_rows = _settled(context, job_plan, history, pinned, ranges)
    if not settled:
        raise BackfillError(
            f"the rows of {pinned.table} in the range may still get partners, so the job {draft.job!r} is not done "
            "with them; plan again once its watermark has passed them"
        )
    notes = [*draft.notes]
    if open_rows:
        notes.append(
            f"{counted(open_rows, 'row')} of {pinned.table} at the range's end {'is' if open_rows == 1 else 'are'} "
            f"left out: the job {draft.job!r} is not done with them"
        )
    return replace(
        draft,
        ranges=settled,
        rows=count_of(settled),
        chunks=_chunks(settled, rows_per_chunk),
        pinned=pinned,
        partner=partner,
        notes=tuple(notes),
    )


def _since(
    context: StageContext,
    draft: BackfillPlan,
    history: TableHistory,
    version: int,
    is_left: Callable[[SourceRange], bool],
) -> Ranges:
    """The left rows that were read after a version of the target, and those that rows written since belong to."""
    entries = history.entries()
    entries = entries[: len(entries) - len(history.entries(since=version))]
    read = history.read_ranges(since=version, of=is_left)
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    if entries:
        last = F.struct(F.lit(entries[-1].generation), F.lit(entries[-1].batch).cast("long"))
        target = target.filter(F.struct(GENERATION, BATCH) > last)
    return merge_ranges([read, first_to_last(target)])


def _of_offsets(
    replay: JoinReplay, source: RowInput, asked: Ranges, lefts: Ranges, rights: Ranges, job: str
) -> Ranges:
    """The left rows of some offsets, and those that may be partners of the right rows of some.

    Raises:
        BackfillError: The job has not read them.
    """
    of_left = {topic: found for topic, found in asked.items() if topic in lefts}
    of_right = {topic: found for topic, found in asked.items() if topic in rights}
    neither = {topic: found for topic, found in asked.items() if topic not in lefts and topic not in rights}
    require_read(of_left | neither, lefts, job)
    near = replay.lefts_near(replay.rights(of_right), source, lefts) if of_right else {}
    return merge_ranges([of_left, near])


def _late(replay: JoinReplay, source: RowInput, read: Ranges, job: str) -> Ranges:
    """The late left rows, and those that may be partners of late right rows.

    Raises:
        BackfillError: No row was late.
    """
    parts = [first_to_last(replay.late_lefts()), replay.lefts_near(replay.late_rights(), source, read)]
    if not any(parts):
        raise BackfillError(f"no row of {job!r} came late for a partner, so there is nothing to mend")
    return merge_ranges(parts)


def _settled(
    context: StageContext, job_plan: JobPlan, history: TableHistory, pinned: PinnedInput, ranges: Ranges
) -> tuple[Ranges, int]:
    """The ranges up to the first row of each partition that the live job is not done with, and how many such there
    are."""
    until_us = settled_before_us(job_plan, history.entries())
    event_time = job_plan.job.inputs[job_plan.sides[0]].event_time
    is_open: Column = F.unix_micros(F.col(f"`{event_time}`")) >= F.lit(until_us)
    rows = (
        pinned_table(context, pinned)
        .filter(Offsets.of([ranges]).condition() & is_open)
        .groupBy(TOPIC, PARTITION)
    )
    found: dict[str, dict[int, int]] = {}
    for row in rows.agg(F.min(OFFSET).alias("first")).collect():
        found.setdefault(row[TOPIC], {})[row[PARTITION]] = row["first"]
    cut = {
        topic: {
            partition: (start, min(end, found.get(topic, {}).get(partition, end)))
            for partition, (start, end) in partitions.items()
        }
        for topic, partitions in ranges.items()
    }
    left_out = count_of(ranges) - count_of(cut)
    return intersection(cut, ranges), left_out


def _chunks(ranges: Ranges, rows_per_chunk: int) -> tuple[Chunk, ...]:
    """Stretches of all partitions at once, whose rows are of about one time."""
    count = max(1, -(-count_of(ranges) // rows_per_chunk))

    def part(number: int) -> Ranges:
        return {
            topic: {
                partition: (
                    start + (end - start) * number // count,
                    start + (end - start) * (number + 1) // count,
                )
                for partition, (start, end) in partitions.items()
            }
            for topic, partitions in ranges.items()
        }

    parts = filter(None, (intersection(part(number), ranges) for number in range(count)))
    return tuple(Chunk(number, count_of(lefts), lefts=lefts) for number, lefts in enumerate(parts))
