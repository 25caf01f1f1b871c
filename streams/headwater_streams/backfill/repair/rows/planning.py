"""Plans the repair of a row-by-row job: offsets of the topic, or of a table's rows, in steps of whole live batches.

A step reads whole batches where copies are told by their origin, for of two copies in one batch the first stays.
"""

from collections.abc import Sequence
from dataclasses import replace

from headwater_streams.backfill.history import LiveBatch, TableHistory, count_of, intersection, read_history
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.input import RowInput, asked_of, in_span, row_input
from headwater_streams.backfill.repair.pinning import pin_told_apart
from headwater_streams.backfill.repair.rejected import rejected_records
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import LiveBatchId
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import Ranges, merge_ranges, spelled
from headwater_streams.delta.delta_table import read_version
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.lookups import Lookups, LookupVersion, Versions
from headwater_streams.sources.coordinates import TIMESTAMP
from headwater_streams.spark.columns import col


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
        told = _of_times(context, job_plan, selection, history, source)
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


def _of_times(
    context: StageContext,
    job_plan: JobPlan,
    selection: Selection,
    history: TableHistory,
    source: RowInput,
) -> tuple[str, ...]:
    """What a range of times comes to, for a person.

    Raises:
        DataLossError: Rows of the range were made of records that are gone from the topic.
    """
    ((_, declared),) = job_plan.job.inputs.items()
    span, time = selection.timestamps, TIMESTAMP
    told: list[str] = []
    if selection.event_time is not None:
        span, time = selection.event_time, str(declared.event_time)
        told = [
            f"what lies between the first and the last of a partition whose {time} is in the range is read again, too"
        ]
    # A topic is asked for each of its partitions, so only where the answer matters.
    gone = source.gone(history.read_ranges()) if span is not None else {}
    if span is None or not gone:
        return tuple(told)
    which = f"the offsets {', '.join(spelled(gone))} are gone from the topic"
    for table in (job_plan.job.target.name, *job_plan.job.other_tables):
        path = context.home.table(table)
        version = history.version if table == job_plan.job.target.name else read_history(path, table).version
        rows = read_version(context.spark, path, version).filter(Offsets.of([gone]).condition())
        if dict(rows.dtypes).get(time) != "timestamp":
            told.append(f"{which}; what was made of them stays as it is, also where it is of the range")
        elif not rows.filter(in_span(col(time), span)).isEmpty():
            raise DataLossError(
                f"{which}, and {table} has rows of the range that were made of them; what the topic still holds can be "
                "repaired by its offsets"
            )
    return tuple(dict.fromkeys(told))


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
            chunks.append(Chunk(number=len(chunks), rows=rows, batches=tuple(ids)))
            ids, rows = [], 0
        ids.append(LiveBatchId(generation=batch.id.generation, batch=batch.id.batch, ranges=common))
        rows += size
        before = versions
    return (*chunks, Chunk(number=len(chunks), rows=rows, batches=tuple(ids)))
