"""A topic's format as expressions over its records: a value's columns, the value, and its problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.avro_value import Avro, AvroReader
from headwater_streams.sources.csv_value import Csv, csv_detour, csv_problem, parse_csv
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.json_schema import JsonSchema, behind_header, with_header
from headwater_streams.sources.json_value import CORRUPT, json_detour, json_problem, not_json, parse_json
from headwater_streams.sources.line_value import line_problem
from headwater_streams.sources.parsers import Parser
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.protobuf_value import Protobuf, parse_protobuf, protobuf_problem
from headwater_streams.sources.read_types import Typing
from headwater_streams.sources.schema_header import with_prefix
from headwater_streams.spark.spark_errors import first_sentence

Result = TypeVar("Result")


@dataclass(frozen=True)
class Values:
    """How a topic's values are read.

    Attributes:
        of: The value's columns as a struct, over the given records, which it may read first. Some may have other types
            than the declared ones.
        problem: What can be wrong with a value, over the records from `typing`.
        unread: Whether the bytes alone are wrong. It is computed beside the struct, so that a record's bytes need not
            be copied into the rows that have it.
        typing: Casts the columns to their types, over records with the struct and `unread`, which then also says
            whether a cast failed.
    """

    of: Callable[[DataFrame], Column]
    problem: Problem
    unread: Column
    typing: Typing


def values_of(
    declared: TopicInput,
    schema: T.StructType,
    raw: Column,
    headers: Column,
    timestamp: Column,
    value: str,
    unread: str,
    text: str,
) -> Values:
    """How the values of a topic are read.

    Args:
        declared: The topic.
        schema: Its columns.
        raw: The value's bytes.
        headers: The record's headers.
        timestamp: The record's timestamp.
        value: The column of the struct.
        unread: The column of `Values.unread`.
        text: The column of the value's bytes as STRING, which Spark does not copy to read them.
    """
    form, is_unread, text_column = declared.value_format, F.col(unread), F.col(text)
    if isinstance(form, Avro):
        reader = AvroReader(form, raw, headers)
        typing = reader.typing(value, unread)
        return Values(reader.value, reader.problem(is_unread, typing), F.lit(False), typing)
    if isinstance(form, Csv):
        typing = Typing(form.columns_in(schema), csv_detour, value, unread, [CORRUPT])
        problem = csv_problem(text_column, typing.read, typing.columns, schema, form, is_unread)
        return _read(parse_csv(raw.cast("string"), schema, form), problem, F.lit(False), typing)
    if isinstance(form, Protobuf | Parser):
        typing = Typing(schema.fields, _as_declared, value, unread)
        if isinstance(form, Protobuf):
            raw = with_prefix(raw, headers) if form.header else raw
            return _read(parse_protobuf(raw, form), protobuf_problem(raw, typing.read), F.lit(False), typing)
        return _read(
            form(raw.cast("string"), timestamp), line_problem(raw, typing.read, form), F.lit(False), typing
        )
    typing = Typing(schema.fields, json_detour, value, unread, [CORRUPT])
    if isinstance(form, JsonSchema):
        raw = with_prefix(raw, headers)
        read = behind_header(raw)
        problem = with_header(raw, json_problem(read, typing.read, typing.columns, schema, is_unread))
        return _read(parse_json(read, schema), problem, not_json(read, schema), typing)
    problem = json_problem(text_column, typing.read, typing.columns, schema, is_unread)
    read = raw.cast("string")
    return _read(parse_json(read, schema), problem, not_json(read, schema), typing)


def _as_declared(_kind: T.DataType, _within: bool) -> None:
    """The rule of a format that is read as the declared types."""


def _read(value: Column, problem: Problem, unread: Column, typing: Typing) -> Values:
    return Values(lambda _records: value, problem, unread, typing)


def value_columns(declared: TopicInput) -> T.StructType:
    """The columns of a topic's values: those declared, or the format's own.

    Raises:
        JobDefinitionError: Spark, or the format, does not accept them.
    """
    form = declared.value_format
    if isinstance(form, Avro | Protobuf | JsonSchema):
        return _named(declared, form.columns)
    columns = form.schema if isinstance(form, Parser) else declared.schema
    try:
        schema = T.StructType.fromDDL(columns) if isinstance(columns, str) else columns
        assert isinstance(schema, T.StructType)
    except Exception as error:
        raise JobDefinitionError(
            f"topic {declared.name!r}: schema {columns!r} is not Spark DDL ({_why_not_ddl(error)}); write 'name TYPE, "
            "name TYPE'"
        ) from error
    if isinstance(form, Csv):
        _named(declared, lambda: form.check(schema))
    return schema


def _why_not_ddl(error: Exception) -> str:
    return first_sentence(error) if isinstance(error, PySparkException) else type(error).__name__


def _named(declared: TopicInput, ask: Callable[[], Result]) -> Result:
    try:
        return ask()
    except JobDefinitionError as error:
        raise JobDefinitionError(f"topic {declared.name!r}: {error}") from error
