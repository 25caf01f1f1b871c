"""Whether every value of one JSON schema is one of another: the changes that Confluent's registry forbids.

What a schema says nothing about, it allows. So a property that is added to an object which allows any other one is
a change that values written before may break, unless it takes all values: that surprises many, and is Confluent's rule,
too. The names of the changes are those of its registry.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Resolve = Callable[[str], Any]

_TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
# What may only grow, and what may only shrink: the keyword, and the name of its change.
_UPPER = {
    "maxLength": "MAX_LENGTH",
    "maximum": "MAXIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxProperties": "MAX_PROPERTIES",
    "maxItems": "MAX_ITEMS",
    "maxContains": "MAX_CONTAINS",
}
_LOWER = {
    "minLength": "MIN_LENGTH",
    "minimum": "MINIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minProperties": "MIN_PROPERTIES",
    "minItems": "MIN_ITEMS",
    "minContains": "MIN_CONTAINS",
}
_REMARKS = frozenset(
    {"title", "description", "default", "$id", "$schema", "$comment", "examples", "definitions", "$defs"}
)
_SUMS = ("oneOf", "anyOf")
_DEEPEST = 200


def changes(before: Any, now: Any, resolve_before: Resolve, resolve_now: Resolve) -> list[str]:
    """What a value of the schema before may break in that of now: each change with its place."""
    return list(dict.fromkeys(_Comparison(resolve_before, resolve_now).compare(before, now, "#", 0)))


class _Comparison:
    def __init__(self, resolve_before: Resolve, resolve_now: Resolve) -> None:
        self._resolve_before, self._resolve_now = resolve_before, resolve_now
        self._open: set[tuple[str, str]] = set()

    def compare(self, before: Any, now: Any, path: str, depth: int) -> Iterator[str]:
        pair = (json.dumps(before, sort_keys=True), json.dumps(now, sort_keys=True))
        if pair in self._open:  # a schema that contains itself: it holds where the rest does
            return
        if depth > _DEEPEST:
            yield f"NESTED_TOO_DEEPLY at {path}"
            return
        self._open.add(pair)
        try:
            old = _followed(before, self._resolve_before)
            new = _followed(now, self._resolve_now)
            yield from self._compare(old, new, path, depth + 1)
        finally:
            self._open.discard(pair)

    def accepts(self, before: Any, now: Any, path: str, depth: int) -> bool:
        return next(self.compare(before, now, path, depth), None) is None

    def _compare(self, before: Any, now: Any, path: str, depth: int) -> Iterator[str]:
        if before is False or _says_nothing(now):
            return
        if now is False:
            yield f"TYPE_NARROWED at {path}"
            return
        old: Mapping[str, Any] = {} if before is True else before
        combined = self._combined(old, now, path, depth)
        if combined is not None:
            yield from combined
            return
        types_before, types_now = _types(old), _types(now)
        if not types_before <= types_now:
            yield f"{'TYPE_NARROWED' if types_before & types_now else 'TYPE_CHANGED'} at {path}"
            return
        yield from _values(old, now, path)
        yield from _limits(old, now, path)
        if "object" in types_before:
            yield from self._objects(old, now, path, depth)
        if "array" in types_before:
            yield from self._arrays(old, now, path, depth)
        if "not" in now and not self._forbids_less(old, now, path, depth):
            yield f"NOT_TYPE_EXTENDED at {path}/not"

    def _forbids_less(self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int) -> bool:
        turned = _Comparison(self._resolve_now, self._resolve_before)
        return "not" in before and turned.accepts(now["not"], before["not"], path, depth)

    # -- schemas of schemas

    def _combined(
        self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str] | None:
        """The changes where one of the two is made of others; None if neither is."""
        for word in _SUMS:
            if word in before:
                return self._sum_before(before, now, word, path, depth)
        if "allOf" in now:
            return self._product_now(before, now, path, depth)
        for word in _SUMS:
            if word in now:
                return self._sum_now(before, now, word, path, depth)
        if "allOf" in before:
            return self._product_before(before, now, path, depth)
        return None

    def _sum_before(
        self, before: Mapping[str, Any], now: Mapping[str, Any], word: str, path: str, depth: int
    ) -> Iterator[str]:
        rest = _without(before, word)
        if word == "anyOf" and "oneOf" in now and len(before[word]) > 1:
            yield f"COMBINED_TYPE_CHANGED at {path}"
            return
        for index, each in enumerate(before[word]):
            if not self.accepts(_both(rest, each), now, path, depth):
                yield f"SUM_TYPE_NARROWED at {path}/{word}/{index}"

    def _sum_now(
        self, before: Mapping[str, Any], now: Mapping[str, Any], word: str, path: str, depth: int
    ) -> Iterator[str]:
        yield from self.compare(before, _without(now, word), path, depth)
        if not any(self.accepts(before, each, path, depth) for each in now[word]):
            yield f"COMBINED_TYPE_SUBSCHEMAS_CHANGED at {path}/{word}"

    def _product_now(
        self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        yield from self.compare(before, _without(now, "allOf"), path, depth)
        for index, each in enumerate(now["allOf"]):
            if not self.accepts(before, each, path, depth):
                yield f"PRODUCT_TYPE_EXTENDED at {path}/allOf/{index}"

    def _product_before(
        self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        parts = [_without(before, "allOf"), *before["allOf"]]
        if not any(self.accepts(each, now, path, depth) for each in parts):
            yield f"COMBINED_TYPE_CHANGED at {path}"

    # -- objects

    def _objects(
        self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        old, new = before.get("properties", {}), now.get("properties", {})
        required_before, required_now = set(before.get("required", ())), set(now.get("required", ()))
        for name in new.keys() - old.keys():
            place = f"{path}/properties/{name}"
            covering = _covering(before, name)
            has_default = isinstance(new[name], dict) and "default" in new[name]
            if covering is False:
                if name in required_now and not has_default:
                    yield f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at {place}"
            elif _says_nothing(covering):
                if not _says_nothing(new[name]):
                    yield f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {place}"
                elif name in required_now - required_before and not has_default:
                    yield f"REQUIRED_ATTRIBUTE_ADDED at {place}"
            elif name in required_now - required_before and not has_default:
                yield f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at {place}"
            elif not self.accepts(covering, new[name], place, depth):
                yield f"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {place}"
        for name in old.keys() - new.keys():
            place = f"{path}/properties/{name}"
            covering = _covering(now, name)
            if covering is False:
                if old[name] is not False:
                    yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {place}"
            elif not self.accepts(old[name], covering, place, depth):
                yield f"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {place}"
        for name in old.keys() & new.keys():
            yield from self.compare(old[name], new[name], f"{path}/properties/{name}", depth)
        for name in required_now - required_before:
            has_default = isinstance(new.get(name), dict) and "default" in new[name]
            if (name in old or name not in new) and not has_default:
                yield f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name}"
        yield from self._rest(before, now, "additionalProperties", "ADDITIONAL_PROPERTIES", path, depth)
        yield from self._rest(before, now, "unevaluatedProperties", "UNEVALUATED_PROPERTIES", path, depth)
        yield from self._rest(before, now, "propertyNames", "PROPERTY_NAMES", path, depth)
        for pattern, schema in now.get("patternProperties", {}).items():
            other = before.get("patternProperties", {}).get(pattern, before.get("additionalProperties", True))
            yield from self.compare(other, schema, f"{path}/patternProperties/{pattern}", depth)
        yield from self._dependencies(before, now, path, depth)

    def _rest(
        self, before: Mapping[str, Any], now: Mapping[str, Any], word: str, change: str, path: str, depth: int
    ) -> Iterator[str]:
        """What holds of all that is not named."""
        old, new = before.get(word, True), now.get(word, True)
        if old is False or _says_nothing(new):
            return
        if new is False:
            yield f"{change}_{'REMOVED' if _says_nothing(old) else 'NARROWED'} at {path}/{word}"
        elif not self.accepts(old, new, f"{path}/{word}", depth):
            yield f"{change}_NARROWED at {path}/{word}"

    def _dependencies(
        self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        for word in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, each in now.get(word, {}).items():
                other = before.get(word, {}).get(name)
                place = f"{path}/{word}/{name}"
                if isinstance(each, list):
                    if not isinstance(other, list):
                        yield f"DEPENDENCY_ARRAY_ADDED at {place}"
                    elif not set(each) <= set(other):
                        yield f"DEPENDENCY_ARRAY_EXTENDED at {place}"
                elif other is None or isinstance(other, list):
                    yield f"DEPENDENCY_SCHEMA_ADDED at {place}"
                else:
                    yield from self.compare(other, each, place, depth)

    # -- arrays

    def _arrays(
        self, before: Mapping[str, Any], now: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        old_first, old_rest = _items(before)
        new_first, new_rest = _items(now)
        for index in range(max(len(old_first), len(new_first))):
            old = old_first[index] if index < len(old_first) else old_rest
            new = new_first[index] if index < len(new_first) else new_rest
            if old is not False and not self.accepts(old, new, path, depth):
                change = "ITEM_CHANGED"
                if index >= len(old_first):
                    change = "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
                elif index >= len(new_first):
                    change = "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
                yield f"{change} at {path}/items/{index}"
        if old_rest is not False:
            if new_rest is False:
                yield f"ADDITIONAL_ITEMS_REMOVED at {path}/items"
            else:
                yield from self.compare(old_rest, new_rest, f"{path}/items", depth)
        if now.get("uniqueItems") and not before.get("uniqueItems"):
            yield f"UNIQUE_ITEMS_ADDED at {path}/uniqueItems"
        if "contains" in now and not (
            "contains" in before and self.accepts(before["contains"], now["contains"], path, depth)
        ):
            yield f"CONTAINS_CHANGED at {path}/contains"


def _followed(value: Any, resolve: Resolve) -> Any:
    """A schema behind its `$ref`; what stands beside that holds, too, since draft 2019-09."""
    for _ in range(_DEEPEST):
        if not (isinstance(value, dict) and isinstance(value.get("$ref"), str)):
            return value
        if value["$ref"].startswith(("http://json-schema.org/", "https://json-schema.org/")):
            return {}
        behind = resolve(value["$ref"])
        beside = {name: each for name, each in value.items() if name != "$ref" and name not in _REMARKS}
        value = {**behind, **beside} if isinstance(behind, dict) else behind
    return value


def _says_nothing(value: Any) -> bool:
    return value is True or (isinstance(value, dict) and not value.keys() - _REMARKS)


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    named = schema.get("type")
    if named is None:
        return _TYPES
    types = {named} if isinstance(named, str) else set(named)
    return frozenset(types | ({"integer"} if "number" in types else set()))


def _values(before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
    allowed = _enumerated(now)
    if allowed is None:
        return
    possible = _enumerated(before)
    if possible is None:
        yield f"ENUM_ARRAY_ADDED at {path}/enum"
    elif not possible <= allowed:
        yield f"{'ENUM_ARRAY_NARROWED' if possible > allowed else 'ENUM_ARRAY_CHANGED'} at {path}/enum"


def _enumerated(schema: Mapping[str, Any]) -> set[str] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else {json.dumps(each, sort_keys=True) for each in values}


def _limits(before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
    for words, is_upper in ((_UPPER, True), (_LOWER, False)):
        for word, change in words.items():
            new, old = now.get(word), before.get(word)
            if new is None or isinstance(new, bool):  # draft 4 has true and false for the exclusive ones
                if new and not old:
                    yield f"{change}_ADDED at {path}/{word}"
            elif old is None or isinstance(old, bool):
                yield f"{change}_ADDED at {path}/{word}"
            elif (new < old) if is_upper else (new > old):
                yield f"{change}_{'DECREASED' if is_upper else 'INCREASED'} at {path}/{word}"
    new, old = now.get("pattern"), before.get("pattern")
    if new is not None and new != old:
        yield f"PATTERN_{'ADDED' if old is None else 'CHANGED'} at {path}/pattern"
    new, old = now.get("multipleOf"), before.get("multipleOf")
    if new is not None and (old is None or old % new != 0):
        yield f"MULTIPLE_OF_{'ADDED' if old is None else 'CHANGED'} at {path}/multipleOf"


def _covering(schema: Mapping[str, Any], name: str) -> Any:
    """The schema that holds of a property which is not named."""
    for pattern, each in schema.get("patternProperties", {}).items():
        try:
            if re.search(pattern, name):
                return each
        except re.error:  # an expression that only JavaScript knows
            continue
    return schema.get("additionalProperties", schema.get("unevaluatedProperties", True))


def _items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of the rest."""
    rest = schema.get("unevaluatedItems", True)
    items = schema.get("items", rest)
    if isinstance(items, list):  # before draft 2020-12
        return items, schema.get("additionalItems", rest)
    return list(schema.get("prefixItems", ())), items


def _without(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    return {name: each for name, each in schema.items() if name != word}


def _both(rest: Mapping[str, Any], each: Any) -> Any:
    """A schema that says what two say, as far as one overrides the other in nothing."""
    if not rest.keys() - _REMARKS:
        return each
    if each is False:
        return False
    return {**rest, **({} if each is True else each)}
