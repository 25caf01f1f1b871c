"""The first n rows of a window or a key, as one aggregate among others."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.base.arguments import require_list
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.spark.columns import col, cols


def top(n: int, order: str, columns: Sequence[str] = ()) -> Column:
    """An aggregate: the `n` rows with the greatest `order`, greatest first, as an array of structs.

    Rows that tie are ordered by the other columns, so the result depends on the rows alone, not on their order; rows
    whose `order` is NULL are left out. Spark's state holds `order` and `columns` of every row of an open window (it has
    no bounded aggregate of this kind), so use it in windows, not over all time.

    Args:
        n: How many.
        order: The column to rank by.
        columns: What else to keep of each row.

    Returns:
        An aggregate for `.agg(...)` of a window: `ARRAY<STRUCT<order, columns...>>`.

    Example:
        hw.tumbling(orders, "ordered_at", "1 hour").agg(hw.top(3, "amount", ["order_id"]).alias("greatest"))

    Raises:
        JobDefinitionError: `n` is below 1.
    """
    require_list("top", "columns", columns)
    if n < 1:
        raise JobDefinitionError(f"top: n={n} is below 1")
    names = [order, *[name for name in columns if name != order]]
    row = F.struct(*cols(names))
    ranked = F.when(col(order).isNotNull(), row)
    return F.slice(F.sort_array(F.collect_list(ranked), asc=False), 1, n)
