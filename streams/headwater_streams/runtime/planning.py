"""Plans a set of jobs: in the order of their tables, with the ingest jobs that they need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError, StreamsError
from headwater_streams.ledger.shared import written_as
from headwater_streams.plan.analysis import analyse, own_schemas
from headwater_streams.plan.chain import with_steps
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.plan.written import WrittenAs, will_write
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.ingest import reads_directly, with_ingest, with_united
from headwater_streams.spark.damage_behind import reporting_damage
from headwater_streams.spark.spark_errors import first_sentence
from headwater_streams.storage.damage import DamagedFileError


@dataclass(frozen=True)
class AbsentJob:
    """A job that could not be loaded.

    Attributes:
        name: Its name.
        tables: The tables that it writes.
        why: What is wrong with its module.
    """

    name: str
    tables: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class NotPlanned:
    """A job that cannot be planned.

    Attributes:
        job: The job.
        error: What is wrong with it; None: nothing is, as far as one can see.
        blocked: Of one that reads a table of another such job, why it is not looked at, as the end of a sentence.
    """

    job: Job
    error: Exception | None = None
    blocked: str = ""

    @property
    def state(self) -> Literal["failed", "refused", "blocked"]:
        """How it ended before it began: `failed` where not the job is wrong, but a file that it reads."""
        if self.error is None:
            return "blocked"
        return "refused" if isinstance(self.error, JobDefinitionError) else "failed"

    def __str__(self) -> str:
        return (
            str(self.error)
            if self.error is not None
            else f"job {self.job.name!r} is not planned: {self.blocked}"
        )


@dataclass(frozen=True)
class PlannedJobs:
    """The plans of a set of jobs, and the jobs that have none."""

    plans: list[JobPlan]
    left_out: list[NotPlanned]

    def require_all(self) -> list[JobPlan]:
        """The plans.

        Raises:
            JobDefinitionError: A job is wrong, or the jobs feed each other in a circle.
            DamagedFileError: A table that one reads is damaged.
        """
        for each in self.left_out:
            if each.error is not None:
                raise each.error
        return self.plans


def plan_jobs(context: StageContext, jobs: Sequence[Job]) -> list[JobPlan]:
    """Plans jobs in the order of their tables; ingest jobs are put before stateful jobs that name topics.

    Raises:
        JobDefinitionError: A job is wrong, or the jobs feed each other in a circle.
        DamagedFileError: A table that one reads is damaged.
    """
    return plan_each(context, jobs).require_all()


def plan_each(context: StageContext, jobs: Sequence[Job], *, absent: Sequence[AbsentJob] = ()) -> PlannedJobs:
    """Plans those of the jobs that can be planned, as `plan_jobs` does.

    Args:
        context: The session, the home, the record source.
        jobs: The jobs.
        absent: Jobs that are not among these, as they could not be loaded: who reads one of their tables is left out.
    """
    tables, written, damaged = _existing(context, jobs)
    missing = {
        table: f"{each.name}, which writes {table}, could not be loaded"
        for each in absent
        for table in each.tables
    }
    plans: list[JobPlan] = []
    left_out: list[NotPlanned] = []
    waiting = list(jobs)

    def leave_out(job: Job, reason: NotPlanned) -> None:
        waiting.remove(job)
        left_out.append(reason)
        what = "is wrong" if reason.error is not None else f"is not planned: {reason.blocked}"
        missing.update(
            {target.name: f"{job.name}, which writes {target.name}, {what}" for target in job.targets}
        )

    while waiting:
        circle = circle_of(waiting)
        for job in circle:
            names = ", ".join(each.name for each in circle)
            leave_out(
                job,
                NotPlanned(job, JobDefinitionError(f"the jobs {names} read each other's tables in a circle")),
            )
        targets = {target.name for job in waiting for target in job.targets}
        for job in [job for job in waiting if targets.isdisjoint(job.table_names)]:
            reasons = [missing[name] for name in sorted(job.table_names) if name in missing]
            broken = [damaged[name] for name in sorted(job.table_names) if name in damaged]
            if reasons or broken:
                leave_out(job, NotPlanned(job, broken[0]) if broken else NotPlanned(job, blocked=reasons[0]))
                continue
            try:
                plans += _plan_one(context, job, tables, written)
            except StreamsError as error:
                leave_out(job, NotPlanned(job, _worded_error(job, error)))
            except PySparkException as error:  # of a frame that Spark itself refuses
                refused = JobDefinitionError(f"job {job.name!r}: {first_sentence(error)}")
                refused.__cause__ = error
                leave_out(job, NotPlanned(job, _worded_error(job, refused)))
            else:
                waiting.remove(job)
    return PlannedJobs(plans, left_out)


def circle_of(jobs: Sequence[Job]) -> list[Job]:
    """Those of the jobs that read their own table by way of the others."""
    feeds = {
        job.name: [other for other in jobs if any(t.name in other.table_names for t in job.targets)]
        for job in jobs
    }

    def is_fed_by_itself(job: Job) -> bool:
        seen: set[str] = set()
        waiting = list(feeds[job.name])
        while waiting:
            other = waiting.pop()
            if other.name == job.name:
                return True
            if other.name not in seen:
                seen.add(other.name)
                waiting += feeds[other.name]
        return False

    return [job for job in jobs if is_fed_by_itself(job)]


def _existing(
    context: StageContext, jobs: Sequence[Job]
) -> tuple[dict[str, T.StructType], dict[str, WrittenAs], dict[str, DamagedFileError]]:
    """Of the tables that the jobs read and that exist: their columns, how they are written, what is damaged of them."""
    tables: dict[str, T.StructType] = {}
    written: dict[str, WrittenAs] = {}
    damaged: dict[str, DamagedFileError] = {}
    for name in context.home.tables():
        if any(name in job.table_names for job in jobs):
            try:
                tables[name] = _schema_of(context, name)
                written[name] = written_as(context.home, name)
            except DamagedFileError as error:
                damaged[name] = error
    return tables, written, damaged


def _schema_of(context: StageContext, table: str) -> T.StructType:
    with reporting_damage(context.home, [table]):
        return context.spark.read.format("delta").load(str(context.home.table(table))).schema


def _worded_error(job: Job, error: StreamsError) -> StreamsError:
    """An error about a job; of one in SQL, in SQL's words and with its place in the file."""
    if not job.text or not isinstance(error, JobDefinitionError):
        return error
    about = f"job {job.name!r}: "
    message, code = job.worded(str(error)).removeprefix(about), job.code
    if code.co_filename not in message:
        message = f"{code.co_filename}, line {code.co_firstlineno}: {message}"
    worded = JobDefinitionError(about + message)
    worded.__cause__ = error
    return worded


def _require_clusters(context: StageContext, job: Job) -> None:
    for topic in job.topic_names:
        try:
            context.source.require_cluster(topic)
        except JobDefinitionError as error:
            raise JobDefinitionError(f"job {job.name!r}: {error}") from error


def _plan_one(
    context: StageContext, job: Job, tables: dict[str, T.StructType], written: dict[str, WrittenAs]
) -> list[JobPlan]:
    _require_clusters(context, job)
    plan = analyse(job, context.spark, tables, written)
    if plan.chain:
        chained = with_steps(plan, context.spark)
        return [part for each in chained for part in _plan_one(context, each, tables, written)]
    alone = plan.kind in ("row", "scd") or reads_directly(plan, context.source)
    parts = with_united(plan) if plan.unites else [job] if alone else with_ingest(plan, context.spark)
    plans = [plan] if len(parts) == 1 else []
    if not plans:
        for part in parts:
            # The function over the tables of its topics, which have the topics' columns, was looked at above.
            same = part.function is job.function and own_schemas(part, tables) == plan.inputs
            plans.append(replace(plan, job=part) if same else analyse(part, context.spark, tables, written))
            tables[part.target.name] = plans[-1].target_schema
            written[part.target.name] = will_write(plans[-1], written, part.target.name)
    tables.update(plans[-1].schemas)
    written |= {name: will_write(plans[-1], written, name) for name in plans[-1].schemas}
    return plans
