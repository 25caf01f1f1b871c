"""Recomputes what a backfill wrote, by another path than the run's, and compares: the finding "recomputed".

    the run          topic -> (ingest table ->) batches or chunks -> state or shadow -> rows
    recomputed       topic -> one batch -> the job's function, once -> rows

Of the topic the offsets are read that the plan or the ledger says feed the rows. Rejected, late and repeated records
are left out by their coordinates in the side tables or by the job's own definition. `rows` has row-by-row jobs,
`windows` tumbling, hopping and cumulative windows and aggregates by key; joins, as-of joins, sessions, count windows
and dimensions are not recomputed. Of jobs that read a table the repairs of row-by-row ones are, from the version of the
table that the run read. By default a sample is, see `sampling`.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.history import LiveBatch, TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.recompute.outcome import (
    NotRecomputableError,
    Recompute,
    Recomputed,
    nothing,
)
from headwater_streams.backfill.recompute.rows import RowRecomputation, WrittenRows
from headwater_streams.backfill.recompute.windows import WindowRecomputation, WrittenWindows
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.errors import StreamsError
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.home import Home
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.delta_table import read_version
from headwater_streams.sources.inputs import TopicInput

__all__ = ["Recompute", "Recomputed", "recompute_rebuild", "recompute_repair"]

_NOT_ASKED = "it was not asked for (--recompute none)"
_KINDS = {"join": "a join", "as_of": "an as-of join", "scd": "a slowly changing dimension"}


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
        return nothing(_NOT_ASKED)
    target = planned.target
    try:
        if planned.kind == "row":
            history = TableHistory(
                context.home.table(target), target, planned.job, until=planned.base_version
            )
            columns = planned.parts[table or target].columns
            rows = WrittenRows(
                shadow, columns, history.batches(), planned.ranges, planned.lookups, table, planned.pinned
            )
            return RowRecomputation(context, plan, rows).run(how, planned.id)
        _require_topic(job)
        pinned = planned.pinned
        assert pinned is not None
        ingest = TableHistory(context.home.table(pinned.table), pinned.table, until=pinned.version)
        read = Offsets.of([source.ranges for entry in ingest.entries() for source in entry.sources])
        windows = WrittenWindows(
            shadow,
            planned.affected.condition(),
            planned.keys,
            planned.columns,
            read.inside(planned.ranges),
            [context.home.table(planned.quarantine)],
            None,  # a repair folds late rows in
            None,
            ingest.batches,
            pinned_table(context, pinned),
        )
        return WindowRecomputation(context, job, plan, windows).run(how, planned.id)
    except (NotRecomputableError, StreamsError) as why:
        return nothing(why)


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
        return nothing(_NOT_ASKED)
    target = plan.job.target
    history = TableHistory(home.table(target.name), target.name, planned.job)
    try:
        if plan.kind == "row":
            rows = WrittenRows(made, planned.columns, history.batches(), None, {})
            return RowRecomputation(context, plan, rows).run(how, planned.id)
        if plan.kind != "window":
            raise NotRecomputableError(
                f"the job is {_KINDS[plan.kind]}, and only rows and windows are so far"
            )
        _require_topic(job)
        entries = history.entries()
        counted = sum(e.totals["late"] + e.totals["partly_late"] for e in entries)
        if counted and plan.job.late == "count":
            raise NotRecomputableError(
                f"{counted:,} late rows are only counted (late='count'), and which they are is not known"
            )
        rejected, kept = [home.table(target.quarantine_table)], None
        batches: Sequence[LiveBatch] = ()
        for source in entries[-1].sources if entries else ():
            if source.table is None or source.versions is None:
                continue
            # The ingest table; the job that fills it has the quarantine of the live job.
            rejected.append(context.home.table(target.quarantine_table))
            ingest, version = context.home.table(source.table), source.versions[1] - 1
            batches = TableHistory(ingest, source.table, until=version).batches()
            kept = read_version(context.spark, ingest, version)
        watermarks = [e.extra["watermark_ms"] for e in entries if "watermark_ms" in e.extra]
        windows = WrittenWindows(
            made,
            None,
            planned.keys,
            planned.columns,
            Offsets.of([source.ranges for entry in entries for source in entry.sources]),
            rejected,
            home.table(target.late_table) if plan.job.late == "table" and plan.window.closing else None,
            max(watermarks, default=0) * 1000 if target.mode == "append" else None,
            lambda: batches,
            kept,
        )
        return WindowRecomputation(context, job, plan, windows).run(how, planned.id)
    except (NotRecomputableError, StreamsError) as why:
        return nothing(why)


def _require_topic(job: Job) -> None:
    """Sees to it that a windowed job names a topic, whatever stands between it and the windows."""
    tables = [each.name for each in job.inputs.values() if not isinstance(each, TopicInput)]
    if tables:
        raise NotRecomputableError(f"the job reads the table {tables[0]}, and no topic")
