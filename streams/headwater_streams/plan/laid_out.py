"""A job's tables as they are laid out: the partition columns that are computed, and what columns a layout can name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.layout import Layout, Partition
from headwater_streams.base.nearest import nearest
from headwater_streams.base.target import DeltaTarget
from headwater_streams.base.type_name import type_name
from headwater_streams.operators.windows.spec import WINDOW_END
from headwater_streams.sources.nested import odd_text
from headwater_streams.spark.columns import col

_FEW_VALUES = (T.DateType, T.StringType, T.IntegralType, T.BooleanType)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_ORDERED = (T.AtomicType,)


def with_layout(function: Callable[..., Any], targets: Mapping[str, DeltaTarget]) -> Callable[..., Any]:
    """A job's function whose result has the partition columns that are computed.

    An empty text becomes NULL in a partition column: Delta's log has no other way to write it, so the table would have
    NULL where the function gives an empty text. A key is left as it is, see `upsert`.

    Args:
        function: The job's function.
        targets: Its tables, by the names in its result; one of the name "" where it gives one frame.
    """
    if not any(target.layout.partition_by for target in targets.values()):
        return function

    @wraps(function)
    def laid_out(**inputs: DataFrame) -> Any:
        result = function(**inputs)
        if isinstance(result, DataFrame):
            (target,) = targets.values()
            return partitioned(result, target)
        if isinstance(result, Mapping):
            return {
                name: partitioned(frame, targets[name])
                if name in targets and isinstance(frame, DataFrame)
                else frame
                for name, frame in result.items()
            }
        return result

    return laid_out


def partitioned(result: DataFrame, target: DeltaTarget) -> DataFrame:
    """The rows of a table with its partition columns.

    Raises:
        JobDefinitionError: One cannot be computed.
    """
    for each in target.layout.computed:
        problem = computed_problem(each, result.schema)
        if problem is not None:
            raise JobDefinitionError(f"{target.name}: partition_by={str(each)!r}: {problem}")
        result = result.withColumn(each.name, _part_of(each.part, col(str(each.of))))
    texts = {
        field.name
        for field in result.schema.fields
        if isinstance(field.dataType, T.StringType)
        and field.name in target.layout.partition_columns
        and field.name not in target.keys
    }
    if not texts:
        return result
    return result.select(
        *[
            F.when(col(name) != "", col(name)).alias(name) if name in texts else col(name)
            for name in result.columns
        ]
    )


def _part_of(part: str, time: Column) -> Column:
    if part == "years":
        return F.year(time)
    if part == "months":
        return F.trunc(time, "month")
    return F.to_date(time) if part == "days" else F.date_format(time, "yyyy-MM-dd-HH")


def computed_problem(partition: Partition, result: T.StructType) -> str | None:
    """Why a partition column cannot be computed of a result's columns; None where it can."""
    kinds = {field.name: field.dataType for field in result.fields}
    if partition.of not in kinds:
        return f"no column {partition.of!r} in the result; it has {nearest(str(partition.of), list(kinds))}"
    if partition.name in kinds:
        return (
            f"the result has a column {partition.name!r} already, which it would be; partition by that one, "
            f"partition_by=[{partition.name!r}], or give it another name"
        )
    kind = kinds[partition.of]
    if not isinstance(kind, _TIMES) or (partition.part == "hours" and isinstance(kind, T.DateType)):
        return f"{partition.of!r} is {type_name(kind)}, and {partition.part}(...) takes a time"
    return None


def layout_problems(
    table: str, layout: Layout, schema: T.StructType, *, times: Sequence[str] = ()
) -> Iterator[str]:
    """Why a table with some columns cannot be laid out so, a sentence for each problem.

    Args:
        table: The table.
        layout: Its layout.
        schema: Its columns, the library's among them.
        times: Those that can be the age of its rows, see `age_column`.
    """
    kinds = {field.name: field.dataType for field in schema.fields}
    own = [name for name in kinds if not name.startswith("_")]
    for argument, names in (("partition_by", layout.partition_columns), ("cluster_by", layout.cluster_by)):
        for name in names:
            if name not in kinds:
                yield f"{table}: {argument} has {name!r}, which is no column of it; it has {nearest(name, own)}"
    for name in layout.partition_columns:
        kind = kinds.get(name)
        odd = odd_text(kind) if kind is not None else None
        if odd is not None:
            yield f"{table}: partition_by has {name!r}, which {odd}"
        elif kind is not None and not isinstance(kind, _FEW_VALUES):
            remedy = f"; write days({name})" if isinstance(kind, _TIMES) else ""
            yield (
                f"{table}: partition_by has {name!r}, a {type_name(kind)}: each value of it would be a folder; "
                f"partitions are by DATE, STRING, BOOLEAN and whole numbers{remedy}"
            )
    if own and set(own) <= set(layout.partition_columns):
        yield f"{table}: partition_by has all of its columns, and no data file would have any"
    for name in layout.cluster_by:
        if name in kinds and not isinstance(kinds[name], _ORDERED):
            yield f"{table}: cluster_by has {name!r}, a {type_name(kinds[name])}, which has no order"
    for name, _ in layout.comments:
        if name not in kinds:
            yield f"{table}: comments has {name!r}, which is no column of it; it has {nearest(name, own)}"
    age = age_column(times, schema, layout)
    if layout.keep is not None and age is None and layout.keep_by is not None:
        kind = kinds.get(layout.keep_by)
        what = "no column of it" if kind is None else f"{type_name(kind)}, and no TIMESTAMP"
        yield f"{table}: keep_by has {layout.keep_by!r}, which is {what}; it has {nearest(layout.keep_by, own)}"
    elif layout.keep is not None and age is None:
        yield (
            f"{table}: keep={layout.keep!r} is by event time, and no column of the table is called so; give an "
            "input event_time=, and name the column that has it, keep_by=..., or have a window's window_end in the "
            "result"
        )
    elif layout.keep is not None and not times:
        yield (
            f"{table}: keep={layout.keep!r} is behind the newest event that the job has seen, and no input has an "
            "event time, so that no row would ever go; give one event_time="
        )


def keep_problems(table: str, layout: Layout, kind: str, delays: Sequence[str]) -> Iterator[str]:
    """Why a job's rows cannot be let go of by their age, a sentence for each reason.

    Args:
        table: The table.
        layout: Its layout.
        kind: The kind of the job.
        delays: The watermarks of its inputs.
    """
    keep_us = layout.keep_us
    if keep_us is None:
        return
    if kind not in ("row", "window"):
        yield (
            f"{table}: keep={layout.keep!r} is for rows and for windows; those of a join or a dimension are kept for "
            "others that come; let a row-by-row job read the table, and keep its own"
        )
    if kind == "window" and layout.keep_by not in (None, WINDOW_END):
        yield (
            f"{table}: keep_by={layout.keep_by!r} is for rows; windows go by their {WINDOW_END}, by which a repair "
            "knows those that have gone"
        )
    longest = max((in_micros(parse_duration(delay)) for delay in delays), default=0)
    if kind == "window" and keep_us <= longest:
        yield (
            f"{table}: keep={layout.keep!r} is not longer than the watermark of an input, and windows would go that "
            "are still open"
        )


def age_column(times: Sequence[str], schema: T.StructType, layout: Layout) -> str | None:
    """The column that says how old a table's rows are: the one that is declared, or the first of `times`; None where
    the table does not have it as a TIMESTAMP."""
    kinds = {field.name: field.dataType for field in schema.fields}
    names = times if layout.keep_by is None else (layout.keep_by,)
    return next((name for name in names if isinstance(kinds.get(name), T.TimestampType)), None)
