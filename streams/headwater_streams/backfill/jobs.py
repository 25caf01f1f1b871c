"""The job behind a backfill, held against the plan's fingerprint, and against what the rows that it reads came of."""

from collections.abc import Sequence

from headwater_streams.backfill.store import AnyPlan, BackfillError
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.context import StageContext
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


def require_united_alike(context: StageContext, plans: Sequence[JobPlan]) -> None:
    """Sees to it that the rows that a windowed job unites from its inputs are those that its code would unite now.

    Args:
        context: The home.
        plans: The job's parts.

    Raises:
        BackfillError: They were united by other code; the window alone would be made of them again.
    """
    for part in (plan for plan in plans if plan.job.unites_for is not None):
        differs = [each for each in since_last_run(context, part) if each.remedy == "rebuild"]
        if differs:
            raise BackfillError(
                f"the job {plans[-1].job.name!r} differs from its last run before its window "
                f"({'; '.join(map(str, differs))}), and a backfill reads the rows that were united then; build all of "
                f"its tables from empty: headwater jobs rebuild {plans[-1].job.name}"
            )
