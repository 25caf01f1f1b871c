"""The tables that a job writes: made before its first batch, and held against what is there already."""

from pyspark.sql import types as T

from headwater_streams.errors import IncompatibleTableError
from headwater_streams.ledger.log import writer_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.delta_table import column_problems, ensure_table
from headwater_streams.sinks.side import late_schema, quarantine_schema
from headwater_streams.sinks.target import declared_name


def prepare_tables(context: StageContext, plan: JobPlan) -> None:
    """Makes the targets and their side tables; they exist, empty, from the first start. New columns are added.

    Raises:
        IncompatibleTableError: A column is there with a type that cannot hold the job's.
    """
    for name, schema in tables_of(plan).items():
        ensure_table(context.spark, context.home.table(name), name, schema)


def require_tables(context: StageContext, plan: JobPlan) -> None:
    """Sees to it that the job can write its tables, before anything is changed.

    Raises:
        IncompatibleTableError: It cannot; the message names each column.
    """
    problems = table_problems(context, plan)
    if problems:
        raise IncompatibleTableError("; ".join(problems))


def table_problems(context: StageContext, plan: JobPlan) -> list[str]:
    """What keeps the job from writing its tables as they are, a sentence each; nothing is changed."""
    problems = []
    for name, schema in tables_of(plan).items():
        problems += column_problems(context.home.table(name), name, schema)
    for name in plan.schemas:
        other = other_writer(context, plan.job, name)
        if other is not None:
            problems.append(
                plan.job.worded(
                    f"{name} is written by the job {other!r}, and a table has one writer: the job "
                    f"{plan.job.name!r} would write its rows twice; give it that name back, "
                    f"@hw.job(name={declared_name(other)!r}), or another target, or take the table over, empty: "
                    f"headwater jobs rebuild {declared_name(plan.job.name)}"
                )
            )
    return problems


def other_writer(context: StageContext, job: Job, table: str) -> str | None:
    """The job, if it is another one, that has written to a job's table last."""
    found = writer_of(context.home.table(table))
    return found if found != job.name else None


def tables_of(plan: JobPlan) -> dict[str, T.StructType]:
    """The tables that a job writes, side tables among them, with their columns."""
    target = plan.job.target
    sides = {target.quarantine_table: quarantine_schema()}
    if plan.kind not in ("row", "scd"):
        sides[target.late_table] = late_schema(plan.inputs, overlapping=plan.is_overlapping)
    return plan.schemas | plan.changes_schema | sides
