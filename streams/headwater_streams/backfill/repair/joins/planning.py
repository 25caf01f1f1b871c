"""Plans the repair of a join: offsets of its left rows, those whose partners have all come, in steps of many.

A row of the result belongs to its left row, so the left rows of some offsets say which rows of the target are made
anew. A left row that may still get a partner is left to the live job, which may have more rows to write for it:

    watermark                                     |
    left rows   ----a---------b--------------c----|---d--->
                    |<-within->|             |<-within->|
                    is repaired              is left to the live job, as d is

Of a join that keeps right rows without a partner, those near these left rows come along, by their own offsets: they
are written again if they are alone (see `alone`).
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory, count_of, intersection
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.input import (
    asked_of,
    cut_at,
    first_to_last,
    is_written_since,
    require_read,
    row_input,
)
from headwater_streams.backfill.repair.joins.alone import keeps_rights, require_apart
from headwater_streams.backfill.repair.joins.replay import JoinReplay
from headwater_streams.backfill.repair.joins.times import reach_us, require_own_times, settled_before_us
from headwater_streams.backfill.repair.pinning import is_of_input, pin_told_apart, pinned_table
from headwater_streams.backfill.repair.rejected import rejected_among
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, PinnedInput
from headwater_streams.backfill.store import BackfillError, NothingToRepairError
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.spark.columns import col


def plan_joins(
    context: StageContext,
    job_plan: JobPlan,
    history: TableHistory,
    selection: Selection,
    draft: BackfillPlan,
    rows_per_chunk: int,
) -> BackfillPlan:
    """Adds to a plan which left rows are joined again, with what, and in which steps.

    Raises:
        BackfillError: Nothing of the range can be repaired, or the rows of a side cannot be told apart.
    """
    require_own_times(job_plan)
    left, right = job_plan.sides
    pinned = pin_told_apart(context, job_plan, history, left)
    partner = pin_told_apart(context, job_plan, history, right)
    draft = replace(draft, pinned=pinned, partner=partner)
    replay = JoinReplay(context, job_plan, draft, history.entries())
    range_ = _Range(context, job_plan, history, draft, replay)
    lefts, rights = range_.of(selection)
    if not lefts and not rights:
        raise BackfillError(f"no row of {pinned.table} is in the range, so there is nothing to mend")
    until_us = settled_before_us(job_plan, history.entries())
    if keeps_rights(job_plan):
        draft = replace(draft, partner_name=right)
        before_us, _ = reach_us(job_plan.operator)
        closed, until_us = replay.closed_rights(range_.rights, until_us + before_us)
        until_us -= before_us
    settled, open_rows = _settled(context, job_plan, pinned, lefts, until_us)
    if keeps_rights(job_plan):
        rights = intersection(merge_ranges([rights, replay.rights_near(settled)]), closed)
    if not settled and not rights:
        raise BackfillError(
            f"the rows of {pinned.table} in the range may still get partners, so the job {draft.job!r} is not done "
            "with them; plan again once its watermark has passed them"
        )
    notes = [*draft.notes]
    if open_rows:
        notes.append(
            f"{quantity(open_rows, 'row')} of {pinned.table} at the range's end {'is' if open_rows == 1 else 'are'} "
            f"left out: the job {draft.job!r} is not done with them"
        )
    ranges = merge_ranges([settled, rights])
    return replace(
        draft,
        ranges=ranges,
        rows=count_of(ranges),
        chunks=_chunks(settled, rights, rows_per_chunk),
        notes=tuple(notes),
    )


class _Range:
    """Which rows of a join's sides a range names.

    Attributes:
        lefts: The offsets of the left rows that the job has read.
        rights: Those of the right rows.
    """

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        history: TableHistory,
        draft: BackfillPlan,
        replay: JoinReplay,
    ) -> None:
        self._context, self._plan, self._history = context, plan, history
        self._draft, self._replay = draft, replay
        is_left, is_right = (is_of_input(plan.job, name) for name in plan.sides)
        self.lefts, self.rights = history.read_ranges(of=is_left), history.read_ranges(of=is_right)
        self._with_rights = keeps_rights(plan)
        if self._with_rights:
            require_apart(self.lefts, self.rights, draft.job)

    def of(self, selection: Selection) -> tuple[Ranges, Ranges]:
        """The left rows, and of a join that keeps right rows alone the right ones that are told by themselves.

        Raises:
            BackfillError: The job has not read them, or no row is late where late ones are meant.
        """
        if selection.offsets is not None:
            lefts, rights = self._of_offsets(selection.offsets)
        elif selection.since_version is not None:
            lefts, rights = self._since(selection.since_version)
        elif selection.rows == "late":
            lefts, rights = self._late()
        elif selection.rows == "quarantined":
            lefts, rights = self._rejected()
        else:
            lefts, rights = self._of_times(selection)
        return intersection(lefts, self.lefts), intersection(rights, self.rights) if self._with_rights else {}

    def _of_offsets(self, asked: Ranges) -> tuple[Ranges, Ranges]:
        """The left rows of some offsets, and those that may be partners of the right rows of some."""
        of_left = {topic: found for topic, found in asked.items() if topic in self.lefts}
        of_right = {topic: found for topic, found in asked.items() if topic in self.rights}
        neither = {
            topic: found
            for topic, found in asked.items()
            if topic not in self.lefts and topic not in self.rights
        }
        require_read(of_left | neither, self.lefts, self._draft.job)
        near = self._lefts_near(self._replay.rights(of_right)) if of_right else {}
        return merge_ranges([of_left, near]), of_right

    def _since(self, version: int) -> tuple[Ranges, Ranges]:
        """The rows that were read after a version of the target, and those that rows written since belong to."""
        is_left, is_right = (is_of_input(self._plan.job, name) for name in self._plan.sides)
        target = self._context.home.table(self._draft.target)
        written = read_version(self._context.spark, target, self._draft.base_version)
        belong = first_to_last(written.filter(is_written_since(self._history, version)))
        read = (self._history.read_ranges(since=version, of=side) for side in (is_left, is_right))
        lefts, rights = (merge_ranges([each, belong]) for each in read)
        return lefts, rights

    def _late(self) -> tuple[Ranges, Ranges]:
        """The late left rows, those that may be partners of late right rows, and these."""
        late = self._replay.late_rights()
        lefts = [first_to_last(self._replay.late_lefts()), self._lefts_near(late)]
        rights = first_to_last(late) if self._with_rights else {}
        if not any((*lefts, rights)):
            raise NothingToRepairError(
                f"no row of the job {self._draft.job!r} came late for a partner, so there is nothing to do"
            )
        return merge_ranges(lefts), rights

    def _rejected(self) -> tuple[Ranges, Ranges]:
        """The left rows that are in quarantine, those that may be partners of right ones there, and these."""
        sides = zip((self._draft.pinned, self._draft.partner), (self.lefts, self.rights), strict=True)
        found = []
        for pinned, read in sides:
            assert pinned is not None
            rows = pinned_table(self._context, pinned).filter(Offsets.of([read]).condition())
            found.append(Offsets.at(rejected_among(self._context, self._draft.quarantine, rows)).spans)
        left, right = found
        if not left and not right:
            raise NothingToRepairError(
                f"no row that the job {self._draft.job!r} has read is in {self._draft.quarantine}, so there is nothing "
                "to do"
            )
        near = self._lefts_near(self._replay.rights(right)) if right else {}
        return merge_ranges([left, near]), right if self._with_rights else {}

    def _of_times(self, selection: Selection) -> tuple[Ranges, Ranges]:
        """The rows of some times, right ones up to as much later as partners may be; all by default."""
        left, right = self._plan.sides
        lefts = self._asked_of(left, self._draft.pinned, selection, self.lefts)
        if not self._with_rights:
            return lefts, {}
        if selection.event_time is not None:
            (start, end), (before_us, _) = selection.event_time, reach_us(self._plan.operator)
            selection = replace(selection, event_time=(start, end + before_us))
        return lefts, self._asked_of(right, self._draft.partner, selection, self.rights)

    def _asked_of(self, name: str, pinned: PinnedInput | None, selection: Selection, read: Ranges) -> Ranges:
        declared = self._plan.job.inputs[name]
        return asked_of(
            row_input(self._context, declared, pinned), declared, selection, read, self._draft.job
        )

    def _lefts_near(self, rights: DataFrame) -> Ranges:
        declared = self._plan.job.inputs[self._plan.sides[0]]
        source = row_input(self._context, declared, self._draft.pinned)
        return self._replay.lefts_near(rights, source, self.lefts)


def _settled(
    context: StageContext, job_plan: JobPlan, pinned: PinnedInput, ranges: Ranges, until_us: int
) -> tuple[Ranges, int]:
    """The ranges up to the first row of each partition that the live job is not done with, and how many such there
    are."""
    event_time = job_plan.job.inputs[job_plan.sides[0]].event_time
    is_open: Column = F.unix_micros(col(str(event_time))) >= F.lit(until_us)
    rows = pinned_table(context, pinned).filter(Offsets.of([ranges]).condition() & is_open)
    settled, _ = cut_at(ranges, first_to_last(rows))
    return intersection(settled, ranges), count_of(ranges) - count_of(settled)


def _chunks(lefts: Ranges, rights: Ranges, rows_per_chunk: int) -> tuple[Chunk, ...]:
    """Stretches of all partitions at once, whose rows are of about one time."""
    count = max(1, -(-(count_of(lefts) + count_of(rights)) // rows_per_chunk))

    def part(ranges: Ranges, number: int) -> Ranges:
        found = {
            topic: {
                partition: (
                    start + (end - start) * number // count,
                    start + (end - start) * (number + 1) // count,
                )
                for partition, (start, end) in partitions.items()
            }
            for topic, partitions in ranges.items()
        }
        return intersection(found, ranges)

    parts: Sequence[tuple[Ranges, Ranges]] = [(part(lefts, n), part(rights, n)) for n in range(count)]
    return tuple(
        Chunk(number=number, rows=count_of(left) + count_of(right), lefts=left, rights=right)
        for number, (left, right) in enumerate(each for each in parts if any(each))
    )
