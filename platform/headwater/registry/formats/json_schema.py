"""JSON Schema: checked by the jsonschema library; what may follow what is in `json_changes`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError as InvalidSchemaError
from jsonschema.validators import validator_for

from headwater.registry.errors import SchemaError
from headwater.registry.formats.json_changes import changes
from headwater.registry.formats.parsed import Parsed, Resolved, one_line
from headwater_streams.sources.json_references import STANDARD, Documents, objects_in


class JsonSchema:
    """A JSON schema and those that it uses.

    Raises:
        SchemaError: A `$ref` leads nowhere.
    """

    def __init__(self, value: Any, used: Mapping[str, Any]) -> None:
        self.canonical = one_line(value)
        self._value = value
        self._documents = Documents(value, used)
        for each in objects_in(self._documents.schema):
            reference = each.get("$ref")
            if isinstance(reference, str) and not reference.startswith(STANDARD):
                self.resolve(reference)

    def faults(self) -> list[str]:
        """Nothing that parsing leaves over."""
        return []

    def unreadable(self, writer: Parsed) -> list[str]:
        """Why values of the writer's schema may be none of this one's."""
        if not isinstance(writer, JsonSchema):
            return ["the schema before is not a JSON schema"]
        before, now = (each._documents.schema for each in (writer, self))  # noqa: SLF001 - of this class
        return changes(before, now, writer.resolve, self.resolve)

    def rendered(self, form: str) -> str:
        """The text; as `normalized`, with its members in the order of their names."""
        return one_line(self._value, sort=True) if form == "normalized" else self.canonical

    def resolve(self, reference: str) -> Any:
        """The schema that a `$ref` means.

        Raises:
            SchemaError: There is none.
        """
        try:
            return self._documents.resolve(reference)
        except LookupError as error:
            raise SchemaError(str(error.args[0])) from error


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
    return JsonSchema(value, {each.name: _parsed(each.text, each.name) for each in used})


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{what} is not JSON: {error}") from error
