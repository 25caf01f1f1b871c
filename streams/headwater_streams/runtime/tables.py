"""The tables that a job writes: made before its first batch, and compared with existing ones."""

from pyspark.sql import types as T

from headwater_streams.base.errors import IncompatibleTableError
from headwater_streams.base.layout import PLAIN, Layout
from headwater_streams.base.names import plain_name, twins
from headwater_streams.base.target import declared_name
from headwater_streams.delta.declared_table import (
    column_problems,
    ensure_table,
    layout_problems_of,
    name_problems,
)
from headwater_streams.delta.side import late_schema, quarantine_schema
from headwater_streams.ledger.log import writer_of
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext


def prepare_tables(context: StageContext, plan: JobPlan) -> None:
    """Makes the targets and their side tables; they exist, empty, from the first start. New columns are added.

    Raises:
        IncompatibleTableError: A column is there with a type that cannot hold the job's.
    """
    for name, schema in tables_of(plan).items():
        ensure_table(context.spark, context.home.table(name), name, schema, layout_of_table(plan, name))


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
    problems, existing = name_problems_of(plan), context.home.tables()
    for name, schema in tables_of(plan).items():
        problems += column_problems(context.home.table(name), name, schema)
        problems += layout_problems_of(context.home.table(name), name, layout_of_table(plan, name))
        for _, twin in twins([name], existing):
            problems.append(
                f"{name}: the home has a table {twin}, which is the same name in SQL; take that one, or another"
            )
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


def name_problems_of(plan: JobPlan) -> list[str]:
    """What keeps the job's tables from having the columns that they would have, a sentence for each column."""
    job, name = plan.job, declared_name(plan.job.name)
    keeps_inputs = plan.kind not in ("row", "scd") or job.name != name
    of_inputs = {column for schema in plan.inputs.values() for column in schema.fieldNames()}
    problems: dict[str, str] = {}
    for schema in tables_of(plan).values():
        for column, problem in name_problems(schema).items():
            remedy = f"rename it, .alias({plain_name(column)!r})"
            if keeps_inputs and column in of_inputs:
                remedy = "have a row-by-row job rename it, and let this one read its table"
            about = f"job {name!r}: the column {column!r} {problem}"
            problems.setdefault(column, job.worded(f"{about}; {remedy}"))
    return list(problems.values())


def other_writer(context: StageContext, job: Job, table: str) -> str | None:
    """The job, if it is another one, that has written to a job's table last."""
    writer = writer_of(context.home.table(table))
    return writer if writer != job.name else None


def layout_of_table(plan: JobPlan, table: str) -> Layout:
    """How one of a job's tables is laid out; those beside its targets are plain."""
    return next((target.layout for target in plan.job.targets if target.name == table), PLAIN)


def tables_of(plan: JobPlan) -> dict[str, T.StructType]:
    """The tables that a job writes, side tables among them, with their columns."""
    target = plan.job.target
    sides = {target.quarantine_table: quarantine_schema()}
    if plan.kind not in ("row", "scd"):
        sides[target.late_table] = late_schema(plan.inputs, overlapping=plan.is_overlapping)
    return plan.schemas | plan.changes_schema | sides
