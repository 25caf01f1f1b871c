"""Which values are one Protobuf message of a topic's schema, and what becomes of their fields."""

import random
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

import headwater as hw
from amount import drawn_seed
from headwater_streams.sources.decode import value_schema
from headwater_streams.sources.protobuf_message import message_class
from protobuf_descriptors import DEPARTURE, descriptors

CUT_OFF = "the value is cut off, or not a flights.Departure"
Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]
AT = ("at", FieldDescriptor.TYPE_MESSAGE, ".google.protobuf.Timestamp")
UA = b"\x0a\x02UA\x10\x05"  # carrier "UA", delay -3 as zigzag


NOTHING_KNOWN = "the value has no field of flights.Departure"
_VALUE = r"""(?:\d+|b'.*'|b".*"|a group)"""
OF_ANOTHER_TYPE = (
    rf"carrier: {_VALUE} is no string|delay: {_VALUE} is no sint32|maybe_gate: {_VALUE} is no int32"
)
MESSAGES = {
    UA: ("UA", -3, None),
    UA + b"\x18\x00": ("UA", -3, 0),
    b"": ("", 0, None),  # a message whose fields all have their defaults has no bytes
    b"\x10\x04": ("", 2, None),
    UA + b"\x9a\x06\x01x": ("UA", -3, None),  # with a field that a newer schema has
}
NO_MESSAGES = {
    None: "the value is null",
    UA[:-1]: CUT_OFF,
    UA[:3]: CUT_OFF,
    b"\x0a\x02\xff\xfe": CUT_OFF,  # a string that is not UTF-8
    b'{"carrier": "UA"}': CUT_OFF,
    b"\x0a\xff\xff\xff\xff\x07UA": CUT_OFF,  # a length of 2 GiB
    b"\x9a\x06\x01x": NOTHING_KNOWN,
    b"\x0b" * 200: CUT_OFF,  # groups in groups
}
SEED = drawn_seed()


def _broken() -> list[bytes]:
    rng, broken = random.Random(SEED), []
    for _ in range(500):
        changed = bytearray(UA * 3)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        broken.append(bytes(changed))
    return broken


@pytest.fixture(scope="module")
def departures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("descriptors") / "flights.desc"
    file.write_bytes(descriptors(DEPARTURE))
    return file


@pytest.fixture(scope="module")
def departed(decode: Decode, departures: Path) -> dict[bytes | None, Decoded]:
    """What each value of a topic of departures gives; one Spark job reads them all."""
    values = [*{**MESSAGES, **NO_MESSAGES, **dict.fromkeys(_broken())}]
    declared = hw.topic("t", format=hw.protobuf(departures, "flights.Departure"))
    return dict(zip(values, decode(declared, values), strict=True))


@pytest.mark.story
def test_protobuf_golden_bytes_are_read(departed: dict[bytes | None, Decoded]) -> None:
    for value, columns in MESSAGES.items():
        assert departed[value] == (columns, None), value


@pytest.mark.story
def test_protobuf_what_is_no_message_is_refused_with_its_reason(
    departed: dict[bytes | None, Decoded],
) -> None:
    for value, reason in NO_MESSAGES.items():
        assert departed[value] == (None, reason), value


@pytest.mark.story
def test_protobuf_broken_bytes_never_stop_a_batch(departed: dict[bytes | None, Decoded]) -> None:
    print("HEADWATER_SEED", SEED)
    reasons = {value: departed[value][1] for value in _broken()}
    assert departed[UA] == (("UA", -3, None), None)
    others = set(filter(None, reasons.values())) - {CUT_OFF, NOTHING_KNOWN}
    # Random bytes have numbers of fields that the schema knows, with what is no value of theirs.
    assert {each for each in others if not re.fullmatch(OF_ANOTHER_TYPE, each)} == set()


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
    assert third is None
    assert reason == f"at is not a time between the years 1 and 9999: {2**60} s and 0 ns"


def test_protobuf_field_that_must_be_set_is_missed(decode: Decode, tmp_path: Path) -> None:
    file = tmp_path / "old.desc"
    fields = [("must_have", FieldDescriptor.TYPE_STRING, ""), ("may", FieldDescriptor.TYPE_INT32, "")]
    file.write_bytes(descriptors(("Departure", fields), syntax="proto2"))
    declared = hw.topic("t", format=hw.protobuf(file, "flights.Departure"))
    assert decode(declared, [b"\x10\x01", b"\x0a\x01x", b"\x0a\x01x\x12\x02no"]) == [
        (None, "must_have is not set"),
        (("x", None), None),
        (None, "may: b'no' is no int32"),
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


@pytest.mark.story
def test_protobuf_generated_class_brings_its_imports(decode: Decode, departures: Path) -> None:
    generated = message_class(departures.read_bytes(), "flights.Departure")
    form = hw.protobuf(generated)
    assert form.message == "flights.Departure"
    assert decode(hw.topic("t", format=form), [UA]) == [(("UA", -3, None), None)]
