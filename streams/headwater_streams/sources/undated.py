"""Times of day without a date: Spark takes one for a time of the day on which it is read, another one in a repair."""

import re

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.csv_value import Csv, parse_csv
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.problems import Problem

_TIME_OF_DAY = r"\s*+T?\d{1,2}:"


def undated(declared: TopicInput, schema: T.StructType, raw: Column, value: Column) -> list[Problem]:
    """The TIMESTAMP columns of JSON and CSV that may hold such times.

    Args:
        declared: The topic.
        schema: Its columns.
        raw: The value's bytes.
        value: The struct that was made of them.
    """
    form = declared.value_format
    names = [field.name for field in schema.fields if field.dataType == T.TimestampType()]
    if not names or not (form is None or isinstance(form, Csv)):
        return []  # parsers take no text for a time that has no date; in Avro and Protobuf times are numbers
    text = raw.cast("string")
    is_so = _in_json(text, names) if form is None else _in_csv(text, names, schema, form)
    # A query's date is that of its batch, which may be tried again days later. Spark works out both sides of an AND for
    # every row, but not the other branch of a WHEN.
    times = [value.getField(name) for name in names]
    newest = F.greatest(*times) if len(times) > 1 else times[0]
    condition = F.when(newest >= F.current_date().cast("timestamp"), is_so).otherwise(F.lit(False))
    told = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    return [Problem("value", condition, f"{told} is a time of day without a date")]


def _in_json(text: Column, names: list[str]) -> Column:
    keys = "|".join(re.escape(name) for name in names)
    return text.rlike(rf'"(?:{keys})"\s*+:\s*+"{_TIME_OF_DAY}')


def _in_csv(text: Column, names: list[str], schema: T.StructType, form: Csv) -> Column:
    as_texts = T.StructType([T.StructField(field.name, T.StringType()) for field in schema.fields])
    texts = parse_csv(text, as_texts, form)
    return F.exists(F.array(*[texts.getField(name) for name in names]), _is_time_of_day)


def _is_time_of_day(text: Column) -> Column:
    return F.coalesce(text.rlike(f"^{_TIME_OF_DAY}"), F.lit(False))
