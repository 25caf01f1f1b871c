"""Values that are one Protobuf message each, with or without the header of Confluent's wire format.

Google's own library reads them in Spark's Python workers: Spark's reader needs another jar, and reads a plain zero as
NULL. A message with other fields than the schema's parses, too, as unknown fields; a value with only unknown fields is
taken for such a message and goes to quarantine.

After the header of Confluent's wire format comes the path to the message in its file: the number of steps and each step
as zigzag varints, or a single zero for the first message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.beside import read_beside
from headwater_streams.sources.confluent import HEADER_BYTES, NO_HEADER
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.protobuf_message import columns_of, message_class, row_of
from headwater_streams.sources.protobuf_wire import passed_over, too_great
from headwater_streams.spark.sql_types import arrow_of

REASON = "_reason"
_MOST_STEPS = 64


@dataclass(frozen=True)
class Protobuf:
    """Values of Protobuf's binary form.

    Attributes:
        descriptors: A `FileDescriptorSet` with the message's file and all that it imports.
        message: The message's full name, `"flights.Departure"`.
        header: Whether values begin with the header of Confluent's wire format.
    """

    name: ClassVar[str] = "protobuf"

    descriptors: bytes
    message: str
    header: bool = False

    def __repr__(self) -> str:
        return (
            f"Protobuf({self.message!r}, {len(self.descriptors)} bytes of descriptors, header={self.header})"
        )

    def columns(self) -> T.StructType:
        """The columns of the message.

        Raises:
            JobDefinitionError: A message contains itself, or has no fields.
        """
        try:
            return columns_of(message_class(self.descriptors, self.message).DESCRIPTOR)
        except ValueError as error:
            raise JobDefinitionError(f"hw.protobuf: {error}") from error


def protobuf(descriptors: str | Path | type[Message], message: str = "", *, header: bool = False) -> Protobuf:
    """Declares Protobuf as a topic's format.

    Args:
        descriptors: A file that `protoc --include_imports --descriptor_set_out=FILE` wrote, by a path from the module
            that names it, or from the current folder; or a message's class from a module that protoc generated.
        message: The message's full name, `"flights.Departure"`; a class knows its own.
        header: Whether values begin with the header of Confluent's wire format. The schema's id in it is not looked up,
            as a Protobuf reader needs only its own schema. A value whose header has another message's place in the file
            goes to quarantine.

    Raises:
        JobDefinitionError: The file does not exist, is no descriptor set, or lacks the message or an import.
    """
    if isinstance(descriptors, type):
        descriptor = descriptors.DESCRIPTOR
        return Protobuf(_with_imports(descriptor.file), descriptor.full_name, header)
    path = Path(descriptors)
    try:
        descriptor_set = read_beside(path)
        message_class(descriptor_set, message)
    except OSError as error:
        raise JobDefinitionError(
            f"hw.protobuf: {error}; write it with protoc --include_imports --descriptor_set_out={path.name}"
        ) from error
    except KeyError as error:
        raise JobDefinitionError(
            f"hw.protobuf: {path} has no message {message!r}; it has {', '.join(_messages(descriptor_set)) or 'none'}"
        ) from error
    except (DecodeError, TypeError) as error:
        raise JobDefinitionError(
            f"hw.protobuf: {path} is not a whole descriptor set; "
            f"write it with protoc --include_imports --descriptor_set_out={path.name}"
        ) from error
    return Protobuf(descriptor_set, message, header)


def parse_protobuf(raw: Column, form: Protobuf) -> Column:
    """The message's columns, or in `_reason` why the value cannot be read."""
    # Not at the top: a module that declares a topic is imported without them.
    import pyarrow as pa

    kind = T.StructType([*form.columns().fields, T.StructField(REASON, T.StringType())])
    descriptors, message, header = form.descriptors, form.message, form.header

    def parse(values: pa.Array) -> pa.Array:
        read = _reader(descriptors, message, header)
        return pa.array([read(value) for value in values.to_pylist()], arrow_of(kind))

    read_all: Callable[[Column], Column] = F.arrow_udf(parse, kind)  # type: ignore[attr-defined]  # PySpark has no type of it here
    return read_all(raw)


def protobuf_problem(raw: Column, value: Column) -> Problem:
    """What is wrong with a value: null, cut off, another message, without its header, or with a time out of range."""
    reason = F.when(raw.isNull(), F.lit("the value is null")).otherwise(value.getField(REASON))
    return Problem("value", raw.isNull() | value.getField(REASON).isNotNull(), reason)


@lru_cache(maxsize=64)
def _reader(
    descriptors: bytes, message: str, header: bool
) -> Callable[[bytes | None], dict[str, Any] | None]:
    kind = message_class(descriptors, message)
    row, way = row_of(kind.DESCRIPTOR), _way_to(kind.DESCRIPTOR)

    def read(value: bytes | None) -> dict[str, Any] | None:
        if value is None:
            return None
        start = 0
        if header:
            named_way, start = _after_header(value)
            if named_way is None:
                return {REASON: NO_HEADER}
            if named_way != way:
                return {REASON: f"its header says message {named_way} of its file, and {message} is {way}"}
        try:
            parsed = kind.FromString(value[start:])
        except DecodeError:
            return {REASON: f"the value is cut off, or not a {message}"}
        if not parsed.IsInitialized():
            return {REASON: f"{', '.join(parsed.FindInitializationErrors())} is not set"}
        size = parsed.ByteSize()
        parsed.DiscardUnknownFields()
        known_size = parsed.ByteSize()
        if known_size != size:
            lost = passed_over(kind.FromString(value[start:]))
            if lost is not None:
                return {REASON: lost}
        # A value has another length where it is not written as Google's libraries do, or where a number lost bits.
        if len(value) - start != size:
            great = too_great(kind.DESCRIPTOR, value[start:])
            if great is not None:
                return {REASON: f"a number is too great for its field, {great}"}
        if size and not known_size:
            return {REASON: f"the value has no field of {message}"}
        try:
            columns: dict[str, Any] = row(parsed)
        except ValueError as error:
            return {REASON: str(error)}
        return columns

    return read


def _way_to(message: Descriptor) -> list[int]:
    """The path to a message: its place in its file; for one inside another message, its place in that one, too."""
    outer = message.containing_type
    if outer is None:
        return [[*message.file.message_types_by_name].index(message.name)]
    return [*_way_to(outer), [each.name for each in outer.nested_types].index(message.name)]


def _after_header(value: bytes) -> tuple[list[int] | None, int]:
    """The path to the message by the header, and the place of the message; None for a value without a whole header."""
    if len(value) <= HEADER_BYTES or value[0]:
        return None, 0
    count, place = _varint(value, HEADER_BYTES)
    if count % 2 or count // 2 > _MOST_STEPS:
        return None, 0
    way = []
    for _ in range(count // 2):
        step, place = _varint(value, place)
        way.append(step >> 1 ^ -(step & 1))
    return (None, 0) if place > len(value) else (way or [0], place)


def _varint(value: bytes, place: int) -> tuple[int, int]:
    """A varint and the place after it, which is beyond the value's end where the varint is cut off."""
    number = shift = 0
    while place < len(value) and shift < 35:
        octet = value[place]
        number, place, shift = number | (octet & 0x7F) << shift, place + 1, shift + 7
        if octet < 0x80:
            return number, place
    return 0, len(value) + 1


def _with_imports(file: FileDescriptor) -> bytes:
    files: dict[str, FileDescriptor] = {}

    def add(each: FileDescriptor) -> None:
        if each.name not in files:
            for imported in each.dependencies:
                add(imported)
            files[each.name] = each

    add(file)
    whole = descriptor_pb2.FileDescriptorSet()
    for each in files.values():
        each.CopyToProto(whole.file.add())
    serialized: bytes = whole.SerializeToString(deterministic=True)
    return serialized


def _messages(descriptors: bytes) -> list[str]:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    return [f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type]
