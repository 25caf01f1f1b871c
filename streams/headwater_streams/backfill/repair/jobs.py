"""The job behind a repair: planned once more, and held against the plan's fingerprint."""

from headwater_streams.backfill.jobs import require_planned
from headwater_streams.backfill.refusal import Refusal, accepted
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.operators.dedup.by_key import ByKey
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs


def refused_job(job: str, found: JobPlan) -> Refusal | None:
    """Refuses a job of which no part can be made again: it is neither a row-by-row job, nor one of windows of times,
    nor a join that the left rows decide, or its result depends on the order in which its rows came.

    Args:
        job: The job's name.
        found: The job, or its part that is to be repaired.
    """
    if found.kind == "scd":
        return Refusal(
            f"the job {job!r} applies change events to rows, which do not say what range they came of, so a part "
            "of them cannot be repaired; put the table back to before the range, and all that came since is applied "
            "again: headwater backfill plan JOB --rewind VERSION (headwater backfill versions lists them)"
        )
    if isinstance(found.job.dedup, ByKey):
        return Refusal(
            f"the job {job!r} removes duplicates by key, and which of them it kept depends on the order in which "
            "they came, so a part of its rows cannot be repaired; build all of them again: headwater backfill plan JOB "
            "--rebuild"
        )
    if found.kind != "row" and found.job.topics:
        return Refusal(
            f"the job {job!r} only counts its late rows (late='count'), so no table holds its rows by event "
            "time, and a part of its result cannot be repaired; build all of it again: headwater backfill plan JOB "
            "--rebuild"
        )
    if found.kind == "window" and not isinstance(found.operator, FixedWindow | SessionWindow):
        return Refusal(
            f"the job {job!r} is {found.window.name}, and only windows of times (tumbling, hopping, "
            "cumulative, session) can be repaired; build all of them again: headwater backfill plan JOB --rebuild"
        )
    if found.kind == "row" and len(found.job.inputs) > 1:
        return Refusal(
            f"the job {job!r} reads {', '.join(found.job.inputs)}; row-by-row jobs with one input can be "
            "repaired; build all of its rows again: headwater backfill plan JOB --rebuild"
        )
    return None


def same_job(context: StageContext, job: Job, backfill: BackfillPlan) -> JobPlan:
    """The job understood, if it is the one that was planned.

    Raises:
        BackfillError: Its code or its declaration was changed since.
    """
    plans = plan_jobs(context, [job])
    part = next((plan for plan in plans if plan.job.name == backfill.job), plans[-1])
    accepted(refused_job(job.name, part))
    return require_planned(part, backfill)
