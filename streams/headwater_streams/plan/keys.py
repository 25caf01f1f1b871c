"""Whether the keys of an updated table name the windows of its job, one row for each."""

from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.windows.cumulative import CumulativeWindow
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_KEY, WINDOW_START, WindowSpec
from headwater_streams.plan.job import Job
from headwater_streams.spark.plan_shape import PlanNode

_NAMELESS = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
"""Kinds of values by which rows are not looked up."""


def check_keys(job: Job, window: WindowSpec, schema: T.StructType, result: PlanNode) -> None:
    """Checks the keys of a job whose windows replace each other by them.

    Each part of what names a window, the columns of `by` and one of its bounds, must be a key or what one is computed
    of; whether such a key tells two windows apart is seen when they are written.

    Args:
        job: The job.
        window: Its window.
        schema: The columns of its function's result.
        result: The plan of that.

    Raises:
        JobDefinitionError: Two windows have the same keys.
    """
    keys, about = job.target.keys, f"job {job.name!r}: the key"
    for key in keys:
        kind = schema[key].dataType
        if isinstance(kind, _NAMELESS):
            raise JobDefinitionError(f"{about} {key!r} is {kind.simpleString()}, which cannot name a row")
    origins = _origins_of(result)
    named = set[str]().union(*[origins[key] for key in keys])
    parts = {WINDOW_START, WINDOW_END, *window.by}
    # A key that is an aggregate may stand for a column of the grouping, as a name does for an id.
    missing = (
        [] if any(not origins[key] <= parts for key in keys) else [n for n in window.by if n not in named]
    )
    bound = (
        WINDOW_END if isinstance(window, CumulativeWindow) else WINDOW_START
    )  # of those several begin alike
    if window.closing and named.isdisjoint((bound, WINDOW_END)):
        missing.append(bound)
    if missing:
        its_name = next((name for name, of in origins.items() if of == {missing[0]}), None)
        mend = f"add {its_name} to the keys" if its_name else "give it in the result, and add it to the keys"
        raise JobDefinitionError(
            f"{about}s {', '.join(keys)} do not name a row: there is one for each {missing[0]}, too; {mend}"
        )


def _origins_of(plan: PlanNode) -> dict[str, set[str]]:
    """For each column of a result, the columns of `.agg(...)` that it is computed from."""
    origins = {column.name: {column.id} for column in plan.columns}
    for node in plan.walk():
        columns = {column.id: column for column in node.columns} if node.kind == "Project" else {}
        if any(column.name == WINDOW_KEY and column.passes is None for column in columns.values()):
            return {name: {columns[of].name for of in ids} for name, ids in origins.items()}
        below = {number: column.of for number, column in columns.items()}
        origins = {
            name: {of for number in ids for of in below.get(number, {number})}
            for name, ids in origins.items()
        }
    raise AssertionError("a window gives its key")
