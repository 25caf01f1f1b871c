"""Fills the facts that the repair of a join is planned by: from both of its inputs, and from the target."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import (
    cut_at,
    first_to_last,
    is_written_since,
    offsets_of,
    row_input,
)
from headwater_streams.backfill.repair.joins.alone import keeps_rights
from headwater_streams.backfill.repair.joins.planning import JoinFacts, Sides, in_range, sides_named
from headwater_streams.backfill.repair.joins.replay import JoinReplay
from headwater_streams.backfill.repair.joins.times import of_other_times, reach_us, settled_before_us
from headwater_streams.backfill.repair.pinning import is_of_input, pin_told_apart, pinned_table
from headwater_streams.backfill.repair.rejected import rejected_among
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, PinnedInput
from headwater_streams.base.ledger_entry import Ranges, intersection, merge_ranges
from headwater_streams.delta.delta_table import read_version
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.failing_pairs import blamed_for_pairs
from headwater_streams.runtime.stages.failing_rows import known_failing
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.spark.columns import col


def join_facts(
    context: StageContext, part: JobPlan, history: TableHistory, selection: Selection, draft: BackfillPlan
) -> JoinFacts | Refusal:
    """What the repair of a join follows from."""
    refusal = of_other_times(part)
    if refusal is not None:
        return refusal
    left, right = part.sides
    pinned = pin_told_apart(context, part.job, history, left, by_record=True)
    if isinstance(pinned, Refusal):
        return pinned
    partner = pin_told_apart(context, part.job, history, right, by_record=True)
    if isinstance(partner, Refusal):
        return partner
    draft = replace(draft, pinned=pinned, partner=partner)
    reading = _Reading(context, part, history, draft, pinned, partner)
    named = reading.named_by(selection)
    facts = JoinFacts(draft=draft, part=part, selection=selection, read=reading.read, named=named)
    found = in_range(part, named, reading.read)
    return reading.with_settled(facts, found) if found.lefts or found.rights else facts


class _Reading:
    """The rows of both sides, each at one version.

    Attributes:
        read: The offsets that the job has read.
    """

    def __init__(
        self,
        context: StageContext,
        part: JobPlan,
        history: TableHistory,
        draft: BackfillPlan,
        pinned: PinnedInput,
        partner: PinnedInput,
    ) -> None:
        self._context, self._part, self._history, self._draft = context, part, history, draft
        self._pinned, self._partner = pinned, partner
        self._replay = JoinReplay(context, part, draft, history.entries())
        self._keeps_rights = keeps_rights(part)
        self.read = self._read_since(-1)

    def named_by(self, selection: Selection) -> Sides:
        """The rows that a range names, see `JoinFacts`."""
        if selection.offsets is not None:
            sides, _ = sides_named(selection, self.read)
            return self._with_lefts_near(sides)
        if selection.since_version is not None:
            return self._since(selection.since_version)
        if selection.rows == "late":
            late = self._replay.late_rights()
            lefts = merge_ranges([first_to_last(self._replay.late_lefts()), self._lefts_near(late)])
            return Sides(lefts=lefts, rights=first_to_last(late) if self._keeps_rights else {})
        if selection.rows == "quarantined":
            rejected = Sides(
                lefts=self._rejected(self._pinned, self.read.lefts),
                rights=self._rejected(self._partner, self.read.rights),
            )
            return self._with_lefts_near(rejected)
        return self._of_times(selection)

    def with_settled(self, facts: JoinFacts, found: Sides) -> JoinFacts:
        """The facts with the rows of a range that the live job is done with."""
        until_us = settled_before_us(self._part, self._history.entries())
        if not self._keeps_rights:
            settled = self._settled(found.lefts, until_us)
            return replace(facts, settled=settled, partly_covered=self._partly_covered(settled))
        before_us, _ = reach_us(self._part.operator)
        closed, until_us = self._replay.closed_rights(self.read.rights, until_us + before_us)
        settled = self._settled(found.lefts, until_us - before_us)
        near = merge_ranges([found.rights, self._replay.rights_near(settled)])
        rights, partly_covered = intersection(near, closed), self._partly_covered(settled)
        return replace(facts, settled=settled, rights=rights, partly_covered=partly_covered)

    def _partly_covered(self, lefts: Ranges) -> frozenset[Place]:
        """Right rows in quarantine for a pair that may have partners among these left rows, and among others."""
        known = known_failing(self._context.home.checkpoint(self._draft.job, self._draft.generation))
        blamed = blamed_for_pairs(known.get(self._part.sides[1], {}))
        if not blamed:
            return frozenset()
        rows = pinned_table(self._context, self._partner).filter(Offsets.at(blamed).condition())
        # Those that a repair has taken back since are no longer in quarantine.
        rights = rejected_among(self._context, self._draft.quarantine, rows)
        return self._replay.partly_covered(rights, lefts) if rights else frozenset()

    def _read_since(self, version: int) -> Sides:
        """What the live job has read after a version of the target."""
        of_left, of_right = (is_of_input(self._part.job, name) for name in self._part.sides)
        return Sides(
            lefts=self._history.read_ranges(since=version, of=of_left),
            rights=self._history.read_ranges(since=version, of=of_right),
        )

    def _since(self, version: int) -> Sides:
        """The rows that were read after a version of the target, and those that rows written since belong to."""
        target = self._context.home.table(self._draft.target)
        written = read_version(self._context.spark, target, self._draft.base_version)
        belong = first_to_last(written.filter(is_written_since(self._history, version)))
        read = self._read_since(version)
        return Sides(lefts=merge_ranges([read.lefts, belong]), rights=merge_ranges([read.rights, belong]))

    def _rejected(self, pinned: PinnedInput, read: Ranges) -> Ranges:
        """The rows of a side that are in quarantine, from the first to the last of each partition."""
        rows = pinned_table(self._context, pinned).filter(Offsets.of([read]).condition())
        return Offsets.at(rejected_among(self._context, self._draft.quarantine, rows)).spans

    def _of_times(self, selection: Selection) -> Sides:
        """The rows of some times, right ones up to as much later as partners may be; all by default."""
        left, right = self._part.sides
        lefts = self._offsets_of(left, self._pinned, selection, self.read.lefts)
        if not self._keeps_rights:
            return Sides(lefts=lefts)
        if selection.event_time is not None:
            (start, end), (before_us, _) = selection.event_time, reach_us(self._part.operator)
            selection = replace(selection, event_time=(start, end + before_us))
        return Sides(lefts=lefts, rights=self._offsets_of(right, self._partner, selection, self.read.rights))

    def _offsets_of(self, name: str, pinned: PinnedInput, selection: Selection, read: Ranges) -> Ranges:
        declared = self._part.job.inputs[name]
        return offsets_of(row_input(self._context, declared, pinned), declared, selection, read)

    def _with_lefts_near(self, sides: Sides) -> Sides:
        """The same with the left rows that may be partners of the right ones."""
        near = self._lefts_near(self._replay.rights(sides.rights)) if sides.rights else {}
        return replace(sides, lefts=merge_ranges([sides.lefts, near]))

    def _lefts_near(self, rights: DataFrame) -> Ranges:
        declared = self._part.job.inputs[self._part.sides[0]]
        source = row_input(self._context, declared, self._pinned)
        return self._replay.lefts_near(rights, source, self.read.lefts)

    def _settled(self, lefts: Ranges, until_us: int) -> Ranges:
        """Left rows up to the first of each partition that the live job is not done with."""
        event_time = self._part.job.inputs[self._part.sides[0]].event_time
        is_open = F.unix_micros(col(str(event_time))) >= F.lit(until_us)
        rows = pinned_table(self._context, self._pinned).filter(Offsets.of([lefts]).condition() & is_open)
        settled, _ = cut_at(lefts, first_to_last(rows))
        return intersection(settled, lefts)
