"""One request to the registry: its parameters and the JSON that was sent, read as what they are to be."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headwater.registry import errors as codes
from headwater.registry.errors import RegistryError
from headwater.registry.records import AVRO, SchemaText, contract_of, references_of

_BEFORE_SUBJECT = (("subjects",), ("config",), ("mode",), ("compatibility", "subjects"))


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        method: `GET`, `POST`, `PUT` or `DELETE`.
        path: The decoded parts of its path.
        query: The values of each parameter.
        body: What was sent with it.
        content_type: The header of that name; empty for none.
        accept: The header of that name; empty for none.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    accept: str = ""

    def text(self, name: str) -> str | None:
        """A parameter; of one that is given twice, the first."""
        values = self.query.get(name)
        return values[0] if values else None

    def flag(self, name: str) -> bool:
        """A parameter that is `true` or `false`."""
        return (self.text(name) or "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A parameter that is a whole number.

        Raises:
            RegistryError: It is none.
        """
        text = self.text(name)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise RegistryError(400, f"{name}={text} is no whole number") from None

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The members of the JSON object that was sent.

        Raises:
            RegistryError: It is none.
        """
        try:
            value = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"the request's body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise RegistryError(400, "the request's body is not a JSON object")
        return value

    def schema(self, *, may_be_empty: bool = False) -> SchemaText:
        """The schema that was sent.

        Args:
            may_be_empty: Whether it may be that of the version before, so that metadata or rules alone are sent.

        Raises:
            RegistryError: There is none, or it is not of the form.
        """
        text = self.fields.get("schema")
        if text is None and may_be_empty:
            text = ""
        if not isinstance(text, str) or not (text.strip() or may_be_empty):
            raise RegistryError(codes.INVALID_SCHEMA, "Empty schema")
        try:
            references = references_of(self.fields.get("references"))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RegistryError(
                codes.INVALID_SCHEMA, "each of references needs name, subject and version"
            ) from error
        try:
            contract = contract_of(self.fields)
        except ValueError as error:
            raise RegistryError(codes.INVALID_SCHEMA, str(error)) from error
        kind = str(self.fields.get("schemaType") or AVRO)
        return SchemaText(text=text, kind=kind, references=references, contract=contract)

    @property
    def subject_place(self) -> int | None:
        """Where in the path a subject stands."""
        for before in _BEFORE_SUBJECT:
            if self.path[: len(before)] == before and len(self.path) > len(before):
                return len(before)
        return None

    def with_subject(self, subject: str) -> "Request":
        """The same of another subject."""
        place = self.subject_place
        assert place is not None
        return replace(self, path=(*self.path[:place], subject, *self.path[place + 1 :]))
