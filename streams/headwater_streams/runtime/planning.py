"""Plans a set of jobs: in the order of their tables, with the ingest jobs that they need."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.shared import written_as
from headwater_streams.plan.analysis import analyse, own_schemas
from headwater_streams.plan.chain import with_steps
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.plan.written import WrittenAs, will_write
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.ingest import reads_directly, with_ingest, with_united
from headwater_streams.spark.damage_behind import reporting_damage


def plan_jobs(context: StageContext, jobs: Sequence[Job]) -> list[JobPlan]:
    """Plans jobs in the order of their tables; ingest jobs are put before stateful jobs that name topics.

    Raises:
        JobDefinitionError: A job is wrong, or the jobs feed each other in a circle.
        DamagedFileError: A table that one reads is damaged.
    """
    tables = {
        name: _schema_of(context, name)
        for name in context.home.tables()
        if any(name in job.table_names for job in jobs)
    }
    written = {name: written_as(context.home, name) for name in tables}
    plans: list[JobPlan] = []
    waiting = list(jobs)
    while waiting:
        targets = {target.name for job in waiting for target in job.targets}
        ready = [job for job in waiting if targets.isdisjoint(job.table_names)]
        if not ready:
            names = ", ".join(job.name for job in waiting)
            raise JobDefinitionError(f"the jobs {names} read each other's tables in a circle")
        for job in ready:
            try:
                plans += _plan_one(context, job, tables, written)
            except JobDefinitionError as error:
                raise _worded_error(job, error) from error
            waiting.remove(job)
    return plans


def _schema_of(context: StageContext, table: str) -> T.StructType:
    with reporting_damage(context.home, [table]):
        return context.spark.read.format("delta").load(str(context.home.table(table))).schema


def _worded_error(job: Job, error: JobDefinitionError) -> JobDefinitionError:
    """An error about a job in SQL, in SQL's words and with its place in the file."""
    if not job.text:
        return error
    about = f"job {job.name!r}: "
    message, code = job.worded(str(error)).removeprefix(about), job.function.__code__
    if code.co_filename not in message:
        message = f"{code.co_filename}, line {code.co_firstlineno}: {message}"
    return JobDefinitionError(about + message)


def _plan_one(
    context: StageContext, job: Job, tables: dict[str, T.StructType], written: dict[str, WrittenAs]
) -> list[JobPlan]:
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
            written[part.target.name] = will_write(plans[-1], written)
    tables.update(plans[-1].schemas)
    written |= dict.fromkeys(plans[-1].schemas, will_write(plans[-1], written))
    return plans
