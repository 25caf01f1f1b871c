"""Values of JSON behind the header of Confluent's wire format, whose columns come from a JSON Schema.

JSON Schema says what a value may be, and columns say what it is: so a part that may be of several types is a STRING
with its JSON, and what a value has beyond the columns is left out, as of any topic of JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.confluent import HEADER_BYTES, NO_HEADER
from headwater_streams.sources.json_references import Documents
from headwater_streams.sources.problems import Problem

_WHOLE = {"int8": T.ByteType(), "int16": T.ShortType(), "int32": T.IntegerType()}
_MOST_PARTS = 10_000
_TIMES = {"date-time": T.TimestampType(), "date": T.DateType()}


@dataclass(frozen=True)
class JsonSchema:
    """Values of JSON behind a header.

    Attributes:
        schema: The JSON Schema.
        references: The schemas that it uses, each by the name that it has in the one that uses it.
    """

    name: ClassVar[str] = "json schema"

    schema: str
    references: tuple[tuple[str, str], ...] = ()

    def columns(self) -> T.StructType:
        """The columns of the schema's properties.

        Raises:
            JobDefinitionError: It has none, or contains itself.
        """
        return columns_of(json.loads(self.schema), {name: json.loads(text) for name, text in self.references})


def has_header(raw: Column) -> Column:
    """Whether a value begins with the header."""
    zero = F.hex(F.substring(raw, 1, 1)) == "00"
    return F.coalesce(zero & (F.octet_length(raw) > HEADER_BYTES), F.lit(False))


def behind_header(raw: Column) -> Column:
    """The text behind the header; NULL for a value that has none."""
    text = F.substring(raw, F.lit(HEADER_BYTES + 1), F.octet_length(raw)).cast("string")
    return F.when(has_header(raw), text)


def with_header(raw: Column, problem: Problem) -> Problem:
    """What is wrong with a value, of which `problem` speaks of the text behind the header."""
    none = raw.isNotNull() & ~has_header(raw)
    reason = F.lit(problem.reason) if isinstance(problem.reason, str) else problem.reason
    return Problem(problem.check, problem.condition | none, F.when(none, F.lit(NO_HEADER)).otherwise(reason))


def columns_of(schema: Any, references: Mapping[str, Any]) -> T.StructType:
    """The columns that a JSON Schema describes.

    Raises:
        JobDefinitionError: It describes no object with properties, contains itself, or uses what is missing.
    """
    documents = Documents(schema, references)
    kind = _Kinds(documents).of(documents.schema, ())
    if not isinstance(kind, T.StructType):
        raise JobDefinitionError("the JSON Schema has no properties, so it has no columns")
    return kind


class _Kinds:
    """The types of a schema's parts. `above` are the `$ref`s that led to one."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._parts = 0

    def of(self, schema: Any, above: tuple[int, ...]) -> T.DataType:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise JobDefinitionError(
                f"the JSON Schema comes to more than {_MOST_PARTS} columns and parts of them"
            )
        if not _is_object(schema):
            return T.StringType()
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), above)
        for several in ("oneOf", "anyOf"):
            if several in schema:
                some = [
                    each for each in schema[several] if not (_is_object(each) and each.get("type") == "null")
                ]
                return self.of(some[0], above) if len(some) == 1 else T.StringType()
        kind = self._named(schema, above)
        structs = [kind, *(self.of(each, above) for each in schema.get("allOf", ()))]
        fields = {f.name: f for each in structs if isinstance(each, T.StructType) for f in each.fields}
        return T.StructType([*fields.values()]) if fields else kind

    def _named(self, schema: Mapping[str, Any], above: tuple[int, ...]) -> T.DataType:
        names = schema.get("type", "object" if "properties" in schema else None)
        some = [each for each in (names if isinstance(names, list) else [names]) if each != "null"]
        if sorted(map(str, some)) == ["integer", "number"]:
            some = ["number"]
        match some:
            case ["boolean"]:
                return T.BooleanType()
            case ["integer"]:
                return _WHOLE.get(str(schema.get("connect.type")), T.LongType())
            case ["number"]:
                return T.FloatType() if schema.get("connect.type") == "float32" else T.DoubleType()
            case ["string"]:
                return _TIMES.get(str(schema.get("format")), T.StringType())
            case ["array"] if _is_object(schema.get("items")):
                return T.ArrayType(self.of(schema["items"], above))
            case ["object"] if schema.get("properties"):
                properties = schema["properties"].items()
                return T.StructType([T.StructField(name, self.of(each, above)) for name, each in properties])
            case ["object"] if _is_object(schema.get("additionalProperties")):
                return T.MapType(T.StringType(), self.of(schema["additionalProperties"], above))
        return T.StringType()

    def _referred(self, reference: str, above: tuple[int, ...]) -> T.DataType:
        try:
            part = self._documents.resolve(reference)
        except LookupError as error:
            raise JobDefinitionError(f"the JSON Schema has no columns: {error.args[0]}") from error
        if id(part) in above:
            raise JobDefinitionError(
                f"the JSON Schema contains itself, by {reference}, and columns cannot: give schema= and format=, with "
                "that part as STRING"
            )
        return self.of(part, (*above, id(part)))


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict)
