"""What the library takes for a field that is not known though the schema has it: it is told with its value."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from headwater_streams.sources.protobuf_message import message_class
from headwater_streams.sources.protobuf_wire import passed_over
from protobuf_descriptors import descriptors

KIND, SUB = ".flights.Kind", ".flights.Sub"
FIELDS = [
    ("id", FieldDescriptor.TYPE_INT32, ""),
    ("name", FieldDescriptor.TYPE_STRING, ""),
    ("kind", FieldDescriptor.TYPE_ENUM, KIND),
    ("kinds", FieldDescriptor.TYPE_ENUM, KIND),
    ("sub", FieldDescriptor.TYPE_MESSAGE, SUB),
    ("subs", FieldDescriptor.TYPE_MESSAGE, SUB),
]
CASES = {
    "int32 as text": (b"\x0a\x03abc", "id: b'abc' is no int32"),
    "int32 as 32 bits": (b"\x0d\x01\x00\x00\x00", "id: 1 is no int32"),
    "int32 as 64 bits": (b"\x09\x01\x00\x00\x00\x00\x00\x00\x00", "id: 1 is no int32"),
    "int32 as group": (b"\x0b\x08\x01\x0c", "id: a group is no int32"),
    "text as number": (b"\x10\x07", "name: 7 is no string"),
    "message as number": (b"\x28\x06", "sub: 6 is no flights.Sub"),
    "in a message": (b"\x2a\x03\x0a\x01x", "sub.n: b'x' is no int32"),
    "in the second": (b"\x32\x02\x08\x01\x32\x03\x0a\x01x", "subs.n: b'x' is no int32"),
    "a field that is not known": (b"\x08\x05\xf8\x01\x07", None),
    "such a group": (b"\x08\x05\xfb\x01\x08\x01\xfc\x01", None),
    "numbers in one piece": (b"\x22\x02\x01\x02", None),
}
OF_AN_ENUM = {
    "a value without a name": (b"\x18\x07", "kind: 7 is no value of flights.Kind"),
    "in a list": (b"\x20\x01\x20\x07\x20\x02", "kinds: 7 is no value of flights.Kind"),
    "in one piece": (b"\x22\x03\x01\x07\x02", "kinds: 7 is no value of flights.Kind"),
    "in a message": (b"\x2a\x02\x10\x07", "sub.kind: 7 is no value of flights.Kind"),
}


def _told(value: bytes, syntax: str) -> str | None:
    sub = [("n", FieldDescriptor.TYPE_INT32, ""), ("kind", FieldDescriptor.TYPE_ENUM, KIND)]
    found = descriptors(("All", FIELDS), ("Sub", sub), syntax=syntax, repeated=["kinds", "subs"])
    return passed_over(message_class(found, "flights.All").FromString(value))


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize("case", CASES)
def test_value_of_another_wire_type_is_told(case: str, syntax: str) -> None:
    value, told = CASES[case]
    assert _told(value, syntax) == told


@pytest.mark.parametrize("case", OF_AN_ENUM)
def test_value_that_an_enum_of_proto2_does_not_name_is_told(case: str) -> None:
    value, told = OF_AN_ENUM[case]
    assert _told(value, "proto2") == told
    assert _told(value, "proto3") is None  # there it is its number
