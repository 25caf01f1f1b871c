"""The year of a time without one."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.parsers.parser import let

_DAY_US = 86_400_000_000
_ALMOST_A_YEAR_US = 363 * _DAY_US


def latest(of_year: Callable[[Column], Column], timestamp: Column) -> Column:
    """The latest time of a date without a year that is no more than a day ahead of its record's timestamp, or null.

    Args:
        of_year: Gives the time in a year, an INT; null where the year does not have it, as 29 February.
        timestamp: The record's timestamp.
    """

    def before(time: Column) -> Column:
        return F.unix_micros(timestamp) + _DAY_US - F.unix_micros(time)

    def of_several() -> Column:
        # 29 February is in one year of four, or of eight.
        times = [of_year(F.year(timestamp) + more) for more in range(-8, 2)]
        return F.array_max(F.filter(F.array(*times), lambda time: before(time) >= 0))

    # Within a year the record's own year is the latest, and one time is read instead of ten.
    return let(
        of_year(F.year(timestamp)),
        lambda time: F.when(before(time).between(0, _ALMOST_A_YEAR_US), time).otherwise(of_several()),
    )
