"""Rows of several inputs as one: each keeps its coordinates, and the ledger accounts for each input by itself.

web      --- a (w 0) --------- b (w 1) ------------>
shop     ---------- c (s 0) ------------ d (s 1) -->
union        a       c         b         d             _topic w, s, w, s; _offset 0, 0, 1, 1
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import RECORD_COLUMNS, folded
from headwater_streams.base.type_name import type_name
from headwater_streams.operators.exploding import has_rows, reveal_rows
from headwater_streams.sources.coordinates import INPUT, OFFSET, ROW, ROW_COLUMNS
from headwater_streams.spark.hidden_columns import has_hidden, hide, reveal


def union(first: DataFrame, *others: DataFrame, allow_missing: bool = False) -> DataFrame:
    """Puts the rows of several frames under each other, by the names of their columns.

    It is for jobs that are a row-by-row function over several inputs (topics or tables), or on the way to a window. A
    window over a union reads it as one stream, which the library writes into a table (`<target>__ingest_union`). The
    stream's greatest time is that of all inputs together, in the window's time column. So rows of an input that is
    behind the others by more than the longest of their delays are late. Joins over a union read the table of a
    row-by-row job.

    Args:
        first: Rows; the result has their columns in their order.
        others: Further rows.
        allow_missing: Whether a column that not all of them have is NULL in the others; else it is refused.

    Returns:
        The rows of all frames, with repetitions. Where two tables have rows of one record, a job with `by_offset()`
        keeps the one that it reads first.

    Example:
        hw.union(orders, returns, allow_missing=True)

    Raises:
        JobDefinitionError: A column is not in all of them, is text in one and not in another, or only some of them are
            rows of an input.
    """
    frames = (first, *others)
    _require_like_types(frames)
    if not allow_missing:
        _require_same_columns(frames)
    traced = [has_hidden(frame, OFFSET) for frame in frames]
    if any(traced) and not all(traced):
        raise JobDefinitionError(
            f"union: the {_ordinal(traced.index(False))} frame is not made of an input's rows by select, withColumn "
            "and filter; a look-up's rows come with no batch"
        )
    hidden = list(ROW_COLUMNS) if all(traced) else []
    if hidden and all(has_hidden(frame, INPUT) for frame in frames):
        hidden.append(INPUT)
    if hidden:
        hidden += [name for name in RECORD_COLUMNS if all(has_hidden(frame, name) for frame in frames)]
    if hidden and any(map(has_rows, frames)):
        revealed = [reveal_rows(frame, hidden) for frame in frames]
        hidden.append(ROW)
    else:
        revealed = [reveal(frame, hidden) if hidden else frame for frame in frames]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=allow_missing), revealed)
    return hide(rows, hidden) if hidden else rows


def _require_like_types(frames: Sequence[DataFrame]) -> None:
    """Refuses a text beside another type: Spark would cast the texts, and stop at one that it cannot cast. Numbers
    become the wider type."""
    kinds: dict[str, tuple[int, T.DataType]] = {}
    for place, frame in enumerate(frames):
        for column in frame.schema.fields:
            if isinstance(column.dataType, T.NullType):
                continue
            before, kind = kinds.setdefault(folded(column.name), (place, column.dataType))
            if isinstance(kind, T.StringType) is not isinstance(column.dataType, T.StringType):
                raise JobDefinitionError(
                    f"union: {column.name!r} is {type_name(kind)} in the {_ordinal(before)} frame and "
                    f"{type_name(column.dataType)} in the {_ordinal(place)}; cast one of them"
                )


def _require_same_columns(frames: Sequence[DataFrame]) -> None:
    every = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    for place, frame in enumerate(frames):
        missing = [name for name in every if name not in frame.columns]
        if missing:
            raise JobDefinitionError(
                f"union: the {_ordinal(place)} frame has no column {missing[0]!r}; it has {', '.join(frame.columns)}; "
                "add it, or write allow_missing=True for NULL"
            )


def _ordinal(place: int) -> str:
    return ("first", "second", "third")[place] if place < 3 else f"{place + 1}th"
