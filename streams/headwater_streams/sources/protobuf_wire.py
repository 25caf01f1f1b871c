"""Finds in a Protobuf message's bytes the values that their fields cannot hold; the library does not report them.

Protobuf takes the lowest bits of a number that is too great, as a cast in C does: 4294967301 of a producer whose field
has become an int64 would be read as 5. A value of another wire type than its field's, as of a producer whose int32 has
become a string, counts as an unknown field. So does a value that an enum of proto2 does not name. The field would be 0
or not set, and a list of such values shorter. (Source: protobuf.dev, "Updating A Message Type" and "Enum Behavior".)
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIGNED = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM)
_UNSIGNED = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_SINT32)


def too_great(message: Descriptor, value: bytes) -> str | None:
    """The name and the value of the first 32-bit field whose number has more bits, as in `n: 4294967301`.

    Args:
        message: The message.
        value: Its bytes, which the library has parsed.
    """
    for number, kind, content in _fields(value):
        field = message.fields_by_number.get(number)
        if field is None:
            continue
        numbers: list[int] = []
        if isinstance(content, int):
            numbers = [content]
        elif kind == _LENGTH and field.type in (*_SIGNED, *_UNSIGNED):
            numbers = list(_varints(content))
        elif field.message_type is not None:
            inner = too_great(field.message_type, content)
            if inner is not None:
                return f"{field.name}.{inner}"
        for each in numbers:
            if (field.type in _SIGNED and 2**31 <= each < 2**64 - 2**31) or (
                field.type in _UNSIGNED and each >= 2**32
            ):
                return f"{field.name}: {each}"
    return None


def passed_over(message: Message) -> str | None:
    """The name, the value and the type of the first field whose value the library has taken for an unknown field.

    Args:
        message: A message with unknown fields, in itself or in a message within it; fields that its schema lacks are
            not reported.
    """
    for unknown in UnknownFieldSet(message):
        field = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
        if field is not None:
            return f"{field.name}: {_describe_data(unknown.data)} is no {_kind(field)}"
    for field, value in message.ListFields():
        for inner in _messages_in(field, value):
            name_within = passed_over(inner)
            if name_within is not None:
                return f"{field.name}.{name_within}"
    return None


def _messages_in(field: FieldDescriptor, value: Any) -> list[Message]:
    if field.message_type is None:
        return []
    if field.message_type.GetOptions().map_entry:
        is_of_messages = field.message_type.fields_by_name["value"].message_type is not None
        return [*value.values()] if is_of_messages else []
    return [*value] if field.is_repeated else [value]


def _describe_data(data: Any) -> str:
    return f"{data[:100]!r}" if isinstance(data, bytes) else f"{data}" if isinstance(data, int) else "a group"


def _kind(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return f"value of {field.enum_type.full_name}"
    if field.message_type is not None:
        return str(field.message_type.full_name)
    types = ((name, number) for name, number in vars(FieldDescriptor).items() if name.startswith("TYPE_"))
    return next(str(name).removeprefix("TYPE_").lower() for name, number in types if number == field.type)


def _fields(value: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields that are not of a fixed width: their numbers, wire types and contents."""
    at = 0
    while at < len(value):
        tag, at = _varint(value, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            content, at = _varint(value, at)
            yield number, kind, content
        elif kind == _LENGTH:
            size, at = _varint(value, at)
            yield number, kind, value[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return  # a group, which only old schemas have


def _varints(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value):
        octet, at = value[at], at + 1
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    return number & (2**64 - 1), at
