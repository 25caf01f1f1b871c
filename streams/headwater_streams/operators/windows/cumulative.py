"""Cumulative windows: from the start of a period to each of its steps, as "today so far, hour by hour".

    size 1 hour, step 20 minutes
                    09:00    09:20    09:40    10:00    10:20
    [09:00, 09:20)   |--------|
    [09:00, 09:40)   |-----------------|
    [09:00, 10:00)   |--------------------------|
    [10:00, 10:20)                              |--------|
    09:05 a            a                                       in all three of the hour
    09:25 b                      b                             in [09:00, 09:40) and [09:00, 10:00)

A row is late when the whole period is closed, and partly late when some of its steps are, as with hopping windows.
Windows of a period have the same start, so only `window_start` and `window_end` together name one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.windows.grouping import Windowed, require_columns
from headwater_streams.operators.windows.overlapping import OverlappingWindow
from headwater_streams.operators.windows.spec import BOUNDS, window_of


@dataclass(frozen=True)
class CumulativeWindow(OverlappingWindow):
    """Windows `[k * size, k * size + n * step)`, n from 1 to `size / step`, one series for each value of `by`."""

    name: ClassVar[str] = "a cumulative window"

    time: str
    size: timedelta
    step: timedelta
    by: tuple[str, ...]

    def first_closes(self) -> Column:
        """See `OverlappingWindow`."""
        return F.timestamp_micros(self._ceiling(self.step))

    def _marks(self) -> Column:
        return F.sequence(self._ceiling(self.step), self._ceiling(self.size), F.lit(in_micros(self.step)))

    def _window(self, mark: Column) -> Column:
        inside = mark - F.lit(1)  # the last moment of the window
        return window_of(inside - F.pmod(inside, F.lit(in_micros(self.size))), mark)

    def _ceiling(self, length: timedelta) -> Column:
        time_us = self._time_us()
        return time_us - F.pmod(time_us, F.lit(in_micros(length))) + F.lit(in_micros(length))


def cumulative(df: DataFrame, time: str, size: str, step: str, *, by: Sequence[str] = ()) -> Windowed:
    """Groups rows into cumulative windows: each row is in all of its period's windows that end after it.

    Args:
        df: Rows with a timestamp column `time`.
        time: The event-time column.
        size: The period's length, "1 day".
        step: How much longer each window is than the one before, "1 hour"; `size` is a multiple of it.
        by: Columns to group by beside the window.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates.

    Example:
        hw.cumulative(orders, "ordered_at", "1 day", "1 hour").agg(F.sum("amount").alias("revenue_so_far"))

    Raises:
        JobDefinitionError: A column is missing, a duration is not valid, or `size` is not a multiple of `step`.
    """
    require_columns("cumulative", df, by, time, gives=BOUNDS)
    spec = CumulativeWindow(time, parse_duration(size), parse_duration(step), tuple(by))
    if spec.size % spec.step:
        raise JobDefinitionError(f"cumulative: the size {size} is not a multiple of the step {step}")
    return Windowed(df, spec)
