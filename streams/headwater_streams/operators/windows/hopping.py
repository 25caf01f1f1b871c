"""Hopping (sliding) windows of length `size`, a new one every `every`; a row is in all that hold its time.

    size 1 hour, every 20 minutes
                    09:00    09:20    09:40    10:00    10:20    10:40
    [08:40, 09:40)   -----------------|
    [09:00, 10:00)   |--------------------------|
    [09:20, 10:20)            |--------------------------|
    [09:40, 10:40)                     |--------------------------|
    09:45 a                              a                             in [09:00, [09:20 and [09:40

Late rows, where the watermark (the greatest time seen minus the delay) is 10:05:

    09:45 b: [09:00, 10:00) is closed, the other two are open: b is folded into these, and the late table holds it
             with `_missed` = that one window; it is *partly late*.
    09:10 c: [08:20, [08:40 and [09:00 are all closed: c is *late*, and `_missed` has the three.

So `read = folded + late + filtered + quarantined` counts each row once, and the windows' own counts sum to `placed`:
for each row that was folded, the number of its windows that were open. `placed + missed` is the number of all
windows of the folded rows, which is `size / every` for each where that is a whole number.
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
class HoppingWindow(OverlappingWindow):
    """Windows `[k * every, k * every + size)` since the epoch, in UTC, one series for each value of `by`."""

    name: ClassVar[str] = "a hopping window"

    time: str
    size: timedelta
    every: timedelta
    by: tuple[str, ...]

    @property
    def period(self) -> timedelta:
        """See `FixedWindow`."""
        return self.every

    def first_closes(self) -> Column:
        """See `OverlappingWindow`."""
        return F.timestamp_micros(self.first_start() + F.lit(in_micros(self.size)))

    def _marks(self) -> Column:
        return F.sequence(self.first_start(), self.last_start(), F.lit(in_micros(self.every)))

    def _window(self, mark: Column) -> Column:
        return window_of(mark, mark + F.lit(in_micros(self.size)))


def hopping(df: DataFrame, time: str, size: str, every: str, *, by: Sequence[str] = ()) -> Windowed:
    """Groups rows into hopping windows; each row is in all windows that hold its time.

    Args:
        df: Rows with a timestamp column `time`.
        time: The event-time column.
        size: The windows' length, "1 hour".
        every: How far apart they begin, "10 minutes"; at most `size`.
        by: Columns to group by beside the window.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates.

    Example:
        hw.hopping(orders, "ordered_at", "1 hour", "10 minutes", by=["currency"]).agg(F.count("*").alias("orders"))

    Raises:
        JobDefinitionError: A column is missing, a duration is not valid, or rows would fall between the windows.
    """
    require_columns("hopping", df, by, time, gives=BOUNDS)
    spec = HoppingWindow(time, parse_duration(size), parse_duration(every), tuple(by))
    if spec.every > spec.size:
        raise JobDefinitionError(
            f"hopping: windows of {size} every {every} leave gaps, and rows would fall into none; "
            "make every= at most size, and filter what is not wanted"
        )
    return Windowed(df, spec)
