"""Topics whose schemas are in a registry: what their values come to, in each of its formats."""

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka.schema_registry.common import serde
from google.protobuf import descriptor_pb2

import headwater as hw
from headwater_streams.sources.confluent import NO_HEADER
from headwater_streams.sources.decode import value_schema
from headwater_streams.sources.registered import Registered
from headwater_streams.sources.registry_client import RefusedByRegistryError
from protobuf_descriptors import DEPARTURE, descriptors

Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]


def wire(number: int, value: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + value


def registered(answers: dict[str, Any]) -> hw.TopicInput:
    """A topic of a registry that has these answers, by their paths."""

    def ask(_method: str, *path: str, **query: object) -> Any:
        question = "/".join((*path, *map(str, filter(None, [query.get("format")]))))
        if question not in answers:
            raise RefusedByRegistryError(f"{question} not found")
        return answers[question]

    return replace(hw.topic("orders", registry=True), format=Registered("orders-value", ask=ask))


def test_avro_of_older_writers_is_read_as_the_newest_version(decode: Decode) -> None:
    def version(*more: dict[str, Any]) -> str:
        return json.dumps(
            {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, *more]}
        )

    delay = {"name": "delay", "type": ["null", "long"], "default": None}
    older, newest = version(), version(delay)
    declared = registered(
        {
            "subjects/orders-value/versions/latest": {"version": 2, "id": 2, "schema": newest},
            "schemas/ids/1": {"schema": older},
            "schemas/ids/2": {"schema": newest},
            "schemas/ids/3": {"schema": json.dumps({"type": "record", "name": "Other", "fields": [delay]})},
        }
    )
    values = [b"\x04UA", b"\x04DL\x02\x12", b"\x04DL\x02\x12", b"\x00", b"\x04DL\x02"]
    read = decode(
        declared, [wire(number, value) for number, value in zip([1, 2, 9, 3, 2], values, strict=True)]
    )
    assert read[:2] == [(("UA", None), None), (("DL", 9), None)]
    assert read[2:4] == [
        (None, f"the schema {number} is not known, or not to be read as the job's") for number in (9, 3)
    ]
    assert read[4] == (None, "the value is cut off, or not of the schema")


def test_json_has_the_columns_of_its_schema(decode: Decode) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "price": {"$ref": "money.json"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        },
    }
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    declared = registered(
        {
            "subjects/orders-value/versions/latest": {
                "version": 1,
                "id": 1,
                "schemaType": "JSON",
                "schema": json.dumps(schema),
                "references": [{"name": "money.json", "subject": "money", "version": 1}],
            },
            "subjects/money/versions/1": {"version": 1, "schemaType": "JSON", "schema": json.dumps(money)},
        }
    )
    assert value_schema(declared).simpleString() == (
        "struct<id:bigint,at:timestamp,price:struct<cents:bigint>,tags:array<string>,note:string>"
    )
    whole = b'{"id": 7, "price": {"cents": 5}, "tags": ["a"], "note": "n", "more": 1}'
    values = [
        wire(1, whole),
        wire(2**31 + 5, b"{}"),
        whole,
        b"\0\0\0\0\x01",
        wire(1, b'{"id": 1.5}'),
        wire(1, b"[1]"),
        wire(1, b'{"note": "\xff"}'),
        wire(1, b"{} {}"),
        None,
        b"",
    ]
    good, empty, *refused = decode(declared, values)
    assert good == ((7, None, (5,), ["a"], "n"), None)
    assert empty == ((None,) * 5, None)
    reasons = [why for _, why in refused]
    assert reasons[:2] == [NO_HEADER, NO_HEADER]
    assert str(reasons[2]).startswith("id ")
    assert reasons[3:] == [
        "the value is not one JSON object",
        "the value is not UTF-8",
        "the value is not one JSON object",
        "the value is null",
        NO_HEADER,
    ]


def test_protobuf_has_the_columns_of_its_first_message(decode: Decode) -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors(DEPARTURE)).file
    (file,) = [each for each in files if each.package == "flights"]
    serialized = base64.b64encode(file.SerializeToString()).decode()
    place = "subjects/orders-value/versions"
    declared = registered(
        {
            f"{place}/latest": {"version": 3, "id": 4, "schemaType": "PROTOBUF", "schema": "syntax ..."},
            f"{place}/3/serialized": {"version": 3, "schemaType": "PROTOBUF", "schema": serialized},
        }
    )
    departure = b"\x0a\x02UA\x10\x05"
    read = decode(declared, [wire(4, b"\0" + departure), departure, wire(4, b"\x02\x02" + departure)])
    assert read[:2] == [(("UA", -3, None), None), (None, NO_HEADER)]
    assert read[2][0] is None


GUID = UUID(int=2**127 + 5)


def named(guid: UUID, *path: int) -> list[tuple[str, bytes]]:
    """The header of a record whose value has no prefix, as confluent-kafka's HeaderSchemaIdSerializer writes it."""
    kind = "PROTOBUF" if path else "AVRO"
    own = serde.SchemaId(kind, guid=str(guid), message_indexes=[*path] if path else None)
    return [("other", b"x"), ("__value_schema_id", own.guid_to_bytes())]


def test_values_whose_schema_is_named_in_a_header_are_read(decode: Decode) -> None:
    newest = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]})
    older = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "n", "type": "int"}, {"name": "x", "type": "int"}],
        }
    )
    avro = registered(
        {
            "subjects/orders-value/versions/latest": {"version": 2, "id": 2, "schema": newest},
            f"schemas/guids/{GUID}": {"schema": older},
            "schemas/ids/2": {"schema": newest},
        }
    )
    # The third looks as if it had a prefix, too; a prefix is read where there is no header.
    values = [b"\x0e\x02", b"\x0e", b"\0\0\0\0\x02", None]
    assert decode(avro, values, headers=named(GUID)) == [
        ((7,), None),
        (None, "the value is cut off, or not of the schema"),
        (None, "bytes are left over behind the record"),
        (None, "the value is null"),
    ]
    assert decode(avro, [wire(2, b"\x0e")]) == [((7,), None)]
    unknown = UUID(int=9)
    assert decode(avro, [b"\x0e"], headers=named(unknown)) == [
        (None, f"the schema {unknown.hex} is not known, or not to be read as the job's")
    ]
    latest = {
        "version": 1,
        "id": 1,
        "schemaType": "JSON",
        "schema": '{"properties": {"n": {"type": "integer"}}}',
    }
    json_schema = registered({"subjects/orders-value/versions/latest": latest})
    assert decode(json_schema, [b'{"n": 7}', b"[]"], headers=named(GUID)) == [
        ((7,), None),
        (None, "the value is not one JSON object"),
    ]


def test_messages_whose_schema_is_named_in_a_header_are_read(decode: Decode, tmp_path: Path) -> None:
    file = tmp_path / "flights.binpb"
    file.write_bytes(descriptors(DEPARTURE))
    declared = hw.topic("t", format=hw.protobuf(file, "flights.Departure", header=True))
    departure = b"\x0a\x02UA\x10\x05"
    assert decode(declared, [departure], headers=named(GUID, 0)) == [(("UA", -3, None), None)]
    (refused,) = decode(declared, [departure], headers=named(GUID, 1))
    assert refused == (None, "its header says message [1] of its file, and flights.Departure is [0]")
