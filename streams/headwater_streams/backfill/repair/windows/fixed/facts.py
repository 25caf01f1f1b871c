"""Fills the facts that the repair of windows of fixed times is planned by: from the input, and from the target."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.pinning import pin_input, pinned_at
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.windows.asked import is_asked, rejected_rows, wanted_rows
from headwater_streams.backfill.repair.windows.fixed.planning import FixedFacts, RowGroup, without_starts
from headwater_streams.backfill.repair.windows.fixed.replay import FIRST_US, LAST_US, FixedReplay
from headwater_streams.backfill.values import Span
from headwater_streams.delta.delta_table import read_version
from headwater_streams.operators.windows.spec import WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import OFFSET, PARTITION, TOPIC


def fixed_facts(
    context: StageContext, part: JobPlan, history: TableHistory, selection: Selection, draft: BackfillPlan
) -> FixedFacts | Refusal:
    """What the repair of windows of fixed times follows from."""
    read = without_starts(draft, part) or pin_input(context, part.job, history, draft.input_name)
    if isinstance(read, Refusal):
        return read
    pinned = pinned_at(read)
    replay = FixedReplay(context, part, pinned)
    rejected = rejected_rows(context, draft, replay.rows()) if selection.rows == "quarantined" else None
    late = replay.is_late(history.folded()) if selection.rows == "late" else None
    target = read_version(context.spark, context.home.table(draft.target), draft.base_version)
    named = is_asked(selection, history, was_rewritten=pinned.was_rewritten)
    return FixedFacts(
        draft=draft,
        part=part,
        selection=selection,
        history=history,
        read=read,
        groups=_groups(replay, wanted_rows(selection, history, rejected) if late is None else late),
        named=_starts(target.filter(named)),
        bounds=_first_and_last(target) if selection == Selection() else None,
        rejected=0 if rejected is None else rejected.count,
    )


def _groups(replay: FixedReplay, in_range: Column) -> list[RowGroup]:
    """The rows of the input, those of the same windows and partition together, with how many are in the range."""
    grouped = replay.rows().groupBy(FIRST_US, LAST_US, TOPIC, PARTITION)
    rows = grouped.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(in_range).alias("in_range"),
        F.min(OFFSET).alias("start"),
        (F.max(OFFSET) + 1).alias("end"),
    ).collect()
    return [
        RowGroup(
            (row[FIRST_US], row[LAST_US]),
            row["rows"],
            row["in_range"],
            {row[TOPIC]: {row[PARTITION]: (row["start"], row["end"])}},
        )
        for row in rows
    ]


def _starts(windows: DataFrame) -> frozenset[int]:
    """When windows of the target begin, microseconds."""
    start_us = F.unix_micros(WINDOW_START).alias("start_us")
    return frozenset(row["start_us"] for row in windows.select(start_us).distinct().collect())


def _first_and_last(windows: DataFrame) -> Span | None:
    """When the first window of the target begins, and the last; None where it has none."""
    start_us = F.unix_micros(WINDOW_START)
    row = windows.agg(F.min(start_us).alias("first"), F.max(start_us).alias("last")).first()
    assert row is not None
    return None if row["first"] is None else (row["first"], row["last"])
