"""The records of the registry's topic, as Confluent's registry writes and reads them: JSON in keys and values.

    key                                                          value
    {"keytype":"SCHEMA","subject":S,"version":V,"magic":1}       the schema; `deleted` if it is deleted softly
    {"keytype":"CONFIG","subject":S,"magic":0}                   {"subject":S,"compatibilityLevel":L, ...}
    {"keytype":"MODE","subject":S,"magic":0}                     {"subject":S,"mode":M}
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}           {"subject":S,"version":V}: all up to V, softly
    {"keytype":"CONTEXT","tenant":"default","context":C,"magic":0}  {"tenant":"default","context":C}: there is one
    {"keytype":"NOOP","magic":0}                                 nothing; marks a place in the topic

The subject of CONFIG and MODE is null for those that hold for all subjects. A null value takes its key back: of a
SCHEMA, that version is deleted for good. The order of a key's members is fixed, as compaction compares bytes. Members
of a value that this version does not know are kept, so that a schema that is written again loses nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
FORMATS = (JSON, PROTOBUF, AVRO)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """That a schema uses another one.

    Attributes:
        name: How it calls it: a full name in Avro, a URI in JSON Schema, an import in Protobuf.
        subject: Where the other one is.
        version: Which version of it.
    """

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        """As the REST interface and the topic have it."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, kw_only=True)
class SchemaText:
    """A schema as it is stored, apart from where.

    Attributes:
        text: The schema.
        kind: Its format: `AVRO`, `JSON` or `PROTOBUF`.
        references: The schemas that it uses.
        contract: `metadata` and `ruleSet` as they were sent; the registry stores them, clients act on them.
    """

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    contract: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Equal for schemas that have one id."""
        references = [each.to_json() for each in self.references]
        return json.dumps([self.kind, self.text, references, dict(self.contract)], sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class SchemaKey:
    """The key of one version of a subject."""

    subject: str
    version: int


@dataclass(frozen=True, kw_only=True)
class ConfigKey:
    """The key of a subject's configuration; None: of all subjects."""

    subject: str | None


@dataclass(frozen=True, kw_only=True)
class ModeKey:
    """The key of a subject's mode; None: of all subjects."""

    subject: str | None


@dataclass(frozen=True, kw_only=True)
class DeleteSubjectKey:
    """The key of a subject's soft deletion."""

    subject: str


@dataclass(frozen=True, kw_only=True)
class ContextKey:
    """The key of a context: Confluent's registry looks only in those that have a record."""

    context: str


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ContextKey


@dataclass(frozen=True, kw_only=True)
class SchemaValue:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText
    deleted: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ConfigValue:
    """A configuration: `compatibilityLevel`, and what else Confluent's clients may set, as it was sent."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModeValue:
    """A mode."""

    mode: str


@dataclass(frozen=True, kw_only=True)
class DeleteSubjectValue:
    """Up to which version a subject is deleted softly."""

    version: int


@dataclass(frozen=True, kw_only=True)
class ContextValue:
    """That there is a context."""


Value = SchemaValue | ConfigValue | ModeValue | DeleteSubjectValue | ContextValue


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record of the topic; without a value it takes its key back."""

    key: Key
    value: Value | None


class UnreadableRecordError(Exception):
    """A record of the topic is none of a registry's."""


_KEYTYPES: Mapping[type[Any], tuple[str, int]] = {
    SchemaKey: ("SCHEMA", 1),
    ConfigKey: ("CONFIG", 0),
    ModeKey: ("MODE", 0),
    DeleteSubjectKey: ("DELETE_SUBJECT", 0),
}
_SCHEMA_MEMBERS = (
    *("subject", "version", "id", "schema", "schemaType", "references", "metadata", "ruleSet", "deleted"),
)
_TENANT = "default"
_OF_OTHERS = ("NOOP", "CLEAR_SUBJECT")
"""Marks, and a registry's own housekeeping, that change no schema, configuration or mode."""


def encode_key(key: Key) -> bytes:
    """The bytes of a key."""
    if isinstance(key, ContextKey):
        return _bytes({"keytype": "CONTEXT", "tenant": _TENANT, "context": key.context, "magic": 0})
    keytype, magic = _KEYTYPES[type(key)]
    fields: dict[str, Any] = {"keytype": keytype, "subject": key.subject}
    if isinstance(key, SchemaKey):
        fields["version"] = key.version
    return _bytes({**fields, "magic": magic})


def encode_value(key: Key, value: Value | None) -> bytes | None:
    """The bytes of a value; None takes the key back."""
    if value is None:
        return None
    if isinstance(key, ContextKey):
        return _bytes({"tenant": _TENANT, "context": key.context})
    subject = key.subject
    if isinstance(value, SchemaValue):
        return _bytes(_schema_fields(value))
    if isinstance(value, ConfigValue):
        return _bytes({**({"subject": subject} if subject is not None else {}), **value.fields})
    if isinstance(value, ModeValue):
        return _bytes({**({"subject": subject} if subject is not None else {}), "mode": value.mode})
    assert isinstance(value, DeleteSubjectValue)
    return _bytes({"subject": subject, "version": value.version})


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    """A record of the topic; None if it changes nothing that this registry keeps.

    Raises:
        UnreadableRecordError: It is none of a registry's.
    """
    try:
        fields = json.loads(key or b"")
        keytype = fields["keytype"]
        if keytype in _OF_OTHERS:
            return None
        decoded = _key(keytype, fields)
        if decoded is None:
            return None
        content = json.loads(value) if value else None
        return Record(key=decoded, value=None if content is None else _value(decoded, content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableRecordError(f"{type(error).__name__}: {error}") from error


def references_of(values: Any) -> tuple[Reference, ...]:
    """References as JSON has them.

    Raises:
        KeyError, TypeError, ValueError: They are not of that form.
    """
    return tuple(
        Reference(name=str(each["name"]), subject=str(each["subject"]), version=int(each["version"]))
        for each in values or ()
    )


def contract_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema carries for clients: `metadata` and `ruleSet`, where they say anything.

    Raises:
        ValueError: They are not of the form; Confluent's registry could not read the record.
    """
    contract = {name: fields[name] for name in ("metadata", "ruleSet") if fields.get(name)}
    for name, value in contract.items():
        _require(value, dict, name)
    for name, each in contract.get("metadata", {}).items():
        kind = {"tags": dict, "properties": dict, "sensitive": list}.get(name)
        if kind is not None and each is not None:
            _require(each, kind, f"metadata.{name}")
    for name, each in (contract.get("metadata", {}).get("tags") or {}).items():
        _require(each, list, f"metadata.tags.{name}")
    for name, each in (contract.get("metadata", {}).get("properties") or {}).items():
        _require(each, (str, int, float), f"metadata.properties.{name}")
    for name, rules in contract.get("ruleSet", {}).items():
        if name.endswith("Rules") and rules is not None:
            _require(rules, list, f"ruleSet.{name}")
            for each in rules:
                _require(each, dict, f"each of ruleSet.{name}")
    return contract


def _require(value: Any, kinds: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, kinds):
        name = {dict: "an object", list: "a list"}.get(kinds, "a text")  # type: ignore[call-overload]  # of one kind
        raise ValueError(f"{what} is to be {name}")


def schema_fields(schema: SchemaText) -> dict[str, Any]:
    """The members of a schema; those that are at their default are left out, as older clients know few."""
    return {
        "schema": schema.text,
        **({"schemaType": schema.kind} if schema.kind != AVRO else {}),
        **({"references": [each.to_json() for each in schema.references]} if schema.references else {}),
        **schema.contract,
    }


def _schema_fields(value: SchemaValue) -> dict[str, Any]:
    return {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
        **schema_fields(value.schema),
        "deleted": value.deleted,
        **value.unknown,
    }


def _key(keytype: str, fields: Mapping[str, Any]) -> Key | None:
    subject = fields.get("subject")
    if keytype == "SCHEMA":
        return SchemaKey(subject=_required(subject), version=int(fields["version"]))
    if keytype == "CONFIG":
        return ConfigKey(subject=subject)
    if keytype == "MODE":
        return ModeKey(subject=subject)
    if keytype == "DELETE_SUBJECT":
        return DeleteSubjectKey(subject=_required(subject))
    if keytype == "CONTEXT":
        return ContextKey(context=str(fields["context"]))
    return None  # of a newer registry


def _value(key: Key, fields: Mapping[str, Any]) -> Value:
    if isinstance(key, SchemaKey):
        return SchemaValue(
            subject=key.subject,
            version=key.version,
            id=int(fields["id"]),
            schema=SchemaText(
                text=str(fields["schema"]),
                kind=fields.get("schemaType") or AVRO,
                references=references_of(fields.get("references")),
                contract=contract_of(fields),
            ),
            deleted=bool(fields.get("deleted")),
            # md5 is of the text: who reads the record computes it.
            unknown={name: each for name, each in fields.items() if name not in (*_SCHEMA_MEMBERS, "md5")},
        )
    if isinstance(key, ConfigKey):
        return ConfigValue(fields={name: each for name, each in fields.items() if name != "subject"})
    if isinstance(key, ModeKey):
        return ModeValue(mode=str(fields["mode"]))
    if isinstance(key, ContextKey):
        return ContextValue()
    return DeleteSubjectValue(version=int(fields["version"]))


def _required(subject: Any) -> str:
    if not isinstance(subject, str):
        raise TypeError("the key has no subject")
    return subject


def _bytes(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
