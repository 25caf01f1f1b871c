"""Session windows: rows of one key that follow each other within `gap`.

    gap 30 minutes      10:00     10:30     11:00     11:30     12:00
    10:00 a              a
    10:20 b                    b                                         session [10:00, 10:50): a, b
    10:55 c                               c                              35 minutes after b, so the next one:
    11:05 d                                  d                           session [10:55, 11:35): c, d
    10:40 e, as long as both are open       e joins them:                session [10:00, 11:35): a, b, e, c, d

Two rows exactly `gap` apart are in one session (Spark's MergingSessionsIterator: `start <= end` of the one before).
A session ends `gap` after its last row, and is written once, when the watermark is a millisecond past its end (mode
"append"): until then a row may lengthen it or merge two sessions, so there is nothing final to update.

A row is late when `time + gap <= _seen_until - delay`, as in Spark: a session of this row alone would be closed, even
if later rows keep one open that it would belong to. A row that is behind the watermark by less than the gap is folded;
where the session before it was written already, it begins a new one. Rows in time (not behind the watermark) get
exactly the sessions that a batch over all of them gives.

Spark (4.1, 4.2) moves a condition on a session's bounds below its grouping, where it sees single rows in place of
sessions. A job's function cannot have such a condition; where the function is called on a plain DataFrame, call
`localCheckpoint()` on its result before such a filter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.target import Mode
from headwater_streams.operators.windows.grouping import Windowed, require_columns
from headwater_streams.operators.windows.spec import BOUNDS, WINDOW, WINDOW_KEY, FoldedWindow
from headwater_streams.spark.columns import col, cols


@dataclass(frozen=True)
class SessionWindow(FoldedWindow):
    """Sessions of each value of `by`; two rows at most `gap` apart are in the same."""

    name: ClassVar[str] = "a session window"
    modes: ClassVar[tuple[Mode, ...]] = ("append",)
    overlapping: ClassVar[bool] = False
    closes_beyond: ClassVar[timedelta] = timedelta(milliseconds=1)
    """A row at a session's end is in it, and a row at the watermark is in time. Spark counts in milliseconds."""

    time: str
    gap: timedelta
    by: tuple[str, ...]

    def grouping(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """See `FoldedWindow`."""
        return rows, F.session_window(col(self.time), f"{in_micros(self.gap)} microseconds")

    def closes(self) -> Column:
        """See `FoldedWindow`."""
        return F.timestamp_micros(F.unix_micros(col(self.time)) + F.lit(in_micros(self.gap)))

    def placed(self, rows: DataFrame, result: DataFrame) -> DataFrame:
        """See `FoldedWindow`; a session's rows are those of its key between its bounds."""
        sessions = result.select(WINDOW_KEY)
        time, key = col(self.time), F.col(WINDOW_KEY)
        inside = (time >= key["window_start"]) & (time < key["window_end"])
        for name in self.by:
            inside &= col(name).eqNullSafe(key[name])
        window = F.struct(key["window_start"].alias("start"), key["window_end"].alias("end")).alias(WINDOW)
        return rows.join(sessions, inside).select(*cols(rows.columns), window)


def session(df: DataFrame, time: str, gap: str, *, by: Sequence[str]) -> Windowed:
    """Groups rows into sessions.

    Args:
        df: Rows with a timestamp column `time`.
        time: The event-time column.
        gap: How long a key is silent before its session is over, "30 minutes".
        by: The columns of the key; at least one, as Spark has no sessions of all rows together.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates.

    Example:
        hw.session(orders, "ordered_at", "30 minutes", by=["customer"]).agg(F.count("*").alias("orders"))

    Raises:
        JobDefinitionError: A column is missing, the gap is not a duration, or `by` is empty.
    """
    require_columns("session", df, by, time, gives=BOUNDS)
    if not by:
        raise JobDefinitionError("session: name at least one column in by=[...], whose sessions they are")
    return Windowed(df, SessionWindow(time, parse_duration(gap), tuple(by)))
