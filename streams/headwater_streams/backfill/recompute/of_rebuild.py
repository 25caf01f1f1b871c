"""What a rebuild wrote, recomputed: all offsets that its run read, but what that run found late."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame

from headwater_streams.backfill.expired import kept_of
from headwater_streams.backfill.history import LiveBatch, read_history
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.rebuild.behind import side_of_maker
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.recompute.dimensions import DimensionRecomputation
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
from headwater_streams.base.errors import StreamsError
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS, LedgerEntry, Ranges, merge_ranges
from headwater_streams.delta.delta_table import read_version
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.watermark import Watermark
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.storage.home import Home

_US_PER_MS = 1_000


def recompute_rebuild(
    context: StageContext,
    home: Home,
    job: Job,
    plan: JobPlan,
    planned: RebuildPlan,
    made: DataFrame,
    how: Recompute,
) -> Recomputed:
    """Recomputes what a rebuild wrote.

    Args:
        context: The session, the home, the record source.
        home: The shadow's home, with the tables that it reads.
        job: The job as it is declared.
        plan: The part of it that is rebuilt.
        planned: The rebuild.
        made: The rows that it wrote.
        how: How much.
    """
    if how == "none":
        return not_asked()
    target = plan.job.target
    history = read_history(home.table(target.name), target.name, planned.job)
    kept = kept_of(replace(context, home=home), plan, target.name)
    condition = None if kept is None else kept.condition()
    try:
        entries = history.entries()
        if plan.kind in ("row", "scd"):
            tables = {}
            for name in plan.job.inputs:
                table = _table_read(home, entries, name)
                if table is not None:
                    tables[name] = TableRows(table.rows(context), merge_ranges(_ranges_read(entries, name)))
            rows = WrittenRows(
                made, planned.columns, history.batches(), None, {}, tables=tables, kept=condition
            )
            if plan.kind == "row":
                return RowRecomputation(context, plan, rows).run(how, planned.id)
            read = sum(entry.totals["read"] for entry in entries)
            return DimensionRecomputation(context, plan, rows, planned.keys, read).run(how, planned.id)
        job = of_inputs(job, plan)
        counted = sum(e.totals["late"] + e.totals["partly_late"] for e in entries)
        if counted and plan.job.late == "count":
            raise NotRecomputableError(
                f"{counted:,} late rows are only counted (late='count'), and which they are is not known"
            )
        taken = {name: _taken(context, home, job, plan, planned, entries, name) for name in job.inputs}
        if plan.sides:
            watermark_us = Watermark.of(entries[-1]).at_us if entries else None
            joined = WrittenJoin(made, planned.columns, taken, _waiting(plan, entries), watermark_us)
            return JoinRecomputation(context, job, plan, joined).run(how)
        closed_until_us = _closed_until_us(entries) if target.mode == "append" else None
        (of_input,) = taken.values()
        windows = WrittenWindows(made, condition, planned.keys, planned.columns, of_input, closed_until_us)
        return WindowRecomputation(context, job, plan, windows).run(how, planned.id)
    except (NotRecomputableError, StreamsError) as why:
        return nothing(why)


def _taken(
    context: StageContext,
    home: Home,
    job: Job,
    plan: JobPlan,
    planned: RebuildPlan,
    entries: Sequence[LedgerEntry],
    name: str,
) -> Taken:
    target = plan.job.target
    rejected = [home.table(target.quarantine_table)]
    batches: Callable[[], Sequence[LiveBatch]] = tuple
    table = _table_read(home, entries, name)
    if table is not None and isinstance(job.inputs[name], TopicInput):
        # The ingest table; the job that fills it has the quarantine of the live job, or of its own rebuild.
        aside = side_of_maker(context.home, planned.behind, table.name, target.quarantine_table)
        rejected.append(aside or context.home.table(target.quarantine_table))
        of_table = read_history(table.path, table.name, until=table.version)
        require_topics_whole(of_table)
        batches = of_table.batches
    has_late = plan.job.late == "table" and (bool(plan.sides) or plan.window.closing)
    late = home.table(target.late_table) if has_late else None
    kept = None if table is None else table.rows(context)
    return Taken(Offsets.of(_ranges_read(entries, name)), rejected, late, batches, kept, len(entries))


def _ranges_read(entries: Sequence[LedgerEntry], name: str) -> list[Ranges]:
    """What each batch of a run has read of an input."""
    sources = (source for entry in entries for source in entry.sources)
    return [source.ranges for source in sources if source.input == name]


@dataclass(frozen=True)
class _TableRead:
    """A table, at the last version that the run has read of it."""

    name: str
    path: Path
    version: int

    def rows(self, context: StageContext) -> DataFrame:
        return read_version(context.spark, self.path, self.version)


def _table_read(home: Home, entries: Sequence[LedgerEntry], name: str) -> _TableRead | None:
    """The table behind an input; None where that is a topic, or nothing of it was read.

    Raises:
        NotRecomputableError: The run left out rows that the version has.
    """
    found = None
    for source in (source for entry in entries for source in entry.sources if source.input == name):
        if source.left_out:
            raise NotRecomputableError(f"rows of {source.table} were taken back before the job read them")
        if source.table is not None and source.versions is not None:
            found = _TableRead(source.table, home.table(source.table), source.versions[1] - 1)
    return found


def _waiting(plan: JobPlan, entries: Sequence[LedgerEntry]) -> int:
    """How many rows wait for a partner, of the sides of a join whose rows are written without one."""
    if not isinstance(plan.operator, IntervalJoin):
        return 0
    sides = dict(zip(("left", "right"), plan.sides, strict=True))
    names = [sides[side] for side in plan.operator.keeps]
    return sum(entry.accounting.get(name, {}).get("waiting", 0) for entry in entries for name in names)


def _closed_until_us(entries: Sequence[LedgerEntry]) -> int:
    """The watermark: windows that end there or before are written."""
    of_spark = [entry.watermark_ms * _US_PER_MS for entry in entries]
    own = [at_us for entry in entries if (at_us := Watermark.of(entry).at_us) is not None]
    return max([*of_spark, *own], default=NO_WATERMARK_MS * _US_PER_MS)
