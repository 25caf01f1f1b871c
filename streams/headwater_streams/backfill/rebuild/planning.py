"""Plans a rebuild: what it will replace, and whether all that the live job read can be read again."""

from collections.abc import Sequence

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.rebuild.behind import reading_aside, require_unswapped
from headwater_streams.backfill.rebuild.parts import chosen_part
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.store import BackfillError, BackfillFolder, stored
from headwater_streams.backfill.topics import require_same_topics
from headwater_streams.backfill.whole_planning import facts_of_plan
from headwater_streams.base.errors import DataLossError
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext


def plan_rebuild(
    context: StageContext,
    job: Job,
    *,
    reference: str = "",
    table: str | None = None,
    behind: Sequence[str] = (),
) -> RebuildPlan:
    """Plans to make a job's tables anew and stores the plan; the same code and tables give the same plan.

    Of a stateful job that names topics, of a window over several inputs, and of a chain of operators, the last part is
    rebuilt, of the tables before it. Where those were made by other code, or what it reads of its topics was let in by
    other columns and checks, they are made anew first (`table`), in their order, and what follows is planned `behind`
    them.

    Args:
        context: The session, the home, the record source.
        job: The job, as its code is now.
        reference: Where the job was loaded from; the command line loads it from there again.
        table: The table before the job's own that is made anew: `"gold.busiest__step_1"`.
        behind: Rebuilds of the tables that it reads, which have caught up and are not swapped in yet: it reads what
            they have made, and is swapped in after them.

    Raises:
        BackfillError: The job has not run yet, there is nothing of those others to read, or what comes to its last
            operator was made by other code and is not made anew.
        DataLossError: Records that the live job read are gone.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    for each in behind:
        require_same_topics(context, BackfillFolder(context.home, each).plan())
    chosen = chosen_part(context, job, table, behind)
    found = chosen.plan
    _require_tables(reading_aside(context, behind), found.job)
    target = found.job.target
    history = read_history(context.home.table(target.name), target.name, found.job.name)
    history.last_entry()  # refuses a job that has not run
    _require_records(context, found.job, history)
    read = [entry.totals["read"] for entry in history.entries()]
    following = [_told_next(job, chosen.following)] if chosen.following else []
    made = RebuildPlan(
        **facts_of_plan(context, found, history, reference),
        topic_ids=chosen.topic_ids,
        rows=sum(read),
        behind=tuple(behind),
        notes=(*chosen.notes, *following),
    )
    require_unswapped(context, made)
    return stored(context.home, made, context.now_ms())


def _told_next(job: Job, following: Sequence[str]) -> str:
    """What of a job is to be made anew behind one of its parts, for a person."""
    plan = f"headwater backfill plan {job.name} --rebuild"
    each = [f"{plan} --table {table}" for table in following[:-1]]
    return (
        "once this has run, plan what the job makes of it, with --behind for each rebuild before that, and swap all in "
        f"in this order: {', then '.join([*each, plan])}"
    )


def _require_tables(context: StageContext, job: Job) -> None:
    missing = [table.name for table in job.tables if not next_commit(context.home.table(table.name))]
    if missing:
        raise BackfillError(
            f"the job {job.name!r} reads {missing[0]} now, which nothing has been written to yet; build all of its "
            f"tables from empty: headwater jobs rebuild {job.name}"
        )


def _require_records(context: StageContext, job: Job, history: TableHistory) -> None:
    for topic in history.made_again:
        raise DataLossError(
            f"the topic {topic} was deleted and made again since the job {job.name!r} read it first, and what it had "
            "then is gone; what is there now can be repaired: headwater backfill plan JOB --all; to begin with an "
            f"empty table: headwater jobs rebuild {job.name}"
        )
    read = history.read_ranges()
    for topic in job.topic_names:
        there = context.source.partitions(topic)
        for partition, (start, _) in sorted(read.get(topic, {}).items()):
            earliest = there[partition][0] if partition in there else None
            if earliest is None or earliest > start:
                what = "the partition is gone" if earliest is None else f"[{start}, {earliest}) is gone"
                raise DataLossError(
                    f"the job {job.name!r} read {topic} {partition} from offset {start} on, and {what}; what is still "
                    "there can be repaired: headwater backfill plan with --offsets"
                )
