"""What a rebuild wrote, recomputed: all offsets that its run read, but what that run found late."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.history import LiveBatch, TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.recompute.input_rows import Taken, require_topics
from headwater_streams.backfill.recompute.joins import JoinRecomputation, WrittenJoin
from headwater_streams.backfill.recompute.outcome import (
    NotRecomputableError,
    Recompute,
    Recomputed,
    not_asked,
    nothing,
)
from headwater_streams.backfill.recompute.rows import RowRecomputation, WrittenRows
from headwater_streams.backfill.recompute.windows import WindowRecomputation, WrittenWindows
from headwater_streams.errors import StreamsError
from headwater_streams.joins.interval import IntervalJoin
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.home import Home
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.delta_table import read_version

_OTHERS = {"as_of": "an as-of join", "scd": "a slowly changing dimension"}


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
        home: The shadow's home.
        job: The job as it is declared.
        plan: The part of it that is rebuilt.
        planned: The rebuild.
        made: The rows that it wrote.
        how: How much.
    """
    if how == "none":
        return not_asked()
    target = plan.job.target
    history = TableHistory(home.table(target.name), target.name, planned.job)
    try:
        if plan.kind == "row":
            rows = WrittenRows(made, planned.columns, history.batches(), None, {})
            return RowRecomputation(context, plan, rows).run(how, planned.id)
        if plan.kind in _OTHERS:
            raise NotRecomputableError(
                f"the job is {_OTHERS[plan.kind]}, and only rows, windows and joins of two streams are so far"
            )
        require_topics(job)
        entries = history.entries()
        counted = sum(e.totals["late"] + e.totals["partly_late"] for e in entries)
        if counted and plan.job.late == "count":
            raise NotRecomputableError(
                f"{counted:,} late rows are only counted (late='count'), and which they are is not known"
            )
        taken = {name: _taken(context, home, plan, entries, name) for name in job.inputs}
        if plan.kind == "join":
            joined = WrittenJoin(made, planned.columns, taken, _waiting(plan, entries))
            return JoinRecomputation(context, job, plan, joined).run(how)
        closed_until_us = _closed_until_us(entries) if target.mode == "append" else None
        (of_input,) = taken.values()
        windows = WrittenWindows(made, None, planned.keys, planned.columns, of_input, closed_until_us)
        return WindowRecomputation(context, job, plan, windows).run(how, planned.id)
    except (NotRecomputableError, StreamsError) as why:
        return nothing(why)


def _taken(
    context: StageContext, home: Home, plan: JobPlan, entries: Sequence[LedgerEntry], name: str
) -> Taken:
    target = plan.job.target
    rejected, kept = [home.table(target.quarantine_table)], None
    batches: Callable[[], Sequence[LiveBatch]] = tuple
    sources = [source for entry in entries for source in entry.sources if source.input == name]
    if sources and sources[-1].table is not None and sources[-1].versions is not None:
        # The ingest table; the job that fills it has the quarantine of the live job.
        rejected.append(context.home.table(target.quarantine_table))
        table, version = sources[-1].table, sources[-1].versions[1] - 1
        ingest = context.home.table(table)
        batches = TableHistory(ingest, table, until=version).batches
        kept = read_version(context.spark, ingest, version)
    has_late = plan.job.late == "table" and (plan.kind == "join" or plan.window.closing)
    late = home.table(target.late_table) if has_late else None
    return Taken(Offsets.of([source.ranges for source in sources]), rejected, late, batches, kept)


def _waiting(plan: JobPlan, entries: Sequence[LedgerEntry]) -> int:
    """How many rows wait for a partner, of the sides of a join whose rows are written without one."""
    assert isinstance(plan.operator, IntervalJoin)
    sides = dict(zip(("left", "right"), plan.sides, strict=True))
    names = [sides[side] for side in plan.operator.keeps]
    return sum(entry.accounting.get(name, {}).get("waiting", 0) for entry in entries for name in names)


def _closed_until_us(entries: Sequence[LedgerEntry]) -> int:
    """The watermark: windows that end there or before are written."""
    of_spark = [int(entry.extra.get("watermark_ms", 0)) * 1000 for entry in entries]
    return max([0, *of_spark, *[int(entry.extra.get("watermark_us") or 0) for entry in entries]])
