"""What every join does with columns: it checks names, keeps the sides apart, and carries coordinates through."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.arguments import require_frame
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import RECORD_COLUMNS, hidden_hint
from headwater_streams.base.type_name import type_name
from headwater_streams.operators.exploding import has_rows, reveal_rows
from headwater_streams.sources.coordinates import INPUT, OFFSET, PARTITION, ROW, ROW_COLUMNS, TOPIC
from headwater_streams.sources.nested import odd_text
from headwater_streams.spark.hidden_columns import has_hidden, reveal

READ_BEFORE = "_read_before"
"""A hidden column of a stream's rows: whether an earlier batch read the row; this batch then only looks at it again."""


def require_columns(operator: str, side: str, df: DataFrame, needed: Sequence[str]) -> None:
    """Checks that a side has its columns.

    Raises:
        JobDefinitionError: One is missing, or the side is no DataFrame.
    """
    require_frame(f"{operator}: its {side} side is", df)
    for name in needed:
        if name not in df.columns:
            raise JobDefinitionError(
                f"{operator}: the {side} side has no column {name!r}; it has {', '.join(df.columns)}{hidden_hint(name)}"
            )


def require_apart(operator: str, left: DataFrame, right: DataFrame, once: Sequence[str]) -> None:
    """Checks that no column is on both sides, except those that the result has once.

    Raises:
        JobDefinitionError: One does.
    """
    both = sorted(set(left.columns) & set(right.columns) - set(once))
    if both:
        raise JobDefinitionError(
            f"{operator}: {', '.join(both)} stand on both sides; rename or drop them on one"
        )


def require_equatable(operator: str, left: DataFrame, right: DataFrame, keys: Mapping[str, str]) -> None:
    """Checks that the columns of a key can be compared, for any values.

    Args:
        operator: Its name.
        left: The left side.
        right: The right side.
        keys: The key's columns, by their names on the left and on the right.

    Raises:
        JobDefinitionError: One holds a map, or Spark would cast texts to another type and fail on the first that it
            cannot cast.
    """
    for left_name, right_name in keys.items():
        kinds = [side.schema[name].dataType for side, name in ((left, left_name), (right, right_name))]
        type_names = [type_name(kind) for kind in kinds]
        odd = next(filter(None, map(odd_text, kinds)), None)
        if odd is not None:
            raise JobDefinitionError(f"{operator}: the key {left_name!r} {odd}")
        if any("MAP<" in kind for kind in type_names):
            raise JobDefinitionError(
                f"{operator}: {left_name!r} holds a map, and maps cannot be compared; take another key"
            )
        if sum(isinstance(kind, T.StringType) for kind in kinds) == 1:
            raise JobDefinitionError(
                f"{operator}: {left_name!r} is {type_names[0]} on the left side, and {right_name!r} is {type_names[1]} "
                "on the right; cast one, for Spark would fail on the first text that is none"
            )


def require_comparable(operator: str, df: DataFrame) -> None:
    """Checks that rows can be compared column by column: the greater of two at one time is taken.

    Raises:
        JobDefinitionError: A column is a map or holds one.
    """
    for field in df.schema.fields:
        if "map<" in field.dataType.simpleString():
            raise JobDefinitionError(
                f"{operator}: {field.name!r} of the right side holds a map, and maps cannot be compared; leave it out"
            )


def revealed(rows: DataFrame, *, of_records: bool = False) -> tuple[DataFrame, tuple[str, ...]]:
    """The rows with their coordinates, where they have some (in a union also the input), and the coordinates' names.

    With `of_records` all else that rows have of their records is among them: keys and headers, where the job uses them,
    and the places of rows in their records, where these may be several to one.
    """
    if not has_hidden(rows, OFFSET):
        return rows, ()
    names = (*ROW_COLUMNS, INPUT) if has_hidden(rows, INPUT) else ROW_COLUMNS
    if of_records:
        own = [name for name in RECORD_COLUMNS if name not in rows.columns and has_hidden(rows, name)]
        names = (*names, *own)
    if of_records and has_rows(rows):
        return reveal_rows(rows, names), (*names, ROW)
    return reveal(rows, names), names


def source_range(side: str) -> Column:
    """A row's place as a range of one offset, as `_sources` has it; `side` is an alias or a struct column."""
    offset = F.col(f"{side}.{OFFSET}")
    return F.struct(
        F.col(f"{side}.{TOPIC}").alias("topic"),
        F.col(f"{side}.{PARTITION}").alias("partition"),
        offset.alias("start"),
        (offset + 1).alias("end"),
    )
