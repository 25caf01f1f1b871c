"""What a new Avro schema must not have, though Python's library takes it: Java's does not, and could not read it.

A schema that is registered already may have it: its readers have found a way. (Confluent's registry makes the same
difference.)
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from avro.schema import Schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RANGES = {"int": 2**31, "long": 2**63}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_MOST_BYTES = 2**31


def faults(schema: Schema) -> Iterator[str]:
    """What is wrong with a schema, a sentence each."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield from _faults(each)
        waiting += [*_parts(each)]


def _parts(schema: Schema) -> Iterator[Schema]:
    if schema.type in ("record", "error"):
        yield from (field.type for field in schema.fields)
    elif schema.type in ("union", "error_union"):
        yield from schema.schemas
    elif schema.type == "array":
        yield schema.items
    elif schema.type == "map":
        yield schema.values


def _faults(schema: Schema) -> Iterator[str]:
    if schema.type == "union":
        names = [getattr(each, "fullname", each.type) for each in schema.schemas]
        yield from (
            f"{name} is twice in a union" for name in sorted({n for n in names if names.count(n) > 1})
        )
    elif schema.type == "fixed" and not (type(schema.size) is int and schema.size < _MOST_BYTES):
        yield f"{schema.size} is no size of {schema.fullname}"
    elif schema.type == "enum" and not isinstance(schema.symbols, list):
        yield f"the symbols of {schema.fullname} are no list"
    elif schema.type in ("record", "error"):
        for field in schema.fields:
            if not _NAME.fullmatch(field.name):
                yield f"{field.name!r} is no name of a field: give ASCII letters, digits and _, no digit first"
            if field.has_default and not _fits(field.type, field.default):
                yield f"the default of {field.name}, {field.default!r}, is none of its type"
            yield from _alias_faults(field.other_props, field.name)
    yield from _alias_faults(schema.other_props, getattr(schema, "fullname", schema.type), have_names=True)


def _alias_faults(properties: Mapping[str, Any], of: str, *, have_names: bool = False) -> Iterator[str]:
    aliases = properties.get("aliases", [])
    if not isinstance(aliases, list):
        yield f"the aliases of {of} are no list"
    elif have_names and not all(all(map(_NAME.fullmatch, str(each).split("."))) for each in aliases):
        yield f"of the aliases of {of} one is no name"


def _fits(schema: Schema, value: Any) -> bool:
    """Whether a default is a value of its type, as JSON has those. Of a union it may be of any type."""
    kind = schema.type
    if kind in ("union", "error_union"):
        return any(_fits(each, value) for each in schema.schemas)
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _RANGES:
        return type(value) is int and -_RANGES[kind] <= value < _RANGES[kind]
    if kind in ("float", "double"):
        return type(value) in (int, float) or value in _NO_NUMBERS
    if kind == "array":
        return isinstance(value, list) and all(_fits(schema.items, each) for each in value)
    if kind == "map":
        return isinstance(value, dict) and all(_fits(schema.values, each) for each in value.values())
    if kind in ("record", "error"):
        return isinstance(value, dict) and all(
            _fits(field.type, value[field.name]) if field.name in value else field.has_default
            for field in schema.fields
        )
    return isinstance(value, str)  # bytes, string, fixed and enum
