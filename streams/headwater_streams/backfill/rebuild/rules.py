"""Which part of a job a rebuild makes anew, and whether it can: decided by facts alone, which `planning` fills.

    busiest__step_1 -> busiest__ingest_step_1 -> busiest      three rebuilds, each behind those before it

Where code before the last operator was changed, or what its topic's columns and checks let in, the tables in between
were made by what it was: they are made anew in their order, each of what the rebuild before it has made, and swapped in
one after the other.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headwater_streams.backfill.history import TableHistory, no_table
from headwater_streams.backfill.jobs import PartsBefore, feeding
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.whole_planning import WholeFacts
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.layout import partitioned_text
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.moments import iso
from headwater_streams.base.nearest import nearest
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan


@dataclass(frozen=True, kw_only=True)
class RebuildFacts:
    """What a rebuild follows from.

    Attributes:
        job: The job's name.
        parts: The job's parts, as their code is now.
        part: The one that is made anew.
        kept: Those before it that are not made anew.
        behind: The other rebuilds whose tables it reads.
        aside: The tables that these have made.
        codes: The code that they were planned with, by their jobs.
        topic_ids: The topics that it and the parts before it read, each with its id.
        unwritten: The tables that it reads and that nothing has been written to, there or aside.
        whole: The job and its target; None where there is no such table.
        held: What the topics hold.
        expired_us: Of the tables that it reads, the time before which their rows have expired, microseconds.
        kept_us: The time from which on its own table keeps rows; None where nothing of it has expired.
        partitions: Its tables whose partitions differ from those that it declares: these of now and those.
    """

    job: str
    parts: Sequence[JobPlan]
    part: JobPlan
    kept: PartsBefore = field(default_factory=PartsBefore)
    behind: tuple[str, ...] = ()
    aside: Collection[str] = frozenset()
    codes: Mapping[str, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    unwritten: Collection[str] = frozenset()
    whole: WholeFacts | None = None
    held: Ranges = field(default_factory=dict)
    expired_us: Mapping[str, int] = field(default_factory=dict)
    kept_us: int | None = None
    partitions: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)

    @property
    def before(self) -> list[JobPlan]:
        """The parts that feed it, in their order."""
        return feeding(self.parts, self.part)

    @property
    def following(self) -> list[str]:
        """The tables of the parts that are made of its rows."""
        return [each.job.target.name for each in self.parts if self.part in feeding(self.parts, each)]


def part_that_makes(parts: Sequence[JobPlan], job: str, table: str | None) -> JobPlan | Refusal:
    """The part of a job that makes a table, the job's own by default.

    Args:
        parts: The parts.
        job: The job's name.
        table: The table.
    """
    tables = [plan.job.target.name for plan in parts]
    if table is not None and table not in tables:
        return Refusal(
            f"{table} is no table that a rebuild of {job!r} makes; it has {nearest(table, tables)}"
        )
    return parts[-1] if table is None else parts[tables.index(table)]


def rebuild_of(facts: RebuildFacts) -> RebuildPlan | Refusal:
    """The plan."""
    refusal = _broken(facts) or facts.kept.refusal(facts.job) or _nothing_to_read(facts)
    if refusal is not None:
        return refusal
    if facts.whole is None:
        return no_table(facts.part.job.target.name)
    history = facts.whole.history
    if not history.entries():
        return history.never_ran
    refusal = _gone(facts.part.job, history, facts.held) or _expired(facts)
    if refusal is not None:
        return refusal
    return RebuildPlan(
        **facts.whole.of_plan(),
        topic_ids=facts.topic_ids,
        rows=sum(entry.totals["read"] for entry in history.entries()),
        behind=facts.behind,
        notes=(
            *facts.kept.notes(facts.job),
            *_notes_on_partitions(facts.partitions),
            *_note_on_the_next(facts.job, facts.following),
        ),
    )


def _broken(facts: RebuildFacts) -> Refusal | None:
    """Refuses a part of which one before was left as it was, where what that reads is made anew, or was made anew by
    other code."""
    for part in facts.before:
        name = part.job.target.name
        if name not in facts.aside and any(table.name in facts.aside for table in part.job.tables):
            return Refusal(
                f"{name} was made of rows that another rebuild has made anew; make it anew first: headwater backfill "
                f"plan {facts.job} --rebuild --table {name} --behind ID"
            )
    for part in facts.before:
        if facts.codes.get(part.job.name, part.job.fingerprint) != part.job.fingerprint:
            return Refusal(
                f"the rebuild of {part.job.target.name} was planned with other code than that of now; plan it again"
            )
    return None


def _nothing_to_read(facts: RebuildFacts) -> Refusal | None:
    """Refuses a job that reads a table which nothing has been written to."""
    job = facts.part.job
    missing = [table.name for table in job.tables if table.name in facts.unwritten]
    if not missing:
        return None
    return Refusal(
        f"the job {job.name!r} reads {missing[0]} now, which nothing has been written to yet; build all of its tables "
        f"from empty: headwater jobs rebuild {job.name}"
    )


def _gone(job: Job, history: TableHistory, held: Ranges) -> Refusal | None:
    """Refuses a job that has read what nobody can read again."""
    for topic in history.made_again:
        return Refusal(
            f"the topic {topic} was deleted and made again since the job {job.name!r} read it first, and what it had "
            "then is gone; what is there now can be repaired: headwater backfill plan JOB --all; to begin with an "
            f"empty table: headwater jobs rebuild {job.name}",
            DataLossError,
        )
    read = history.read_ranges()
    for topic in job.topic_names:
        for partition, (start, _) in sorted(read.get(topic, {}).items()):
            earliest, _ = held.get(topic, {}).get(partition, (None, None))
            if earliest is None or earliest > start:
                what = "the partition is gone" if earliest is None else f"[{start}, {earliest}) is gone"
                return Refusal(
                    f"the job {job.name!r} read {topic} {partition} from offset {start} on, and {what}; what is still "
                    "there can be repaired: headwater backfill plan with --offsets",
                    DataLossError,
                )
    return None


def _expired(facts: RebuildFacts) -> Refusal | None:
    """Refuses a table that has rows of what has expired in the tables that it is made of."""
    lost = {name: at_us for name, at_us in facts.expired_us.items() if at_us > (facts.kept_us or at_us - 1)}
    if not lost:
        return None
    table, since = max(lost, key=lambda name: lost[name]), iso(max(lost.values()))
    timed = all(declared.event_time for declared in facts.part.job.inputs.values())
    given = f"--event-time {since} END" if timed else "--offsets"
    return Refusal(
        f"rows of {table} before {since} have expired, and what {facts.part.job.target.name} has of them cannot be "
        f"made again; what came since can be repaired: headwater backfill plan {facts.job} {given}",
        DataLossError,
    )


def _notes_on_partitions(partitions: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> Iterator[str]:
    for table, (now, then) in partitions.items():
        yield f"{table} is {partitioned_text(now)} now, and {partitioned_text(then)} once this is swapped in"


def _note_on_the_next(job: str, following: Sequence[str]) -> tuple[str, ...]:
    """What of a job is to be made anew behind one of its parts, for a person."""
    if not following:
        return ()
    plan = f"headwater backfill plan {job} --rebuild"
    each = [f"{plan} --table {table}" for table in following[:-1]]
    note = (
        "once this has run, plan what the job makes of it, with --behind for each rebuild before that, and swap all in "
        f"in this order: {', then '.join([*each, plan])}"
    )
    return (note,)
