"""Reads requests into kio's classes, by the schema that the classes carry.

kio's own reader is not for bytes from strangers: it allocates what a count promises before it looks for the
elements (an array of four thousand million, in a frame of five bytes, aborts the process), and it fails on
tagged fields that it does not know, which KIP-482 says to pass over (both seen in kio 0.6.5). This one
allocates as it reads, and agrees with kio's on everything that is well formed; the tests compare them.
"""

from collections.abc import Callable, Generator, Hashable
from dataclasses import Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

from headwater_broker.wire.errors import MalformedFrame
from headwater_broker.wire.primitives import StructError, read_tag_count, read_uvarint

Read = Callable[[memoryview, int], tuple[Any, int]]
"""Reads one value at a position of a frame; returns it and the position after it."""

ReadSlices = Callable[[memoryview, int], Generator[None, None, tuple[Any, int]]]
"""The same, put aside between elements of arrays."""

_SHORT = Struct(">h")
_INT = Struct(">i")
_SCALARS = {
    "bool": Struct(">?"),
    "int8": Struct(">b"),
    "int16": _SHORT,
    "int32": _INT,
    "int64": Struct(">q"),
    "uint16": Struct(">H"),
    "uint32": Struct(">I"),
    "float64": Struct(">d"),
    "error_code": _SHORT,
    "timedelta_i32": _INT,
    "timedelta_i64": Struct(">q"),
    "datetime_i64": Struct(">q"),
}
_NULL_STRUCTURE = 0xFF
_NO_UUID = bytes(16)
_ELEMENTS_AT_ONCE = 100
"""Half a millisecond."""

_WRONG = (StructError, IndexError, UnicodeDecodeError, OverflowError, ValueError)
_LONGEST_MS = -(timedelta.min // timedelta(milliseconds=1))


def read_message(entity_type: type[Any], frame: memoryview, position: int) -> Any:
    """Reads one message.

    Args:
        entity_type: kio's class of the message.
        frame: The frame.
        position: Where in the frame the message starts; bytes after its end are left alone.

    Raises:
        MalformedFrame: The bytes are no such message.
    """
    try:
        return _entity_reader(entity_type)(frame, position)[0]
    except _WRONG as error:
        raise _malformed(entity_type, len(frame) - position, error) from error


def read_message_slices(
    entity_type: type[Any], frame: memoryview, position: int
) -> Generator[None, None, Any]:
    """As `read_message`, put aside now and then where its arrays are long.

    Raises:
        MalformedFrame: The bytes are no such message.
    """
    read = _entity_slices(entity_type)
    try:
        if read is None:
            return _entity_reader(entity_type)(frame, position)[0]
        return (yield from read(frame, position))[0]
    except _WRONG as error:
        raise _malformed(entity_type, len(frame) - position, error) from error


def _malformed(entity_type: type[Any], size: int, error: Exception) -> MalformedFrame:
    if isinstance(error, StructError | IndexError):
        return MalformedFrame(f"{entity_type.__name__} ends early, in {size} bytes")
    return MalformedFrame(f"{entity_type.__name__} holds no such value: {error}")


def without_none(field_type: Any) -> tuple[Any, bool]:
    """Splits `X | None` into X and whether None was there."""
    if get_origin(field_type) is UnionType:
        return next(kind for kind in get_args(field_type) if kind is not type(None)), True
    return field_type, False


def _entity_reader(entity_type: Any) -> Read:
    key: Hashable = entity_type  # a class is hashable, whatever mypy makes of `type[Any]`
    return _compile(key)


def _entity_slices(entity_type: Any) -> ReadSlices | None:
    """None for a structure without arrays, which is read at once."""
    key: Hashable = entity_type
    return _compile_slices(key)


def _field_readers(
    entity_type: Any,
) -> tuple[list[tuple[Field[Any], Read]], dict[int, tuple[str, Read]]]:
    """What reads the fields of a structure: those that stand in it, in order, and the others by their tags."""
    plain: list[tuple[Field[Any], Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    for field in fields(entity_type):
        read = _field_reader(field, entity_type.__flexible__)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = (field.name, read)
        else:
            plain.append((field, read))
    return plain, tagged


@cache
def _compile_slices(entity_type: Any) -> ReadSlices | None:
    flexible: bool = entity_type.__flexible__
    ordinary, tagged = _field_readers(entity_type)
    plain = [(field.name, read, _array_slices(field, flexible)) for field, read in ordinary]
    if all(in_slices is None for _, _, in_slices in plain):
        return None

    def read_entity(frame: memoryview, position: int) -> Generator[None, None, tuple[Any, int]]:
        values = {}
        for name, read, in_slices in plain:
            if in_slices is None:
                values[name], position = read(frame, position)
            else:
                values[name], position = yield from in_slices(frame, position)
        if flexible:
            position = _read_tagged(frame, position, tagged, values)
        return entity_type(**values), position

    return read_entity


@cache
def _compile(entity_type: Any) -> Read:
    flexible: bool = entity_type.__flexible__
    ordinary, tagged = _field_readers(entity_type)
    plain = [(field.name, read) for field, read in ordinary]

    def read_entity(frame: memoryview, position: int) -> tuple[Any, int]:
        values = {}
        for name, read in plain:
            values[name], position = read(frame, position)
        if flexible:
            position = _read_tagged(frame, position, tagged, values)
        return entity_type(**values), position

    return read_entity


def _read_tagged(
    frame: memoryview, position: int, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]
) -> int:
    count, position = read_tag_count(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        end = _end(frame, position, size)
        if tag in tagged:
            name, read = tagged[tag]
            values[name], position = read(frame[:end], position)
        position = end
    return position


def _field_reader(field: Field[Any], flexible: bool) -> Read:
    field_type, nullable = without_none(field.type)
    if get_origin(field_type) is tuple:
        return _array_reader(_element_reader(field, flexible), flexible, nullable)
    if is_dataclass(field_type):
        whole = _entity_reader(field_type)
        return _nullable_reader(whole) if nullable and "tag" not in field.metadata else whole
    return _primitive_reader(field, flexible, nullable)


def _element_reader(field: Field[Any], flexible: bool) -> Read:
    field_type, nullable = without_none(field.type)
    element = without_none(get_args(field_type)[0])[0]
    return _entity_reader(element) if is_dataclass(element) else _primitive_reader(field, flexible, nullable)


def _primitive_reader(field: Field[Any], flexible: bool, nullable: bool) -> Read:
    kind: str = field.metadata["kafka_type"]
    if kind == "uuid":
        return _read_uuid
    if kind in _SCALARS:
        return _scalar_reader(_SCALARS[kind], kind)
    is_text = kind == "string"
    prefix = _INT if not is_text else _SHORT

    def read_value(frame: memoryview, position: int) -> tuple[Any, int]:
        if flexible:
            length, position = read_uvarint(frame, position)
            length -= 1
        else:
            (length,) = prefix.unpack_from(frame, position)
            position += prefix.size
        if length < 0:
            if not nullable:
                raise MalformedFrame(f"{field.name} must not be null")
            return None, position
        end = _end(frame, position, length)
        value = frame[position:end].tobytes()
        return (value.decode() if is_text else value), end

    return read_value


def _scalar_reader(struct: Struct, kind: str) -> Read:
    size = struct.size
    convert: Callable[[Any], Any] | None = None
    if kind.startswith("timedelta"):
        convert = _milliseconds
    elif kind == "datetime_i64":
        convert = _moment
    elif kind == "error_code":
        convert = ErrorCode

    def read_scalar(frame: memoryview, position: int) -> tuple[Any, int]:
        (value,) = struct.unpack_from(frame, position)
        return (value if convert is None else convert(value)), position + size

    return read_scalar


def _milliseconds(value: int) -> timedelta:
    # Java clients say "for ever" with the greatest 64-bit number, 292 million years: a timedelta holds 2.7 million.
    return timedelta(milliseconds=min(max(value, -_LONGEST_MS), _LONGEST_MS))


def _moment(ms: int) -> datetime | None:
    return None if ms < 0 else datetime.fromtimestamp(ms / 1000, UTC)


def _read_uuid(frame: memoryview, position: int) -> tuple[UUID | None, int]:
    end = _end(frame, position, 16)
    value = frame[position:end].tobytes()
    return (None if value == _NO_UUID else UUID(bytes=value)), end


def _array_reader(one: Read, flexible: bool, nullable: bool) -> Read:
    def read_array(frame: memoryview, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = _read_count(frame, position, flexible, nullable)
        if count < 0:
            return None, position
        elements = []
        for _ in range(count):
            element, position = one(frame, position)
            elements.append(element)
        return tuple(elements), position

    return read_array


def _array_slices(field: Field[Any], flexible: bool) -> ReadSlices | None:
    """None for what is no array."""
    field_type, nullable = without_none(field.type)
    if get_origin(field_type) is not tuple:
        return None
    one = _element_reader(field, flexible)
    element_type = without_none(get_args(field_type)[0])[0]
    in_slices = _entity_slices(element_type) if is_dataclass(element_type) else None

    def read_array(
        frame: memoryview, position: int
    ) -> Generator[None, None, tuple[tuple[Any, ...] | None, int]]:
        count, position = _read_count(frame, position, flexible, nullable)
        if count < 0:
            return None, position
        elements = []
        for number in range(count):
            if in_slices is None:
                element, position = one(frame, position)
            else:
                element, position = yield from in_slices(frame, position)
            elements.append(element)
            if number % _ELEMENTS_AT_ONCE == _ELEMENTS_AT_ONCE - 1:
                yield
        return tuple(elements), position

    return read_array


def _read_count(frame: memoryview, position: int, flexible: bool, nullable: bool) -> tuple[int, int]:
    """How many elements an array has, -1 for none at all, and where they begin."""
    if flexible:
        count, position = read_uvarint(frame, position)
        count -= 1
    else:
        (count,) = _INT.unpack_from(frame, position)
        position += 4
    if count < 0:
        if not nullable:
            raise MalformedFrame("an array that must not be null is")
        return -1, position
    if count > len(frame) - position:  # no element takes less than a byte
        raise MalformedFrame(f"an array of {count} elements in {len(frame) - position} bytes")
    return count, position


def _nullable_reader(whole: Read) -> Read:
    def read_nullable(frame: memoryview, position: int) -> tuple[Any, int]:
        if frame[position] == _NULL_STRUCTURE:
            return None, position + 1
        return whole(frame, position + 1)

    return read_nullable


def _end(frame: memoryview, position: int, length: int) -> int:
    end = position + length
    if end > len(frame):
        raise MalformedFrame(f"a value of {length} bytes where {len(frame) - position} are left")
    return end
