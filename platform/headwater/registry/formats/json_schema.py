"""JSON Schema: checked by the jsonschema library; what may follow what is in `json_changes`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError as InvalidSchemaError
from jsonschema.validators import validator_for

from headwater.registry.errors import SchemaError
from headwater.registry.formats.json_changes import changes
from headwater.registry.formats.parsed import Parsed, Resolved, one_line

_STANDARD = ("http://json-schema.org/", "https://json-schema.org/")


class JsonSchema:
    """A JSON schema and those that it uses."""

    def __init__(self, value: Any, used: Mapping[str, Any]) -> None:
        self.value = value
        self.canonical = one_line(value)
        self._used = used

    def unreadable(self, writer: Parsed) -> list[str]:
        """Why values of the writer's schema may be none of this one's."""
        if not isinstance(writer, JsonSchema):
            return ["the schema before is not a JSON schema"]
        return changes(writer.value, self.value, writer.resolve, self.resolve)

    def rendered(self, form: str) -> str:
        """Its only form."""
        return self.canonical

    def resolve(self, reference: str) -> Any:
        """The schema that a `$ref` means.

        Raises:
            SchemaError: There is none.
        """
        where, fragment = urldefrag(reference)
        root = self._root(where, reference)
        if not fragment:
            return root
        if not fragment.startswith("/"):
            for each in _inside(root):
                if each.get("$anchor") == fragment or each.get("$id") == f"#{fragment}":
                    return each
            raise SchemaError(f"nothing in the schema is called {reference}")
        place = root
        for part in unquote(fragment)[1:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            try:
                place = place[int(name)] if isinstance(place, list) else place[name]
            except (KeyError, ValueError, IndexError, TypeError):
                raise SchemaError(f"{reference} leads nowhere in the schema") from None
        return place

    def check_references(self) -> None:
        """Makes sure that every `$ref` leads somewhere.

        Raises:
            SchemaError: One does not.
        """
        for each in _inside(self.value):
            reference = each.get("$ref")
            if isinstance(reference, str) and not reference.startswith(_STANDARD):
                self.resolve(reference)

    def _root(self, where: str, reference: str) -> Any:
        base = str(self.value.get("$id", "")) if isinstance(self.value, dict) else ""
        if not where or where == base:
            return self.value
        absolute = urljoin(base, where)
        for name, value in self._used.items():
            own = value.get("$id") if isinstance(value, dict) else None
            if where in (name, own) or absolute in (name, own, urljoin(base, name)):
                return value
        for each in _inside(self.value):
            if each.get("$id") in (where, absolute):
                return each
        raise SchemaError(
            f"it uses {reference}, which is not among its references: give its subject and version"
        )


def parse(text: str, used: Sequence[Resolved]) -> JsonSchema:
    """Parses a schema.

    Raises:
        SchemaError: It is none.
    """
    value = _parsed(text, "the schema")
    if not isinstance(value, (dict, bool)):
        raise SchemaError("a JSON schema is an object, true or false")
    try:
        validator_for(value, default=Draft7Validator).check_schema(value)
    except InvalidSchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        raise SchemaError(
            f"not a JSON schema{f', at {place}' if place else ''}: {error.message[:300]}"
        ) from error
    except RecursionError as error:
        raise SchemaError("it is nested too deeply") from error
    schema = JsonSchema(value, {each.name: _parsed(each.text, each.name) for each in used})
    schema.check_references()
    return schema


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{what} is not JSON: {error}") from error


def _inside(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a schema, the schema itself first."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
