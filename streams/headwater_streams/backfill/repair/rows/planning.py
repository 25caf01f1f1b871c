"""Plans the repair of a row-by-row job: offsets of the topic, or of a table's rows, in steps of whole live batches.

A step reads whole batches where copies are told by their origin, for of two copies in one batch the first stays.
"""

from collections.abc import Sequence
from dataclasses import replace

from headwater_streams.backfill.history import (
    LiveBatch,
    TableHistory,
    count_of,
    intersection,
)
from headwater_streams.backfill.repair.input import asked_of, row_input
from headwater_streams.backfill.repair.pinning import pin_told_apart
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
        BackfillError: Nothing is in the range, or the job has not read it yet, or it reads a table whose rows are made
            of several records.
        DataLossError: Records of the range are gone from the topic.
    """
    if selection.rows == "late":
        raise BackfillError(
            f"the job {draft.job!r} has no windows, so no row of it is late; give another range"
        )
    ((name, declared),) = job_plan.job.inputs.items()
    pinned = pin_told_apart(context, job_plan, history, name) if job_plan.job.tables else None
    source = row_input(context, declared, pinned)
    read = history.read_ranges()
    told: tuple[str, ...] = ()
    if selection.rows == "quarantined":
        rejected = rejected_records(context, job_plan, read, history.made_again)
        asked, told = rejected.ranges, rejected.notes
    elif selection.since_version is not None:
        asked = history.read_ranges(since=selection.since_version)
    else:
        asked = asked_of(source, declared, selection, read, draft.job)
    ranges = intersection(asked, read)
    if not ranges:
        raise BackfillError(f"no record of {declared.name} is in the range, so there is nothing to mend")
    batches = [
        (batch, common) for batch in history.batches() if (common := intersection(batch.id.ranges, ranges))
    ]
    dedup = job_plan.job.dedup
    origin = dedup is not None and dedup.by_headers
    source.require(merge_ranges([batch.id.ranges for batch, _ in batches] if origin else [ranges]))
    since = {topic: first for topic, first in history.made_again.items() if topic in ranges}
    lookups, notes = _pin_lookups(context, job_plan, [batch for batch, _ in batches], newest=newest_lookups)
    return replace(
        draft,
        ranges=ranges,
        rows=count_of(ranges),
        chunks=_chunks(batches, rows_per_chunk, lookups),
        pinned=pinned,
        lookups=lookups,
        since=since,
        notes=(*draft.notes, *[_of_old(topic) for topic in since], *notes, *told),
    )


def _of_old(topic: str) -> str:
    return f"the topic {topic} was deleted and made again; what was made of the old one stays as it is"


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
