"""Plans the repair of a row-by-row job: offsets of the topic, in steps of whole batches of the live job.

A step reads whole batches where copies are told by their origin, for of two copies in one batch the first stays.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.backfill.history import (
    LiveBatch,
    TableHistory,
    count_of,
    intersection,
)
from headwater_streams.backfill.repair.rejected import rejected_records
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import LiveBatchId
from headwater_streams.errors import DataLossError
from headwater_streams.ledger.entry import Ranges, merge_ranges
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.lookups import Lookups, LookupVersion, Versions
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sources.decode import VALUE, RecordDecoder
from headwater_streams.sources.inputs import TopicInput


def plan_rows(
    context: StageContext,
    job_plan: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
    *,
    newest_lookups: bool,
) -> BackfillPlan:
    """The plan of a row job; with `newest_lookups` its look-ups are read as they are now, not as they were.

    Raises:
        BackfillError: The job reads a table, or nothing is in the range, or the job has not read it yet.
        DataLossError: Records of the range are gone from the topic.
    """
    if selection.rows == "late":
        raise BackfillError(
            f"the job {draft.job!r} has no windows, so no row of it is late; give another range"
        )
    (declared,) = job_plan.job.inputs.values()
    if not isinstance(declared, TopicInput):
        raise BackfillError(
            f"the job {draft.job!r} reads the table {declared.name} row by row; only jobs over a topic are repaired"
        )
    read = history.read_ranges()
    rejected = rejected_records(context, job_plan) if selection.rows == "quarantined" else None
    asked = (
        rejected.ranges
        if rejected is not None
        else _asked(context, declared, selection, history, read, draft.job)
    )
    ranges = intersection(asked, read)
    if not ranges:
        raise BackfillError(f"no record of {declared.name} is in the range, so there is nothing to mend")
    batches = [
        (batch, common) for batch in history.batches() if (common := intersection(batch.id.ranges, ranges))
    ]
    dedup = job_plan.job.dedup
    origin = dedup is not None and dedup.by_headers
    needed: list[Ranges] = [batch.id.ranges for batch, _ in batches] if origin else [ranges]
    for topic in declared.names:
        _require_retained(context, topic, merge_ranges(needed))
    pinned, notes = _pin_lookups(context, job_plan, [batch for batch, _ in batches], newest=newest_lookups)
    return replace(
        draft,
        ranges=ranges,
        rows=count_of(ranges),
        chunks=_chunks(batches, rows_per_chunk, pinned),
        lookups=pinned,
        notes=(*draft.notes, *notes, *(rejected.notes if rejected is not None else ())),
    )


def _pin_lookups(
    context: StageContext, job_plan: JobPlan, batches: Sequence[LiveBatch], *, newest: bool
) -> tuple[Versions, list[str]]:
    """The look-ups that are read as they are now, and why; the others are read as the live batches read them.

    Raises:
        BackfillError: A version that a batch read is gone.
    """
    lookups = Lookups(context, job_plan)
    wanted = [
        name for name in job_plan.lookups if newest or any(name not in batch.lookups for batch in batches)
    ]
    there = lookups.newest().versions
    pinned = {name: there[name] for name in wanted}
    read_by: dict[tuple[tuple[str, LookupVersion], ...], int] = {}
    for batch in batches:
        versions = {name: v for name, v in batch.lookups.items() if name in job_plan.lookups} | pinned
        read_by.setdefault(tuple(sorted(versions.items(), key=str)), batch.id.batch)
    for read, first in read_by.items():
        try:
            lookups.require(dict(read))
        except DataLossError as error:
            raise BackfillError(
                f"{error}; batch {first} read that version, so plan with the newest one (--lookups newest)"
            ) from error
    return pinned, [
        f"the look-up {job_plan.job.lookups[name].name} is read at version {there[name].version}, its newest"
        for name in wanted
    ]


def require_read(asked: Ranges, read: Ranges, job: str) -> None:
    """Checks that the job has read the offsets that are asked for.

    Raises:
        BackfillError: It has not; the message says what it has read.
    """
    for topic, partitions in asked.items():
        for partition, (start, end) in partitions.items():
            low, high = read.get(topic, {}).get(partition, (0, 0))
            if start < low or end > high:
                there = (
                    f"[{low}, {high})" if low < high else f"none (its topics are {', '.join(sorted(read))})"
                )
                raise BackfillError(
                    f"{topic} {partition}: offsets [{start}, {end}) are asked for, and the job {job!r} has read {there}"
                )


def _asked(
    context: StageContext,
    declared: TopicInput,
    selection: Selection,
    history: TableHistory,
    read: Ranges,
    job: str,
) -> Ranges:
    if selection.offsets is not None:
        require_read(selection.offsets, read, job)
        return selection.offsets
    if selection.since_version is not None:
        return history.read_ranges(since=selection.since_version)
    if selection.timestamps is not None:
        start_us, end_us = selection.timestamps
        return _ranges_of_times(context, read, start_us, end_us)
    if selection.event_time is not None:
        if declared.event_time is None:
            raise BackfillError(
                f"the topic {declared.name} has no event_time=, so give offsets or timestamps"
            )
        time = F.unix_micros(F.col(f"{VALUE}.`{declared.event_time}`"))
        return _ranges_between(context, declared, read, selection.event_time, time)
    return read


def _ranges_of_times(context: StageContext, read: Ranges, start_us: int, end_us: int) -> Ranges:
    """From each partition's first record that is not before the start to its first that is not before the end."""
    found = {}
    for topic, partitions in read.items():
        firsts, ends = (context.source.first_since(topic, time_us) for time_us in (start_us, end_us))
        found[topic] = {
            partition: (firsts[partition], ends.get(partition, end))
            for partition, (_, end) in partitions.items()
            if partition in firsts
        }
    return found


def _ranges_between(
    context: StageContext, declared: TopicInput, read: Ranges, span: tuple[int, int], time_us: Column
) -> Ranges:
    """From the first to the last record of each partition whose event time is in the span."""
    decoder = RecordDecoder(declared, (), origin=False)
    between: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in read:
        there = context.source.partitions(topic)
        held = {p: (max(pair[0], there[p][0]), pair[1]) for p, pair in read[topic].items() if p in there}
        records = context.source.read(
            context.spark, topic, {p: pair for p, pair in held.items() if pair[0] < pair[1]}
        )
        decoded = decoder.decode(decoder.locate(records)).frame
        inside = decoded.filter((time_us >= span[0]) & (time_us < span[1]))
        found = inside.groupBy("_partition").agg(
            F.min("_offset").alias("start"), (F.max("_offset") + 1).alias("end")
        )
        spans = {row["_partition"]: (row["start"], row["end"]) for row in found.collect()}
        if spans:
            between[topic] = spans
    return between


def _require_retained(context: StageContext, topic: str, needed: Ranges) -> None:
    there = context.source.partitions(topic)
    for partition, (start, end) in sorted(needed.get(topic, {}).items()):
        earliest = there.get(partition, (end, end))[0]
        if start < earliest:
            rest = f"; from {earliest} on it can be repaired" if earliest < end else ""
            raise DataLossError(
                f"{topic} {partition}: offsets [{start}, {min(end, earliest)}) of the range are gone from the topic, "
                f"which begins at {earliest}{rest}"
            )


def _chunks(
    batches: Sequence[tuple[LiveBatch, Ranges]], rows_per_chunk: int, pinned: Versions
) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    ids: list[LiveBatchId] = []
    rows = 0
    before: Versions = {}
    for batch, common in batches:
        size = count_of(common)
        versions = {**batch.lookups, **pinned}
        if ids and (rows + size > rows_per_chunk or versions != before):
            chunks.append(Chunk(len(chunks), rows, batches=tuple(ids)))
            ids, rows = [], 0
        ids.append(LiveBatchId(batch.id.generation, batch.id.batch, common))
        rows += size
        before = versions
    return (*chunks, Chunk(len(chunks), rows, batches=tuple(ids)))
