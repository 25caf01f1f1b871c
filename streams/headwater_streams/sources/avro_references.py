"""An Avro schema that uses others of a registry, as one that holds them."""

from collections.abc import Iterable, Mapping
from typing import Any

_NAMED = ("record", "enum", "fixed", "error")


def inlined(schema: Any, used: Iterable[Any]) -> Any:
    """An Avro schema in which each schema that it uses by name stands where it is used first.

    Args:
        schema: The schema, from JSON.
        used: Those that have what it uses, as they stand in a registry: by what name it calls them does not matter, and
            one may be used for what is defined inside it.
    """
    definitions: dict[str, dict[str, Any]] = {}
    for each in used:
        _collect(each, "", definitions)
    placed: set[str] = set()

    def walk(value: Any, space: str) -> Any:
        if isinstance(value, str):
            for full in (full_name(value, space), value):
                if full in definitions and full not in placed:
                    return walk(definitions[full], "")
            return value
        if isinstance(value, list):
            return [walk(each, space) for each in value]
        if not isinstance(value, dict):
            return value
        own = dict(value)
        if own.get("type") in _NAMED:
            full, space = name_of(own, space)
            if full in definitions and full in placed:
                return full
            placed.add(full)
        elif isinstance(own.get("type"), (str, dict, list)):
            own["type"] = walk(own["type"], space)
        for name in ("items", "values"):
            if name in own:
                own[name] = walk(own[name], space)
        if "fields" in own:
            own["fields"] = [{**each, "type": walk(each["type"], space)} for each in own["fields"]]
        return own

    return walk(schema, "")


def _collect(value: Any, space: str, definitions: dict[str, dict[str, Any]]) -> None:
    """Notes the named schemas in one, each with the namespace that it stands in."""
    if isinstance(value, list):
        for each in value:
            _collect(each, space, definitions)
    elif isinstance(value, dict):
        if value.get("type") in _NAMED:
            full, inside = name_of(value, space)
            definitions.setdefault(full, {"namespace": space, **value})
            space = inside
        for each in (value.get("type"), value.get("items"), value.get("values")):
            _collect(each, space, definitions)
        for field_ in value.get("fields") or ():
            _collect(field_["type"], space, definitions)


def name_of(value: Mapping[str, Any], space: str) -> tuple[str, str]:
    """The full name of a named schema, and the namespace in it."""
    name = str(value.get("name", ""))
    inside = name.rpartition(".")[0] if "." in name else str(value.get("namespace", space) or "")
    return (name if "." in name else full_name(name, inside)), inside


def full_name(name: str, space: str) -> str:
    """A name with the namespace that it stands in."""
    return f"{space}.{name}" if space and "." not in name else name
