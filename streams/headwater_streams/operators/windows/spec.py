"""The specification of a kind of window, and the columns by which the library follows a row into its windows."""

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.target import Mode
from headwater_streams.spark.columns import cols

WINDOW = "_window"
"""The window of a row or of a result: a struct of `start` and `end`."""
WINDOW_START, WINDOW_END = BOUNDS = "window_start", "window_end"
"""The columns of a windowed job's result that have a window's bounds."""
WINDOW_KEY = "_window_key"
"""The hidden column that names a window whatever the function calls its columns."""
CLOSED_UNTIL = "_closed_until"
"""A hidden column of streamed rows: windows that end at this time or before are closed for the row; NULL if none is."""
SINCE = "_since"
"""A hidden column of streamed rows that no table keeps, and of their windows: the batch that read the (first) row."""
PLACED_METRIC = "headwater_placed"
"""The observation of overlapping windows: `placed` and `missed`, the pairs of a row and a window."""


class WindowSpec(ABC):
    """A kind of window over the event time `time`, one series of windows for each value of `by`."""

    name: ClassVar[str]
    """The kind, in a sentence: "a tumbling window"."""
    modes: ClassVar[tuple[Mode, ...]]
    """The target modes that Spark can serve."""
    overlapping: ClassVar[bool]
    """Whether a row falls into several windows."""
    closing: ClassVar[bool] = True
    """Whether the watermark closes windows; if not, no row is late, and no time column is needed."""

    time: str
    by: tuple[str, ...]

    @abstractmethod
    def closes(self) -> Column:
        """When the last of a row's windows closes, NULL without an event time."""


class FoldedWindow(WindowSpec):
    """A window that follows from a row's own columns, so that Spark can fold rows in the order in which they come."""

    closes_beyond: ClassVar[timedelta] = timedelta()
    """How far beyond a window's end the watermark goes before the window is closed."""

    @abstractmethod
    def grouping(self, rows: DataFrame) -> tuple[DataFrame, Column | None]:
        """The rows to group, and the window to group them by, if there is one."""

    @abstractmethod
    def placed(self, rows: DataFrame, result: DataFrame) -> DataFrame:
        """Rows with the windows of `result` that they are in, as `_window`: one row for each pair."""

    def key_parts(self) -> dict[str, Column]:
        """The parts of the name of the window `_window` of a row or a result."""
        bounds = {f"window_{bound}": F.col(f"{WINDOW}.{bound}") for bound in ("start", "end")}
        return dict(zip(self.by, cols(self.by), strict=True)) | bounds

    def key(self) -> Column:
        """The parts as a struct."""
        return F.struct(*[part.alias(name) for name, part in self.key_parts().items()])


def window_of(start_us: Column, end_us: Column) -> Column:
    """A window by its bounds in microseconds."""
    start, end = F.timestamp_micros(start_us), F.timestamp_micros(end_us)
    return F.struct(start.alias("start"), end.alias("end"))
