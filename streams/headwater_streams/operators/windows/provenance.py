"""The offsets behind each window, which come from the folded rows and not through Spark's state."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.operators.recording import handed
from headwater_streams.operators.windows.spec import SINCE, WINDOW_KEY, FoldedWindow
from headwater_streams.sources.coordinates import OFFSET, PARTITION, ROW_COLUMNS, SOURCES, TOPIC
from headwater_streams.spark.hidden_columns import hide, reveal
from headwater_streams.spark.observations import Observed


def entering(
    function: Callable[..., DataFrame], name: str, rows: DataFrame, columns: Sequence[str] = ROW_COLUMNS
) -> DataFrame:
    """The rows that a job's function hands to its window, with their coordinates.

    Args:
        function: The function.
        name: The name of its input.
        rows: The input's rows, with these columns.
        columns: The columns that are hidden from the function.
    """
    return reveal(handed(function, **{name: hide(rows, columns)}), columns)


def with_sources(
    result: DataFrame,
    spec: FoldedWindow,
    rows: DataFrame,
    counts: Observed | None = None,
    within: Column | None = None,
) -> DataFrame:
    """Adds `_sources` to windows and takes `_window_key` from them.

    Args:
        result: The windows, with `_window_key`.
        spec: The kind of window.
        rows: The rows behind them, with the coordinates and the columns that the window is about.
        counts: Observes `rows`, the number of pairs of a row and a window.
        within: Which windows are in the result, as a condition over `_window`; by default all.
    """
    placed = spec.placed(rows, result)
    if within is not None:
        placed = placed.filter(within)
    # By the parts of the key: Spark's fast map of groups takes no struct.
    parts = spec.key_parts()
    by = {name: f"_of_{place}" for place, name in enumerate(parts)}
    ranges = placed.groupBy(*[part.alias(by[name]) for name, part in parts.items()], TOPIC, PARTITION).agg(
        F.min(OFFSET).alias("start"), (F.max(OFFSET) + 1).alias("end"), F.count(F.lit(1)).alias("_counted")
    )
    if counts is not None:
        ranges = counts.over(ranges, F.coalesce(F.sum("_counted"), F.lit(0)).alias("rows"))
    of = F.struct(*[F.col(column).alias(name) for name, column in by.items()])
    one = F.struct(F.col(TOPIC).alias("topic"), F.col(PARTITION).alias("partition"), "start", "end")
    sources = ranges.groupBy(of.alias("_of")).agg(F.sort_array(F.collect_list(one)).alias(SOURCES))
    return result.join(sources, F.col(WINDOW_KEY).eqNullSafe(F.col("_of")), "left").drop(WINDOW_KEY, "_of")


def with_ranges(result: DataFrame, ranges: pa.Table) -> DataFrame:
    """Adds `_sources` to windows whose rows were not kept, and takes `_window_key` and `_since` from them.

    Args:
        result: The windows, with `_window_key` and `_since`.
        ranges: For each batch that read a window's first row (`_of`), the ranges of its rows (`_sources`).
    """
    by_batch = result.sparkSession.createDataFrame(ranges)
    placed = result.join(F.broadcast(by_batch), F.col(SINCE) == F.col("_of"), "left")
    return placed.drop(WINDOW_KEY, SINCE, "_of")
