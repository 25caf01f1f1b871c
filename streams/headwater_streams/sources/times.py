"""What can be wrong with a value's times.

Spark takes a time of day without a date for one of the day on which it is read, another one in a repair, and a number
in JSON for seconds, so that one of milliseconds is a time of the year 57000, which others do not read.
"""

import re
from collections.abc import Callable
from datetime import date

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.durations import in_micros, parse_duration
from headwater_streams.sources.coordinates import TIMESTAMP
from headwater_streams.sources.csv_value import Csv, parse_csv
from headwater_streams.sources.inputs import Input, TopicInput
from headwater_streams.sources.problems import Problem

FIRST_DAY, LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
"""The first day of the year 1 and the last one of the year 9999, in days since 1970."""
_DAY_US = 86_400_000_000
_TIME_OF_DAY = r"\s*+T?\d{1,2}:"


def time_problems(declared: Input, value: Column, *, ahead: bool) -> list[Problem]:
    """What can be wrong with a row's event time: missing, or (`ahead`) far beyond its record's timestamp or before the
    year 1, as a number of nanoseconds in JSON is that Spark takes for seconds."""
    if declared.event_time is None:
        return []
    time = value.getField(declared.event_time)
    problems = [Problem("event_time", time.isNull(), f"{declared.event_time} is missing")]
    if ahead and isinstance(declared, TopicInput):
        # In microseconds: to add an interval, Spark makes a date in a time zone of each record's timestamp.
        limit_us = F.unix_micros(TIMESTAMP) + F.lit(in_micros(parse_duration(declared.max_ahead)))
        reason = f"{declared.event_time} is more than {declared.max_ahead} ahead of the record's timestamp"
        problems.append(Problem("event_time", F.unix_micros(time) > limit_us, reason))
        before = F.unix_micros(time) < F.lit(FIRST_DAY * _DAY_US)
        problems.append(Problem("event_time", before, f"{declared.event_time} is before the year 1"))
    return problems


def undated(declared: TopicInput, schema: T.StructType, raw: Column, value: Column) -> list[Problem]:
    """The TIMESTAMP columns of JSON and CSV that may hold such times.

    Args:
        declared: The topic.
        schema: Its columns.
        raw: The value's bytes.
        value: The struct that was made of them.
    """
    form = declared.value_format
    names = _timestamps(schema)
    if not names or not (form is None or isinstance(form, Csv)):
        return []  # parsers take no text for a time that has no date; in Avro and Protobuf times are numbers
    text = raw.cast("string")
    is_so = _in_json(text, names) if form is None else _in_csv(text, names, schema, form)
    # A query's date is that of its batch, which may be tried again days later. Spark works out both sides of an AND for
    # every row, but not the other branch of a WHEN.
    newest = _most(value, names, F.greatest)
    condition = F.when(newest >= F.current_date().cast("timestamp"), is_so).otherwise(F.lit(False))
    return [Problem("value", condition, f"{_one_of(names)} is a time of day without a date")]


def far_times(declared: Input, schema: T.StructType, value: Column) -> list[Problem]:
    """The TIMESTAMP columns, beside the event time, of which a value may lie beyond the years 1 to 9999."""
    names = [name for name in _timestamps(schema) if name != declared.event_time]
    if not names:
        return []
    newest, oldest = (F.unix_micros(_most(value, names, of)) for of in (F.greatest, F.least))
    is_far = (newest >= F.lit((LAST_DAY + 1) * _DAY_US)) | (oldest < F.lit(FIRST_DAY * _DAY_US))
    return [
        Problem("value", F.coalesce(is_far, F.lit(False)), f"{_one_of(names)} is not of the years 1 to 9999")
    ]


def _timestamps(schema: T.StructType) -> list[str]:
    return [field.name for field in schema.fields if field.dataType == T.TimestampType()]


def _most(value: Column, names: list[str], of: Callable[..., Column]) -> Column:
    """The newest or the oldest of a value's times that are not NULL."""
    times = [value.getField(name) for name in names]
    return of(*times) if len(times) > 1 else times[0]


def _one_of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _in_json(text: Column, names: list[str]) -> Column:
    keys = "|".join(re.escape(name) for name in names)
    return text.rlike(rf'"(?:{keys})"\s*+:\s*+"{_TIME_OF_DAY}')


def _in_csv(text: Column, names: list[str], schema: T.StructType, form: Csv) -> Column:
    as_texts = T.StructType([T.StructField(field.name, T.StringType()) for field in schema.fields])
    texts = parse_csv(text, as_texts, form)
    return F.exists(F.array(*[texts.getField(name) for name in names]), _is_time_of_day)


def _is_time_of_day(text: Column) -> Column:
    return F.coalesce(text.rlike(f"^{_TIME_OF_DAY}"), F.lit(False))
