"""A .proto file's text, written from its descriptor: one text for all that differ in layout and comments only."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.text_encoding import CEscape
from google.protobuf.text_format import MessageToString

_F = FieldDescriptorProto
_SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in _F.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS = {_F.LABEL_REQUIRED: "required ", _F.LABEL_REPEATED: "repeated "}
_MAX_FIELD, _MAX_ENUM = 536_870_912, 2_147_483_647
_INDENT = "  "


def proto_text(file: FileDescriptorProto) -> str:
    """The text of a file."""
    syntax = file.syntax or "proto2"
    lines = ["edition = " + _edition(file) + ";" if syntax == "editions" else f'syntax = "{syntax}";']
    if file.package:
        lines.append(f"package {file.package};")
    head = [*_imports(file), *(f"option {each};" for each in _options(file.options))]
    if head:
        lines += ["", *head]
    for block in _blocks(file, syntax):
        lines += ["", *block]
    return "\n".join(lines) + "\n"


def _edition(file: FileDescriptorProto) -> str:
    from google.protobuf.descriptor_pb2 import Edition

    return json.dumps(Edition.Name(file.edition).removeprefix("EDITION_"))


def _imports(file: FileDescriptorProto) -> Iterator[str]:
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    for index, name in enumerate(file.dependency):
        kind = "public " if index in public else "weak " if index in weak else ""
        yield f"import {kind}{json.dumps(name)};"


def _blocks(file: FileDescriptorProto, syntax: str) -> Iterator[list[str]]:
    for message in file.message_type:
        yield _message(message, syntax)
    for enum in file.enum_type:
        yield _enum(enum)
    yield from _extensions(file.extension, syntax)
    for service in file.service:
        yield _service(service)


def _message(message: DescriptorProto, syntax: str) -> list[str]:
    lines = [f"option {each};" for each in _options(message.options)]
    lines += _reserved(message, _MAX_FIELD)
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    groups = {f.type_name.rpartition(".")[2] for f in message.field if f.type == _F.TYPE_GROUP}
    written: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            lines += _field(field, syntax, maps, message.nested_type)
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            inside = [
                e for e in message.field if e.HasField("oneof_index") and e.oneof_index == field.oneof_index
            ]
            body = [line for each in inside for line in _field(each, syntax, maps, message.nested_type)]
            lines += [f"oneof {message.oneof_decl[field.oneof_index].name} {{", *_indented(body), "}"]
    for each in message.extension_range:
        end = "max" if each.end >= _MAX_FIELD else str(each.end - 1)
        lines.append(
            f"extensions {each.start};" if end == str(each.start) else f"extensions {each.start} to {end};"
        )
    for nested in message.nested_type:
        if nested.name not in maps and nested.name not in groups:
            lines += _message(nested, syntax)
    for enum in message.enum_type:
        lines += _enum(enum)
    for block in _extensions(message.extension, syntax):
        lines += block
    return [f"message {message.name} {{", *_indented(lines), "}"]


def _field(
    field: FieldDescriptorProto,
    syntax: str,
    maps: dict[str, DescriptorProto],
    nested: Sequence[DescriptorProto],
) -> list[str]:
    tail = f" = {field.number}{_field_options(field)}"
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.type == _F.TYPE_MESSAGE else None
    if entry is not None and field.label == _F.LABEL_REPEATED:
        key, value = entry.field
        return [f"map<{_type(key)}, {_type(value)}> {field.name}{tail};"]
    label = _LABELS.get(field.label, "")
    if not label and not (field.HasField("oneof_index") and not field.proto3_optional):
        label = "optional " if syntax == "proto2" or field.proto3_optional else ""
    if field.type == _F.TYPE_GROUP:
        name = field.type_name.rpartition(".")[2]
        body = _message(next(each for each in nested if each.name == name), syntax)
        return [f"{label}group {name}{tail} {{", *body[1:]]
    return [f"{label}{_type(field)} {field.name}{tail};"]


def _type(field: FieldDescriptorProto) -> str:
    return str(_SCALARS.get(field.type) or field.type_name)


def _field_options(field: FieldDescriptorProto) -> str:
    options = []
    if field.HasField("default_value"):
        quoted = field.type in (_F.TYPE_STRING, _F.TYPE_BYTES)
        # The default of bytes is escaped already, as C has it.
        text = json.dumps(field.default_value) if field.type == _F.TYPE_STRING else f'"{field.default_value}"'
        options.append(f"default = {text if quoted else field.default_value}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {json.dumps(field.json_name)}")
    options += _options(field.options)
    return f" [{', '.join(options)}]" if options else ""


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)


def _enum(enum: EnumDescriptorProto) -> list[str]:
    lines = [f"option {each};" for each in _options(enum.options)]
    lines += _reserved(enum, _MAX_ENUM)
    for value in enum.value:
        options = ", ".join(_options(value.options))
        lines.append(f"{value.name} = {value.number}{f' [{options}]' if options else ''};")
    return [f"enum {enum.name} {{", *_indented(lines), "}"]


def _reserved(block: Any, highest: int) -> list[str]:
    """The numbers and names that must not be used again; the end of an enum's range belongs to it, a message's not."""
    inclusive = block.DESCRIPTOR.name == "EnumDescriptorProto"
    numbers = []
    for each in block.reserved_range:
        last = each.end if inclusive else each.end - 1
        end = "max" if each.end >= highest else str(last)
        numbers.append(str(each.start) if last == each.start else f"{each.start} to {end}")
    lines = [f"reserved {', '.join(numbers)};"] if numbers else []
    if block.reserved_name:
        lines.append(f"reserved {', '.join(map(json.dumps, block.reserved_name))};")
    return lines


def _extensions(fields: Sequence[FieldDescriptorProto], syntax: str) -> Iterator[list[str]]:
    for each in fields:
        yield [f"extend {each.extendee} {{", *_indented(_field(each, syntax, {}, ())), "}"]


def _service(service: ServiceDescriptorProto) -> list[str]:
    lines = [f"option {each};" for each in _options(service.options)]
    for method in service.method:
        takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        gives = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        lines.append(f"rpc {method.name} ({takes}) returns ({gives});")
    return [f"service {service.name} {{", *_indented(lines), "}"]


def _options(options: Any) -> list[str]:
    """The options of a part: those of descriptor.proto, and those that the file and its imports define."""
    texts = []
    for field, value in options.ListFields():
        if field.is_extension:
            values = value if field.is_repeated else [value]
            texts += [f"({field.full_name}) = {_option(field, each)}" for each in values]
        elif not field.is_repeated and field.message_type is None and field.name != "map_entry":
            texts.append(f"{field.name} = {_option(field, value)}")
    return texts


def _option(field: Any, value: Any) -> str:
    if field.message_type is not None:
        return f"{{ {MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f'"{CEscape(value, False)}"'
    return json.dumps(value)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in lines]
