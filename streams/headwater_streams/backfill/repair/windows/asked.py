"""What a range asks for of the input, and what names a window in the target."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import is_written_since
from headwater_streams.backfill.repair.rejected import rejected_among
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import SOURCES, TIMESTAMP


def keys_of(job_plan: JobPlan) -> tuple[str, ...] | Refusal:
    """The columns that name a window in the target; refused where there are none: a target that is appended to needs no
    keys."""
    target = job_plan.job.target
    if target.keys:
        return target.keys
    keys = (*job_plan.window.by, WINDOW_START, WINDOW_END)
    missing = [name for name in keys if name not in job_plan.result.fieldNames()]
    if missing:
        return Refusal(
            f"{target.name} has no column {missing[0]!r}, by which its windows are told apart; keep it in the "
            "function's result"
        )
    return keys


def rejected_rows(context: StageContext, draft: BackfillPlan, rows: DataFrame) -> Offsets:
    """The rows of the input that are in the job's quarantine."""
    return Offsets.at(rejected_among(context, draft.quarantine, rows))


def none_rejected(draft: BackfillPlan) -> Refusal:
    """That no row is in quarantine where such rows are meant."""
    return Refusal(
        f"no row that the job {draft.job!r} has read is in {draft.quarantine}, so there is nothing to do",
        NothingToRepairError,
    )


def none_late(draft: BackfillPlan) -> Refusal:
    """That no late row is to be folded in."""
    return Refusal(
        f"no late row of {draft.target} waits to be folded in, so there is nothing to do",
        NothingToRepairError,
    )


def wanted_rows(selection: Selection, history: TableHistory, rejected: Offsets | None) -> Column:
    """Which rows of the input a range names, as a column over them; all, where it names windows or late rows.

    Args:
        selection: The range.
        history: The target's.
        rejected: The rows in quarantine, where it names these.
    """
    if rejected is not None:
        return rejected.condition()
    if selection.offsets is not None:
        return Offsets.of([selection.offsets]).condition()
    if selection.since_version is not None:
        return Offsets.of([history.read_ranges(since=selection.since_version)]).condition()
    if selection.timestamps is not None:
        start, end = selection.timestamps
        time_us = F.unix_micros(TIMESTAMP)
        return (time_us >= start) & (time_us < end)
    return F.lit(True)


def is_asked(selection: Selection, history: TableHistory, *, was_rewritten: bool) -> Column:
    """Which windows a range names by themselves, as a column over the target: those that were closed after a version,
    of rows that came before it, and those of offsets whose rows are gone.

    Args:
        selection: The range.
        history: The target's.
        was_rewritten: Whether rows of the input were replaced since they were read.
    """
    if selection.since_version is not None:
        return is_written_since(history, selection.since_version)
    if selection.offsets is not None and was_rewritten:
        return F.exists(SOURCES, Offsets.of([selection.offsets]).overlap)
    return F.lit(False)
