"""Whether a job can be put back to where its table was at a version: decided by facts alone, which `planning` fills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.rewind.remembered import KeptBatches, forgotten
from headwater_streams.backfill.rewind.sides import RepairedSide, told_undone
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.versions import why_not_back_to
from headwater_streams.backfill.whole_planning import WholeFacts
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges
from headwater_streams.ledger.log import Commit
from headwater_streams.plan.job import Job
from headwater_streams.runtime.compatibility import Difference, why_incompatible


@dataclass(frozen=True, kw_only=True)
class RewindFacts:
    """What a rewind follows from.

    Attributes:
        whole: The job and its target.
        named: The commits of the table whose version is meant.
        version: The version of the batch that is gone back to, in that table.
        at: That batch's entry, in the target.
        placed: The commit of each of the job's tables that is gone back to; refused where one does not have the batch.
        sides: The side tables that repairs have written anew since.
        kept: What the job's checkpoint has of its batches.
        keeps_rest: Whether it has the keys and the rows that wait.
        held: What the topics hold.
        differences: Of the job from the generation of the batch.
        topic_ids: The topics that it and the parts before it read, each with its id.
    """

    whole: WholeFacts
    named: TableHistory
    version: int
    at: LedgerEntry
    placed: Mapping[str, Commit] | Refusal
    kept: KeptBatches
    keeps_rest: bool = True
    sides: Sequence[RepairedSide] = ()
    held: Ranges = field(default_factory=dict)
    differences: Sequence[Difference] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def rewind_of(facts: RewindFacts) -> RewindPlan | Refusal:
    """The plan."""
    job, history, at = facts.whole.part.job, facts.whole.history, facts.at
    why_not = why_not_back_to(facts.named, facts.version, at, facts.sides, facts.kept)
    if why_not is not None:
        return Refusal(f"{facts.named.name} cannot be put back to version {facts.version}: {why_not}")
    if isinstance(facts.placed, Refusal):
        return facts.placed
    version = facts.placed[job.target.name].version
    again = history.read_ranges(since=version)
    refusal = forgotten(job.name, at, facts.kept, keeps_rest=facts.keeps_rest) or _gone(
        job, again, facts.held
    )
    if refusal is not None:
        return refusal
    halts = why_incompatible(job.name, facts.differences)
    return RewindPlan(
        **facts.whole.of_plan(),
        version=version,
        batch=at.batch,
        origin=at.generation,
        ranges=again,
        versions={name: commit.version for name, commit in facts.placed.items() if name != job.target.name},
        topic_ids=facts.topic_ids,
        rows=sum(entry.totals["read"] for entry in history.entries(since=version)),
        notes=(
            *told_undone(history.repairs(), version),
            *(() if halts is None else (f"put back there, {halts}",)),
        ),
    )


def commits_of(
    job: Job, histories: Mapping[str, TableHistory], batch: LedgerEntry
) -> dict[str, Commit] | Refusal:
    """The commit of each of a job's tables that has a batch as its last; refused where one does not have it.

    Args:
        job: The job.
        histories: The commits of the tables that its batches are written to.
        batch: The batch, as one of them has it.
    """
    targets = [target.name for target in job.targets]
    found: dict[str, Commit] = {}
    for name, history in histories.items():
        made = _made_by(history, batch) if name in targets else _changes_after(history, batch)
        if isinstance(made, Refusal):
            return made
        found[name] = made
    return found


def _made_by(history: TableHistory, batch: LedgerEntry) -> Commit | Refusal:
    """The commit of a batch to one of its job's tables."""
    named = (batch.job, batch.generation, batch.batch)
    for commit in reversed(history.commits):
        entry = commit.entry
        if entry is not None and entry.is_batch and (entry.job, entry.generation, entry.batch) == named:
            return commit
    return Refusal(
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


def _gone(job: Job, again: Ranges, held: Ranges) -> Refusal | None:
    """Refuses to read again what topics do not hold any more."""
    for topic in job.topic_names:
        for partition, (start, _) in sorted(again.get(topic, {}).items()):
            earliest, _ = held.get(topic, {}).get(partition, (None, None))
            if earliest is None or earliest > start:
                return Refusal(
                    f"the job {job.name!r} would read {topic} {partition} from offset {start} again, and the topic has "
                    f"{'no such partition' if earliest is None else f'nothing before {earliest}'} any more",
                    DataLossError,
                )
    return None
