"""Writes the rows of a job's tables anew, as they are, in the partitions and the order that the job declares now.

One commit for each table, which changes no row: backfills, and jobs that read a table in another order, go on as if
nothing had been. Other partitions are refused where jobs have read the table. Delta plans a query's last batch again
when it starts, and reads no stream over a change of partitions (DELTA_SCHEMA_CHANGED): none of these would start again.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.base.errors import IncompatibleTableError, StreamsError
from headwater_streams.base.target import DeltaTarget, declared_name
from headwater_streams.delta.clustering import clustered_by, in_stretches
from headwater_streams.delta.declared_table import describe_table
from headwater_streams.delta.delta_table import conflicts, read_version
from headwater_streams.plan.job import Job
from headwater_streams.plan.laid_out import partitioned
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.ownership import LeaseFactory
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.readers import readers_by_table
from headwater_streams.spark.columns import col, cols
from headwater_streams.storage.delta_files import partition_columns
from headwater_streams.storage.delta_log import has_versions


@dataclass(frozen=True)
class Rewritten:
    """A table whose rows were written anew.

    Attributes:
        job: The job that writes it.
        table: The table.
        before: Its partition columns before.
        now: Its partition columns now.
        rows: How many rows it has.
        files: In how many files they stand.
    """

    job: str
    table: str
    before: tuple[str, ...]
    now: tuple[str, ...]
    rows: int
    files: int


def rewrite(context: StageContext, jobs: Sequence[Job], lease: LeaseFactory) -> list[Rewritten]:
    """Writes the tables of jobs anew that have other partitions, or another order, than these declare.

    Raises:
        StreamsError: A job runs, others read a table that is to have other partitions, or it is changed by others
            meanwhile; it stays as it was.
    """
    results: list[Rewritten] = []
    for plan in plan_jobs(context, jobs):
        with _owned(plan, lease):
            for target in plan.job.targets:
                done = _rewritten(context, plan, target)
                results += [] if done is None else [done]
    return results


@contextmanager
def _owned(plan: JobPlan, lease: LeaseFactory) -> Iterator[None]:
    held = lease(plan.job.name)
    try:
        held.claim([])
        yield
    finally:
        held.release()


def _rewritten(context: StageContext, plan: JobPlan, target: DeltaTarget) -> Rewritten | None:
    path, columns = context.home.table(target.name), target.layout.partition_columns
    if not has_versions(path):
        return None
    before, order = partition_columns(path), clustered_by(path)
    if (before, order) == (columns, target.layout.cluster_by):
        return None
    if before != columns:
        readers = {job for job, _ in readers_by_table(context.home)[target.name]}
        problem = repartition_problem(plan.job.name, target.name, readers)
        if problem is not None:
            raise StreamsError(problem)
    if order != target.layout.cluster_by:
        describe_table(path, target.layout)
    transaction = context.transaction(path)
    files = transaction.all_files()
    rows = read_version(context.spark, path, transaction.version)
    own = {field.name for field in transaction.schema.fields}
    computed = [each.name for each in target.layout.computed]
    if not own.issuperset(computed):
        rows = partitioned(rows.drop(*computed), target)
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise IncompatibleTableError(
            f"{target.name}: its rows have no column {missing[0]!r} to partition them by; build the table again: "
            f"headwater backfill plan {plan.job.name} --rebuild"
        )
    empty = next((name for name in columns if name in target.keys and _has_empty_text(rows, name)), None)
    if empty is not None:
        raise IncompatibleTableError(
            f"{target.name}: rows have an empty text in {empty!r}, which is part of their key, and no Delta table "
            "distinguishes that from NULL in a partition; they would not be found again"
        )
    transaction.partition_by(
        columns, T.StructType([T.StructField(f.name, f.dataType) for f in rows.schema.fields])
    )
    if columns:
        rows = rows.repartition(*cols(columns))
    elif target.layout.cluster_by:
        rows = in_stretches(path, rows, target.layout.cluster_by, files)
    written = transaction.write(rows)
    try:
        transaction.commit_same(written, files, f"the same, by {', '.join(columns) or 'no partition'}")
    except conflicts() as error:
        raise StreamsError(
            f"{target.name} was changed by others while its rows were written anew; it is as it was: do it again"
        ) from error
    return Rewritten(plan.job.name, target.name, before, columns, written.rows, len(written.names))


def _has_empty_text(rows: DataFrame, name: str) -> bool:
    is_text = isinstance(rows.schema[name].dataType, T.StringType)
    return is_text and not rows.filter(col(name) == "").isEmpty()


def repartition_problem(job: str, table: str, readers: Collection[str]) -> str | None:
    """Why a table cannot have other partitions by a rewrite, as a sentence; None where it can.

    Args:
        job: The job that writes it.
        table: The table.
        readers: The jobs that have read it.
    """
    others = sorted({declared_name(reader) for reader in readers})
    if not others:
        return None
    read = "reads" if len(others) == 1 else "read"
    return (
        f"{table}: {' and '.join(others)} {read} it commit by commit, and would not start again once it has other "
        f"partitions; build it beside the live one, and then what is made of it: headwater backfill plan "
        f"{declared_name(job)} --rebuild"
    )
