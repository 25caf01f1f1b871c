"""Protobuf: compiled by Google's protoc, compared as its wire format reads.

A schema is a .proto file's text, or its `FileDescriptorProto` in base64, as confluent-kafka's serializer sends it. Its
text is stored, so that a person and Confluent's registry can read it; layout and comments are not part of it.
(What is compatible is as Confluent's documentation of Protobuf has it: fields may come and go, as a reader passes over
those that it does not know; a number keeps its kind of type.)
"""

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass, GetMessageClassesForFiles

from headwater.registry.errors import SchemaError
from headwater.registry.formats.parsed import Parsed, Resolved
from headwater.registry.formats.protobuf_text import proto_text
from headwater_streams.sources.brought_protos import brought_files

_NAME = "schema.proto"
_DESCRIPTOR = "google/protobuf/descriptor.proto"
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?["\']([^"\']+)["\']\s*;')
_COMPILE_TIMEOUT_S = 60
_BROUGHT = Path(grpc_tools.__file__).parent / "_proto"
"""The folder of the files that protoc brings, google/protobuf/timestamp.proto and its kin."""

_F = FieldDescriptorProto

# Types of one group read each other's bytes. (Source: protobuf.dev, "Updating A Message Type".)
_GROUPS = (
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
)
_LENGTH_DELIMITED = (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE)


class ProtobufSchema:
    """A .proto file.

    Args:
        files: Descriptors of the files that it imports and, last, its own.
    """

    def __init__(self, files: Sequence[Any]) -> None:
        self.file = files[-1]
        self.canonical = proto_text(self.file)
        self.types = {
            name: _Type(each.package, message) for each in files for name, message in _messages_of(each)
        }
        self.messages = dict(_messages_of(self.file))

    def faults(self) -> list[str]:
        """Nothing that parsing leaves over."""
        return []

    def unreadable(self, writer: Parsed) -> list[str]:
        """Why this schema cannot read what the writer's wrote."""
        if not isinstance(writer, ProtobufSchema):
            return ["the schema before is not a Protobuf schema"]
        reasons = []
        comparison = _Comparison(writer, self)
        for name, before in writer.messages.items():
            now = self.messages.get(name)
            if now is None:
                if not before.options.map_entry:
                    reasons.append(f"MESSAGE_REMOVED: {name[1:]}")
            else:
                reasons += comparison.changes(name[1:], before, now)
        return reasons

    def rendered(self, form: str) -> str:
        """The text; as `serialized`, the file's descriptor in base64."""
        if form == "serialized":
            return base64.standard_b64encode(self.file.SerializeToString(deterministic=True)).decode()
        return self.canonical


def parse(text: str, used: Sequence[Resolved]) -> ProtobufSchema:
    """Parses a schema.

    Raises:
        SchemaError: It is none.
    """
    return ProtobufSchema(_compiled(text, {each.name: each.text for each in used}))


def _compiled(text: str, imports: Mapping[str, str]) -> list[Any]:
    """The descriptors of the files that one imports and, last, its own, by protoc."""
    sent = _descriptor_in(text)
    texts = {_NAME: text if sent is None else proto_text(sent)}
    texts |= {name: _as_text(each) for name, each in imports.items()}
    texts |= _brought(texts)
    with tempfile.TemporaryDirectory(prefix="headwater-proto-") as folder:
        root = Path(folder)
        for name, each in texts.items():
            _write(root, name, each)
        output = root / "out.binpb"
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{root}", f"-I{_BROUGHT}"]
        command += ["--include_imports", f"--descriptor_set_out={output}", str(root / _NAME)]
        ended = subprocess.run(command, capture_output=True, timeout=_COMPILE_TIMEOUT_S, check=False)
        if ended.returncode != 0:
            output_text = ended.stderr.decode("utf-8", "replace").replace(f"{root}/", "")
            # protoc's own log says that a file names no syntax; what is wrong begins with a file's name.
            lines = [
                each for each in output_text.splitlines() if ".proto:" in each and "parser.cc" not in each
            ]
            raise SchemaError("; ".join(lines[:5]) or f"protoc ended with status {ended.returncode}")
        files = FileDescriptorSet.FromString(output.read_bytes())
    if sent is not None:  # of options, the text has only those that are known before anything is compiled
        files.file[-1].CopyFrom(sent)
        files.file[-1].name = _NAME
    compiled = _with_options(files)
    compiled[-1].ClearField("source_code_info")
    return compiled


def _with_options(files: FileDescriptorSet) -> list[Any]:
    """Files with the options that they define as fields."""
    if not any(each.name == _DESCRIPTOR for each in files.file):  # without it nobody defines any
        return [*files.file]
    pool = DescriptorPool()
    for each in files.file:
        pool.Add(each)
    GetMessageClassesForFiles([each.name for each in files.file], pool)  # makes their extensions known
    kind = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorSet"))
    return [*kind.FromString(files.SerializeToString()).file]


def _brought(texts: Mapping[str, str]) -> dict[str, str]:
    """The files that some import, that nobody sends and that protoc does not bring."""
    imported = {name for text in texts.values() for name in _IMPORT.findall(text)}
    files: dict[str, Any] = {}
    for name in imported - texts.keys():
        files |= brought_files(name)
    return {name: proto_text(each) for name, each in files.items() if not (_BROUGHT / name).exists()}


def _write(root: Path, name: str, text: str) -> Path:
    """Writes a file under the root by the name that imports call it.

    Raises:
        SchemaError: The name leads elsewhere.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise SchemaError(f"{name} is no name of a file that can be imported")
    file = root.joinpath(*path.parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def _as_text(schema: str) -> str:
    """The text of a schema that may be a descriptor in base64."""
    descriptor = _descriptor_in(schema)
    return schema if descriptor is None else proto_text(descriptor)


def _descriptor_in(schema: str) -> FileDescriptorProto | None:
    """The descriptor that a schema is in base64; None for a text."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _messages_of(file: Any) -> Iterator[tuple[str, DescriptorProto]]:
    """The messages of a file, by their full names."""
    return _messages(file.message_type, f".{file.package}" if file.package else "")


def _messages(messages: Sequence[DescriptorProto], prefix: str) -> Iterator[tuple[str, DescriptorProto]]:
    for each in messages:
        name = f"{prefix}.{each.name}"
        yield name, each
        yield from _messages(each.nested_type, name)


class _Comparison:
    """What of changes between two schemas a reader cannot follow."""

    def __init__(self, before: ProtobufSchema, now: ProtobufSchema) -> None:
        self._before, self._now = before, now
        self._open: set[tuple[str, str]] = set()

    def changes(self, name: str, before: DescriptorProto, now: DescriptorProto) -> list[str]:
        """Those of a message."""
        old = {each.number: each for each in before.field}
        new = {each.number: each for each in now.field}
        reasons = []

        def beside(field: FieldDescriptorProto) -> set[int]:
            """The fields that exclude this one."""
            oneof = _oneof(before, field)
            return {
                each.number for each in before.field if oneof is not None and _oneof(before, each) == oneof
            }

        for number, field in old.items():
            other = new.get(number)
            if other is None:
                if field.label == _F.LABEL_REQUIRED:
                    reasons.append(f"REQUIRED_FIELD_REMOVED: {name}.{field.name}, number {number}")
                elif any(_oneof(now, each) is not None for each in now.field if each.number in beside(field)):
                    reasons.append(f"ONEOF_FIELD_REMOVED: {name}.{field.name}, number {number}")
            else:
                reasons += self._field_changes(f"{name}.{field.name}, number {number}", field, other)
        for number, field in new.items():
            if number not in old and field.label == _F.LABEL_REQUIRED:
                reasons.append(f"REQUIRED_FIELD_ADDED: {name}.{field.name}, number {number}")
        return [*reasons, *_moved(name, before, now)]

    def _field_changes(
        self, place: str, before: FieldDescriptorProto, now: FieldDescriptorProto
    ) -> list[str]:
        reasons = []
        message = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
        if before.type != now.type and not any(before.type in g and now.type in g for g in _GROUPS):
            kind = (
                "FIELD_KIND_CHANGED"
                if before.type in message or now.type in message
                else "FIELD_SCALAR_KIND_CHANGED"
            )
            reasons.append(f"{kind}: {place}")
        elif before.type == now.type and before.type in message:
            reasons += self._type_changes(place, before.type_name, now.type_name)
        if _is_repeated(before) != _is_repeated(now) and now.type not in _LENGTH_DELIMITED:
            # A packed field of numbers is not read as one number, nor the other way.
            reasons.append(f"FIELD_NUMERIC_LABEL_CHANGED: {place}")
        if (before.label == _F.LABEL_REQUIRED) != (now.label == _F.LABEL_REQUIRED):
            change = "ADDED" if now.label == _F.LABEL_REQUIRED else "REMOVED"
            reasons.append(f"REQUIRED_FIELD_{change}: {place}")
        return reasons

    def _type_changes(self, place: str, before: str, now: str) -> list[str]:
        """Those of a field's message. One that is imported may be another one by the same name."""
        old, new = self._before.types[before], self._now.types[now]
        changed = f"FIELD_NAMED_TYPE_CHANGED: {place}"
        if old.local_name(before) != new.local_name(now):
            return [changed]
        is_own = before == now and before in self._before.messages and now in self._now.messages
        if is_own or (before, now) in self._open:  # compared with the others of the file, or being compared
            return []
        self._open.add((before, now))
        try:
            reasons = self.changes(now[1:], old.message, new.message)
        finally:
            self._open.discard((before, now))
        return [*reasons, changed] if reasons else []


@dataclass(frozen=True)
class _Type:
    """A message, and the package of its file."""

    package: str
    message: DescriptorProto

    def local_name(self, name: str) -> str:
        """Its full name without the package."""
        return name.removeprefix(f".{self.package}" if self.package else "")


def _moved(name: str, before: DescriptorProto, now: DescriptorProto) -> list[str]:
    """Oneofs whose fields could be set beside each other before, and exclude each other now."""
    known = {each.number: _oneof(before, each) for each in before.field}
    reasons = []
    for oneof in now.oneof_decl:
        members = [each for each in now.field if each.number in known and _oneof(now, each) == oneof.name]
        alone = [each for each in members if known[each.number] is None]
        groups = {known[each.number] for each in members} - {None}
        if len(alone) + len(groups) > 1:
            change = "FIELD_MOVED_TO_EXISTING_ONEOF" if groups else "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
            reasons.append(f"{change}: {name}.{oneof.name}")
    return reasons


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str | None:
    """The oneof that a field is in; the one that protoc makes for an optional field of proto3 is none."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _is_repeated(field: FieldDescriptorProto) -> bool:
    return bool(field.label == _F.LABEL_REPEATED)
