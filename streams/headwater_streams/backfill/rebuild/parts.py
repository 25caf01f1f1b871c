"""Which part of a job a rebuild makes anew: its last one, or one of those before it.

    busiest__step_1 -> busiest__ingest_step_1 -> busiest      three rebuilds, each behind those before it

Where code before the last operator was changed, or what its topic's columns and checks let in, the tables in between
were made by what it was: they are made anew in their order, each of what the rebuild before it has made, and swapped in
one after the other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headwater_streams.backfill.jobs import (
    feeding,
    parts_before,
    require_planned,
)
from headwater_streams.backfill.rebuild.behind import made_aside, reading_aside
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.refusal import accepted
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.backfill.topics import ids_of_topics
from headwater_streams.base.nearest import nearest
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.storage.home import Home


@dataclass(frozen=True)
class Chosen:
    """A part of a job.

    Attributes:
        plan: The part.
        following: The tables of the parts that are made of its rows.
        notes: Which of the tables before it have rows that other code made.
        topic_ids: The topics that it reads, or that fill the tables which it reads, each with its id.
    """

    plan: JobPlan
    following: Sequence[str]
    notes: Sequence[str]
    topic_ids: Mapping[str, str]


def chosen_part(context: StageContext, job: Job, table: str | None, behind: Sequence[str]) -> Chosen:
    """The part of a job that is to be made anew.

    Args:
        context: The session and the home.
        job: The job, as its code is now.
        table: The table that the part writes; the job's own by default.
        behind: The rebuilds whose tables it reads.

    Raises:
        BackfillError: The job makes no such table, or what the part reads was made by other code and is not made anew.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    plans = plan_jobs(reading_aside(context, behind), [job])
    tables = [plan.job.target.name for plan in plans]
    if table is not None and table not in tables:
        raise BackfillError(
            f"{table} is no table that a rebuild of {job.name!r} makes; it has {nearest(table, tables)}"
        )
    found = plans[-1] if table is None else plans[tables.index(table)]
    before, codes = feeding(plans, found), _codes(context.home, behind)
    topic_ids = ids_of_topics(context, [*before, found])
    _require_unbroken(job.name, before, {each.name for each in made_aside(context.home, behind)})
    for part in before:
        if codes.get(part.job.name, part.job.fingerprint) != part.job.fingerprint:
            raise BackfillError(
                f"the rebuild of {part.job.target.name} was planned with other code than that of now; plan it again"
            )
    kept = [part for part in before if part.job.name not in codes]
    others = parts_before(context, kept, kept)
    accepted(others.refusal(job.name))
    following = [each.job.target.name for each in plans if found in feeding(plans, each)]
    return Chosen(found, following, others.notes(job.name), topic_ids)


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
