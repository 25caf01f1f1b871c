"""Where the `$ref`s of a JSON Schema lead: in it, and in the schemas that it uses.

A `$ref` is relative to the schema that it stands in, which a part with an `$id` is, too. So each is made absolute
before any is followed: what is followed keeps no note of where it came from.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

STANDARD = ("http://json-schema.org/", "https://json-schema.org/")
_DATA = ("enum", "const", "default", "examples")


class Documents:
    """A JSON schema and those that it uses.

    Args:
        schema: The schema, from JSON.
        used: Those that it uses, each by the name that it has in the one that uses it.

    Attributes:
        schema: The schema with absolute `$ref`s.
    """

    def __init__(self, schema: Any, used: Mapping[str, Any]) -> None:
        self._places: dict[str, Any] = {}
        base = _id_of(schema)
        for name, each in used.items():
            own = _id_of(each) or urljoin(base, name)
            # Of two that say they are one, the one that is called so is meant.
            self._places[name] = self._places[urljoin(base, name)] = _absolute(each, own)
            self._places.setdefault(own, self._places[name])
        self.schema = _absolute(schema, base)
        self._places[base] = self.schema
        for document in [*self._places.values()]:
            for part in objects_in(document):
                if _id_of(part):
                    self._places.setdefault(str(part["$id"]), part)

    def resolve(self, reference: str) -> Any:
        """The schema that a `$ref` means.

        Args:
            reference: One of this class's schemas, where they are absolute.

        Raises:
            LookupError: There is none; the message says why.
        """
        where, fragment = urldefrag(reference)
        if where not in self._places:
            raise LookupError(
                f"it uses {reference}, which is not among its references: give its subject and version"
            )
        part = self._places[where]
        if not fragment:
            return part
        if not fragment.startswith("/"):
            for each in objects_in(part):
                if each.get("$anchor") == fragment or each.get("$id") == f"#{fragment}":
                    return each
            raise LookupError(f"nothing in the schema is called {reference}")
        for step in unquote(fragment)[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                part = part[int(name)] if isinstance(part, list) else part[name]
            except (KeyError, ValueError, IndexError, TypeError):
                raise LookupError(f"it uses {reference}, which leads nowhere in it") from None
        return part


def objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a schema, the schema itself first."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += reversed(each.values())
        elif isinstance(each, list):
            waiting += reversed(each)


def _absolute(value: Any, base: str) -> Any:
    """A schema with absolute `$ref`s and `$id`s."""
    if isinstance(value, list):
        return [_absolute(each, base) for each in value]
    if not isinstance(value, dict):
        return value
    own = dict(value)
    if _id_of(value):
        base = own["$id"] = urljoin(base, _id_of(value))
    for name, each in value.items():
        if name == "$ref" and isinstance(each, str):
            where, mark, fragment = each.partition("#")
            # Without a base, urljoin of an URN leaves the reference as it is: it is one of the names.
            own[name] = f"{urljoin(base, where) if where else base}{mark}{fragment}"
        elif name not in (*_DATA, "$id"):
            own[name] = _absolute(each, base)
    return own


def _id_of(schema: Any) -> str:
    """What a schema says to be; an `$id` of a fragment alone is a place in it."""
    name = schema.get("$id") if isinstance(schema, dict) else None
    return "" if not isinstance(name, str) or name.startswith("#") else name.removesuffix("#")
