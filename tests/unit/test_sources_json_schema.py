"""Which columns a JSON Schema comes to, without Spark."""

import json
from typing import Any

import pytest

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.json_schema import columns_of

MONEY = {"$id": "http://x/money.json", "type": "object", "properties": {"cents": {"type": "integer"}}}


def columns(references: dict[str, Any] | None = None, /, **properties: Any) -> str:
    schema = {
        "type": "object",
        "properties": properties,
        "definitions": {"day": {"type": "string", "format": "date"}},
    }
    found = columns_of(json.loads(json.dumps(schema)), references or {})
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in found.fields)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "connect.type": "int16"}, "smallint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": ["string", "null"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"type": ["string", "integer"]}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({}, "string"),
        (True, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "string"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"properties": {"a": {"type": "string"}}}, "struct<a:string>"),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}},
                    {"properties": {"b": {"type": "integer"}}},
                ]
            },
            "struct<a:string,b:bigint>",
        ),
        ({"$ref": "#/definitions/day"}, "date"),
        ({"$ref": "http://x/money.json"}, "struct<cents:bigint>"),
        ({"$ref": "money.json#/properties/cents"}, "bigint"),
    ],
)
def test_each_part_has_a_type(schema: Any, kind: str) -> None:
    assert columns({"money.json": MONEY}, c=schema) == f"c {kind}"


def test_what_a_used_schema_uses_is_relative_to_that() -> None:
    order = {
        "$id": "http://x/orders/order.json",
        "properties": {"price": {"$ref": "../money.json"}, "day": {"$ref": "#/definitions/day"}},
        "definitions": {"day": {"type": "string", "format": "date"}},
    }
    used = {"http://x/orders/order.json": order, "http://x/money.json": MONEY}
    # The schema that uses it has another base, and other definitions of that name.
    schema = {
        "$id": "http://y/z.json",
        "properties": {
            "o": {"$ref": "http://x/orders/order.json"},
            "p": {"$ref": "#part"},
            "q": {"$ref": "q.json"},
        },
        "definitions": {
            "day": {"type": "integer"},
            "part": {"$anchor": "part", "type": "number"},
            "inside": {
                "$id": "q.json",
                "properties": {"r": {"$ref": "#/$defs/r"}},
                "$defs": {"r": {"type": "boolean"}},
            },
        },
    }
    assert columns_of(schema, used).simpleString() == (
        "struct<o:struct<price:struct<cents:bigint>,day:date>,p:double,q:struct<r:boolean>>"
    )


def test_columns_stand_in_the_schemas_order() -> None:
    assert columns(b={"type": "string"}, a={"type": "integer"}) == "b string, a bigint"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, "contains itself, by #"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "uses other.json, which is not among"),
        ({"properties": {"a": {"$ref": "#/definitions/b"}}}, "leads nowhere"),
        ({"type": "string"}, "no properties"),
        (True, "no properties"),
        (
            {
                "properties": {"a": {"$ref": "#/definitions/0"}},
                "definitions": {
                    str(n): {"properties": {side: {"$ref": f"#/definitions/{n + 1}"} for side in "lr"}}
                    for n in range(40)
                }
                | {"40": {"type": "string"}},
            },
            "more than 10000 columns",
        ),
    ],
)
def test_what_comes_to_no_columns_is_refused_in_a_sentence(schema: Any, why: str) -> None:
    with pytest.raises(JobDefinitionError, match=why):
        columns_of(schema, {})
