"""Avro: parsed, and compared as reader and writer, by Apache's own library."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import make_avsc_object

from headwater.registry.errors import SchemaError
from headwater.registry.formats.avro_faults import faults
from headwater.registry.formats.parsed import Parsed, Resolved, one_line
from headwater_streams.sources.avro_references import inlined

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_HEAD = ("type", "name", "namespace", "doc")
# The order in which Apache's Java library writes the members of a schema; the rest follows as it came, aliases last.
_ORDER: Mapping[str, tuple[str, ...]] = {
    "record": (*_HEAD, "fields"),
    "error": (*_HEAD, "fields"),
    "enum": (*_HEAD, "symbols", "default"),
    "fixed": (*_HEAD, "size"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_FIELD_ORDER = ("name", "type", "doc", "default", "order")


class AvroSchema:
    """An Avro schema.

    Args:
        value: The schema, from JSON.
        used: Those that it uses.

    Raises:
        AvroException: It is none.
    """

    def __init__(self, value: Any, used: Sequence[Any]) -> None:
        names = Names()
        for each in used:
            make_avsc_object(_plain(each), names)
        self.schema = make_avsc_object(_plain(value), names)
        self.canonical = one_line(_canonical(value, ""))
        self._value, self._used = value, used

    def faults(self) -> list[str]:
        """What it must not have to be registered."""
        return [*faults(self.schema)]

    def unreadable(self, writer: Parsed) -> list[str]:
        """Why this schema cannot read what the writer's wrote."""
        if not isinstance(writer, AvroSchema):
            return ["the schema before is not an Avro schema"]
        result = ReaderWriterCompatibilityChecker().get_compatibility(self.schema, writer.schema)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        kinds = sorted({each.name.upper() for each in result.incompatibilities})
        return [
            f"{', '.join(kinds)} at {', '.join(sorted(result.locations))}: {'; '.join(sorted(result.messages))}"
        ]

    def rendered(self, form: str) -> str:
        """The text; as `resolved`, with what it uses in its place; as `normalized`, with the members that Avro does not
        know in the order of their names."""
        if form == "resolved":
            return one_line(_canonical(inlined(self._value, self._used), ""))
        if form == "normalized":
            return one_line(_canonical(json.loads(one_line(self._value, sort=True)), ""))
        return self.canonical


def parse(text: str, used: Sequence[Resolved]) -> AvroSchema:
    """Parses a schema.

    Raises:
        SchemaError: It is none.
    """
    try:
        return AvroSchema(json.loads(text), [json.loads(each.text) for each in used])
    except json.JSONDecodeError as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error
    except (AvroException, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SchemaError(f"not an Avro schema: {error}") from error


def _plain(value: Any) -> Any:
    """A schema without logical types: they change nothing of what is compared, and one that is unknown is a warning."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    schemas = ("type", "items", "values")
    own = {k: _plain(v) if k in schemas else v for k, v in value.items() if k != "logicalType"}
    if isinstance(own.get("fields"), list):
        own["fields"] = [
            {**each, "type": _plain(each["type"])} if isinstance(each, dict) and "type" in each else each
            for each in own["fields"]
        ]
    return own


def _canonical(value: Any, namespace: str) -> Any:
    """A schema with its members in one order, as Apache's Java library writes it, so that equal ones have one id."""
    if isinstance(value, list):
        return [_canonical(each, namespace) for each in value]
    if not isinstance(value, dict):
        return _relative(value, namespace)
    kind = str(value["type"])
    if kind in _PRIMITIVES and len(value) == 1:
        return kind
    if kind not in _ORDER:
        return {"type": kind, **{name: each for name, each in value.items() if name != "type"}}
    own, space = dict(value), namespace
    if kind in _NAMED:
        own, space = _named(own, namespace)
    for name in ("items", "values"):
        if name in own:
            own[name] = _canonical(own[name], space)
    if kind in ("record", "error"):
        own["fields"] = [_field(each, space) for each in own["fields"]]
    return _ordered(own, _ORDER[kind])


def _named(value: dict[str, Any], namespace: str) -> tuple[dict[str, Any], str]:
    """A named schema with its namespace only where it is another than that around it, and that namespace."""
    before, dot, name = str(value["name"]).rpartition(".")
    space = before if dot else str(value.get("namespace", namespace) or "")
    own = {**value, "name": name}
    own.pop("namespace", None)
    if space != namespace:
        own["namespace"] = space
    return own, space


def _field(value: dict[str, Any], namespace: str) -> dict[str, Any]:
    own = {**value, "type": _canonical(value["type"], namespace)}
    if own.get("order") == "ascending":
        del own["order"]
    return _ordered(own, _FIELD_ORDER)


def _ordered(value: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    last = ["aliases"] if "aliases" in value else []
    rest = [name for name in value if name not in (*order, "aliases")]
    return {name: value[name] for name in [*(each for each in order if each in value), *rest, *last]}


def _relative(name: Any, namespace: str) -> Any:
    """A name without the namespace that it stands in."""
    before, dot, last = str(name).rpartition(".")
    return last if dot and before == namespace and isinstance(name, str) else name
