"""Windows that share rows: what hopping and cumulative windows have in common.

A row that comes when some of its windows are closed is *partly late*: it is folded into those that are open, and
kept in the late table with the windows that lack it (`_missed`). Spark would leave it out of these silently.
"""

from abc import abstractmethod
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.target import Mode
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.spec import CLOSED_UNTIL, PLACED_METRIC, WINDOW
from headwater_streams.spark.hidden_columns import has_hidden, reveal

_AT = "_at_us"
# EventTimeWatermark.delayKey of catalyst: a stateful operator takes the column with this key as its event time, and of
# a struct the second field, the window's end (WatermarkSupport).
_IS_EVENT_TIME = {"spark.watermarkDelayMs": 0}


class OverlappingWindow(FixedWindow):
    """Windows of which a row is in several; one bound of a window distinguishes it from the row's others."""

    modes: ClassVar[tuple[Mode, ...]] = ("append", "update")
    overlapping: ClassVar[bool] = True

    @abstractmethod
    def _marks(self) -> Column:
        """A row's windows in order, as an array of numbers, the marks; see `_window`."""

    @abstractmethod
    def _window(self, mark: Column) -> Column:
        """The window of a mark."""

    @abstractmethod
    def first_closes(self) -> Column:
        """When the first of a row's windows closes."""

    def windows(self) -> Column:
        """A row's windows, an array in the order of their ends."""
        return F.transform(self._marks(), self._window)

    def placed(self, rows: DataFrame, result: DataFrame) -> DataFrame:
        """See `FoldedWindow`."""
        each = rows.withColumn(_AT, F.explode(self._marks()))
        return each.withColumn(WINDOW, self._window(F.col(_AT))).drop(_AT)

    def grouping(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """See `FoldedWindow`."""
        streamed = has_hidden(rows, CLOSED_UNTIL)
        if streamed:
            rows = reveal(rows, [CLOSED_UNTIL])
        each = rows.withColumn(_AT, F.explode(self._marks()))
        window = self._window(F.col(_AT))
        if rows.isStreaming:
            window = window.alias(WINDOW, metadata=_IS_EVENT_TIME)
        each = each.withColumn(WINDOW, window)
        if streamed:
            is_open = F.coalesce(F.col(f"{WINDOW}.end") > F.col(CLOSED_UNTIL), F.lit(True))
            observed = each.observe(
                PLACED_METRIC,
                F.count(F.when(is_open, 1)).alias("placed"),
                F.count(F.when(~is_open, 1)).alias("missed"),
            )
            each = observed.filter(is_open)
        return each, F.col(WINDOW)
