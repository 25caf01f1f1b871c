"""The table that a repair reads, at one version: every step reads the same rows, whatever comes meanwhile."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.backfill.store import BackfillError
from headwater_streams.base.ledger_entry import SourceRange
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.shared import recreated_topics_of, shares_coordinates
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.inputs import TableInput


def is_of_input(job: Job, name: str) -> Callable[[SourceRange], bool]:
    """Tells what was read of an input that is a table, whatever its parameter was called then."""
    tables = [declared.name for declared in job.inputs.values()]
    table = job.inputs[name].name
    return lambda source: source.table == table and (source.input == name or tables.count(table) == 1)


def pin_input(
    context: StageContext, job_plan: JobPlan, history: TableHistory, name: str
) -> tuple[PinnedInput, TableHistory]:
    """The table behind an input, at the last version that the job has read, and the table's history up to that.

    Raises:
        BackfillError: Rows that the job has read were rewritten behind some that it has not, or it has read none.
    """
    declared = job_plan.job.inputs[name]
    assert isinstance(declared, TableInput)
    is_of = is_of_input(job_plan.job, name)
    sources = [source for entry in history.entries() for source in entry.sources if is_of(source)]
    versions = next((s.versions for s in reversed(sources) if s.versions is not None), None)
    if versions is None:
        raise BackfillError(
            f"the job {job_plan.job.name!r} has not read anything of {declared.name} yet, so there is nothing to mend"
        )
    path = context.home.table(declared.name)
    version, unread = versions[1] - 1, 0
    for commit in read_history(path, declared.name).commits:
        if commit.version <= version:
            continue
        if commit.is_append:
            unread += 1
        elif not unread:
            version = commit.version  # what a swap rewrote is no news to the live job, but it is to be folded
        elif commit.data_changed:
            raise BackfillError(
                f"the job {job_plan.job.name!r} has not read {quantity(unread, 'commit')} of {declared.name} that came "
                "before its rows were rewritten; let the job catch up, then plan again"
            )
    read = read_history(path, declared.name, until=version)
    last = read.last_entry()
    rewritten = any(c.data_changed and c.removed_files for c in read.commits)
    return PinnedInput(
        table=declared.name, version=version, until=(last.generation, last.batch), was_rewritten=rewritten
    ), read


def pin_told_apart(context: StageContext, job_plan: JobPlan, history: TableHistory, name: str) -> PinnedInput:
    """As `pin_input`, of a table of which each row has coordinates of its own.

    Raises:
        BackfillError: It has rows that cannot be told apart by them.
    """
    pinned, _ = pin_input(context, job_plan, history, name)
    why = None
    if shares_coordinates(context.home, pinned.table):
        why = f"a row of {pinned.table} is made of several records"
    for topic in sorted(recreated_topics_of(context.home, pinned.table)):
        why = f"the topic {topic} was deleted and made again, and {pinned.table} has rows of both with the same offsets"
    if why is not None:
        raise BackfillError(
            f"{why}, so what the job {job_plan.job.name!r} makes of a range of offsets cannot be told from the rest; "
            "build all of its rows again: headwater backfill plan JOB --rebuild"
        )
    return pinned


def pinned_table(context: StageContext, pinned: PinnedInput) -> DataFrame:
    """All rows of a pinned table."""
    return read_version(context.spark, context.home.table(pinned.table), pinned.version)
