"""The versions of a job's table that a rewind can go back to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.refusal import Refusal, accepted
from headwater_streams.backfill.rewind.remembered import KeptBatches, kept_batches, why_forgotten
from headwater_streams.backfill.rewind.sides import RepairedSide, repaired_sides, why_not_undone
from headwater_streams.backfill.store import utc_text
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.log import Commit
from headwater_streams.plan.job import Job
from headwater_streams.storage.home import Home


@dataclass(frozen=True)
class BatchVersion:
    """A version of a table that is a batch of its job.

    Attributes:
        version: The Delta version.
        generation: The job's generation.
        batch: The batch.
        committed_at: When it was committed, UTC, ISO 8601.
        read: How many rows the batch read.
        written: How many rows it added to the table.
        why_not: Why a rewind does not go back to it, as the end of a sentence; None where nothing speaks against it.
    """

    version: int
    generation: int
    batch: int
    committed_at: str
    read: int
    written: int
    why_not: str | None

    def to_json(self) -> Mapping[str, Any]:
        """The same as an object."""
        return asdict(self)


def versions(home: Home, job: Job, *, table: str | None = None) -> list[BatchVersion]:
    """The versions of a job's table that its batches made, the oldest first; those that were taken back are left out.

    Args:
        home: The home.
        job: The job.
        table: Which of the job's tables, where it has several; by default the first.

    Raises:
        BackfillError: It is no table of the job, or does not exist.
    """
    name = accepted(table_of(job, table))
    history = read_history(home.table(name), name, job.name)
    # A rebuild brought its batches in one version, whose last one is meant.
    batches = {commit.version: (commit, entry) for commit, entry in batches_of(history, job.name)}
    last, repairs = max(batches, default=None), history.repairs()

    def why_not(version: int, entry: LedgerEntry) -> str | None:
        if version == last:
            return "it is the last one"
        kept = kept_batches(home.checkpoint(entry.job, entry.generation), entry.batch)
        return why_not_back_to(history, version, entry, repaired_sides(home, job, repairs, version), kept)

    return [
        BatchVersion(
            version,
            entry.generation,
            entry.batch,
            utc_text(commit.timestamp_ms),
            entry.totals["read"],
            commit.rows_added,
            why_not(version, entry),
        )
        for version, (commit, entry) in batches.items()
    ]


def table_of(job: Job, table: str | None) -> str | Refusal:
    """The table that is meant; refused is one that is none of the job's."""
    names = [target.name for target in job.targets]
    if table is not None and table not in names:
        return Refusal(f"{table} is no table of the job {job.name!r}; it writes {', '.join(names)}")
    return table or job.target.name


def batches_of(history: TableHistory, job: str) -> list[tuple[Commit, LedgerEntry]]:
    """The commits of a job's batches that its table's rows come from, of all generations since it was built anew."""
    return [
        (commit, commit.entry)
        for commit in history.commits
        if commit.entry is not None and commit.entry.is_batch and commit.entry.job == job
    ]


def batch_at(history: TableHistory, job: str, version: int) -> tuple[int, LedgerEntry] | Refusal:
    """The last batch of a job that its table has at a version, with its own version; refused where it has none, or
    there is nothing behind it to be taken back."""
    if version > history.version:
        return Refusal(f"{history.name} has no version {version}; its newest is {history.version}")
    mine = batches_of(history, job)
    if not mine:
        return Refusal(
            f"the job {job!r} has written no batch to {history.name} yet, so there is nothing to put back"
        )
    for back, restored in _taken_back(history):
        if restored < version < back:
            return Refusal(
                f"what {history.name} had in version {version} was taken back by version {back}, so it cannot be put "
                "back to that; those that it can: headwater backfill versions"
            )
    earlier = [(commit, entry) for commit, entry in mine if commit.version <= version]
    if not earlier:
        return Refusal(
            f"the oldest batch of the job {job!r} in {history.name} is version {mine[0][0].version}, so it cannot be "
            f"put back to version {version}; to begin with an empty table, headwater jobs rebuild"
        )
    if len(earlier) == len(mine):
        return Refusal(
            f"the job {job!r} has written nothing to {history.name} after version {version}: its last batch is version "
            f"{mine[-1][0].version}"
        )
    commit, entry = earlier[-1]
    return commit.version, entry


def why_not_back_to(
    history: TableHistory,
    version: int,
    at: LedgerEntry,
    sides: Iterable[RepairedSide],
    kept: KeptBatches,
) -> str | None:
    """Why a table cannot be put back to a batch, as the end of a sentence; None where it can.

    Args:
        history: The table's commits.
        version: The batch's version.
        at: Its entry.
        sides: The side tables that repairs have written anew since.
        kept: What the job's checkpoint has of its batches.
    """
    if version < history.last_of_old:
        return (
            f"what came of a topic up to version {history.last_of_old} cannot be read again, for it was deleted and "
            "made again since"
        )
    return why_not_undone(sides) or why_forgotten(at.job, at.batch, kept)


def _taken_back(history: TableHistory) -> Iterator[tuple[int, int]]:
    """The versions that restored an earlier one, each with that."""
    for commit in history.commits:
        restored = Extra.RESTORED_VERSION.get(commit.entry) if commit.entry is not None else None
        if restored is not None:
            yield commit.version, int(restored)
