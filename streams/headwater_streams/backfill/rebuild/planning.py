"""Plans a rebuild: what it will replace, and whether all that the live job read can be read again."""

from collections.abc import Sequence

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.jobs import require_made_alike
from headwater_streams.backfill.rebuild.behind import reading_aside, require_unswapped
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.backfill.whole_planning import facts_of_plan
from headwater_streams.errors import DataLossError
from headwater_streams.ledger.log import next_commit
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.planning import plan_jobs


def plan_rebuild(
    context: StageContext, job: Job, *, reference: str = "", behind: Sequence[str] = ()
) -> RebuildPlan:
    """Plans to make a job's tables anew and stores the plan; the same code and tables give the same plan.

    Of a stateful job that names topics, and of a window over several inputs, the part behind its ingest tables is
    rebuilt.

    Args:
        context: The session, the home, the record source.
        job: The job, as its code is now.
        reference: Where the job was loaded from; the command line loads it from there again.
        behind: Rebuilds of the tables that it reads, which have caught up and are not swapped in yet: it reads what
            they have made, and is swapped in after them.

    Raises:
        BackfillError: The job has not run yet, there is nothing of those others to read, or the rows that it unites
            were united by other code.
        DataLossError: Records that the live job read are gone.
    """
    plans = plan_jobs(reading_aside(context, behind), [job])
    require_made_alike(context, plans)
    found = plans[-1]
    _require_tables(context, found.job)
    target = found.job.target
    history = TableHistory(context.home.table(target.name), target.name, found.job.name)
    history.last_entry()  # refuses a job that has not run
    _require_records(context, found.job, history)
    read = [entry.totals["read"] for entry in history.entries()]
    made = RebuildPlan(
        **facts_of_plan(context, found, history, reference), rows=sum(read), behind=tuple(behind)
    )
    require_unswapped(context, made)
    return stored(context.home, made, context.now_ms())


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
