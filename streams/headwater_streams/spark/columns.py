"""Columns by their names, whatever characters these have: `Product.Id` is a column, not the field of one.

`F.col`, and all that takes a name in its place (`select`, `groupBy`, `orderBy`, `F.max`), parses an expression: a dot
stands for a field, and a backtick quotes. Names that a user chose go through this module; the library's own names have
neither character.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.names import quoted

_TIME = "_event_time"


def col(*path: str) -> Column:
    """A column by its name; by several names a field of it, or a column of a frame with an alias.

    Example:
        col("Product.Id"), col("_value", "Product.Id"), col("l", "Product.Id")
    """
    return F.col(".".join(map(quoted, path)))


def with_watermark(rows: DataFrame, time: str, delay: str) -> DataFrame:
    """`rows.withWatermark(time, delay)`, which by itself reads a dot in a column's name as a field, quoted or not."""
    if "." not in time:
        return rows.withWatermark(time, delay)
    renamed = rows.withColumnRenamed(time, _TIME).withWatermark(_TIME, delay)
    return renamed.withColumnRenamed(_TIME, time)


def cols(names: Iterable[str]) -> list[Column]:
    """Columns by their names."""
    return list(map(col, names))
