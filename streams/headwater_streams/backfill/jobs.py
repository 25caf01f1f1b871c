"""The job behind a backfill: planned once more, and held against the plan's fingerprint."""

from headwater_streams.backfill.spec import BackfillPlan
from headwater_streams.backfill.store import BackfillError
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.runner import plan_jobs


def planned_job(context: StageContext, job: Job) -> JobPlan:
    """The job understood; of a stateful job that names a topic, the part behind its ingest table.

    Raises:
        BackfillError: It is a join.
    """
    found = plan_jobs(context, [job])[-1]
    if found.kind == "join":
        raise BackfillError(
            f"the job {job.name!r} is a join; row-by-row and windowed jobs can be repaired, not joins"
        )
    return found


def same_job(context: StageContext, job: Job, backfill: BackfillPlan) -> JobPlan:
    """The job understood, if it is the one that was planned.

    Raises:
        BackfillError: Its code or its declaration was changed since.
    """
    found = planned_job(context, job)
    if (found.job.name, found.job.fingerprint) != (backfill.job, backfill.fingerprint):
        raise BackfillError(
            f"the backfill {backfill.id!r} was planned for the job {backfill.job!r}, code {backfill.fingerprint}, "
            f"and this is {found.job.name!r}, code {found.job.fingerprint}; plan again"
        )
    return found
