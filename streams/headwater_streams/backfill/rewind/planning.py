"""Plans a rewind: which commit, what is read again, and whether that can be."""

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.rewind.remembered import require_remembered
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.backfill.whole_planning import facts_of_plan, require_no_readers
from headwater_streams.errors import DataLossError
from headwater_streams.ledger.entry import LedgerEntry, Ranges
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import current_generation
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.runner import plan_jobs


def plan_rewind(context: StageContext, job: Job, *, version: int, reference: str = "") -> RewindPlan:
    """Plans to put a job back to where its table was at a version, and stores the plan.

    Of a stateful job that names topics, the part behind its ingest tables is put back.

    Args:
        context: The session, the home, the record source.
        job: The job.
        version: The version of its table; that of the last batch up to it is meant.
        reference: Where the job was loaded from; the command line loads it from there again.

    Raises:
        BackfillError: There is no such batch of the job's generation, its checkpoint has it no more, or others read
            the table.
        DataLossError: Records that would be read again are gone.
    """
    found = plan_jobs(context, [job])[-1]
    target = found.job.target
    if found.kind == "scd":
        raise BackfillError(
            f"the job {found.job.name!r} applies change events, and one that comes again changes nothing; plan a "
            "rebuild: headwater backfill plan --rebuild"
        )
    if found.job.other_tables:
        raise BackfillError(
            f"the job {found.job.name!r} also writes {', '.join(found.job.other_tables)}; jobs with one table can be "
            "put back"
        )
    history = TableHistory(context.home.table(target.name), target.name, found.job.name)
    require_no_readers(context, (target.name,))
    generation = current_generation(context, found.job)
    at_version, at = _batch_at(history, found.job.name, generation, version)
    require_remembered(context, found.job.name, context.home.checkpoint(found.job.name, at.generation), at)
    again = history.read_ranges(since=at_version)
    _require_records(context, found.job, again)
    later = history.entries(since=at_version)
    made = RewindPlan(
        **facts_of_plan(context, found, history, reference),
        version=at_version,
        batch=at.batch,
        ranges=again,
        rows=sum(entry.totals["read"] for entry in later),
    )
    return stored(context.home, made, context.now_ms())


def _batch_at(history: TableHistory, job: str, generation: int, version: int) -> tuple[int, LedgerEntry]:
    mine = [
        (commit.version, commit.entry)
        for commit in history.commits
        if commit.entry is not None and commit.entry.is_batch and commit.entry.generation == generation
    ]
    if not mine:
        raise BackfillError(
            f"generation {generation} of the job {job!r} has not written to {history.name} yet, so there is nothing to "
            "put back; what came before it is taken back by headwater backfill rollback"
        )
    earlier = [(at, entry) for at, entry in mine if at <= version]
    if not earlier:
        raise BackfillError(
            f"generation {generation} of the job {job!r} wrote its first batch as version {mine[0][0]} of "
            f"{history.name}, so it cannot be put back to version {version}; a swap before that is taken back by "
            "headwater backfill rollback"
        )
    if len(earlier) == len(mine):
        raise BackfillError(
            f"the job {job!r} has written nothing to {history.name} after version {version}: its last batch is version "
            f"{mine[-1][0]}"
        )
    repaired = [
        c.entry.extra["backfill"]
        for c in history.commits
        if c.entry and c.entry.kind == "backfill" and c.version > earlier[-1][0]
    ]
    if repaired:
        raise BackfillError(
            f"{history.name} was repaired by {repaired[-1]} since version {earlier[-1][0]}; roll that back first"
        )
    return earlier[-1]


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
