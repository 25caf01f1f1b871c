"""The verbs of all backfills: each finds the plan by its id and does what a repair, a rebuild or a rewind does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater_streams.backfill import handover
from headwater_streams.backfill.change import Change
from headwater_streams.backfill.diff import SHOWN, Diff
from headwater_streams.backfill.previewing import preview as previewed
from headwater_streams.backfill.progress import Progress, nothing_to_run
from headwater_streams.backfill.rebuild import running as rebuild_running
from headwater_streams.backfill.rebuild import swapping as rebuild_swapping
from headwater_streams.backfill.rebuild import verifying as rebuild_verifying
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.recompute import Recompute
from headwater_streams.backfill.repair import running as repair_running
from headwater_streams.backfill.repair import swapping as repair_swapping
from headwater_streams.backfill.repair import verifying as repair_verifying
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.rewind import swapping as rewind_swapping
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import AnyPlan, BackfillFolder
from headwater_streams.backfill.topics import on_same_topics, require_same_topics
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.base.errors import DataLossError, StreamsError
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.spark.damage_behind import damage_behind
from headwater_streams.spark.spark_errors import missing_file


def run(
    context: StageContext,
    backfill: str,
    job: Job,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Runs what is left of a backfill; killed at any point, the next call goes on from the last step committed.

    Args:
        context: The session, the home, the record source.
        backfill: The backfill's id.
        job: The job that was planned.
        on_progress: Called after each step.

    Returns:
        The progress: `"done"`, or `"paused"` where `pause` was called.

    Raises:
        BackfillError: There is no such backfill, it was aborted, another process runs it, the code was changed, or a
            topic of the job was made again.
        CheckFailedError: A check with `action="fail"` does not hold; the step was not committed.
    """
    with _opened(context, backfill) as (folder, planned):
        if isinstance(planned, RewindPlan):
            return nothing_to_run(planned)
        require_same_topics(context, planned)
        if isinstance(planned, RebuildPlan):
            return rebuild_running.run(context, folder, planned, job, on_progress)
        return repair_running.run(context, folder, planned, job, on_progress)


def preview(context: StageContext, backfill: str, job: Job, *, limit: int = SHOWN) -> Diff:
    """The keyed diff that a swap would make of the job's table; nothing is written.

    A repair need not have run for it; a rebuild must have, and a rewind has nothing to run.

    Args:
        context: The session, the home, the record source.
        backfill: The backfill's id.
        job: The job that was planned.
        limit: The most rows of each kind in the samples.

    Raises:
        BackfillError: There is no such backfill, the job is not the one that was planned, a topic was made again, a
            rebuild has not caught up, or a rebuild or rewind was swapped in.
    """
    return next(iter(preview_tables(context, backfill, job, limit=limit).values())).diff


def preview_tables(
    context: StageContext, backfill: str, job: Job, *, limit: int = SHOWN
) -> dict[str, Change]:
    """As `preview`, of each table of a job that has several, the first one first.

    Raises:
        BackfillError: As `preview`.
    """
    folder = BackfillFolder(context.home, backfill)
    planned = folder.plan()
    with _told_if_vacuumed(context, backfill, "plan again"), on_same_topics(context, planned):
        return previewed(context, folder, planned, job, limit)


def verify(context: StageContext, backfill: str, job: Job, *, recompute: Recompute = "sample") -> Verdict:
    """Verifies a finished run against its plan, its inputs and the live table, and stores the verdict.

    Args:
        context: The session, the home, the record source.
        backfill: The backfill's id.
        job: The job that was planned.
        recompute: How much is recomputed from the raw topic, by another path than the run's: all of it, a sample of
            50,000 offsets or a twentieth of them, whichever is more (an eighth, where a window takes as many), or none.

    Raises:
        BackfillError: The run is not complete, the job is not the one that was planned, or a topic was made again.
    """
    with _opened(context, backfill) as (folder, planned):
        if isinstance(planned, RebuildPlan):
            return rebuild_verifying.verify(context, folder, planned, job, recompute)
        if isinstance(planned, RewindPlan):
            return rewind_swapping.verify(context, folder, planned)
        return repair_verifying.verify(context, folder, planned, job, recompute)


def swap(context: StageContext, backfill: str, *, accept_diff: str | None = None) -> dict[str, Any]:
    """Puts what a backfill made in the place of what there is, in one commit; done already, it says so again.

    Args:
        context: The session and the home.
        backfill: The backfill's id.
        accept_diff: The digest of the diff that was read in the verdict; the swap is refused if it has another one.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "feeds"}`; of a repair `"accounting"`, `"ranges"` and
        `"proof"` as well, and `"beside"` where the job writes several tables; of a rebuild `"generation"`, `"proof"`
        and `"held_s"`, of a rewind `"generation"` and `"held_s"`.

    Raises:
        BackfillError: There is no passing verdict, or what it was given on has changed.
        DataLossError: Something that is wanted is gone, or the table is not what it should be; roll back.
    """
    with _opened(context, backfill) as (folder, planned):
        if isinstance(planned, RebuildPlan):
            return rebuild_swapping.swap(context, folder, planned, accept_diff)
        if isinstance(planned, RewindPlan):
            return rewind_swapping.swap(context, folder, planned, accept_diff)
        return repair_swapping.swap(context, folder, planned, accept_diff)


def rollback(context: StageContext, backfill: str) -> dict[str, Any]:
    """Puts back what was there before the swap, in one commit; done already, it says so again.

    Returns:
        What the swap did, of the way back.

    Raises:
        BackfillError: It was never swapped in, or what it made has changed since.
        DataLossError: What was there before is gone.
    """
    folder = BackfillFolder(context.home, backfill)
    with folder.held(), _told_if_vacuumed(context, backfill, "what was there before cannot be put back"):
        planned = folder.plan()
        if isinstance(planned, BackfillPlan):
            return repair_swapping.rollback(context, folder, planned)
        return handover.rollback(context, folder, planned)


@contextmanager
def _opened(context: StageContext, backfill: str) -> Iterator[tuple[BackfillFolder, AnyPlan]]:
    """A backfill that was not given up, held for this process alone while the block runs."""
    folder = BackfillFolder(context.home, backfill)
    with folder.held(), _told_if_vacuumed(context, backfill, "plan again"):
        folder.require_open()
        yield folder, folder.plan()


@contextmanager
def _told_if_vacuumed(context: StageContext, backfill: str, remedy: str) -> Iterator[None]:
    """Says in a sentence that a version which a plan rests on has lost a file, or which file is damaged."""
    try:
        yield
    except StreamsError:
        raise
    except Exception as error:  # of Spark, or of what reads a table without it
        damaged = damage_behind(error, context.home)
        if damaged is not None:
            raise damaged from error
        file = missing_file(error)
        if file is None:
            raise
        raise DataLossError(
            f"the backfill {backfill!r} needs {file}, a file of an earlier version of the table that is gone: it was "
            f"vacuumed since; {remedy}"
        ) from error
