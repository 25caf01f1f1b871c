"""Tumbling windows: fixed, gapless, half-open stretches of event time.

    size 1 hour     09:00        10:00        11:00        12:00
                      |------------|------------|------------|
    09:00 a           a                                             window [09:00, 10:00)
    09:59:59 b                    b                                 window [09:00, 10:00)
    10:00 c                        c                                window [10:00, 11:00)

A row is late once its window has closed: when `window_end <= _seen_until - delay`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.target import Mode
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.grouping import Windowed, require_columns
from headwater_streams.operators.windows.spec import BOUNDS, WINDOW, window_of
from headwater_streams.spark.columns import col


@dataclass(frozen=True)
class TumblingWindow(FixedWindow):
    """Windows `[k * size, (k + 1) * size)` since the epoch, in UTC, one series for each value of `by`."""

    name: ClassVar[str] = "a tumbling window"
    modes: ClassVar[tuple[Mode, ...]] = ("append", "update")
    overlapping: ClassVar[bool] = False

    time: str
    size: timedelta
    by: tuple[str, ...]

    def column(self) -> Column:
        """The window of a row: a struct of `start` and `end`."""
        start = self.last_start()
        return window_of(start, start + F.lit(in_micros(self.size)))

    def grouping(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """See `FoldedWindow`."""
        return rows, F.window(col(self.time), f"{in_micros(self.size)} microseconds")

    def placed(self, rows: DataFrame, result: DataFrame) -> DataFrame:
        """See `FoldedWindow`."""
        return rows.withColumn(WINDOW, self.column())


def tumbling(df: DataFrame, time: str, size: str, *, by: Sequence[str] = ()) -> Windowed:
    """Groups rows into tumbling windows.

    Args:
        df: Rows with a timestamp column `time`.
        time: The event-time column.
        size: The windows' length, "1 hour".
        by: Columns to group by beside the window.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates.

    Example:
        hw.tumbling(orders, "ordered_at", "1 hour", by=["currency"]).agg(F.sum("amount").alias("revenue"))

    Raises:
        JobDefinitionError: A column is missing, or the size is not a duration.
    """
    require_columns("tumbling", df, by, time, gives=BOUNDS)
    return Windowed(df, TumblingWindow(time, parse_duration(size), tuple(by)))
