"""What can be wrong with a value's times.

Spark reads a number in JSON as seconds. A number of milliseconds becomes a time of the year 57000, which other readers
cannot read.
"""

from collections.abc import Mapping
from datetime import date

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.names import may_name
from headwater_streams.sources.coordinates import TIMESTAMP
from headwater_streams.sources.inputs import Input, TopicInput
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.wrong_fields import excerpt

FIRST_DAY, LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
"""The first day of the year 1 and the last one of the year 9999, in days since 1970."""
_DAY_US = 86_400_000_000


def time_problems(
    declared: Input, columns: Mapping[str, Column], *, ahead: bool, raised: Column | None = None
) -> list[Problem]:
    """What can be wrong with a row's event time: it is missing, or (`ahead`) far beyond its record's timestamp or
    before the year 1, as where Spark reads a number of nanoseconds in JSON as seconds; or it cannot be computed
    (`raised`)."""
    if declared.event_time is None:
        return []
    time = columns[declared.event_time]
    missing: Column | str = f"{declared.event_time} is missing"
    if raised is not None and isinstance(declared, TopicInput):
        why = f"{declared.event_time} cannot be computed: {declared.computed}"
        missing = F.when(raised, F.lit(why)).otherwise(F.lit(f"{missing}: {declared.computed} is NULL"))
    problems = [Problem("event_time", time.isNull(), missing)]
    if ahead and isinstance(declared, TopicInput):
        # In microseconds: adding an interval, Spark would make a date in a time zone from each record's timestamp.
        limit_us = F.unix_micros(TIMESTAMP) + F.lit(in_micros(parse_duration(declared.max_ahead)))
        reason = f"{declared.event_time} is more than {declared.max_ahead} ahead of the record's timestamp"
        problems.append(Problem("event_time", F.unix_micros(time) > limit_us, reason))
        before = F.unix_micros(time) < F.lit(FIRST_DAY * _DAY_US)
        problems.append(Problem("event_time", before, f"{declared.event_time} is before the year 1"))
        if may_name(declared.computed or "", TIMESTAMP):  # Kafka's -1 says that there is none
            without = F.unix_micros(TIMESTAMP) < F.lit(0)
            problems.append(Problem("event_time", without, "the record has no timestamp"))
    return problems


def far_times(declared: Input, schema: T.StructType, columns: Mapping[str, Column]) -> list[Problem]:
    """The problem of a time beyond the years 1 to 9999 in a TIMESTAMP column other than the event time."""
    names = [
        field.name
        for field in schema.fields
        if field.dataType == T.TimestampType() and field.name != declared.event_time
    ]
    if not names:
        return []
    times = [columns[name] for name in names]
    newest, oldest = (of(*times) if len(times) > 1 else times[0] for of in (F.greatest, F.least))
    is_far = F.coalesce(_is_far(newest, oldest), F.lit(False))
    reasons = [
        F.when(_is_far(time, time), far(name, T.TimestampType(), time))
        for name, time in zip(names, times, strict=True)
    ]
    return [Problem("value", is_far, F.concat_ws(", ", *reasons))]


def far(name: str, kind: T.DataType, value: Column) -> Column:
    """The reason for a column whose value is, or contains, such a time."""
    what = "has a date that is not"
    if isinstance(kind, T.DateType):
        what = "is not a date"
    elif isinstance(kind, T.TimestampType | T.TimestampNTZType):
        what = "is not"
    return F.concat(F.lit(f"{name} {what} of the years 1 to 9999: "), excerpt(value.cast("string")))


def is_far_day(kind: T.DataType, value: Column) -> Column | None:
    """Whether a value of a type with a day is not of the years 1 to 9999; None for other types."""
    if not isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return None
    day = F.unix_date(value if isinstance(kind, T.DateType) else value.cast("date"))
    return (day < FIRST_DAY) | (day > LAST_DAY)


def _is_far(newest: Column, oldest: Column) -> Column:
    after = F.unix_micros(newest) >= F.lit((LAST_DAY + 1) * _DAY_US)
    return after | (F.unix_micros(oldest) < F.lit(FIRST_DAY * _DAY_US))
