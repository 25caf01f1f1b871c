"""What a repair wrote, recomputed: late rows are folded in, and the range and the version are those of its plan."""

from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from headwater_streams.backfill.expired import kept_of
from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.input_rows import Taken, of_inputs
from headwater_streams.backfill.recompute.joins import JoinRecomputation, WrittenJoin
from headwater_streams.backfill.recompute.outcome import (
    NotRecomputableError,
    Recompute,
    Recomputed,
    not_asked,
    nothing,
    require_topics_whole,
)
from headwater_streams.backfill.recompute.row_inputs import TableRows
from headwater_streams.backfill.recompute.rows import RowRecomputation, WrittenRows
from headwater_streams.backfill.recompute.windows import WindowRecomputation, WrittenWindows
from headwater_streams.backfill.repair.joins.alone import keeps_rights, of_range
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan, PinnedInput
from headwater_streams.base.errors import StreamsError
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.watermark import Watermark


def recompute_repair(
    context: StageContext,
    job: Job,
    plan: JobPlan,
    planned: BackfillPlan,
    shadow: DataFrame,
    how: Recompute,
    table: str | None = None,
) -> Recomputed:
    """Recomputes what a repair wrote to a table.

    Args:
        context: The session, the home, the record source.
        job: The job as it is declared.
        plan: The part of it that is repaired.
        planned: The repair.
        shadow: The rows that it wrote.
        how: How much.
        table: The table, where the job writes several; the target by default.
    """
    if how == "none":
        return not_asked()
    target = planned.target
    try:
        if planned.kind == "row":
            history = read_history(
                context.home.table(target), target, planned.job, until=planned.base_version
            )
            columns = planned.parts[table or target].columns
            batches, tables = history.batches(), dict[str, TableRows]()
            if planned.pinned is not None:
                (name,) = plan.job.inputs
                ranges = merge_ranges([batch.id.ranges for batch in batches])
                tables[name] = TableRows(pinned_table(context, planned.pinned), ranges)
            kept = kept_of(context, plan, table or target, planned.parts[table or target].base_version)
            condition = None if kept is None else kept.condition()
            rows = WrittenRows(
                shadow, columns, batches, planned.ranges, planned.lookups, table, tables, condition
            )
            return RowRecomputation(context, plan, rows).run(how, planned.id)
        assert planned.pinned is not None
        live = read_history(context.home.table(target), target, planned.job, until=planned.base_version)
        count = len(live.entries())
        taken = _taken(context, planned, planned.pinned, planned.ranges, count)
        if planned.kind == "join":
            assert planned.partner is not None
            left, right = plan.sides
            sides = {left: taken, right: _taken(context, planned, planned.partner, None, count)}
            watermark_us = Watermark.of(live.last_entry()).at_us
            joined = WrittenJoin(shadow, planned.columns, sides, 0, watermark_us)
            if keeps_rights(plan):
                joined = replace(joined, due=partial(of_range, context, planned))
            return JoinRecomputation(context, of_inputs(job, plan), plan, joined).run(how)
        within = planned.affected.condition()
        windows = WrittenWindows(
            shadow, within, planned.keys, planned.columns, taken, planned.closed_until_us
        )
        return WindowRecomputation(context, of_inputs(job, plan), plan, windows).run(how, planned.id)
    except (NotRecomputableError, StreamsError) as why:
        return nothing(why)


def _taken(
    context: StageContext, planned: BackfillPlan, pinned: PinnedInput, ranges: Ranges | None, live: int
) -> Taken:
    """What the repair read of a table: the rows of some offsets, or all."""
    table = read_history(context.home.table(pinned.table), pinned.table, until=pinned.version)
    require_topics_whole(table)
    read = Offsets.of([source.ranges for entry in table.entries() for source in entry.sources])
    return Taken(
        read if ranges is None else read.inside(ranges),
        [context.home.table(planned.quarantine)],
        None,  # a repair folds late rows in
        table.batches,
        pinned_table(context, pinned),
        live,
    )
