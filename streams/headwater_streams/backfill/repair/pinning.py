"""The table that a repair reads, at one version: every step reads the same rows, whatever comes meanwhile."""

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.base.ledger_entry import SourceRange
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.shared import has_places, recreated_topics_of, shares_coordinates
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext


def is_of_input(job: Job, name: str) -> Callable[[SourceRange], bool]:
    """Tells what was read of an input that is a table, whatever its parameter was called then."""
    tables = [declared.name for declared in job.inputs.values()]
    table = job.inputs[name].name
    return lambda source: source.table == table and (source.input == name or tables.count(table) == 1)


def version_to_pin(job: Job, name: str, history: TableHistory, commits: Sequence[Commit]) -> int | Refusal:
    """The version of the table behind an input at which it is read: the last one that the job has read.

    Args:
        job: The job.
        name: The input.
        history: The job's own table, whose entries say what it has read.
        commits: Those of the table behind the input.
    """
    table, is_of = job.inputs[name].name, is_of_input(job, name)
    sources = [source for entry in history.entries() for source in entry.sources if is_of(source)]
    versions = next((s.versions for s in reversed(sources) if s.versions is not None), None)
    if versions is None:
        return Refusal(
            f"the job {job.name!r} has not read anything of {table} yet, so there is nothing to mend"
        )
    version, unread = versions[1] - 1, 0
    for commit in commits:
        if commit.version <= version:
            continue
        if commit.is_append:
            unread += 1
        elif not unread:
            version = commit.version  # what a swap rewrote is no news to the live job, but it is to be folded
        elif commit.data_changed:
            return Refusal(
                f"the job {job.name!r} has not read {quantity(unread, 'commit')} of {table} that came before its rows "
                "were rewritten; let the job catch up, then plan again"
            )
    return version


def pinned_at(read: TableHistory) -> PinnedInput:
    """The table of a history, at the version that this ends with."""
    last = read.last_entry()
    rewritten = any(c.data_changed and c.removed_files for c in read.commits)
    return PinnedInput(
        table=read.name, version=read.version, until=(last.generation, last.batch), was_rewritten=rewritten
    )


def shared_coordinates(
    job: str, table: str, *, is_shared: bool, made_again: Iterable[str], is_several: bool = False
) -> Refusal | None:
    """Refuses a table of which several rows have the same coordinates.

    Args:
        job: The job's name.
        table: The table.
        is_shared: Whether rows of it are made of several records.
        made_again: The topics that were made again while rows of it were made of them.
        is_several: Whether a record may have become several rows of it, and the job knows them by their records.
    """
    why = f"a row of {table} is made of several records" if is_shared else None
    if is_several:
        why = f"rows of {table} are several to a record"
    for topic in sorted(made_again):
        why = f"the topic {topic} was deleted and made again, and {table} has rows of both with the same offsets"
    if why is None:
        return None
    return Refusal(
        f"{why}, so what the job {job!r} makes of a range of offsets cannot be told from the rest; build all of its "
        "rows again: headwater backfill plan JOB --rebuild"
    )


def pin_input(context: StageContext, job: Job, history: TableHistory, name: str) -> TableHistory | Refusal:
    """Reads the history of the table behind an input, up to the last version that the job has read."""
    table = job.inputs[name].name
    path = context.home.table(table)
    version = version_to_pin(job, name, history, read_history(path, table).commits)
    return version if isinstance(version, Refusal) else read_history(path, table, until=version)


def pin_told_apart(
    context: StageContext, job: Job, history: TableHistory, name: str, *, by_record: bool = False
) -> PinnedInput | Refusal:
    """The table behind an input, each row of which has coordinates of its own, at the last version that the job has
    read; `by_record` where the place of a row in its record does not count."""
    read = pin_input(context, job, history, name)
    if isinstance(read, Refusal):
        return read
    home = context.home
    refusal = shared_coordinates(
        job.name,
        read.name,
        is_shared=shares_coordinates(home, read.name),
        made_again=recreated_topics_of(home, read.name),
        is_several=by_record and has_places(home, read.name),
    )
    return refusal or pinned_at(read)


def pinned_table(context: StageContext, pinned: PinnedInput) -> DataFrame:
    """All rows of a pinned table."""
    return read_version(context.spark, context.home.table(pinned.table), pinned.version)
