"""A Protobuf message's fields as Spark's columns, and messages as rows of them.

Fields that distinguish "not set" from their default (`optional`, messages, members of a `oneof`, all of proto2) are
NULL where they are not set; a plain field of proto3 does not, and has its default. An enum's value is its name, or its
number where the schema does not name it; `google.protobuf.Timestamp` is a TIMESTAMP, in whole microseconds. (Source:
protobuf.dev, "Field presence" and "Well-known types".)
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from pyspark.sql import types as T

Convert = Callable[[Any], Any]

_TIMESTAMP = "google.protobuf.Timestamp"
_FIRST_S, _LAST_S = (
    -62_135_596_800,
    253_402_300_799,
)  # the years 1 to 9999, as the message's definition has it

_UNSIGNED_LONG = T.DecimalType(20, 0)
_SCALARS: Mapping[int, T.DataType] = {
    FieldDescriptor.TYPE_BOOL: T.BooleanType(),
    FieldDescriptor.TYPE_BYTES: T.BinaryType(),
    FieldDescriptor.TYPE_DOUBLE: T.DoubleType(),
    FieldDescriptor.TYPE_ENUM: T.StringType(),
    FieldDescriptor.TYPE_FIXED32: T.LongType(),
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED_LONG,
    FieldDescriptor.TYPE_FLOAT: T.FloatType(),
    FieldDescriptor.TYPE_INT32: T.IntegerType(),
    FieldDescriptor.TYPE_INT64: T.LongType(),
    FieldDescriptor.TYPE_SFIXED32: T.IntegerType(),
    FieldDescriptor.TYPE_SFIXED64: T.LongType(),
    FieldDescriptor.TYPE_SINT32: T.IntegerType(),
    FieldDescriptor.TYPE_SINT64: T.LongType(),
    FieldDescriptor.TYPE_STRING: T.StringType(),
    FieldDescriptor.TYPE_UINT32: T.LongType(),
    FieldDescriptor.TYPE_UINT64: _UNSIGNED_LONG,
}


@lru_cache(maxsize=64)
def message_class(descriptors: bytes, name: str) -> type[Message]:
    """The class of a message.

    Args:
        descriptors: A `FileDescriptorSet` with all that the message's file imports.
        name: The message's full name.

    Raises:
        KeyError: The set has no message of this name.
        TypeError: The set lacks a file that another one imports.
        google.protobuf.message.DecodeError: It is no `FileDescriptorSet`.
    """
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    message: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return message


def columns_of(message: Descriptor) -> T.StructType:
    """The columns of a message.

    Raises:
        ValueError: A message contains itself, or one has no fields; the error names it.
    """
    return _struct(message, ())


def row_of(message: Descriptor) -> Convert:
    """A function from a message to a dict by column; it raises `ValueError` with a reason for a value that no column
    can hold."""
    fields = [(field.name, field.has_presence, _value(field)) for field in message.fields]

    def convert(instance: Any) -> dict[str, Any]:
        return {
            name: None if optional and not instance.HasField(name) else value(getattr(instance, name))
            for name, optional, value in fields
        }

    return convert


def _struct(message: Descriptor, above: tuple[str, ...]) -> T.StructType:
    name = message.full_name
    if name in above:
        raise ValueError(f"{name} contains itself ({' > '.join([*above, name])}), which no column can")
    if not message.fields:
        raise ValueError(f"{name} has no fields, so it has no columns")
    return T.StructType([T.StructField(f.name, _type(f, (*above, name))) for f in message.fields])


def _type(field: FieldDescriptor, above: tuple[str, ...]) -> T.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        return T.MapType(_type(key, above), _type(value, above))
    one = _type_of_one(field, above)
    return T.ArrayType(one) if field.is_repeated else one


def _type_of_one(field: FieldDescriptor, above: tuple[str, ...]) -> T.DataType:
    if field.message_type is None:
        return _SCALARS[field.type]
    if field.message_type.full_name == _TIMESTAMP:
        return T.TimestampType()
    return _struct(field.message_type, above)


def _value(field: FieldDescriptor) -> Convert:
    if _is_map(field):
        key, value = (_value(field.message_type.fields_by_name[part]) for part in ("key", "value"))
        return lambda field_value: [(key(k), value(v)) for k, v in field_value.items()]
    one = _value_of_one(field)
    return (lambda field_value: [one(each) for each in field_value]) if field.is_repeated else one


def _value_of_one(field: FieldDescriptor) -> Convert:
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda field_value: names.get(field_value, str(field_value))
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda field_value: _text(field.name, field_value)
    if field.message_type is None:
        return lambda field_value: field_value
    if field.message_type.full_name == _TIMESTAMP:
        return lambda field_value: _microseconds(field.name, field_value)
    return row_of(field.message_type)


def _text(name: str, value: Any) -> str:
    # proto2 does not require UTF-8 of a string; the library then gives its bytes.
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} is not UTF-8: {bytes(value[:100])!r}")


def _microseconds(name: str, timestamp: Any) -> int:
    if not (_FIRST_S <= timestamp.seconds <= _LAST_S and 0 <= timestamp.nanos < 1_000_000_000):
        raise ValueError(
            f"{name} is not a time between the years 1 and 9999: {timestamp.seconds} s and {timestamp.nanos} ns"
        )
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1000)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
