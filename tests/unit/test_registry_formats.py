"""What is one schema, and what may follow it, in each format."""

import base64
import json

import pytest

from headwater.registry.errors import SchemaError
from headwater.registry.formats import Parsed, Resolved, parse

# -- Avro


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"type": "string"}', '"string"'),
        (
            '{"fields":[],"doc":"d","x":1,"aliases":["Q"],"name":"a.b.R","type":"record"}',
            '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[],"x":1,"aliases":["Q"]}',
        ),
        (
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"type":{"type":"enum","name":"n.E",'
                '"symbols":["A"]},"order":"ascending","name":"e"},{"name":"f","type":"n.E"}]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"enum","name":"E",'
                '"symbols":["A"]}},{"name":"f","type":"E"}]}'
            ),
        ),
        (
            '{"logicalType":"timestamp-millis","type":"long"}',
            '{"type":"long","logicalType":"timestamp-millis"}',
        ),
    ],
)
def test_avro_is_written_in_one_way(text: str, canonical: str) -> None:
    assert parse("AVRO", text).canonical == canonical
    assert parse("AVRO", canonical).canonical == canonical


@pytest.mark.parametrize("text", ["{", "[]x", '"strin"', '{"type":"record"}', "null", "3", "[" * 100_000])
def test_what_is_no_avro_schema_is_told(text: str) -> None:
    with pytest.raises(SchemaError):
        parse("AVRO", text)


def fields(*each: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [*each]}


def field(kind: object, **more: object) -> dict[str, object]:
    return fields({"name": "a", "type": kind, **more})


FIXED = {"type": "fixed", "name": "X", "size": 4}


@pytest.mark.parametrize(
    "schema",
    [
        ["long", FIXED, "X"],
        field("int", default="x"),
        field("int", default=None),
        field("int", default=True),
        field("int", default=2**31),
        field("long", default=2**63),
        field("float", default="1.0"),
        field("string", default=5),
        field("boolean", default="true"),
        field("null", default="null"),
        field({"type": "array", "items": "int"}, default=["x"]),
        field({"type": "map", "values": "int"}, default=[]),
        field(fields({"name": "b", "type": "int"}) | {"name": "S"}, default={}),
        field(["null", "int"], default="x"),
        fields({"name": "a-b", "type": "int"}),
        fields({"name": "1", "type": "int"}),
        field("int", aliases="x"),
        {**field("int"), "aliases": ["x-y"]},
        {**FIXED, "size": 2**31},
        {"type": "array", "items": {"type": "enum", "name": "E", "symbols": "A"}},
    ],
)
def test_an_avro_schema_that_java_could_not_read_is_not_registered(schema: object) -> None:
    assert len(parse("AVRO", json.dumps(schema)).faults()) == 1


@pytest.mark.parametrize(
    "schema",
    [
        ["null", FIXED],
        field(["null", "int"], default=1),
        field("double", default="NaN"),
        field("float", default=1),
        field("bytes", default="\u00ff"),
        field(FIXED, default="abcd"),
        field(["null", "R"], default=None),
        field(fields({"name": "b", "type": "int", "default": 1}) | {"name": "S"}, default={}),
        field("int", aliases=["x-y"]),
        # What Avro's library would warn of.
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5},
        {"type": "int", "logicalType": "of next year"},
    ],
)
def test_an_avro_schema_that_java_reads_is_registered_as_it_is(schema: object) -> None:
    parsed = parse("AVRO", json.dumps(schema))
    assert parsed.faults() == []
    assert json.loads(parsed.canonical) == schema


# -- JSON Schema


def change(before: object, after: object) -> list[str]:
    reasons = parse("JSON", json.dumps(after)).unreadable(parse("JSON", json.dumps(before)))
    return [each.partition(" ")[0] for each in reasons]


def closed(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (WHOLE, NUMBER, []),
        (NUMBER, WHOLE, ["TYPE_NARROWED"]),
        (TEXT, NUMBER, ["TYPE_CHANGED"]),
        (TEXT, {}, []),
        ({}, TEXT, ["TYPE_NARROWED"]),
        (TEXT, {"type": ["string", "null"]}, []),
        ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 4}, ["MAX_LENGTH_DECREASED"]),
        ({**WHOLE, "minimum": 5}, {**WHOLE, "minimum": 4}, []),
        (TEXT, {**TEXT, "pattern": "a"}, ["PATTERN_ADDED"]),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED"]),
        ({"const": "a"}, {"enum": ["a", "b"]}, []),
        (closed(a=TEXT), closed(a=TEXT, b=TEXT), []),
        (
            closed(a=TEXT),
            {**closed(a=TEXT, b=TEXT), "required": ["b"]},
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
        ),
        (closed(a=TEXT), {**closed(a=TEXT, b={**TEXT, "default": ""}), "required": ["b"]}, []),
        (closed(a=TEXT, b=TEXT), closed(a=TEXT), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        # What was not named could be anything.
        ({"properties": {"a": TEXT}}, {"properties": {"a": TEXT, "b": TEXT}}, ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        ({"properties": {"a": TEXT, "b": TEXT}}, {"properties": {"a": TEXT}}, []),
        ({"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}, []),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": WHOLE}, ["TYPE_NARROWED"]),
        ({"prefixItems": [TEXT], "unevaluatedItems": WHOLE}, {"prefixItems": [TEXT, NUMBER]}, []),
        (
            {"prefixItems": [TEXT, NUMBER]},
            {"prefixItems": [TEXT], "unevaluatedItems": WHOLE},
            ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "TYPE_NARROWED"],
        ),
        ({"oneOf": [TEXT]}, {"oneOf": [TEXT, NUMBER]}, []),
        ({"oneOf": [TEXT, NUMBER]}, {"oneOf": [TEXT]}, ["SUM_TYPE_NARROWED"]),
        (TEXT, {"anyOf": [NUMBER, TEXT]}, []),
        (TEXT, {"allOf": [TEXT, {"maxLength": 3}]}, ["PRODUCT_TYPE_EXTENDED"]),
    ],
)  # fmt: skip
def test_changes_of_json_schemas(before: object, after: object, changes: list[str]) -> None:
    assert change(before, after) == changes


def test_a_json_schema_that_contains_itself_ends() -> None:
    def tree(value: object) -> dict[str, object]:
        return closed(value=value, left={"$ref": "#"}, right={"$ref": "#"})

    assert change(tree(WHOLE), tree(NUMBER)) == []
    assert set(change(tree(NUMBER), tree(WHOLE))) == {"TYPE_NARROWED"}


def test_references_of_json_schemas_lead_somewhere() -> None:
    address = Resolved(
        "http://x/address.json", '{"type": "object", "definitions": {"street": {"type": "string"}}}'
    )
    parse("JSON", '{"$ref": "http://x/address.json#/definitions/street"}', [address])
    for reference in (
        "http://x/address.json#/definitions/town",
        "http://x/other.json",
        "#/definitions/a",
        "#none",
    ):
        with pytest.raises(SchemaError):
            parse("JSON", json.dumps({"$ref": reference}), [address])


def test_a_used_json_schema_is_compared_by_its_own_definitions() -> None:
    def used(kind: object) -> Resolved:
        body = {
            "$id": "http://x/b.json",
            "properties": {"c": {"$ref": "#/definitions/c"}},
            "definitions": {"c": kind},
        }
        return Resolved("http://x/b.json", json.dumps(body))

    text = json.dumps(
        {"properties": {"b": {"$ref": "http://x/b.json"}}, "definitions": {"c": {"type": "null"}}}
    )
    before, same, other = (parse("JSON", text, [used(kind)]) for kind in (WHOLE, WHOLE, TEXT))
    assert same.unreadable(before) == []
    assert [each.partition(" ")[0] for each in other.unreadable(before)] == ["TYPE_CHANGED"]


# -- Protobuf

FULL = """syntax = "proto3";
package x.y;

import "google/protobuf/timestamp.proto";
import "o.proto";
option java_package = "a.b";

message A {
  reserved 10, 20 to 30;
  reserved "old";
  string s = 1 [deprecated = true];
  repeated int32 n = 2;
  map<string, .x.y.A.B> m = 3;
  optional int64 q = 4;
  oneof z {
    .x.y.A.B b = 5;
    .x.y.A.E e = 6;
  }
  .p.O o = 7;
  message B {
    .google.protobuf.Timestamp t = 1;
  }
  enum E {
    reserved 5 to 9;
    U = 0;
    V = 1;
  }
}

service S {
  rpc Go (.x.y.A) returns (stream .x.y.A);
}
"""
OTHER = Resolved("o.proto", 'syntax = "proto3"; package p; message O { int32 i = 1; }')
OLDER = """syntax = "proto2";

message A {
  required string s = 1 [default = "x\\"y"];
  optional bytes b = 2 [default = "\\001a"];
  optional group G = 3 {
    optional int32 i = 1;
  }
  repeated int32 p = 4 [packed = true];
  extensions 100 to max;
}

extend .A {
  optional int32 e = 100;
}
"""


@pytest.mark.parametrize(("text", "used"), [(FULL, [OTHER]), (OLDER, [])], ids=["proto3", "proto2"])
def test_protobuf_is_written_in_one_way_from_text_and_descriptor(text: str, used: list[Resolved]) -> None:
    schema = parse("PROTOBUF", f"// a remark\n{text}".replace("\n  ", " "), used)
    assert schema.canonical == text
    descriptor = schema.rendered("serialized")
    assert base64.b64decode(descriptor)
    assert parse("PROTOBUF", descriptor, used).canonical == text


OPTIONS = """syntax = "proto3";
package shop;

import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/money.proto";
import "own.proto";
option (confluent.file_meta) = { doc: "a \\"q\\" é" };

message A {
  option (confluent.message_meta) = { doc: "m" };
  .confluent.type.Decimal price = 1 [(confluent.field_meta) = { params { key: "precision" value: "10" } tags: "PII" }];
  .google.type.Money m = 2 [(own.level) = 7, (own.names) = "a", (own.names) = "b", (own.kind) = K1];
  bytes raw = 3 [(own.raw) = "\\001x"];
}
"""
OWN = Resolved(
    "own.proto",
    """syntax = "proto2"; package own; import "google/protobuf/descriptor.proto"; enum Kind { K0 = 0; K1 = 1; }
    extend google.protobuf.FieldOptions { optional int32 level = 50000; repeated string names = 50001;
      optional Kind kind = 50002; optional bytes raw = 50003; }""",
)


def test_options_of_protobuf_are_part_of_the_schema_and_known_imports_need_no_reference() -> None:
    schema = parse("PROTOBUF", OPTIONS, [OWN])
    assert schema.canonical == OPTIONS
    assert parse("PROTOBUF", schema.rendered("serialized"), [OWN]).canonical == OPTIONS


def proto(body: str) -> str:
    return f'syntax = "proto3"; message M {{ {body} }} message N {{ int32 i = 1; }} enum E {{ Z = 0; }}'


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("string s = 1;", "string t = 1;", []),
        ("string s = 1;", "bytes s = 1;", []),
        ("string s = 1;", "", []),
        ("", "string s = 1;", []),
        ("int32 i = 1;", "uint64 i = 1;", []),
        ("int32 i = 1;", "E i = 1;", []),
        ("int32 i = 1;", "sint32 i = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("int32 i = 1;", "N i = 1;", ["FIELD_KIND_CHANGED"]),
        ("int32 i = 1;", "repeated int32 i = 1;", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("string s = 1;", "repeated string s = 1;", []),
        ("N n = 1;", "M n = 1;", ["FIELD_NAMED_TYPE_CHANGED"]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", ["ONEOF_FIELD_REMOVED"]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; int32 b = 2; }", []),
        ("int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }", []),
        ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
    ],
)  # fmt: skip
def test_changes_of_protobuf_schemas(before: str, after: str, changes: list[str]) -> None:
    reasons = parse("PROTOBUF", proto(after)).unreadable(parse("PROTOBUF", proto(before)))
    assert [each.partition(":")[0] for each in reasons] == changes


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (
            "package m; message Money { int64 cents = 1; }",
            "package m; message Money { int64 c = 1; int32 d = 2; }",
            [],
        ),
        (
            "package m; message Money { int64 cents = 1; }",
            "package m; message Money { string cents = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"],
        ),
        (
            "package m; message Money { int64 cents = 1; }",
            "package n; message Money { int64 cents = 1; }",
            [],
        ),
        (
            "package m; message Money { int64 c = 1; Money of = 2; }",
            "package m; message Money { float c = 1; Money of = 2; }",
            ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"],
        ),
    ],
)
def test_an_imported_message_is_compared_by_what_it_has(before: str, after: str, changes: list[str]) -> None:
    def schema(imported: str) -> Parsed:
        money = Resolved("money.proto", f'syntax = "proto3"; {imported}')
        package = imported.partition(";")[0].removeprefix("package ")
        body = f'import "money.proto"; message O {{ {package}.Money a = 1; map<string, {package}.Money> b = 2; }}'
        return parse("PROTOBUF", f'syntax = "proto3"; {body}', [money])

    reasons = schema(after).unreadable(schema(before))
    assert list(dict.fromkeys(each.partition(":")[0] for each in reasons)) == changes


def test_a_removed_message_is_told() -> None:
    before, after = (f'syntax = "proto3"; message A {{}} {more}' for more in ("message B {}", ""))
    assert parse("PROTOBUF", after).unreadable(parse("PROTOBUF", before)) == ["MESSAGE_REMOVED: B"]


@pytest.mark.parametrize(
    "text", ["message {", 'import "none.proto";', "x", 'syntax = "proto3"; message A { B b = 1; }']
)
def test_what_is_no_protobuf_schema_is_told_with_its_place(text: str) -> None:
    with pytest.raises(SchemaError, match=r"schema\.proto:1:|none\.proto"):
        parse("PROTOBUF", text)


@pytest.mark.parametrize("name", ["../o.proto", "/etc/o.proto", "a/../../o.proto"])
def test_an_import_leads_into_no_other_folder(name: str) -> None:
    with pytest.raises(SchemaError, match="no name of a file"):
        parse("PROTOBUF", 'syntax = "proto3"; message A {}', [Resolved(name, OTHER.text)])


def test_an_unknown_format_is_told() -> None:
    with pytest.raises(SchemaError, match="AVRO, JSON, PROTOBUF"):
        parse("THRIFT", "{}")
