"""The newest row of each key, whatever order the rows come in.

by tailnum, order seen_at
10:00 N1 at EWR    a
10:30 N1 at JFK              b           N1: JFK
10:10 N1 at LGA        c, comes last     N1: JFK, for c is older than b
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.arguments import require_list
from headwater_streams.operators.aggregates.grouped import grouped
from headwater_streams.operators.recording import passing_on
from headwater_streams.operators.windows.grouping import require_columns
from headwater_streams.spark.columns import col, cols

_NEWEST = "_newest"


def latest(df: DataFrame, *, by: Sequence[str], order: str | Sequence[str], state: str) -> DataFrame:
    """The row of each key with the greatest `order`; of rows that tie, the one with the greatest other columns.

    The result therefore depends on the rows alone, not on their order. NULL is less than anything.

    Args:
        df: Rows; their columns can be ordered (no maps).
        by: The key's columns.
        order: The columns by which a row is newer than another, most often a time or a version.
        state: `"unbounded"`: Spark keeps one row of each key, for ever; see `grouped`.

    Returns:
        The columns of `df`, one row for each key. The target's mode is "update" and its keys are `by`.

    Example:
        hw.latest(orders, by=["order_id"], order="ordered_at", state="unbounded")

    Raises:
        JobDefinitionError: A column is missing, `by` is empty, or `state` is something else.
    """
    require_list("latest", "by", by)
    first = (order,) if isinstance(order, str) else tuple(order)
    require_columns("latest", df, first)
    rest = tuple(name for name in df.columns if name not in (*by, *first))
    ranked = tuple(name for name in first if name not in by) + rest
    if not ranked:
        ranked = tuple(by)
    groups = grouped(df, by=by, state=state)
    newest = groups.agg(F.max(F.struct(*cols(ranked))).alias(_NEWEST))
    columns = [col(name) if name in by else F.col(_NEWEST)[name].alias(name) for name in df.columns]
    return passing_on(newest.select(*columns), df)
