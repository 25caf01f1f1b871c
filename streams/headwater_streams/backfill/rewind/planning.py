"""Plans a rewind: which commit, what is read again, and whether that can be."""

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.jobs import feeding
from headwater_streams.backfill.rewind.remembered import require_remembered
from headwater_streams.backfill.rewind.sides import told_undone
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.versions import batch_at, table_of
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.backfill.topics import ids_of_topics
from headwater_streams.backfill.whole_planning import whole_facts
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges
from headwater_streams.ledger.log import Commit
from headwater_streams.plan.job import Job
from headwater_streams.runtime.compatibility import differences, why_incompatible
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs


def plan_rewind(
    context: StageContext, job: Job, *, version: int, table: str | None = None, reference: str = ""
) -> RewindPlan:
    """Plans to put a job back to where its table was at a version, and stores the plan.

    Of a stateful job that names topics, the part behind its ingest tables is put back. All tables of a job that has
    several are put back to where they were after the same batch.

    Args:
        context: The session, the home, the record source.
        job: The job.
        version: The version of its table; that of the last batch up to it is meant, of whichever generation, see
            `versions`.
        table: Of which of the job's tables it is a version, where it has several; by default of the first.
        reference: Where the job was loaded from; the command line loads it from there again.

    Raises:
        BackfillError: There is no such batch, its checkpoint is gone, or a later repair changed a side table that
            another job writes, too.
        DataLossError: Records that would be read again are gone.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    plans = plan_jobs(context, [job])
    found = plans[-1]
    job, topic_ids = found.job, ids_of_topics(context, [*feeding(plans, found), found])
    named, names = table_of(job, table), (job.target.name, *job.other_tables)
    targets = [target.name for target in job.targets]
    histories = {name: read_history(context.home.table(name), name, job.name) for name in names}
    wanted = batch_at(context.home, histories[named], job, version)
    placed = {
        name: (_made_by if name in targets else _changes_after)(history, wanted)
        for name, history in histories.items()
    }
    at_version, at = placed[job.target.name].version, placed[job.target.name].entry
    assert at is not None, "it is the batch's commit"
    checkpoint = context.home.checkpoint(job.name, at.generation)
    require_remembered(context, job.name, checkpoint, at)
    history = histories[job.target.name]
    again = history.read_ranges(since=at_version)
    _require_records(context, job, again)
    later = history.entries(since=at_version)
    halts = why_incompatible(job.name, differences(context, found, at.generation))
    made = RewindPlan(
        **whole_facts(context, found, history, reference).of_plan(),
        version=at_version,
        batch=at.batch,
        origin=at.generation,
        ranges=again,
        versions={name: commit.version for name, commit in placed.items() if name != job.target.name},
        topic_ids=topic_ids,
        rows=sum(entry.totals["read"] for entry in later),
        notes=(
            *told_undone(history.repairs(), at_version),
            *(() if halts is None else (f"put back there, {halts}",)),
        ),
    )
    return stored(context.home, made, context.now_ms())


def _made_by(history: TableHistory, batch: LedgerEntry) -> Commit:
    """The commit of a batch to one of its job's tables."""
    wanted = (batch.job, batch.generation, batch.batch)
    for commit in reversed(history.commits):
        entry = commit.entry
        if entry is not None and entry.is_batch and (entry.job, entry.generation, entry.batch) == wanted:
            return commit
    raise BackfillError(
        f"{history.name} does not have batch {batch.batch} of the job {batch.job!r}, which {batch.table} has, so they "
        "cannot be put back together; plan a rebuild: headwater backfill plan JOB --rebuild"
    )


def _changes_after(history: TableHistory, batch: LedgerEntry) -> Commit:
    """The last commit to a dimension's table of changes up to a batch; not each batch has something for it."""
    upto = (batch.generation, batch.batch)
    for commit in reversed(history.commits):
        entry = commit.entry
        if entry is not None and entry.kind == "side" and (entry.generation, entry.batch) <= upto:
            return commit
    return history.commits[0]


def _require_records(context: StageContext, job: Job, again: Ranges) -> None:
    for topic in job.topic_names:
        there = context.source.partitions(topic)
        for partition, (start, _) in sorted(again.get(topic, {}).items()):
            earliest = there[partition][0] if partition in there else None
            if earliest is None or earliest > start:
                raise DataLossError(
                    f"the job {job.name!r} would read {topic} {partition} from offset {start} again, and the topic has "
                    f"{'no such partition' if earliest is None else f'nothing before {earliest}'} any more"
                )
