"""Which part of a job a rebuild makes anew: its last one, or, of a chain or a union, one of those before it.

    busiest__step_1 -> busiest__ingest_step_1 -> busiest      three rebuilds, each behind those before it

Where code before the last operator was changed, the tables in between were made by what it was: they are made anew in
their order, each of what the rebuild before it has made, and swapped in one after the other.
"""

from collections.abc import Collection, Mapping, Sequence

from headwater_streams.backfill.jobs import require_made_alike, require_planned
from headwater_streams.backfill.rebuild.behind import made_aside, reading_aside
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.nearest import nearest
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.home import Home
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.planning import plan_jobs


def chosen_part(
    context: StageContext, job: Job, table: str | None, behind: Sequence[str]
) -> tuple[JobPlan, tuple[str, ...]]:
    """The part of a job that is to be made anew, and the tables of the parts behind it.

    Args:
        context: The session and the home.
        job: The job, as its code is now.
        table: The table that the part writes; the job's own by default.
        behind: The rebuilds whose tables it reads.

    Raises:
        BackfillError: The job makes no such table, or what the part reads was made by other code and is not made anew.
    """
    plans = plan_jobs(reading_aside(context, behind), [job])
    own = [plan for plan in plans if plan.job.comes_before] + [plans[-1]]
    tables = [plan.job.target.name for plan in own]
    if table is not None and table not in tables:
        raise BackfillError(
            f"{table} is no table that a rebuild of {job.name!r} makes; it has {nearest(table, tables)}"
        )
    place = len(own) - 1 if table is None else tables.index(table)
    made = made_aside(context.home, behind)
    _require_unbroken(job.name, plans[: plans.index(own[place])], {each.name for each in made})
    anew = _codes(context.home, behind)
    for part in own[:place]:
        if anew.get(part.job.name, part.job.fingerprint) != part.job.fingerprint:
            raise BackfillError(
                f"the rebuild of {part.job.target.name} was planned with other code than that of now; plan it again"
            )
    require_made_alike(context, job.name, [part for part in own[:place] if part.job.name not in anew])
    return own[place], tuple(tables[place + 1 :])


def planned_part(context: StageContext, job: Job, planned: RebuildPlan) -> JobPlan:
    """The part of a job that was planned, if its code is what it was.

    Raises:
        BackfillError: It is not, or a rebuild that it is behind was given up.
    """
    plans = plan_jobs(reading_aside(context, planned.behind), [job])
    found = next((plan for plan in plans if plan.job.name == planned.job), plans[-1])
    return require_planned(found, planned)


def _require_unbroken(job: str, before: Sequence[JobPlan], new: Collection[str]) -> None:
    """Sees to it that none of the parts before one was left as it was, where what it reads is made anew."""
    for part in before:
        name = part.job.target.name
        if name not in new and any(table.name in new for table in part.job.tables):
            raise BackfillError(
                f"{name} was made of rows that another rebuild has made anew; make it anew first: headwater backfill "
                f"plan {job} --rebuild --table {name} --behind ID"
            )


def _codes(home: Home, behind: Sequence[str]) -> Mapping[str, str]:
    """The code that other rebuilds were planned with, by their jobs."""
    plans = [BackfillFolder(home, each).plan() for each in behind]
    return {planned.job: planned.fingerprint for planned in plans}
