"""Sessions of one key that touch each other: they are one of all rows, or were written apart."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

CHAIN = "_chain"
"""Numbers, within a key, the sessions that touch each other alike."""


def numbered(sessions: DataFrame, whose: Sequence[Column], start: str, end: str) -> DataFrame:
    """Sessions with their `_chain`.

    Args:
        sessions: The sessions.
        whose: The columns of the key.
        start: The column of their starts.
        end: That of their ends, of the same type.
    """
    earlier = Window.partitionBy(*whose).orderBy(start, end)
    until = F.max(end).over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(until.isNull() | (F.col(start) > until), 1).otherwise(0)
    return sessions.withColumn("_begins", begins).withColumn(CHAIN, F.sum("_begins").over(earlier))
