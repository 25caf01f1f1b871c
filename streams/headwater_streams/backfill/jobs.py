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


def require_made_alike(context: StageContext, job: str, parts: Sequence[JobPlan]) -> None:
    """Sees to it that the rows that come to a part of a job, of a union or of steps of a chain, are those that its code
    would make now.

    Args:
        context: The home.
        job: The job's name.
        parts: Its parts before that one, as they are now.

    Raises:
        BackfillError: They were made by other code; the part alone would be made of them again.
    """
    for part in parts:
        differs = [each for each in since_last_run(context, part) if each.remedy == "rebuild"]
        if differs:
            raise BackfillError(
                f"the job {job!r} differs from its last run before its last operator ({'; '.join(map(str, differs))}), "
                "and a backfill reads the rows that were made then; make these anew first, and what follows behind "
                f"them: headwater backfill plan {job} --rebuild --table {part.job.target.name}, or build all of its "
                f"tables from empty: headwater jobs rebuild {job}"
            )


def require_no_chain(plans: Sequence[JobPlan]) -> None:
    """Sees to it that a job has one operator: what was made of what cannot be told by offsets or times behind a second.

    Raises:
        BackfillError: It has several.
    """
    if any(plan.job.is_step for plan in plans):
        name = plans[-1].job.name
        raise BackfillError(
            f"the job {name!r} is a chain of operators, and no part of its rows can be repaired; make all rows of its "
            "last operator again, headwater backfill plan JOB --rebuild, or build all of its tables from empty: "
            f"headwater jobs rebuild {name}"
        )
