"""Logical types that a writer's schema has otherwise than the reader's.

Avro compares what values are made of, and not what they mean: a DECIMAL with two decimals is read as one with three, a
tenth of it, and milliseconds as microseconds, in January 1970. A registry takes such a version for compatible, too. So
a value is read by the scale and the unit that it was written in, and cast.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from headwater_streams.sources.avro_references import full_name, name_of
from headwater_streams.sources.avro_schema import most_digits

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "enum", "fixed", "error")
_CONVERTED = (
    {"timestamp-millis", "timestamp-micros"},
    {"local-timestamp-millis", "local-timestamp-micros"},
)
"""Of these Spark makes one type, whichever it is."""


def by_writers_units(reader: str, writer: str) -> tuple[str, str]:
    """The two schemas, as JSON, with one unit and scale each where both say one.

    Raises:
        ValueError: A field means something else; the message names it.
    """
    of_reader: dict[str, Any] = {}
    of_writer: dict[str, Any] = {}
    pair = _opened(json.loads(reader), "", of_reader), _opened(json.loads(writer), "", of_writer)
    seen: set[tuple[int, int]] = set()
    units: dict[int, tuple[Any, Any]] = {}
    waiting = [("", *pair)]
    while waiting:
        place, old, new = waiting.pop()
        for read, written in _matching(old, new, of_reader, of_writer):
            if (id(read), id(written)) in seen:
                continue
            seen.add((id(read), id(written)))
            _agree(place.lstrip(".") or "the value", read, written)
            unit = read.get("logicalType"), read.get("scale")
            if units.setdefault(id(read), unit) != unit:
                raise ValueError(
                    f"{place.lstrip('.')} was written in another unit than a field of the same type"
                )
            waiting += _parts(place, read, written)
    return json.dumps(pair[0]), json.dumps(pair[1])


def without_times(schema: Any) -> Any:
    """A schema, from JSON, whose times of day are numbers: neither Delta nor most of Spark has a type of them."""
    if isinstance(schema, list):
        return [without_times(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inside = ("type", "items", "values", "fields")
    own = {name: without_times(each) if name in inside else each for name, each in schema.items()}
    if str(own.get("logicalType")).startswith("time-"):
        del own["logicalType"]
    return own


def _agree(place: str, read: dict[str, Any], written: dict[str, Any]) -> None:
    """Gives two parts of one kind the unit that the value was written in."""
    now, before = read.get("logicalType"), written.get("logicalType")
    if now is None:
        return
    if before is None:  # what had no meaning has the reader's
        written.update({name: read[name] for name in ("logicalType", "precision", "scale") if name in read})
    elif now == before == "decimal":
        scale = written.get("scale", 0)
        if scale != read.get("scale", 0):
            if written["precision"] - scale > most_digits(read) - read.get("scale", 0):
                raise ValueError(f"{place} was written with more digits before the point than are read")
            read["scale"] = scale
    elif any({now, before} <= family for family in _CONVERTED):
        read["logicalType"] = before
    elif now != before and "uuid" not in (now, before):
        raise ValueError(f"{place} was written as {before}, and is read as {now}")


def _matching(
    old: Any, new: Any, of_reader: Mapping[str, Any], of_writer: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The parts of two schemas, or of unions, that a value of one can be read as."""
    branches = [
        [names.get(each, {}) if isinstance(each, str) else each for each in _branches(schema)]
        for schema, names in ((old, of_reader), (new, of_writer))
    ]
    for read in branches[0]:
        for written in branches[1]:
            same_kind = read.get("type") == written.get("type") or {
                read.get("type"),
                written.get("type"),
            } == {
                "int",
                "long",
            }
            is_alone = read.get("type") not in _NAMED or len(branches[0]) == len(branches[1]) == 1
            if same_kind and (is_alone or _last(read) == _last(written)):
                yield read, written


def _parts(place: str, read: dict[str, Any], written: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in ("items", "values"):
        if name in read and name in written:
            yield place, read[name], written[name]
    before = {each["name"]: each for each in written.get("fields", ())}
    for each in read.get("fields", ()):
        names = (each["name"], *each.get("aliases", ()))
        other = next((before[name] for name in names if name in before), None)
        if other is not None:
            yield f"{place}.{each['name']}", each["type"], other["type"]


def _branches(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _last(schema: Mapping[str, Any]) -> str:
    return str(schema.get("name")).rpartition(".")[2]


def _opened(schema: Any, space: str, names: dict[str, Any]) -> Any:
    """A schema whose primitives are objects, and whose names are whole; `names` get the objects that they name."""
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return {"type": schema}
        full = full_name(schema, space)
        return full if full in names else schema
    if isinstance(schema, list):
        return [_opened(each, space, names) for each in schema]
    own = dict(schema)
    if isinstance(own.get("type"), (dict, list)):
        return _opened(own["type"], space, names)
    if own.get("type") in _NAMED:
        full, space = name_of(own, space)
        names[full] = own
    for name in ("items", "values"):
        if name in own:
            own[name] = _opened(own[name], space, names)
    if "fields" in own:
        own["fields"] = [{**each, "type": _opened(each["type"], space, names)} for each in own["fields"]]
    return own
