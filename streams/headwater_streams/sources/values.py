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
from headwater_streams.sources.csv_value import Csv, csv_detour, csv_problem, parse_csv
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.json_value import CORRUPT, json_detour, json_problem, not_json, parse_json
from headwater_streams.sources.line_value import line_problem
from headwater_streams.sources.parsers import Parser
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.protobuf_value import Protobuf, parse_protobuf, protobuf_problem
from headwater_streams.sources.read_types import Rule, typed_fields
from headwater_streams.spark_errors import first_sentence

Found = TypeVar("Found")


@dataclass(frozen=True)
class Values:
    """How a topic's values are read.

    Attributes:
        of: The value's columns as a struct, over the records given; it may look at them first. Some may be of other
            types than the declared ones.
        problem: What can be wrong with a value, over records that have the struct and `unread`.
        unread: What the bytes alone say is wrong. It is worked out beside the struct: a record's bytes need then not be
            copied into the rows that have it.
        typed: Brings the columns to their types, over records that have the struct and `unread`, which then also says
            whether one could not be.
    """

    of: Callable[[DataFrame], Column]
    problem: Problem
    unread: Column
    typed: Callable[[DataFrame], DataFrame] = lambda records: records


def values_of(
    declared: TopicInput, schema: T.StructType, raw: Column, timestamp: Column, value: str, unread: str
) -> Values:
    """How the values of a topic are read.

    Args:
        declared: The topic.
        schema: Its columns.
        raw: The value's bytes.
        timestamp: The record's timestamp.
        value: The column of the struct.
        unread: The column of what `Values.unread` gave.
    """
    text, form = raw.cast("string"), declared.value_format
    found, is_unread = F.col(value), F.col(unread)
    rule: Rule
    if isinstance(form, Avro):
        reader = AvroReader(form, raw)
        return Values(
            reader.value,
            reader.problem(found, is_unread),
            F.lit(False),
            lambda records: reader.typed(records, value, unread),
        )
    if isinstance(form, Protobuf):
        return _fixed(parse_protobuf(raw, form), protobuf_problem(raw, found))
    if isinstance(form, Parser):
        return _fixed(form(text, timestamp), line_problem(raw, found, form))
    if isinstance(form, Csv):
        fields, rule = form.columns_in(schema), csv_detour
        read, problem = parse_csv(text, schema, form), csv_problem(text, found, schema, form, is_unread)
        alone = F.lit(False)
    else:
        fields, rule = schema.fields, json_detour
        read, problem = parse_json(text, schema), json_problem(text, found, schema, is_unread)
        alone = not_json(text)
    return Values(
        lambda _records: read,
        problem,
        alone,
        lambda records: typed_fields(records, value, fields, [CORRUPT], rule, unread),
    )


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


def _fixed(value: Column, problem: Problem) -> Values:
    return Values(lambda _records: value, problem, F.lit(False))


def _named(declared: TopicInput, ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except JobDefinitionError as error:
        raise JobDefinitionError(f"topic {declared.name!r}: {error}") from error
