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

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.durations import parse_duration
from headwater_streams.errors import JobDefinitionError
from headwater_streams.runtime.operators import counted, record
from headwater_streams.sources.coordinates import ROWS, hide

WINDOW_KEY = "_window_key"
"""The hidden column that names a window whatever the function calls its columns."""


@dataclass(frozen=True)
class TumblingWindow:
    """Windows `[k * size, (k + 1) * size)` since the epoch, in UTC, one series for each value of `by`."""

    time: str
    size: timedelta
    by: tuple[str, ...]

    @property
    def _interval(self) -> str:
        return f"{round(self.size / timedelta(microseconds=1))} microseconds"

    def column(self) -> Column:
        """The window of a row: a struct of `start` and `end`."""
        return F.window(F.col(self.time), self._interval)

    def key(self) -> Column:
        """What names a row's window: a struct of its keys and its start."""
        return F.struct(*[F.col(f"`{name}`") for name in self.by], self._bound(0).alias("window_start"))

    def end(self) -> Column:
        """The end of a row's window, NULL without an event time (which `F.window` would drop)."""
        return self._bound(1)

    def _bound(self, windows_on: int) -> Column:
        micros = round(self.size / timedelta(microseconds=1))
        time = F.unix_micros(F.col(f"`{self.time}`"))
        return F.timestamp_micros(time - F.pmod(time, F.lit(micros)) + F.lit(windows_on * micros))


@dataclass(frozen=True)
class Windowed:
    """Rows grouped by window and keys, waiting for their aggregates."""

    df: DataFrame
    spec: TumblingWindow

    def agg(self, *aggregates: Column) -> DataFrame:
        """One row for each window and key: the `by` columns, `window_start`, `window_end`, the aggregates.

        The number of rows behind each window travels along as the hidden column `_rows`, its name as `_window_key`.
        """
        record(self.spec)
        rows = F.count(F.lit(1)).alias(ROWS)
        grouped = (
            counted(self.df, "window")
            .groupBy(*self.spec.by, self.spec.column().alias("_window"))
            .agg(*aggregates, rows)
        )
        names = [name for name in grouped.columns if name not in (*self.spec.by, "_window", ROWS)]
        flat = grouped.select(
            *self.spec.by,
            F.col("_window.start").alias("window_start"),
            F.col("_window.end").alias("window_end"),
            *names,
            ROWS,
            F.struct(*self.spec.by, F.col("_window.start").alias("window_start")).alias(WINDOW_KEY),
        )
        return hide(flat, [ROWS, WINDOW_KEY])


def tumbling(df: DataFrame, time: str, size: str, *, by: Sequence[str] = ()) -> Windowed:
    """Groups rows into tumbling windows.

    Args:
        df: Rows with a timestamp column `time`.
        time: The event-time column.
        size: The windows' length, "1 hour".
        by: Columns to group by beside the window.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates.

    Raises:
        JobDefinitionError: A column is not there, or the size is not a duration.
    """
    missing = [name for name in (time, *by) if name not in df.columns]
    if missing:
        raise JobDefinitionError(f"tumbling: no column {missing[0]!r}; there are {', '.join(df.columns)}")
    return Windowed(df, TumblingWindow(time, parse_duration(size), tuple(by)))
