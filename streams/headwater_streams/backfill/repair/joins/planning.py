"""Plans the repair of a join: offsets of its left rows, those whose partners have all come, in steps of many.

A row of the result belongs to its left row, so the left rows of some offsets say which rows of the target are made
anew. A left row that may still get a partner is left to the live job, which may have more rows to write for it:

    watermark                                     |
    left rows   ----a---------b--------------c----|---d--->
                    |<-within->|             |<-within->|
                    is repaired              is left to the live job, as d is

Of a join that keeps right rows without a partner, those near these left rows come along, by their own offsets: they
are written again if they are alone (see `alone`).

Everything here is decided by facts; `facts` has what fills them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import refused_range, unread
from headwater_streams.backfill.repair.joins.alone import keeps_rights, of_one_topic
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.base.ledger_entry import Ranges, count_of, intersection, merge_ranges
from headwater_streams.base.plural import quantity
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.stages.narrowing import Place


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Offsets of both sides of a join."""

    lefts: Ranges = field(default_factory=dict)
    rights: Ranges = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JoinFacts:
    """What the repair of a join follows from.

    Attributes:
        draft: The plan, as far as the job decides it, with the tables that are read.
        part: The job.
        selection: The range.
        read: What the job has read.
        named: What the range names: left rows, with those that may be partners of right ones that it names, and these.
        settled: Of the left rows those up to the first of each partition that the live job is not done with.
        rights: Of a join that keeps right rows alone, those that come along: named ones and those near the settled left
            rows, as far as the live job is done with them.
        partly_covered: Right rows in quarantine for a pair, of whose possible partners some are among the settled left
            rows and some are not.
    """

    draft: BackfillPlan
    part: JobPlan
    selection: Selection
    read: Sides
    named: Sides
    settled: Ranges = field(default_factory=dict)
    rights: Ranges = field(default_factory=dict)
    partly_covered: frozenset[Place] = frozenset()


def sides_named(selection: Selection, read: Sides) -> tuple[Sides, Ranges]:
    """The offsets of a range by the side that has read them, and those that neither has."""
    requested = selection.offsets or {}
    lefts = {topic: ranges for topic, ranges in requested.items() if topic in read.lefts}
    rights = {topic: ranges for topic, ranges in requested.items() if topic in read.rights}
    neither = {topic: ranges for topic, ranges in requested.items() if topic not in {**lefts, **rights}}
    return Sides(lefts=lefts, rights=rights), neither


def in_range(part: JobPlan, named: Sides, read: Sides) -> Sides:
    """The rows that a range names and the job has read; right ones of a join that keeps those without a partner."""
    rights = intersection(named.rights, read.rights) if keeps_rights(part) else {}
    return Sides(lefts=intersection(named.lefts, read.lefts), rights=rights)


def plan_join(facts: JoinFacts, rows_per_chunk: int) -> BackfillPlan | Refusal:
    """Adds to a plan which left rows are joined again, with what, and in which steps."""
    draft = facts.draft
    refusal = _refused(facts)
    if refusal is not None:
        return refusal
    assert draft.pinned is not None
    table, rows = draft.pinned.table, in_range(facts.part, facts.named, facts.read)
    if not rows.lefts and not rows.rights:
        return Refusal(f"no row of {table} is in the range, so there is nothing to mend")
    if not facts.settled and not facts.rights:
        return Refusal(
            f"the rows of {table} in the range may still get partners, so the job {draft.job!r} is not done with them; "
            "plan again once its watermark has passed them"
        )
    if facts.partly_covered:
        return _partly_covered(facts)
    notes, still_open = draft.notes, count_of(rows.lefts) - count_of(facts.settled)
    if still_open:
        note = (
            f"{quantity(still_open, 'row')} of {table} at the range's end {'is' if still_open == 1 else 'are'} left "
            f"out: the job {draft.job!r} is not done with them"
        )
        notes = (*notes, note)
    ranges = merge_ranges([facts.settled, facts.rights])
    return replace(
        draft,
        partner_name=facts.part.sides[1] if keeps_rights(facts.part) else "",
        ranges=ranges,
        rows=count_of(ranges),
        chunks=_chunks(facts.settled, facts.rights, rows_per_chunk),
        notes=notes,
    )


def _refused(facts: JoinFacts) -> Refusal | None:
    """Why a range cannot be meant."""
    draft, selection, part = facts.draft, facts.selection, facts.part
    if keeps_rights(part):
        refusal = of_one_topic(facts.read.lefts, facts.read.rights, draft.job)
        if refusal is not None:
            return refusal
    if selection.offsets is not None:
        sides, neither = sides_named(selection, facts.read)
        return unread({**sides.lefts, **neither}, facts.read.lefts, draft.job)
    if selection.rows is not None and not facts.named.lefts and not facts.named.rights:
        why = (
            f"no row of the job {draft.job!r} came late for a partner"
            if selection.rows == "late"
            else f"no row that the job {draft.job!r} has read is in {draft.quarantine}"
        )
        return Refusal(f"{why}, so there is nothing to do", NothingToRepairError)
    if selection.event_time is None:
        return None
    sides_read = (facts.read.lefts, *([facts.read.rights] if keeps_rights(part) else []))
    each = zip(part.sides, sides_read, strict=False)
    refusals = (refused_range(part.job.inputs[name], selection, read, draft.job) for name, read in each)
    return next((refusal for refusal in refusals if refusal is not None), None)


def _partly_covered(facts: JoinFacts) -> Refusal:
    """A right row that is in quarantine for a pair cannot be judged by some of its pairs."""
    topic, partition, offset = min(facts.partly_covered)
    return Refusal(
        f"{topic} {partition} offset {offset} is in {facts.draft.quarantine} for a pair, and of the left rows that may "
        "be its partners some are not in the range, so it cannot be judged; repair a longer range, or all"
    )


def _chunks(lefts: Ranges, rights: Ranges, rows_per_chunk: int) -> tuple[Chunk, ...]:
    """Stretches of all partitions at once, whose rows are of about one time."""
    count = max(1, -(-(count_of(lefts) + count_of(rights)) // rows_per_chunk))

    def part(ranges: Ranges, number: int) -> Ranges:
        cut = {
            topic: {
                partition: (
                    start + (end - start) * number // count,
                    start + (end - start) * (number + 1) // count,
                )
                for partition, (start, end) in partitions.items()
            }
            for topic, partitions in ranges.items()
        }
        return intersection(cut, ranges)

    parts: Sequence[tuple[Ranges, Ranges]] = [(part(lefts, n), part(rights, n)) for n in range(count)]
    return tuple(
        Chunk(number=number, rows=count_of(left) + count_of(right), lefts=left, rights=right)
        for number, (left, right) in enumerate(each for each in parts if any(each))
    )
