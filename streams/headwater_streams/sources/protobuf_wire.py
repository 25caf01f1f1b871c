"""What a Protobuf message's bytes say that its library does not: a value that its field cannot hold.

Of a number that is too great Protobuf takes the lowest bits, as a cast of C does, so that a producer whose field has
become an int64 would have 5 in the place of 4294967301. What is of another wire type than its field, as of a producer
whose int32 has become a string, counts as a field that is not known, and so does a value that an enum of proto2 does
not name: the field would be 0 or not set, and a list of such values shorter. (Source: protobuf.dev, "Updating A Message
Type" and "Enum Behavior".)
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
    """The name and the number of the first field of 32 bits that has more, as in `n: 4294967301`.

    Args:
        message: The message.
        value: Its bytes, which the library has read.
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
        message: A message that has unknown fields, in itself or further in; those that its schema lacks are none.
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
            return  # a group, which only files of long ago have


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
