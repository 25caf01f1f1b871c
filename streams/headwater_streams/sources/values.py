"""A topic's format as expressions over its records: a value's columns, the value, what can be wrong with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.errors import JobDefinitionError
from headwater_streams.sources.avro_value import Avro, AvroReader
from headwater_streams.sources.csv_value import Csv, csv_problem, parse_csv
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.json_value import json_problem, not_json, parse_json
from headwater_streams.sources.line_value import line_problem
from headwater_streams.sources.parsers import Parser
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.protobuf_value import Protobuf, parse_protobuf, protobuf_problem
from headwater_streams.spark_errors import first_sentence

Found = TypeVar("Found")


@dataclass(frozen=True)
class Values:
    """How a topic's values are read.

    Attributes:
        of: The value's columns as a struct, over the records given; it may look at them first.
        problem: What can be wrong with a value, over records that have the struct and `unread`.
        unread: What the bytes alone say is wrong. It is worked out beside the struct: a record's bytes need then not be
            copied into the rows that have it.
    """

    of: Callable[[DataFrame], Column]
    problem: Problem
    unread: Column


def values_of(
    declared: TopicInput, schema: T.StructType, raw: Column, timestamp: Column, value: Column, unread: Column
) -> Values:
    """How the values of a topic are read.

    Args:
        declared: The topic.
        schema: Its columns.
        raw: The value's bytes.
        timestamp: The record's timestamp.
        value: The struct, for what is asked once it is there.
        unread: What `Values.unread` gave, as `value`.
    """
    text, form = raw.cast("string"), declared.value_format
    if isinstance(form, Avro):
        reader = AvroReader(form, raw)
        return Values(reader.value, reader.problem(value), F.lit(False))
    if isinstance(form, Protobuf):
        return _fixed(parse_protobuf(raw, form), protobuf_problem(raw, value))
    if isinstance(form, Parser):
        return _fixed(form(text, timestamp), line_problem(raw, value, form))
    if isinstance(form, Csv):
        return _fixed(parse_csv(text, schema, form), csv_problem(text, value, schema, form))
    return _fixed(parse_json(text, schema), json_problem(text, value, schema, unread), not_json(text))


def value_columns(declared: TopicInput) -> T.StructType:
    """The columns of a topic's values: those declared, or the format's own.

    Raises:
        JobDefinitionError: They are not what Spark, or the format, takes.
    """
    form = declared.value_format
    if isinstance(form, Avro | Protobuf):
        return _named(declared, form.columns)
    given = form.schema if isinstance(form, Parser) else declared.schema
    try:
        schema = T.StructType.fromDDL(given) if isinstance(given, str) else given
        assert isinstance(schema, T.StructType)
    except Exception as error:
        raise JobDefinitionError(
            f"topic {declared.name!r}: schema {given!r} is not Spark DDL ({_told(error)}); write 'name TYPE, "
            "name TYPE'"
        ) from error
    if isinstance(form, Csv):
        _named(declared, lambda: form.check(schema))
    return schema


def _told(error: Exception) -> str:
    return first_sentence(error) if isinstance(error, PySparkException) else type(error).__name__


def _fixed(value: Column, problem: Problem, unread: Column | None = None) -> Values:
    return Values(lambda _records: value, problem, F.lit(False) if unread is None else unread)


def _named(declared: TopicInput, ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except JobDefinitionError as error:
        raise JobDefinitionError(f"topic {declared.name!r}: {error}") from error
