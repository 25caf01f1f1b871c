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


def plan_rewind(
    context: StageContext, job: Job, *, version: int, table: str | None = None, reference: str = ""
) -> RewindPlan:
    """Plans to put a job back to where its table was at a version, and stores the plan.

    Of a stateful job that names topics, the part behind its ingest tables is put back. All tables of a job that has
    several are put back to where they were after the same batch.

    Args:
        context: The session, the home, the record source.
        job: The job.
        version: The version of its table; that of the last batch up to it is meant.
        table: Of which of the job's tables it is a version, where it has several; by default of the first.
        reference: Where the job was loaded from; the command line loads it from there again.

    Raises:
        BackfillError: There is no such batch of the job's generation, its checkpoint has it no more, or others read
            its tables.
        DataLossError: Records that would be read again are gone.
    """
    found = plan_jobs(context, [job])[-1]
    job = found.job
    if found.kind == "scd":
        raise BackfillError(
            f"the job {job.name!r} applies change events, and one that comes again changes nothing; plan a "
            "rebuild: headwater backfill plan --rebuild"
        )
    names = [target.name for target in job.targets]
    if table is not None and table not in names:
        raise BackfillError(f"{table} is no table of the job {job.name!r}; it writes {', '.join(names)}")
    histories = {name: TableHistory(context.home.table(name), name, job.name) for name in names}
    require_no_readers(context, names)
    generation = current_generation(context, job)
    named = _batch_at(histories[table or job.target.name], job.name, generation, version)
    placed = {name: _place_of(history, named) for name, history in histories.items()}
    at_version, at = placed.pop(job.target.name)
    require_remembered(context, job.name, context.home.checkpoint(job.name, at.generation), at)
    history = histories[job.target.name]
    again = history.read_ranges(since=at_version)
    _require_records(context, job, again)
    later = history.entries(since=at_version)
    made = RewindPlan(
        **facts_of_plan(context, found, history, reference),
        version=at_version,
        batch=at.batch,
        ranges=again,
        versions={name: place for name, (place, _) in placed.items()},
        rows=sum(entry.totals["read"] for entry in later),
    )
    return stored(context.home, made, context.now_ms())


def _place_of(history: TableHistory, batch: LedgerEntry) -> tuple[int, LedgerEntry]:
    """The version of a job's table with which a batch was committed to it, and its entry there."""
    wanted = (batch.job, batch.generation, batch.batch)
    for commit in reversed(history.commits):
        entry = commit.entry
        if entry is not None and entry.is_batch and (entry.job, entry.generation, entry.batch) == wanted:
            return commit.version, entry
    raise BackfillError(
        f"{history.name} does not have batch {batch.batch} of the job {batch.job!r}, which {batch.table} has, so they "
        "cannot be put back together; plan a rebuild: headwater backfill plan --rebuild"
    )


def _batch_at(history: TableHistory, job: str, generation: int, version: int) -> LedgerEntry:
    """The last batch of a job that its table has at a version."""
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
    return earlier[-1][1]


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
