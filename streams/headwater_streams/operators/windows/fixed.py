"""Windows at fixed times, which follow from a row's time alone: what tumbling, hopping and cumulative windows share."""

from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros
from headwater_streams.operators.windows.spec import FoldedWindow
from headwater_streams.spark.columns import col


class FixedWindow(FoldedWindow):
    """Windows that begin every `period` since the epoch, in UTC, none longer than `size`.

    A row is in windows of all starts from its first to its last; where windows do not overlap, or have the same start,
    these two are equal.
    """

    size: timedelta

    @property
    def period(self) -> timedelta:
        """How far apart windows begin."""
        return self.size

    def first_start(self) -> Column:
        """The first start of a row's windows, in microseconds; NULL without an event time."""
        if self.period == self.size:
            return self.last_start()
        return self._floor(self._time_us() - F.lit(in_micros(self.size))) + F.lit(in_micros(self.period))

    def last_start(self) -> Column:
        """The last start of a row's windows, in microseconds; NULL without an event time."""
        return self._floor(self._time_us())

    def starts_over(self, start_us: int, end_us: int) -> tuple[int, int]:
        """The starts, half-open, of the windows that hold a moment of `[start_us, end_us)`, all in microseconds."""
        period = in_micros(self.period)
        before = start_us - in_micros(self.size)
        return before - before % period + period, end_us + -end_us % period

    def closes(self) -> Column:
        """See `FoldedWindow`."""
        return F.timestamp_micros(self.last_start() + F.lit(in_micros(self.size)))

    def _time_us(self) -> Column:
        return F.unix_micros(col(self.time))

    def _floor(self, time_us: Column) -> Column:
        return time_us - F.pmod(time_us, F.lit(in_micros(self.period)))
