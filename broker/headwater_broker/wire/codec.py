"""Every message off the hot path, through kio's schemas.

A schema module is imported when the first request of its version arrives: all of them together would take
more memory than the rest of the broker.

A request is kio's own frozen class of that version, so a field that the version lacks is no attribute of it.
A response is given as plain values for the newest version, and each version takes the fields that it has.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from io import BytesIO
from struct import Struct
from typing import Any, cast, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial.errors import OutOfBoundValue
from kio.serial.writers import write_compact_array_length, write_legacy_array_length
from kio.static.primitive import i32

from headwater_broker.wire.apis import API_VERSIONS, Api
from headwater_broker.wire.older import older_type
from headwater_broker.wire.reader import read_message, read_message_slices, without_none

_FRAME_START = Struct(">ii")
_SIZE_BYTES = 4
_CUT_MESSAGE_CHARS = 255
_STRUCTURES_AT_ONCE = 300
"""Three to five milliseconds."""

LEGACY_STRING_BYTES = 2**15 - 1
"""The longest text before the compact strings, and in Kafka's own records: its length is an int16."""
_ONE_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode_request(api: Api, version: int, frame: memoryview, position: int) -> Any:
    """Reads the body of a request.

    Args:
        api: The request's API.
        version: Its version, one that the table has.
        frame: The frame without its length prefix.
        position: Where the body starts.

    Returns:
        An instance of kio's class for this version; times are timedeltas, see `milliseconds`.

    Raises:
        MalformedFrame: The bytes are no such request.
    """
    return read_message(message_type(api.name, version, "request"), frame, position)


def decode_request_slices(
    api: Api, version: int, frame: memoryview, position: int
) -> Generator[None, None, Any]:
    """As `decode_request`, put aside now and then where the request is large.

    Raises:
        MalformedFrame: The bytes are no such request.
    """
    return read_message_slices(message_type(api.name, version, "request"), frame, position)


def encode_response(api: Api, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Writes a whole response frame, length prefix and header included.

    Args:
        api: The API.
        version: The request's version.
        correlation_id: The request's.
        values: The message as plain values: error codes and times and dates (milliseconds) as integers, structures
            as mappings, arrays as sequences. `throttle_time` may be left out, and so may fields with a default. What
            is too long for a field of this version is cut or left out.
    """
    entity_type = message_type(api.name, version, "response")
    message = build(entity_type, values)
    try:
        return _response_frame(api, version, correlation_id, message)
    except OutOfBoundValue:
        return _response_frame(api, version, correlation_id, _fitting(message))


def encode_response_slices(
    api: Api, version: int, correlation_id: int, values: Mapping[str, Any]
) -> Generator[None, None, bytes]:
    """As `encode_response`, put aside between the entries of the message's longest array, and of theirs."""
    frame = BytesIO()
    frame.write(_FRAME_START.pack(0, correlation_id))
    if api.is_flexible(version) and api.key != API_VERSIONS:
        frame.write(b"\x00")
    yield from _write_slices(frame, message_type(api.name, version, "response"), values)
    size = frame.tell() - _SIZE_BYTES
    frame.seek(0)
    frame.write(size.to_bytes(_SIZE_BYTES, "big"))
    return frame.getvalue()


def _write_slices(
    frame: BytesIO, entity_type: type[Any], values: Mapping[str, Any]
) -> Generator[None, None, None]:
    """Writes a structure; what is too long for a text of this version is cut."""
    arrays = dict(_arrays(cast(Hashable, entity_type)))
    weights = {name: (_weight(values[name]), len(values[name])) for name in arrays if values.get(name)}
    if sum(weight for weight, _ in weights.values()) <= _STRUCTURES_AT_ONCE:
        frame.write(_written(entity_type, values))
        return
    name = max(weights, key=lambda each: weights[each])
    entries = values[name]
    # Of an empty array and one of a single entry, the last byte of the count is the first one that differs.
    empty, one = (
        memoryview(_written(entity_type, {**values, name: some}))
        for some in ([], [_small(arrays[name], entries[0])])
    )
    count_end = (
        next(at for at, (left, right) in enumerate(zip(empty, one, strict=False)) if left != right) + 1
    )
    is_compact = entity_type.__flexible__
    frame.write(empty[: count_end - (1 if is_compact else 4)])
    (write_compact_array_length if is_compact else write_legacy_array_length)(frame, i32(len(entries)))
    for each in entries:
        yield from _write_slices(frame, arrays[name], each)
        yield
    frame.write(empty[count_end:])


def _small(entity_type: type[Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry like another one without what may be much of it."""
    return {**values, **{name: [] for name, _ in _arrays(cast(Hashable, entity_type)) if name in values}}


def _written(entity_type: type[Any], values: Mapping[str, Any]) -> bytes:
    message, buffer = build(entity_type, values), BytesIO()
    write = entity_writer(entity_type)
    try:
        write(buffer, message)
    except OutOfBoundValue:
        buffer = BytesIO()
        write(buffer, _fitting(message))
    return buffer.getvalue()


@cache
def _arrays(entity_type: Any) -> tuple[tuple[str, Any], ...]:
    """Fields of a message that are arrays of structures, and of what."""
    arrays = []
    for field in fields(entity_type):
        field_type, _ = without_none(field.type)
        if get_origin(field_type) is tuple:
            element, _ = without_none(get_args(field_type)[0])
            if is_dataclass(element) and "tag" not in field.metadata:
                arrays.append((field.name, element))
    return tuple(arrays)


def is_heavy(values: Mapping[str, Any]) -> bool:
    """Whether a message takes so long to encode that others should be let in between; by a quick count."""
    count = 0
    for entries in values.values():
        if isinstance(entries, list | tuple):
            count += _weight(entries)
    return count > _STRUCTURES_AT_ONCE


def _weight(entries: Sequence[Any]) -> int:
    """How many structures, or other values in arrays, the entries hold together; the count stops once it is large."""
    count = 0
    for entry in entries:
        count += 1
        if isinstance(entry, Mapping):
            count += sum(len(each) for each in entry.values() if isinstance(each, list | tuple))
        if count > _STRUCTURES_AT_ONCE:
            break
    return count


def _response_frame(api: Api, version: int, correlation_id: int, message: Any) -> bytes:
    buffer = BytesIO()
    buffer.write(_FRAME_START.pack(0, correlation_id))
    if api.is_flexible(version) and api.key != API_VERSIONS:
        buffer.write(b"\x00")
    entity_writer(type(message))(buffer, message)
    size = buffer.tell() - 4
    buffer.seek(0)
    buffer.write(size.to_bytes(4, "big"))
    return buffer.getvalue()


def _fitting(message: Any) -> Any:
    """The message with every text cut that is longer than a version before the compact strings can hold.

    An error that repeats a long name is such a text, and so is a name that came in by a version with compact strings
    and is listed by an older one. What may be null is left out, unless it is an error's message.
    """
    changes = {}
    for each in fields(message):
        value = getattr(message, each.name)
        if isinstance(value, tuple):
            changes[each.name] = tuple(_fitting_value(each, one) for one in value)
        else:
            changes[each.name] = _fitting_value(each, value)
    return replace(message, **changes)


def _fitting_value(field: Field[Any], value: Any) -> Any:
    if is_dataclass(value):
        return _fitting(value)
    if not isinstance(value, str) or len(value.encode()) <= LEGACY_STRING_BYTES:
        return value
    if field.name == "error_message":
        return value[:_CUT_MESSAGE_CHARS] + "..."
    _, is_nullable = without_none(field.type)
    return None if is_nullable else value.encode()[:LEGACY_STRING_BYTES].decode(errors="ignore")


def milliseconds(time: timedelta) -> int:
    """A time of kio's, in Kafka's unit."""
    return time // _ONE_MS


@cache
def message_type(name: str, version: int, kind: str) -> type[Any]:
    """kio's class of one version of a message, or ours where kio has none; imports its module.

    Args:
        name: kio's name of the schema package, such as `list_offsets`.
        version: The version.
        kind: `request` or `response`.
    """
    class_name = "".join(word.capitalize() for word in (*name.split("_"), kind))
    older = older_type(name, version, kind, class_name)
    if older is not None:
        return older
    message_class: type[Any] = getattr(import_module(f"kio.schema.{name}.v{version}.{kind}"), class_name)
    return message_class


def build(entity_type: type[Any], values: Mapping[str, Any]) -> Any:
    """Makes kio's message from plain values; fields that this version lacks are left out."""
    arguments = {}
    for name, convert in _plan(cast(Hashable, entity_type)):
        if name in values:
            arguments[name] = convert(values[name])
        elif name == "throttle_time":
            arguments[name] = convert(0)
    return entity_type(**arguments)


@cache
def _plan(entity_type: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((field.name, _converter(field)) for field in fields(entity_type))


def _converter(field: Field[Any]) -> Callable[[Any], Any]:
    field_type, _ = without_none(field.type)
    if get_origin(field_type) is tuple:
        element, _ = without_none(get_args(field_type)[0])
        one = _element_converter(field, element)
        return lambda values: None if values is None else tuple(map(one, values))
    return _element_converter(field, field_type)


def _element_converter(field: Field[Any], element: Any) -> Callable[[Any], Any]:
    if is_dataclass(element):
        nested = element
        assert isinstance(nested, type)
        return lambda values: None if values is None else build(nested, values)
    kind = field.metadata["kafka_type"]
    if kind == "error_code":
        return ErrorCode
    if kind.startswith("timedelta"):
        return lambda value: timedelta(milliseconds=value)
    if kind.startswith("datetime"):
        return lambda value: _EPOCH + timedelta(milliseconds=value)
    return lambda value: value
