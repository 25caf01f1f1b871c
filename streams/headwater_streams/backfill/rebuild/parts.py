"""The part of a job that a rebuild makes anew, as its steps find it again."""

from headwater_streams.backfill.jobs import require_planned
from headwater_streams.backfill.rebuild.behind import reading_aside
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs


def planned_part(context: StageContext, job: Job, planned: RebuildPlan) -> JobPlan:
    """The part of a job that was planned, if its code is what it was.

    Raises:
        BackfillError: It is not, or a rebuild that it is behind was given up.
    """
    plans = plan_jobs(reading_aside(context, planned.behind), [job])
    found = next((plan for plan in plans if plan.job.name == planned.job), plans[-1])
    return require_planned(found, planned)
