"""Which values are one Protobuf message of a topic's schema, and what becomes of their fields."""

import random
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor import FieldDescriptor

import headwater as hw
from headwater_streams.errors import JobDefinitionError
from headwater_streams.sources.decode import value_schema
from headwater_streams.sources.protobuf_message import message_class

CUT_OFF = "the value is cut off, or not a flights.Departure"
Decode = Callable[..., list[tuple[tuple[object, ...] | None, str | None]]]
Field = tuple[str, int, str]  # name, one of FieldDescriptor's types, and the message's or enum's name


def descriptors(
    *messages: tuple[str, Sequence[Field]], syntax: str = "proto3", repeated: Sequence[str] = ()
) -> bytes:
    """What `protoc --include_imports --descriptor_set_out` writes of such messages; fields are numbered from 1."""
    file = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="flights", syntax=syntax)
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "JET", "PROP")):
        kind.value.add(name=name, number=number)
    for name, fields in messages:
        message = file.message_type.add(name=name)
        for number, (field, type_, of) in enumerate(fields, 1):
            added = message.field.add(name=field, number=number, type=type_, type_name=of or None, label=1)
            if field in repeated:
                added.label = 3
            if field.startswith("maybe_"):
                added.proto3_optional = True
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
            if field.startswith("must_"):
                added.label = 2
    whole = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(whole.file.add())
    whole.file.append(file)
    return whole.SerializeToString()


AT = ("at", FieldDescriptor.TYPE_MESSAGE, ".google.protobuf.Timestamp")
DEPARTURE = (
    "Departure",
    [
        ("carrier", FieldDescriptor.TYPE_STRING, ""),
        ("delay", FieldDescriptor.TYPE_SINT32, ""),
        ("maybe_gate", FieldDescriptor.TYPE_INT32, ""),
    ],
)
UA = b"\x0a\x02UA\x10\x05"  # carrier "UA", delay -3 as zigzag


@pytest.fixture
def departures(tmp_path: Path) -> Path:
    file = tmp_path / "flights.desc"
    file.write_bytes(descriptors(DEPARTURE))
    return file


def test_protobuf_golden_bytes_are_read(decode: Decode, departures: Path) -> None:
    declared = hw.topic("t", format=hw.protobuf(departures, "flights.Departure"))
    assert decode(declared, [UA, UA + b"\x18\x00", b"", b"\x10\x04", UA + b"\x9a\x06\x01x"]) == [
        (("UA", -3, None), None),
        (("UA", -3, 0), None),
        (("", 0, None), None),  # a message whose fields all have their defaults has no bytes
        (("", 2, None), None),
        (("UA", -3, None), None),  # with a field that a newer schema has
    ]


def test_protobuf_what_is_no_message_is_refused_with_its_reason(decode: Decode, departures: Path) -> None:
    nothing_known = "the value has no field of flights.Departure"
    values = {
        None: "the value is null",
        UA[:-1]: CUT_OFF,
        UA[:3]: CUT_OFF,
        b"\x0a\x02\xff\xfe": CUT_OFF,  # a string that is not UTF-8
        b'{"carrier": "UA"}': CUT_OFF,
        b"\x0a\xff\xff\xff\xff\x07UA": CUT_OFF,  # a length of 2 GiB
        b"\x9a\x06\x01x": nothing_known,
        b"\x0b" * 200: CUT_OFF,  # groups in groups
    }
    declared = hw.topic("t", format=hw.protobuf(departures, "flights.Departure"))
    assert decode(declared, list(values)) == [(None, reason) for reason in values.values()]


def test_protobuf_broken_bytes_never_stop_a_batch(decode: Decode, departures: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    broken = [UA]
    for _ in range(500):
        changed = bytearray(UA * 3)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        broken.append(bytes(changed))
    declared = hw.topic("t", format=hw.protobuf(departures, "flights.Departure"))
    first, *others = decode(declared, broken)
    assert first == (("UA", -3, None), None)
    assert {why for _, why in others if why} <= {CUT_OFF, "the value has no field of flights.Departure"}


def test_protobuf_types_are_those_of_spark(decode: Decode, tmp_path: Path) -> None:
    named = {
        name.removeprefix("TYPE_").lower(): number
        for name, number in vars(FieldDescriptor).items()
        if name.startswith("TYPE_") and name not in ("TYPE_GROUP", "TYPE_MESSAGE")
    }
    fields = [
        (f"a_{name}", number, ".flights.Kind" if name == "enum" else "") for name, number in named.items()
    ]
    fields += [AT, ("leg", FieldDescriptor.TYPE_MESSAGE, ".flights.Leg"), ("legs", 11, ".flights.Leg")]
    file = tmp_path / "all.desc"
    leg = ("Leg", [("dest", FieldDescriptor.TYPE_STRING, "")])
    file.write_bytes(descriptors(("All", fields), leg, repeated=["legs"]))
    declared = hw.topic("t", format=hw.protobuf(file, "flights.All"), event_time="at")
    assert {f.name.removeprefix("a_"): f.dataType.simpleString() for f in value_schema(declared)} == {
        "bool": "boolean",
        "bytes": "binary",
        "double": "double",
        "enum": "string",
        "fixed32": "bigint",
        "fixed64": "decimal(20,0)",
        "float": "float",
        "int32": "int",
        "int64": "bigint",
        "sfixed32": "int",
        "sfixed64": "bigint",
        "sint32": "int",
        "sint64": "bigint",
        "string": "string",
        "uint32": "bigint",
        "uint64": "decimal(20,0)",
        "at": "timestamp",
        "leg": "struct<dest:string>",
        "legs": "array<struct<dest:string>>",
    }
    kind = message_class(file.read_bytes(), "flights.All")
    greatest = kind(a_uint64=2**64 - 1, a_uint32=2**32 - 1, a_enum=2, a_bytes=b"\xff", legs=[{"dest": "JFK"}])
    greatest.at.FromMilliseconds(1_357_034_400_250)
    later = kind(a_enum=9, a_bool=True)
    later.at.seconds = 2**60
    declared = hw.topic("t", format=hw.protobuf(file, "flights.All"))
    values = [greatest.SerializeToString(), kind(a_enum=9, a_bool=True).SerializeToString()]
    (first, _), (second, _), (third, reason) = decode(declared, [*values, later.SerializeToString()])
    names = value_schema(declared).fieldNames()
    assert first is not None
    assert second is not None
    told = dict(zip(names, first, strict=True))
    assert told["a_uint64"] == Decimal(2**64 - 1)
    assert (told["a_uint32"], told["a_enum"], bytes(told["a_bytes"])) == (2**32 - 1, "PROP", b"\xff")
    assert (str(told["at"]), told["leg"], told["legs"]) == ("2013-01-01 10:00:00.250000", None, [("JFK",)])
    told = dict(zip(names, second, strict=True))
    assert (told["a_enum"], told["a_bool"], told["at"]) == ("9", True, None)
    assert (third, reason) == (None, "at is not a time between the years 1 and 9999")


def test_protobuf_field_that_must_be_set_is_missed(decode: Decode, tmp_path: Path) -> None:
    file = tmp_path / "old.desc"
    fields = [("must_have", FieldDescriptor.TYPE_STRING, ""), ("may", FieldDescriptor.TYPE_INT32, "")]
    file.write_bytes(descriptors(("Departure", fields), syntax="proto2"))
    declared = hw.topic("t", format=hw.protobuf(file, "flights.Departure"))
    assert decode(declared, [b"\x10\x01", b"\x0a\x01x"]) == [
        (None, "must_have is not set"),
        (("x", None), None),
    ]


def test_protobuf_confluent_header_is_taken_off(decode: Decode, departures: Path) -> None:
    header = struct.pack(">bI", 0, 17)
    no_header = (None, "the value does not begin with the header of Confluent's wire format")
    declared = hw.topic("t", format=hw.protobuf(departures, "flights.Departure", header=True))
    values = [
        header + b"\x00" + UA,
        header + b"\x02\x00" + UA,
        UA,
        header,
        header + b"\x04\x02",
        b"",
        header + b"\x03",
    ]
    assert decode(declared, values) == [(("UA", -3, None), None)] * 2 + [no_header] * 5


def test_protobuf_message_of_another_place_in_the_file_is_rejected(decode: Decode, tmp_path: Path) -> None:
    file = tmp_path / "two.desc"
    carrier = [("carrier", FieldDescriptor.TYPE_STRING, "")]
    file.write_bytes(descriptors(("Arrival", carrier), ("Departure", carrier)))
    header = struct.pack(">bI", 0, 17)
    declared = hw.topic("t", format=hw.protobuf(file, "flights.Departure", header=True))
    values = [header + way + b"\x0a\x02UA" for way in (b"\x02\x02", b"\x00", b"\x04\x02\x00", b"\x02\x01")]
    told = "its header says message {} of its file, and flights.Departure is [1]"
    assert decode(declared, values) == [
        (("UA",), None),
        *[(None, told.format(way)) for way in ("[0]", "[1, 0]", "[-1]")],
    ]


def test_protobuf_generated_class_brings_its_imports(decode: Decode, departures: Path) -> None:
    generated = message_class(departures.read_bytes(), "flights.Departure")
    form = hw.protobuf(generated)
    assert form.message == "flights.Departure"
    assert decode(hw.topic("t", format=form), [UA]) == [(("UA", -3, None), None)]


def test_protobuf_wrong_declarations_are_refused_in_a_sentence(tmp_path: Path, departures: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"there is no file .*none\.desc; write it with protoc"):
        hw.protobuf(tmp_path / "none.desc", "flights.Departure")
    with pytest.raises(
        JobDefinitionError, match=r"has no message 'flights\.Arrival'; it has .*flights\.Departure"
    ):
        hw.protobuf(departures, "flights.Arrival")
    alone = descriptor_pb2.FileDescriptorSet.FromString(departures.read_bytes())
    del alone.file[0]
    (tmp_path / "alone.desc").write_bytes(alone.SerializeToString())
    (tmp_path / "text.desc").write_text('syntax = "proto3";')
    for name in ("alone.desc", "text.desc"):
        with pytest.raises(JobDefinitionError, match=r"is not a whole descriptor set; .*--include_imports"):
            hw.protobuf(tmp_path / name, "flights.Departure")
    again = descriptors(("Leg", [("next", FieldDescriptor.TYPE_MESSAGE, ".flights.Leg")]), ("None", []))
    (tmp_path / "again.desc").write_bytes(again)
    with pytest.raises(JobDefinitionError, match=r"flights\.Leg contains itself"):
        value_schema(hw.topic("t", format=hw.protobuf(tmp_path / "again.desc", "flights.Leg")))
    with pytest.raises(JobDefinitionError, match=r"flights\.None has no fields"):
        value_schema(hw.topic("t", format=hw.protobuf(tmp_path / "again.desc", "flights.None")))
    with pytest.raises(JobDefinitionError, match="the format 'protobuf' has columns of its own"):
        hw.topic("t", schema="carrier STRING", format=hw.protobuf(departures, "flights.Departure"))
