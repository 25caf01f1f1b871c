"""What `headwater jobs check` finds of each job; one that is wrong does not keep the others from being looked at."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as T

from headwater_streams.base.errors import StreamsError
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import Difference, remedy_of, require_compatible, since_last_run
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import current_generation
from headwater_streams.runtime.planning import AbsentJob, NotPlanned, plan_each
from headwater_streams.runtime.positions import records_gone
from headwater_streams.runtime.tables import layout_of_table, table_problems
from headwater_streams.sources.asked_once import AskedOnce


@dataclass(frozen=True, kw_only=True)
class CheckedJob:
    """A job, or a part that the library makes of one, and what is wrong with it.

    Attributes:
        job: The job.
        kind: What it is; None where it could not be planned.
        tables: The tables that it writes, each with its columns; None where it could not be planned.
        exploded: Those of them whose rows it makes several of a record.
        layouts: How each of them is laid out, in words.
        differences: How it differs from its last run.
        remedy: The verb by which it can go on in spite of them.
        problems: What keeps it from running, a sentence each.
    """

    job: Job
    kind: str | None = None
    tables: Mapping[str, T.StructType | None]
    exploded: Collection[str] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    differences: Sequence[Difference] = ()
    remedy: str | None = None
    problems: Sequence[str] = field(default_factory=list)


def check_jobs(
    context: StageContext, jobs: Sequence[Job], absent: Sequence[AbsentJob] = ()
) -> list[CheckedJob]:
    """Plans jobs and compares them with what is in the home: those that can be planned first.

    Args:
        context: The session, the home, the record source.
        jobs: The jobs.
        absent: Jobs that could not be loaded; what reads one of their tables cannot be planned.
    """
    source: Any = AskedOnce(context.source, [topic for job in jobs for topic in job.topic_names])
    context = replace(context, source=source)
    planned = plan_each(context, jobs, absent=absent)
    return [
        *(_check(context, plan) for plan in planned.plans),
        *(_not_planned(each) for each in planned.left_out),
    ]


def _not_planned(left_out: NotPlanned) -> CheckedJob:
    tables: dict[str, T.StructType | None] = {target.name: None for target in left_out.job.targets}
    return CheckedJob(job=left_out.job, tables=tables, problems=[str(left_out)])


def _check(context: StageContext, plan: JobPlan) -> CheckedJob:
    job, problems = plan.job, list[str]()
    differences: Sequence[Difference] = ()
    try:
        differences = since_last_run(context, plan)
        problems += table_problems(context, plan)
        gone = None if differences else records_gone(context, job, current_generation(context, job))
        problems += [] if gone is None else [gone]
        require_compatible(job.name, differences)
    except StreamsError as error:
        problems.append(str(error))
    return CheckedJob(
        job=job,
        kind=plan.kind,
        tables=plan.schemas,
        exploded=plan.exploding,
        layouts={table: layout_of_table(plan, table).description for table in plan.schemas},
        differences=differences,
        remedy=remedy_of(differences),
        problems=problems,
    )
