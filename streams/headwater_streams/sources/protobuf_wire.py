"""What a Protobuf message's bytes say that its library does not: a number that is too great for its field.

Protobuf takes its lowest bits, as a cast of C does, so that a producer whose field has become an int64 would have 5 in
the place of 4294967301. (Source: protobuf.dev, "Updating A Message Type".)
"""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIGNED = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM)
_UNSIGNED = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_SINT32)


def too_great(message: Descriptor, value: bytes) -> str | None:
    """The name and the number of the first field of 32 bits that has more, as in `n: 4294967301`.

    Args:
        message: The message.
        value: Its bytes, which the library has read.
    """
    for number, kind, found in _fields(value):
        field = message.fields_by_number.get(number)
        if field is None:
            continue
        numbers: list[int] = []
        if isinstance(found, int):
            numbers = [found]
        elif kind == _LENGTH and field.type in (*_SIGNED, *_UNSIGNED):
            numbers = list(_varints(found))
        elif field.message_type is not None:
            inner = too_great(field.message_type, found)
            if inner is not None:
                return f"{field.name}.{inner}"
        for each in numbers:
            if (field.type in _SIGNED and 2**31 <= each < 2**64 - 2**31) or (
                field.type in _UNSIGNED and each >= 2**32
            ):
                return f"{field.name}: {each}"
    return None


def _fields(value: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields that are not of a fixed width: their numbers, wire types and contents."""
    at = 0
    while at < len(value):
        tag, at = _varint(value, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            found, at = _varint(value, at)
            yield number, kind, found
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
        found, at = _varint(value, at)
        yield found


def _varint(value: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while at < len(value):
        octet, at = value[at], at + 1
        found |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    return found & (2**64 - 1), at
