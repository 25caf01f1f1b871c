"""A schema that was parsed, whatever its format."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

from headwater.errors import DependencyError
from headwater.registry.errors import SchemaError

_MODULES = {"AVRO": "avro_schema", "JSON": "json_schema", "PROTOBUF": "protobuf_schema"}


@dataclass(frozen=True)
class Resolved:
    """A schema that another one uses.

    Attributes:
        name: How that one calls it.
        text: The schema.
    """

    name: str
    text: str


class Parsed(Protocol):
    """A schema that was parsed."""

    canonical: str
    """The text that stands for all that differ in layout only."""

    def faults(self) -> list[str]:
        """What a schema that is registered already may have, and a new one must not; a sentence each."""

    def unreadable(self, writer: "Parsed") -> list[str]:
        """Why values of the writer's schema cannot be read by this one, a sentence each; empty if they can."""

    def rendered(self, form: str) -> str:
        """The text in one of the forms that clients ask for, as `serialized` for Protobuf and `resolved` for Avro; and
        in that which is `normalized`."""


def parse(kind: str, text: str, used: Sequence[Resolved] = ()) -> Parsed:
    """Parses a schema.

    Args:
        kind: Its format.
        text: The schema.
        used: The schemas that it uses and those that they use, each after the ones that it uses.

    Raises:
        SchemaError: It is none, or nobody knows the format.
        DependencyError: The library of the format is not installed.
    """
    return _parse(kind, text, tuple(used))


def one_line(value: Any, *, sort: bool = False) -> str:
    """The text of a schema that is JSON.

    Raises:
        SchemaError: It has a number that JSON does not, as Infinity, which Python reads and others do not.
    """
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=sort)
    except ValueError as error:
        raise SchemaError("a number in it is no number of JSON, or too great to be one") from error


@lru_cache(maxsize=1024)
def _parse(kind: str, text: str, used: tuple[Resolved, ...]) -> Parsed:
    if kind not in _MODULES:
        raise SchemaError(f"there is no schema type {kind}: give {', '.join(_MODULES)}")
    try:
        module = import_module(f"headwater.registry.formats.{_MODULES[kind]}")
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"schemas of type {kind} need {error.name}: run pip install 'headwater[registry]'"
        ) from error
    parsed: Parsed = module.parse(text, used)
    return parsed
