"""Writes a request field by field, by the schema that kio's classes carry; here and there what no encoder writes."""

from __future__ import annotations

import dataclasses
import random
import struct
import typing
from collections.abc import Callable
from typing import Any
from uuid import UUID

from headwater_broker.wire.primitives import write_uvarint
from headwater_broker.wire.reader import without_none
from wire_fuzz.records import records
from wire_fuzz.values import HOSTILE_TEXTS, World

_SIGNED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "error_code": "h"}
_SCALARS = {
    **_SIGNED,
    "bool": "?",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_VARINTS = (
    b"\xff" * 4 + b"\x7f",
    b"\xff" * 4 + b"\x0f",
    b"\x80" * 4 + b"\x08",
    b"\xff" * 9 + b"\x01",
    b"\x80\x00",
)
"""Huge, 2**32 - 1, 2**31, too long, and not the shortest form."""

_FLOATS = (
    b"\x7f\xf0" + bytes(6),
    b"\xff\xf0" + bytes(6),
    b"\x7f\xf8" + bytes(6),
    bytes(7) + b"\x01",
    b"\xff" * 8,
)
_NESTING = 4
_ARRAY_BYTES = 200_000


class Author:
    """Writes requests.

    Attributes:
        wildness: How often a field holds what no client would send.
    """

    def __init__(self, rng: random.Random, world: World) -> None:
        self.wildness = 0.0
        self._rng = rng
        self._world = world

    def body(self, entity_type: Any) -> bytes:
        """A request's body."""
        return self._entity(entity_type, 0)

    def tags(self, known: typing.Sequence[tuple[int, Callable[[], bytes]]] = ()) -> bytes:
        """A set of tagged fields, of which those that are known may be there."""
        rng = self._rng
        made = [(tag, write()) for tag, write in known if rng.random() < 0.5]
        if not self._is_wild():
            return write_uvarint(len(made)) + b"".join(map(_tagged, made))
        made += [(tag, write()) for tag, write in known]
        for _ in range(rng.randrange(4)):
            made.append((rng.choice((0, 1, 2, 9, 2**31)), rng.randbytes(rng.choice((0, 1, 4, 300)))))
        rng.shuffle(made)
        count = rng.choice((len(made), len(made) + 1, 2**28))
        return rng.choice((write_uvarint(count), *_VARINTS)) + b"".join(map(_tagged, made))

    def _is_wild(self) -> bool:
        return self._rng.random() < self.wildness

    def _entity(self, entity_type: Any, depth: int) -> bytes:
        plain: list[bytes] = []
        tagged: list[tuple[int, Callable[[], bytes]]] = []
        for field in dataclasses.fields(entity_type):

            def write(field: dataclasses.Field[Any] = field) -> bytes:
                return self._field(entity_type, field, depth)

            if "tag" in field.metadata:
                tagged.append((field.metadata["tag"], write))
            else:
                plain.append(write())
        return b"".join(plain) + (self.tags(tagged) if entity_type.__flexible__ else b"")

    def _field(self, owner: Any, field: dataclasses.Field[Any], depth: int) -> bytes:
        kind, is_nullable = without_none(field.type)
        flexible = owner.__flexible__
        if typing.get_origin(kind) is tuple:
            element, _ = without_none(typing.get_args(kind)[0])
            return self._array(owner, field, element, is_nullable, depth)
        if dataclasses.is_dataclass(kind):
            if is_nullable and "tag" not in field.metadata:
                return b"\xff" if self._rng.random() < 0.3 else b"\x01" + self._entity(kind, depth + 1)
            return self._entity(kind, depth + 1)
        return self._primitive(owner.__name__, field, flexible, is_nullable)

    def _array(
        self, owner: Any, field: dataclasses.Field[Any], element: Any, is_nullable: bool, depth: int
    ) -> bytes:
        rng, flexible = self._rng, owner.__flexible__
        if (is_nullable and rng.random() < 0.2) or (self._is_wild() and rng.random() < 0.3):
            return self._length(None, flexible, 4)
        is_rare = field.name in ("assignments", "forgotten_topics_data", "configs") and rng.random() < 0.6
        count = 0 if is_rare or depth > _NESTING else rng.choice((0, 1, 1, 1, 1, 2, 3))
        if self._is_wild():
            count = rng.choice((0, 2, 40, 500))

        def one() -> bytes:
            if dataclasses.is_dataclass(element):
                return self._entity(element, depth + 1)
            return self._primitive(owner.__name__, field, flexible, False)

        if count > 3:
            elements = [one() for _ in range(3)]
            count = min(count, _ARRAY_BYTES // (1 + max(map(len, elements))))
            elements = [rng.choice(elements) for _ in range(count)]
        else:
            elements = [one() for _ in range(count)]
        return self._length(count, flexible, 4) + b"".join(elements)

    def _primitive(
        self, owner: str, field: dataclasses.Field[Any], flexible: bool, is_nullable: bool
    ) -> bytes:
        rng, kind = self._rng, field.metadata["kafka_type"]
        is_wild = self._is_wild()
        if kind in _SCALARS:
            if is_wild:
                return self._wild_number(kind)
            return struct.pack(f">{_SCALARS[kind]}", self._world.value(rng, field.name, owner, kind))
        if kind == "uuid":
            value = self._world.value(rng, field.name, owner, kind)
            return rng.randbytes(16) if is_wild else (value or UUID(int=0)).bytes
        if kind == "records":
            return self._sized(records(rng, self._world, is_wild), flexible, 4)
        data = self._world.value(rng, field.name, owner, kind)
        if data is None and not is_nullable:
            data = "x"
        if isinstance(data, str):
            data = data.encode()
        if is_wild:
            data = rng.choice((None, *HOSTILE_TEXTS, rng.randbytes(rng.randrange(40))))
        return self._sized(data, flexible, 2 if kind == "string" else 4)

    def _wild_number(self, kind: str) -> bytes:
        rng, size = self._rng, struct.calcsize(_SCALARS[kind])
        if kind == "float64":
            return rng.choice(_FLOATS)
        greatest = 2 ** (8 * size - 1)
        number = rng.choice(
            (greatest - 1, -greatest, greatest - 2, -2, -3, 2**14, 127, rng.getrandbits(8 * size))
        )
        return (number % (2 * greatest)).to_bytes(size, "big")

    def _sized(self, data: bytes | None, flexible: bool, prefix: int) -> bytes:
        return self._length(None if data is None else len(data), flexible, prefix) + (data or b"")

    def _length(self, length: int | None, flexible: bool, prefix: int) -> bytes:
        """A length or a count; now and then another one than that of what follows."""
        rng, number = self._rng, -1 if length is None else length
        if self._is_wild() and rng.random() < 0.4:
            if flexible and rng.random() < 0.5:
                return rng.choice(_VARINTS)
            number = rng.choice((number + 1, number - 1, -1, -2, 2 * number + 300, 2**31 - 2, -(2**31)))
        if flexible:
            return write_uvarint(max(number + 1, 0))
        return (number % 2 ** (8 * prefix)).to_bytes(prefix, "big")


def _tagged(field: tuple[int, bytes]) -> bytes:
    tag, data = field
    return write_uvarint(tag) + write_uvarint(len(data)) + data
