"""Plans a backfill: from the range that was asked for to offsets, windows, chunks and pinned versions."""

from collections.abc import Mapping, Sequence
from typing import Literal

from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.jobs import (
    feeding,
    made_by_others,
    require_made_alike,
    require_no_chain,
    require_their_columns,
)
from headwater_streams.backfill.repair.jobs import planned_job
from headwater_streams.backfill.repair.joins.planning import plan_joins
from headwater_streams.backfill.repair.rejected import rejecting_part
from headwater_streams.backfill.repair.rows.planning import plan_rows
from headwater_streams.backfill.repair.selection import Moment, Rows, Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, FurtherTable
from headwater_streams.backfill.repair.windows.asked import keys_of
from headwater_streams.backfill.repair.windows.kinds import plan_windows
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.backfill.topics import ids_of_topics
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import Difference, since_last_run, why_incompatible
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.readers import fed_by
from headwater_streams.sources.coordinates import ORIGIN, PLACE, ROWS, SOURCES, TIMESTAMP

_KINDS: Mapping[str, Literal["window", "join"]] = {"window": "window", "join": "join", "as_of": "join"}
_ROWS_PER_CHUNK = {"row": 1_000_000, "window": 10_000_000, "join": 10_000_000}


def plan(
    context: StageContext,
    job: Job,
    *,
    offsets: Ranges | None = None,
    timestamps: tuple[Moment, Moment] | None = None,
    event_time: tuple[Moment, Moment] | None = None,
    since_version: int | None = None,
    rows: Rows | None = None,
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
            tell them: from each partition's first record that is not before the start to the first not before the end;
            of one that reads a table from the first to the last of its rows that has such a timestamp.
        event_time: (start, end) of the input's event-time column, of a join the left one's, and right rows alone up to
            the join's `within` later; of a windowed job all windows that hold any of it.
        since_version: What the job committed after this version of its target.
        rows: `"quarantined"`, the records in quarantine, with what lies between the first and the last of a partition;
            of a stateful job that names a topic they are mended in its ingest table, and then in its own (`feeds`). Of
            a job of windows or a join of which no such record is left, or that reads tables, the windows or left rows
            that rows in quarantine belong to, as those for which its function raised.
            `"late"`, of a windowed job, the windows that late rows belong to and no repair has folded them into, and
            sessions that are one and were written apart, as rows that came in time touch what was written; of a join
            the late left rows, the left rows of the times at which late right ones may be their partners, and these,
            where they are written alone.
        reference: Where the job was loaded from; the command line loads it from there again.
        rows_per_chunk: About how many rows are read in one step of the run; by default a million records of a topic,
            ten million rows of a window's input, which take as long to fold, or of a join's left one.
        lookups: `"as_read"` reads look-ups at the versions that the live batches read, `"newest"` as they are now.

    Returns:
        The plan, as it stands in `<home>/backfills/<id>/plan.json`.

    Raises:
        NothingToRepairError: No row is late, or none in quarantine, where these are meant.
        BackfillError: Nothing is in the range, the job or the range cannot be repaired, the job is a chain of
            operators, or the rows that it unites were united by other code.
        DataLossError: Records of the range are gone from the topic.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    selection = Selection.of(offsets, timestamps, event_time, since_version, rows)
    if lookups not in ("as_read", "newest"):
        raise BackfillError(f"lookups={lookups!r} is neither 'as_read' nor 'newest'")

    notes: list[str] = []
    topic_ids: dict[str, str] = {}

    def repaired(plans: Sequence[JobPlan]) -> JobPlan:
        require_no_chain(plans)
        found = rejecting_part(context, plans) if rows == "quarantined" else plans[-1]
        before = feeding(plans, found)
        topic_ids.update(ids_of_topics(context, [*before, found]))
        require_made_alike(context, job.name, plans[:-1])
        require_their_columns(context, job.name, before)
        notes.extend(made_by_others(context, job.name, before))
        looking_up = [part.job.target.name for part in before if part.lookups]
        if lookups == "newest" and looking_up:
            raise BackfillError(
                f"the job {job.name!r} has looked things up on the way to {looking_up[0]}, which a repair reads as it "
                "is; to look them up as they are now, make that anew first, and this behind it: headwater backfill "
                f"plan {job.name} --rebuild --table {looking_up[0]}"
            )
        return found

    job_plan = planned_job(context, job, repaired)
    target = job_plan.job.target.name
    history = read_history(context.home.table(target), target, job_plan.job.name)
    if since_version is not None and since_version >= history.version:
        raise BackfillError(
            f"{target} is at version {history.version}, so nothing was committed after version {since_version}"
        )
    _require_columns(context, job_plan)
    differences = since_last_run(context, job_plan)
    _require_same_keys(job_plan, differences)
    halts = why_incompatible(job_plan.job.name, differences)
    if halts is not None:
        notes.append(f"the repair does not change that {halts}")
    draft = BackfillPlan(
        id="",
        job=job_plan.job.name,
        reference=reference,
        kind=_KINDS.get(job_plan.kind, "row"),
        target=target,
        quarantine=job_plan.job.target.quarantine_table,
        input_name=job_plan.sides[0] if job_plan.sides else next(iter(job_plan.job.inputs)),
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
        notes=tuple(notes),
        created_at="",
        feeds=fed_by(context.home, [each.name for each in job_plan.job.targets]),
        further=_further(context, job_plan),
        topic_ids=topic_ids,
    )
    if job_plan.kind == "window":
        made = plan_windows(
            context, job_plan, history, selection, draft, rows_per_chunk or _ROWS_PER_CHUNK["window"]
        )
    elif job_plan.sides:
        made = plan_joins(
            context, job_plan, history, selection, draft, rows_per_chunk or _ROWS_PER_CHUNK["join"]
        )
    else:
        made = plan_rows(
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
    for table, schema in job_plan.schemas.items():
        there = read_history(context.home.table(table), table).version
        now = read_version(context.spark, context.home.table(table), there).schema
        types = {f.name: f.dataType.simpleString() for f in now.fields}
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if types.get(field.name) != kind:
                has = f"has it as {types[field.name]}" if field.name in types else "does not have it"
                raise BackfillError(
                    f"the job {job_plan.job.name!r} gives a column {field.name} {kind}, and {table} {has}; a new one "
                    "is added when the job is started, one of another type needs another name"
                )


def _further(context: StageContext, job_plan: JobPlan) -> dict[str, FurtherTable]:
    """The job's other tables, as they are now."""
    own = {name: tuple(result.fieldNames()) for name, result in job_plan.branches.items()}
    return {
        name: FurtherTable(
            columns=(*own[name], TIMESTAMP, ORIGIN), base_version=next_commit(context.home.table(name)) - 1
        )
        for name in job_plan.job.other_tables
    }


def _keys(job_plan: JobPlan) -> tuple[str, ...]:
    if job_plan.kind == "window":
        return keys_of(job_plan)
    return (SOURCES,) if job_plan.kind == "join" else PLACE


def _columns(job_plan: JobPlan) -> tuple[str, ...]:
    own = tuple(job_plan.result.fieldNames())
    if job_plan.kind == "window":
        return *own, ROWS
    return own if job_plan.sides else (*own, TIMESTAMP, ORIGIN)
