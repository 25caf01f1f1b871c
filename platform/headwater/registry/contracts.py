"""What a schema carries beside its text: metadata and rules, on which clients act, as when they encrypt fields.

A version that is registered without them has those of the version before, and every version what the subject's
configuration adds. So a program that knows the text alone cannot take an encryption off, and finds the version that
was registered with more than it knows. (Source: Confluent's AbstractSchemaRegistry.maybeSetMetadataRuleSet.)
"""

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headwater.registry.records import SchemaText

_RULES = ("migrationRules", "domainRules", "encodingRules")
_VERSION = "confluent:version"
"""A property that Confluent's registry sets to the number of the version."""


def carried_on(
    schema: SchemaText, previous: SchemaText | None, config: Mapping[str, Any], number: int | None = None
) -> SchemaText:
    """A schema with what the version before and the configuration add to what it carries itself.

    Args:
        schema: The schema, as it was sent.
        previous: The newest version.
        config: The subject's configuration.
        number: The version that it is to become.
    """
    contract = {}
    for name, merged, default, override in (
        ("metadata", _merged_metadata, "defaultMetadata", "overrideMetadata"),
        ("ruleSet", _merged_rules, "defaultRuleSet", "overrideRuleSet"),
    ):
        own = schema.contract.get(name) or (previous.contract.get(name) if previous else None)
        value = merged(merged(config.get(default), own), config.get(override))
        if value:
            contract[name] = value
    carried = replace(schema, contract=contract)
    return numbered(carried, number) if number is not None and _is_numbered(carried) else carried


def numbered(schema: SchemaText, number: int) -> SchemaText:
    """A schema with the number of its version in its metadata."""
    metadata = schema.contract.get("metadata") or {}
    properties = {**(metadata.get("properties") or {}), _VERSION: str(number)}
    return replace(schema, contract={**schema.contract, "metadata": {**metadata, "properties": properties}})


def adds_any(config: Mapping[str, Any]) -> bool:
    """Whether a configuration adds metadata or rules."""
    names = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
    return any(config.get(each) for each in names)


def comparable(schema: SchemaText, stored: SchemaText, number: int) -> tuple[SchemaText, SchemaText]:
    """A schema and a version as they are compared: one that says no number is the same as one that says its own.

    Args:
        schema: The schema that is sent.
        stored: That of the version.
        number: The version's.
    """
    if _is_numbered(schema):
        return schema, stored if _is_numbered(stored) else numbered(stored, number)
    return _without_number(schema), _without_number(stored)


def _is_numbered(schema: SchemaText) -> bool:
    return _VERSION in ((schema.contract.get("metadata") or {}).get("properties") or {})


def _without_number(schema: SchemaText) -> SchemaText:
    metadata = schema.contract.get("metadata") or {}
    properties = {k: v for k, v in (metadata.get("properties") or {}).items() if k != _VERSION}
    kept = {name: each for name, each in {**metadata, "properties": properties}.items() if each}
    others = {name: each for name, each in schema.contract.items() if name != "metadata"}
    return replace(schema, contract={**others, **({"metadata": kept} if kept else {})})


def property_of(schema: SchemaText, name: str) -> str | None:
    """A property in a schema's metadata."""
    value = ((schema.contract.get("metadata") or {}).get("properties") or {}).get(name)
    return None if value is None else str(value)


def has_rule_of(schema: SchemaText, kind: str) -> bool:
    """Whether one of a schema's rules is of a type, as `ENCRYPT`."""
    rules = schema.contract.get("ruleSet") or {}
    return any(each.get("type") == kind for name in _RULES for each in rules.get(name) or ())


def guid_of(schema: SchemaText) -> str:
    """A schema's name in all registries, for clients that send it in a header; the same in Confluent's.

    It is the MD5 of the text, the references, the metadata and the rules.
    """
    digest = hashlib.md5(schema.text.encode(), usedforsecurity=False)
    for each in schema.references:
        digest.update(
            each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big", signed=True)
        )
    for name, parts in (("metadata", _metadata_parts), ("ruleSet", _rule_parts)):
        if schema.contract.get(name):
            digest.update(b"\x01")
            for text in parts(schema.contract[name]):
                digest.update(text.encode())
    return str(uuid.UUID(bytes=digest.digest()))


def _metadata_parts(metadata: Mapping[str, Any]) -> Iterator[str]:
    for name, values in sorted((metadata.get("tags") or {}).items()):
        yield from (name, *sorted(map(str, values)))
    for name, value in sorted((metadata.get("properties") or {}).items()):
        yield from (name, str(value))
    yield from sorted(map(str, metadata.get("sensitive") or ()))


def _rule_parts(rules: Mapping[str, Any]) -> Iterator[str]:
    for kind in _RULES:
        for rule in rules.get(kind) or ():
            yield from (str(rule.get(name) or "") for name in ("name", "doc"))
            yield str(rule.get("kind") or "TRANSFORM")
            yield str(rule.get("mode") or "WRITEREAD")
            yield str(rule.get("type") or "")
            yield from sorted(map(str, rule.get("tags") or ()))
            for name, value in sorted((rule.get("params") or {}).items()):
                yield from (name, str(value))
            yield from (str(rule.get(name) or "") for name in ("expr", "onSuccess", "onFailure"))
            yield "\x01" if rule.get("disabled") else ""
    yield str(rules.get("enableAt") or "")


def _merged_metadata(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    before, after = old or {}, new or {}
    merged: dict[str, Any] = {**before, **after}
    for name in ("tags", "properties"):
        if name in merged:
            merged[name] = {**(before.get(name) or {}), **(after.get(name) or {})}
    if "sensitive" in merged:
        merged["sensitive"] = sorted({*(before.get("sensitive") or ()), *(after.get("sensitive") or ())})
    return merged


def _merged_rules(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    before, after = old or {}, new or {}
    merged: dict[str, Any] = {**before, **after}
    for kind in _RULES:
        if kind in merged:
            added = after.get(kind) or []
            names = {each.get("name") for each in added}
            merged[kind] = [
                *(each for each in before.get(kind) or () if each.get("name") not in names),
                *added,
            ]
    return merged
