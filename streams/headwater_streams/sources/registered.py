"""A topic whose values' schemas are in a registry: the declaration, and the format that it comes to.

The columns are those of the subject's newest version when the job is planned. A value that was written with another
version is read as that one, as far as its format allows: what its writer did not know has its default. So a job goes on
while producers move to a newer version, and takes that version's columns when it is started again.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

from headwater_streams.base.errors import JobDefinitionError, UnavailableError
from headwater_streams.sources.avro_references import inlined
from headwater_streams.sources.avro_value import Avro, avro
from headwater_streams.sources.brought_protos import brought_files
from headwater_streams.sources.json_schema import JsonSchema
from headwater_streams.sources.protobuf_value import Protobuf
from headwater_streams.sources.registry_client import (
    NoRegistryError,
    RefusedByRegistryError,
    RegistryClient,
    RegistryLogin,
)
from headwater_streams.sources.registry_memory import RememberedRegistry

ADDRESS = "HEADWATER_REGISTRY_URL"
"""The environment variable of the registry's URL, where no command has named one."""

_log = logging.getLogger(__name__)
_VALUE_FILE = "headwater/registry/value.proto"
"""What a subject's own file is called, which no import means."""


@dataclass(frozen=True, kw_only=True)
class KnownRegistry:
    """The registry of this process's settings.

    Attributes:
        url: Its address; empty where there is none.
        login: What it takes to be let in by it; another address gets none of it.
        memory: The folder where answers of registries are kept; None to keep none.
    """

    url: str = ""
    login: RegistryLogin | None = None
    memory: Path | None = None


_known = KnownRegistry()


def use_registry(known: KnownRegistry) -> None:
    """Names the registry that topics with `registry=True` ask in this process."""
    global _known
    _known = known


@dataclass(frozen=True)
class Registered:
    """Values that begin with the header of Confluent's wire format, their schemas in a registry.

    Attributes:
        subject: The subject of the values.
        url: The registry; empty for that of the settings.
        ask: Asks a registry, in place of HTTP.
    """

    name: ClassVar[str] = "registry"

    subject: str
    url: str = ""
    ask: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def resolved(self) -> Avro | Protobuf | JsonSchema:
        """The format of the subject's newest version.

        Raises:
            JobDefinitionError: There is no such subject, no registry is named, or it has no such format.
            UnavailableError: The registry does not answer.
        """
        try:
            newest = self.asking("GET", "subjects", self.subject, "versions", "latest")
            kind = newest.get("schemaType") or "AVRO"
            if kind == "AVRO":
                form = avro(self._with_references(newest), writers=partial(self._writer, newest))
                return replace(form, guids=partial(self._writer, newest))
            if kind == "PROTOBUF":
                return self._protobuf(newest)
            if kind == "JSON":
                return JsonSchema(newest["schema"], tuple(self._used(newest).items()))
        except RefusedByRegistryError as error:
            why = str(error).rstrip(".")
            raise JobDefinitionError(
                f"subject {self.subject}: {why}; register its schema with headwater registry register"
            ) from error
        except NoRegistryError as error:
            raise UnavailableError(str(error)) from error
        raise JobDefinitionError(
            f"subject {self.subject} has schemas of type {kind}, and jobs read AVRO, JSON and PROTOBUF"
        )

    @property
    def digest(self) -> str:
        """Of what the subject's schema comes to: of two versions by which a job makes other rows, they differ."""
        return hashlib.sha256(b"\0".join(_parts_of(self.resolved))).hexdigest()[:16]

    def _writer(self, known: Mapping[str, Any], number: int | str) -> str:
        """The schema of an id or a GUID; what it changes against the one that the job was planned with is logged."""
        if isinstance(number, int):
            # In another context of the registry the id is another schema's.
            schema = self.asking("GET", "schemas", "ids", str(number), subject=self.subject)
        else:
            schema = self.asking("GET", "schemas", "guids", str(UUID(number)))
        kind = schema.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise JobDefinitionError(f"schema {number} is one of {kind}")
        try:
            changes, text = changed_fields(known, schema), self._with_references(schema)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise JobDefinitionError(f"schema {number} is no Avro schema: {error}") from error
        if changes:
            _log.warning(
                f"values with schema {number} of subject {self.subject} arrive, and the job has {known['id']}: "
                f"{changes}; a job that is started again has the columns of the newest version"
            )
        return text

    def _with_references(self, schema: Mapping[str, Any]) -> str:
        """An Avro schema that holds those which it uses."""
        used = [json.loads(text) for text in self._used(schema).values()]
        return json.dumps(inlined(json.loads(schema["schema"]), used))

    def _used(self, schema: Mapping[str, Any], named: dict[str, str] | None = None) -> dict[str, str]:
        """The schemas that one uses, and those that they use, by their names; each is asked for once."""
        named = {} if named is None else named
        for each in schema.get("references") or ():
            if each["name"] not in named:
                used = self.asking("GET", *self._place_of(each), deleted=True)
                named[each["name"]] = used["schema"]
                self._used(used, named)
        return named

    def _place_of(self, reference: Mapping[str, Any]) -> tuple[str, ...]:
        """Where the registry has what a reference means: in the context of the subject, unless it says another."""
        subject, (context, mark, _) = str(reference["subject"]), self.subject[1:].partition(":")
        if mark and self.subject.startswith(":.") and not subject.startswith(":."):
            subject = f":{context}:{subject}"
        return ("subjects", subject, "versions", str(reference["version"]))

    def _protobuf(self, schema: Mapping[str, Any]) -> Protobuf:
        import base64

        from google.protobuf import descriptor_pb2

        files: dict[str, descriptor_pb2.FileDescriptorProto] = {}

        def add(version: Mapping[str, Any], name: str) -> None:
            for each in version.get("references") or ():
                if each["name"] not in files:
                    place = self._place_of(each)
                    add(self.asking("GET", *place, deleted=True, format="serialized"), each["name"])
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(version["schema"]))
            file.name = name
            for dependency in file.dependency:
                if dependency not in files:
                    files.update(brought_files(dependency))
            files[name] = file

        place = ("subjects", self.subject, "versions", str(schema["version"]))
        add(self.asking("GET", *place, format="serialized"), _VALUE_FILE)
        value = files[_VALUE_FILE]
        message = f"{value.package}." if value.package else ""
        if not value.message_type:
            raise JobDefinitionError(f"subject {self.subject} has no message, so it has no columns")
        descriptors = descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString()
        return Protobuf(descriptors, message + value.message_type[0].name, header=True)

    @property
    def asking(self) -> Callable[..., Any]:
        """What asks the registry.

        Raises:
            JobDefinitionError: None is named.
        """
        if self.ask is not None:
            return self.ask
        address = self.url or _known.url or os.environ.get(ADDRESS, "")
        if not address:
            raise JobDefinitionError(
                f"registry=True: no registry is known: start one with headwater up --registry, set registry.url, or "
                f"{ADDRESS}=http://HOST:PORT"
            )
        try:
            client = RegistryClient(address, login=_known.login if address == _known.url else None)
        except ValueError as error:
            raise JobDefinitionError(str(error)) from error
        if _known.memory is None:
            return client.ask
        return RememberedRegistry(client.ask, client.url, _known.memory).ask


def registered(topic: str, registry: bool | str, subject: str | None = None) -> Registered:
    """The format of a topic whose schemas are in a registry, by Confluent's way to name subjects."""
    return Registered(subject or f"{topic}-value", registry if isinstance(registry, str) else "")


def _parts_of(form: Avro | Protobuf | JsonSchema) -> list[bytes]:
    """What the registry has of a format, without the files that libraries bring: another version is no change."""
    if isinstance(form, Avro):
        return [form.schema.encode()]
    if isinstance(form, JsonSchema):
        return [form.schema.encode(), *(f"{name} {text}".encode() for name, text in form.references)]
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(form.descriptors).file
    own = [each for each in files if each.name == _VALUE_FILE or not brought_files(each.name)]
    return [*(each.SerializeToString(deterministic=True) for each in own), form.message.encode()]


def changed_fields(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What a version of a schema changes of the columns, in words; empty if they are the same."""
    old, new = _fields(before), _fields(now)
    parts = [f"{name} is new" for name in new if name not in old]
    parts += [f"{name} is gone" for name in old if name not in new]
    parts += [f"{name} has another type" for name in new if name in old and new[name] != old[name]]
    return ", ".join(parts)


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an Avro schema; of another format none, as its text is not JSON."""
    try:
        value = json.loads(schema["schema"])
    except ValueError:
        return {}
    return {each["name"]: each["type"] for each in value.get("fields", ())} if isinstance(value, dict) else {}
