"""Plans the repair of a row-by-row job: offsets of the topic, or of a table's rows, in steps of whole live batches.

A step reads whole batches where copies are told by their origin, for of two copies in one batch the first stays.

Everything here is decided by facts; `facts` has what fills them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater_streams.backfill.history import LiveBatch, TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import gone_from, refused_range, unreadable
from headwater_streams.backfill.repair.rejected import RejectedOf, rejected_to_mend
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, PinnedInput
from headwater_streams.backfill.values import LiveBatchId, Span
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import Ranges, count_of, intersection, merge_ranges, spelled
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.lookups import Versions
from headwater_streams.sources.coordinates import TIMESTAMP
from headwater_streams.sources.inputs import Input


@dataclass(frozen=True, kw_only=True)
class LostLookup:
    """A version of a look-up that cannot be read any more.

    Attributes:
        why: Why not, a sentence.
        batch: The first batch that read it.
    """

    why: str
    batch: int


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """What the repair of a row job follows from.

    Attributes:
        draft: The plan, as far as the job decides it.
        part: The job.
        selection: The range.
        history: The target's commits.
        pinned: The table that is read; None where topics are.
        held: What topics hold: the job's, and, for a range of times, all that it has read.
        named: The offsets that a range of offsets or times names; without one all that the job has read.
        made_of_gone: For a range of times, by table of the job: whether it has rows of the range that were made of what
            the topics hold no more; None where it does not have the time.
        rejected: For the records in quarantine, those of each partition.
        newest_lookups: Whether look-ups are read as they are now.
        lookups: Their newest versions.
        lost: A version of a look-up that a batch of the range read.
    """

    draft: BackfillPlan
    part: JobPlan
    selection: Selection
    history: TableHistory
    pinned: PinnedInput | None = None
    held: Ranges = field(default_factory=dict)
    named: Ranges = field(default_factory=dict)
    made_of_gone: Mapping[str, bool | None] = field(default_factory=dict)
    rejected: Sequence[RejectedOf] = ()
    newest_lookups: bool = False
    lookups: Versions = field(default_factory=dict)
    lost: LostLookup | None = None

    @property
    def declared(self) -> Input:
        """The input."""
        (declared,) = self.part.job.inputs.values()
        return declared

    @property
    def times(self) -> tuple[Span, str] | None:
        """A range of times, with the column that it is of."""
        if self.selection.event_time is not None:
            return self.selection.event_time, str(self.declared.event_time)
        return None if self.selection.timestamps is None else (self.selection.timestamps, TIMESTAMP)

    @property
    def gone(self) -> Ranges:
        """For a range of times, what the job has read and the topics hold no more."""
        if self.times is None or self.pinned is not None:  # a table's version was read when it was pinned
            return {}
        return gone_from(self.held, self.history.read_ranges())


@dataclass(frozen=True, kw_only=True)
class RowRange:
    """Which rows are mended.

    Attributes:
        ranges: Their offsets.
        batches: The live batches that have some of them, each with these.
        notes: What a person should know of the range.
    """

    ranges: Ranges
    batches: Sequence[tuple[LiveBatch, Ranges]]
    notes: tuple[str, ...]

    def pinned_lookups(self, part: JobPlan, *, newest: bool) -> list[str]:
        """The look-ups that are read at one version: all, or those of which a batch does not say what it read."""
        return [
            name for name in part.lookups if newest or any(name not in of.lookups for of, _ in self.batches)
        ]


def plan_rows(facts: RowFacts, rows_per_chunk: int) -> BackfillPlan | Refusal:
    """Adds to a plan which offsets are read again, and in which steps."""
    scope = range_of(facts)
    if isinstance(scope, Refusal):
        return scope
    if facts.lost is not None:
        return Refusal(
            f"{facts.lost.why}; batch {facts.lost.batch} read that version, so plan with the newest one "
            "(--lookups newest)"
        )
    names = scope.pinned_lookups(facts.part, newest=facts.newest_lookups)
    lookups = {name: facts.lookups[name] for name in names}
    since = {topic: first for topic, first in facts.history.made_again.items() if topic in scope.ranges}
    old = [
        f"the topic {topic} was deleted and made again; what was made of the old one stays as it is"
        for topic in since
    ]
    read_at = [
        f"the look-up {facts.part.job.lookups[name].name} is read at version {lookups[name].version}, its newest"
        for name in names
    ]
    return replace(
        facts.draft,
        ranges=scope.ranges,
        rows=count_of(scope.ranges),
        chunks=chunks_of(scope.batches, rows_per_chunk, lookups),
        pinned=facts.pinned,
        lookups=lookups,
        since=since,
        notes=(*facts.draft.notes, *old, *read_at, *scope.notes),
    )


def range_of(facts: RowFacts) -> RowRange | Refusal:
    """Which rows are mended; refused are a range that holds nothing, or that nobody can read again."""
    read, job = facts.history.read_ranges(), facts.part.job
    requested, notes = facts.named, tuple[str, ...]()
    if facts.selection.rows == "quarantined":
        rejected = rejected_to_mend(facts.rejected, job.topic_names or read, job.target.quarantine_table)
        if isinstance(rejected, Refusal):
            return rejected
        requested, notes = rejected.ranges, rejected.notes
    elif facts.selection.since_version is not None:
        requested = facts.history.read_ranges(since=facts.selection.since_version)
    else:
        refusal = refused_range(facts.declared, facts.selection, read, facts.draft.job)
        of_times = refusal or _notes_on_times(facts)
        if isinstance(of_times, Refusal):
            return of_times
        notes = of_times
    ranges = intersection(requested, read)
    if not ranges:
        return Refusal(f"no record of {facts.declared.name} is in the range, so there is nothing to mend")
    batches = [
        (batch, common)
        for batch in facts.history.batches()
        if (common := intersection(batch.id.ranges, ranges))
    ]
    by_origin = job.dedup is not None and job.dedup.by_headers
    needed = merge_ranges([batch.id.ranges for batch, _ in batches]) if by_origin else ranges
    return unreadable(needed, job.topic_names, facts.held) or RowRange(
        ranges=ranges, batches=batches, notes=notes
    )


def _notes_on_times(facts: RowFacts) -> tuple[str, ...] | Refusal:
    """What a range of times comes to, for a person; refused where rows of it were made of records that are gone."""
    notes: list[str] = []
    if facts.selection.event_time is not None:
        notes.append(
            f"what lies between the first and the last of a partition whose {facts.declared.event_time} is in the "
            "range is read again, too"
        )
    which = f"the offsets {', '.join(spelled(facts.gone))} are gone from the topic"
    for table, has_rows in facts.made_of_gone.items():
        if has_rows:
            return Refusal(
                f"{which}, and {table} has rows of the range that were made of them; what the topic still holds can be "
                "repaired by its offsets",
                DataLossError,
            )
        if has_rows is None:
            notes.append(f"{which}; what was made of them stays as it is, also where it is of the range")
    return tuple(dict.fromkeys(notes))


def chunks_of(
    batches: Sequence[tuple[LiveBatch, Ranges]], rows_per_chunk: int, pinned: Versions
) -> tuple[Chunk, ...]:
    """Steps of whole batches, each of one version of each look-up."""
    chunks: list[Chunk] = []
    ids: list[LiveBatchId] = []
    rows = 0
    before: Versions = {}
    for batch, common in batches:
        size = count_of(common)
        versions = {**batch.lookups, **pinned}
        if ids and (rows + size > rows_per_chunk or versions != before):
            chunks.append(Chunk(number=len(chunks), rows=rows, batches=tuple(ids)))
            ids, rows = [], 0
        ids.append(LiveBatchId(generation=batch.id.generation, batch=batch.id.batch, ranges=common))
        rows += size
        before = versions
    return (*chunks, Chunk(number=len(chunks), rows=rows, batches=tuple(ids)))
