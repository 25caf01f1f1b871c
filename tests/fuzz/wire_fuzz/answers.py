"""Reads a connection's answers against what was asked, and says what is wrong with them."""

from __future__ import annotations

import dataclasses
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headwater_broker.wire import APIS, MalformedFrame, apis, parse_request_header
from headwater_broker.wire.produce import parse_produce
from headwater_broker.wire.reader import _entity_reader
from wire_fuzz.schemas import schema

_MAY_WAIT = frozenset(
    {
        apis.FETCH,
        apis.JOIN_GROUP,
        apis.SYNC_GROUP,
        apis.SASL_AUTHENTICATE,
        apis.CREATE_TOPICS,
        apis.DELETE_TOPICS,
    }
)
"""For the clock, for other members, or as long as the request allows."""

MAX_REQUEST_BYTES = 2_000_000
"""`socket.request.max.bytes` of the broker."""

_HOT = (apis.PRODUCE, apis.FETCH)
_RAW = -1_000


class Asked(NamedTuple):
    """One request as the broker finds it in the bytes."""

    key: int
    version: int
    correlation_id: int
    is_silent: bool

    @property
    def may_wait(self) -> bool:
        """Whether nobody can say when it is answered."""
        return self.key in _MAY_WAIT

    @property
    def is_known(self) -> bool:
        """Whether it is of a version that is advertised."""
        api = APIS.get(self.key)
        return api is not None and api.lowest <= self.version <= api.highest


_NONE = Asked(_RAW, 0, 0, is_silent=False)


class WrongAnswerError(Exception):
    """The broker sent what is no answer to what was asked."""


def asked_in(data: bytes, *, is_sasl: bool) -> Iterator[Asked]:
    """The requests in what a connection sends; the first that is none ends the connection."""
    position, is_raw = 0, False
    while len(data) - position >= 4:
        (size,) = struct.unpack_from(">i", data, position)
        if not 1 <= size <= MAX_REQUEST_BYTES:
            yield _NONE
            return
        frame = memoryview(data)[position + 4 : position + 4 + size]
        if len(frame) < size:
            return
        position += 4 + size
        if is_raw:
            yield Asked(_RAW, 0, 0, is_silent=True)
            continue
        try:
            header = parse_request_header(frame)
        except MalformedFrame:
            yield _NONE
            return
        asked = Asked(header.api_key, header.api_version, header.correlation_id, is_silent=False)
        if asked.key == apis.PRODUCE and asked.is_known:
            with suppress(MalformedFrame):
                is_silent = parse_produce(frame, header.body_position, asked.version).acks == 0
                asked = asked._replace(is_silent=is_silent)
        yield asked
        is_raw = is_sasl and (asked.key, asked.version) == (apis.SASL_HANDSHAKE, 0)


class Answers:
    """What a connection got.

    Attributes:
        outcomes: For each answer its API, its version and its error codes.
        entities: The answers.
        has_raw: Whether SASL messages without a header are sent: from then on answers are not looked at.
    """

    def __init__(self, asked: Iterable[Asked]) -> None:
        """Begins to wait for the answers to requests."""
        self.outcomes: list[tuple[int, int, str]] = []
        self.entities: list[Any] = []
        self._waiting = deque(asked)
        self.has_raw = any(each.key == _RAW and each.is_silent for each in self._waiting)
        self._received = bytearray()

    @property
    def head(self) -> Asked | None:
        """The next request that must be answered, if the connection stays open."""
        return next((each for each in self._waiting if not each.is_silent), None)

    def receive(self, data: bytes) -> None:
        """Takes what came.

        Raises:
            WrongAnswerError: It is no answer to what was asked.
        """
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if size < 0:
                raise WrongAnswerError(f"an answer of {size} bytes")
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            if not self.has_raw:
                self._take(frame)

    def end(self) -> None:
        """The broker has closed the connection.

        Raises:
            WrongAnswerError: In the middle of an answer.
        """
        if self._received:
            raise WrongAnswerError(f"the connection ends {len(self._received)} bytes into an answer")

    def _take(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        while self._waiting:
            asked = self._waiting.popleft()
            if asked.is_silent:
                continue
            if asked.correlation_id != correlation_id or asked.key not in APIS:
                raise WrongAnswerError(f"the answer to {asked} has the correlation id {correlation_id}")
            self._read(asked, frame)
            return
        raise WrongAnswerError(f"an answer with the correlation id {correlation_id}, which nobody asked for")

    def _read(self, asked: Asked, frame: bytes) -> None:
        api, version = APIS[asked.key], asked.version
        if not asked.is_known:
            if asked.key != apis.API_VERSIONS:
                raise WrongAnswerError(f"an answer to {asked}")
            version = 0
        start = 5 if api.is_flexible(version) and api.key != apis.API_VERSIONS else 4
        try:
            entity, end = _entity_reader(schema(api, version, "response"))(memoryview(frame), start)
        except UnicodeDecodeError as error:
            # Produce and Fetch give a topic's name back as they got it.
            if api.key not in _HOT:
                raise WrongAnswerError(f"{api.name}: no text: {error}") from error
            self.outcomes.append((asked.key, asked.version, "no text"))
            return
        except Exception as error:
            message = f"{api.name}: the answer to {asked} cannot be read: {error!r}, {frame[:200]!r}"
            raise WrongAnswerError(message) from error
        if end != len(frame):
            message = f"{api.name}: the answer to {asked} has {len(frame) - end} bytes left over"
            raise WrongAnswerError(message)
        self.entities.append(entity)
        codes = ",".join(sorted({code.name for code in _codes(entity)} - {"none"}))
        self.outcomes.append((asked.key, asked.version, codes or "none"))


def _codes(entity: Any) -> Iterator[ErrorCode]:
    for each in dataclasses.fields(entity):
        value = getattr(entity, each.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, ErrorCode):
                yield one
            elif dataclasses.is_dataclass(one):
                yield from _codes(one)
