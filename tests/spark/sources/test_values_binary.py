"""What is written of Avro and Protobuf is what was sent, or the record is refused with its field and its value.

Each value is one field of a record that has all of them; Python says what its bytes are.
"""

import json
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

import headwater as hw
from odd_values import NONE, same
from protobuf_descriptors import descriptors

Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]

_FIXED_DECIMAL = {
    "type": "fixed",
    "name": "Wide",
    "size": 12,
    "logicalType": "decimal",
    "precision": 9,
    "scale": 2,
}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
AVRO = {
    "an_int": "int",
    "a_long": "long",
    "a_float": "float",
    "a_double": "double",
    "a_boolean": "boolean",
    "a_text": "string",
    "some_bytes": "bytes",
    "a_decimal": _DECIMAL,
    "a_fixed": _FIXED_DECIMAL,
    "a_great_decimal": {**_DECIMAL, "precision": 38, "scale": 10},
    "a_day": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "ints": {"type": "array", "items": "int"},
    "decimals": {"type": "map", "values": _DECIMAL},
    "inner": {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]},
}
_EPOCH = datetime(1970, 1, 1)


def varint(number: int) -> bytes:
    """A whole number of base 128, as both formats have it."""
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def zigzag(number: int) -> bytes:
    """An int or a long of Avro, of any size."""
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def sized(content: bytes) -> bytes:
    return zigzag(len(content)) + content


def unscaled(number: int, size: int | None = None) -> bytes:
    return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)


def _avro_cases() -> list[tuple[str, bytes, object, str]]:
    """A field, its bytes, what they are, and what a reason has to say of them."""
    cases: list[tuple[str, bytes, object, str]] = []

    def add(name: str, content: bytes, value: object, text: object = "") -> None:
        cases.append((name, content, value, str(text)))

    for number in (0, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**32 + 5, 2**63 - 1):
        fits = -(2**31) <= number < 2**31
        add("an_int", zigzag(number), number if fits else NONE, number)
        add("ints", zigzag(1) + zigzag(number) + zigzag(0), [number] if fits else NONE, number)
        add("inner", zigzag(number), {"n": number} if fits else NONE, number)
        add("a_long", zigzag(number), number)
    add("a_long", zigzag(-(2**63)), -(2**63))
    for fraction in (
        0.0,
        -0.0,
        0.1,
        1.5,
        float("nan"),
        float("inf"),
        float("-inf"),
        5e-324,
        1.7976931348623157e308,
    ):
        add("a_double", struct.pack("<d", fraction), fraction)
    for fraction in (-0.0, 1.5, float("nan"), float("inf"), float("-inf"), 2.0**-149):
        add("a_float", struct.pack("<f", fraction), fraction)
    add("a_boolean", b"\x01", True)
    add("a_boolean", b"\x00", False)
    for text in ("", "a\x00b", "\U0001f600", "e\u0301", "NaN"):
        add("a_text", sized(text.encode()), text)
        add("some_bytes", sized(text.encode()), text.encode())
    add("a_text", sized(b"\xed\xa0\x80"), NONE)  # half of a surrogate pair
    for number in (0, 5, -5, 10**9 - 1, 1 - 10**9, 10**9, -(10**9), 2**64 + 5, 2**63, 10**25):
        exact = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -2))
        value, text = (exact, "") if abs(number) < 10**9 else (NONE, str(exact))
        add("a_decimal", sized(unscaled(number)), value, text)
        add("a_fixed", unscaled(number, 12), value, text)
        in_map = zigzag(1) + sized(b"k") + sized(unscaled(number)) + zigzag(0)
        add("decimals", in_map, NONE if value is NONE else {"k": value}, text)
    add("a_great_decimal", sized(unscaled(10**38 - 1)), Decimal((0, (9,) * 38, -10)))
    add("a_great_decimal", sized(unscaled(10**38)), NONE)
    for days in (
        0,
        -1,
        date.min.toordinal() - 719163,
        date.max.toordinal() - 719163,
        -719163,
        2932897,
        2**31 - 1,
    ):
        fits = date.min.toordinal() <= days + 719163 <= date.max.toordinal()
        add(
            "a_day",
            zigzag(days),
            date.fromordinal(days + 719163) if fits else NONE,
            "of the years 1 to 9999: ",
        )
    for name, unit in (("millis", 1000), ("micros", 1), ("local", 1)):
        most = (datetime.max - _EPOCH) // timedelta(microseconds=unit)
        least = (datetime.min - _EPOCH) // timedelta(microseconds=unit)
        for count in (0, -1, 1, most, least):
            add(name, zigzag(count), _EPOCH + timedelta(microseconds=count * unit))
        for count in (most + 1, least - 1):
            add(name, zigzag(count), NONE, "of the years 1 to 9999: ")
        add(name, zigzag(2**63 - 1), NONE)
    return cases


def test_avro_values_are_what_was_sent_or_refused(decode: Decode) -> None:
    fields = [{"name": name, "type": ["null", kind]} for name, kind in AVRO.items()]
    schema = json.dumps({"type": "record", "name": "All", "fields": fields})
    cases = _avro_cases()
    values = [
        b"".join(zigzag(1) + content if each == name else zigzag(0) for each in AVRO)
        for name, content, *_ in cases
    ]
    found = decode(hw.topic("t", format=hw.avro(schema)), values)
    wrong = []
    for (name, content, value, text), (columns, reason) in zip(cases, found, strict=True):
        if columns is not None:
            written = columns[[*AVRO].index(name)]
            written = written.asDict() if hasattr(written, "asDict") else written
            if value is NONE or not same(written, value):
                wrong.append((name, content, written, value))
        elif value is not NONE or reason is None or (text and (name not in reason or text not in reason)):
            wrong.append((name, content, reason, value))
    assert wrong == []


PROTOBUF = {
    "an_int32": (FieldDescriptor.TYPE_INT32, 2**31),
    "an_enum": (FieldDescriptor.TYPE_ENUM, 2**31),
    "a_uint32": (FieldDescriptor.TYPE_UINT32, 2**32),
    "a_sint32": (FieldDescriptor.TYPE_SINT32, 2**32),
    "an_int64": (FieldDescriptor.TYPE_INT64, 2**64),
    "a_uint64": (FieldDescriptor.TYPE_UINT64, 2**64),
}
_NUMBERS = (
    0,
    1,
    5,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**32 + 5,
    2**63 - 1,
    2**63,
    2**64 - 2**31,
    2**64 - 1,
)


def _protobuf_value(name: str, number: int) -> object:
    """What a varint is as a field; a negative number of an int32 has 64 bits."""
    kind, beyond = PROTOBUF[name]
    signed = number - 2**64 if number >= 2**63 else number
    if kind in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM):
        value: object = signed if -(2**31) <= signed < 2**31 else NONE
        names = {0: "UNKNOWN", 1: "JET", 2: "PROP"}
        return (
            names.get(signed, str(signed))
            if kind == FieldDescriptor.TYPE_ENUM and value is not NONE
            else value
        )
    if number >= beyond:
        return NONE
    if kind == FieldDescriptor.TYPE_SINT32:
        return number >> 1 ^ -(number & 1)
    if kind == FieldDescriptor.TYPE_INT64:
        return signed
    return Decimal(number) if kind == FieldDescriptor.TYPE_UINT64 else number


def test_protobuf_values_are_what_was_sent_or_refused(decode: Decode, tmp_path: Path) -> None:
    file = tmp_path / "all.desc"
    fields = [
        (name, kind, ".flights.Kind" if kind == FieldDescriptor.TYPE_ENUM else "")
        for name, (kind, _) in PROTOBUF.items()
    ]
    of = [
        ("inner", FieldDescriptor.TYPE_MESSAGE, ".flights.Numbers"),
        ("packed", FieldDescriptor.TYPE_INT32, ""),
    ]
    file.write_bytes(descriptors(("All", [*fields, *of]), ("Numbers", fields), repeated=["packed"]))
    cases = [(name, number) for name in PROTOBUF for number in _NUMBERS]
    alone = [varint(([*PROTOBUF].index(name) + 1) << 3) + varint(number) for name, number in cases]
    inner = [varint(7 << 3 | 2) + varint(len(value)) + value for value in alone]
    packed = [varint(8 << 3 | 2) + varint(len(varint(n))) + varint(n) for n in _NUMBERS]
    found = decode(hw.topic("t", format=hw.protobuf(file, "flights.All")), [*alone, *inner, *packed])
    wrong = []
    for place, (name, number) in enumerate(cases):
        value, at = _protobuf_value(name, number), [*PROTOBUF].index(name)
        (columns, reason), (around, told) = found[place], found[len(cases) + place]
        if value is NONE:
            good = (
                columns is around is None
                and f"{name}: {number}" in str(reason)
                and f"{name}: {number}" in str(told)
            )
        else:
            within = None if around is None else around[6]
            good = columns is not None and same(columns[at], value) and same(within[at], value)  # type: ignore[index]
        if not good:
            wrong.append((name, number, value, columns, reason, around, told))
    for number, (columns, reason) in zip(_NUMBERS, found[2 * len(cases) :], strict=True):
        value = _protobuf_value("an_int32", number)
        if (columns is None) != (value is NONE) or (columns is not None and columns[7] != [value]):
            wrong.append(("packed", number, value, columns, reason, None, None))
    assert wrong == []


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\xed\xa0\x80"])
def test_protobuf_text_that_is_not_utf8_stops_no_batch(decode: Decode, tmp_path: Path, bad: bytes) -> None:
    """proto2 does not ask for UTF-8, and the library gives the bytes of what is none."""
    file = tmp_path / "old.desc"
    fields = [("name", FieldDescriptor.TYPE_STRING, ""), ("names", FieldDescriptor.TYPE_STRING, "")]
    file.write_bytes(descriptors(("Old", fields), syntax="proto2", repeated=["names"]))
    declared = hw.topic("t", format=hw.protobuf(file, "flights.Old"))
    one = b"\x0a" + varint(len(bad)) + bad
    several = b"\x12\x01x\x12" + varint(len(bad)) + bad
    assert decode(declared, [one, b"\x0a\x01x", several]) == [
        (None, f"name is not UTF-8: {bad!r}"),
        (("x", []), None),
        (None, f"names is not UTF-8: {bad!r}"),
    ]
