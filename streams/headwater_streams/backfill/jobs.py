"""The job behind a backfill, held against the plan's fingerprint."""

from headwater_streams.backfill.store import AnyPlan, BackfillError
from headwater_streams.runtime.plan import JobPlan


def require_planned(found: JobPlan, planned: AnyPlan) -> JobPlan:
    """The job, if it is the one that was planned.

    Raises:
        BackfillError: Its code or its declaration was changed since.
    """
    if (found.job.name, found.job.fingerprint) != (planned.job, planned.fingerprint):
        raise BackfillError(
            f"the backfill {planned.id!r} was planned for the job {planned.job!r}, code {planned.fingerprint}, "
            f"and this is {found.job.name!r}, code {found.job.fingerprint}; plan again"
        )
    return found
