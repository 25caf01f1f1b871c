"""Descriptor sets as protoc writes them."""

from collections.abc import Sequence

from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor import FieldDescriptor

Field = tuple[str, int, str]  # name, one of FieldDescriptor's types, and the message's or enum's name
DEPARTURE = (
    "Departure",
    [
        ("carrier", FieldDescriptor.TYPE_STRING, ""),
        ("delay", FieldDescriptor.TYPE_SINT32, ""),
        ("maybe_gate", FieldDescriptor.TYPE_INT32, ""),
    ],
)


def descriptors(
    *messages: tuple[str, Sequence[Field]], syntax: str = "proto3", repeated: Sequence[str] = ()
) -> bytes:
    """What `protoc --include_imports --descriptor_set_out` writes of such messages; fields are numbered from 1."""
    file = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="flights", syntax=syntax)
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "JET", "PROP")):
        kind.value.add(name=name, number=number)
    for name, fields in messages:
        message = file.message_type.add(name=name)
        for number, (field, type_, of) in enumerate(fields, 1):
            added = message.field.add(name=field, number=number, type=type_, type_name=of or None, label=1)
            if field in repeated:
                added.label = 3
            if field.startswith("maybe_"):
                added.proto3_optional = True
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
            if field.startswith("must_"):
                added.label = 2
    whole = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(whole.file.add())
    whole.file.append(file)
    return whole.SerializeToString()
