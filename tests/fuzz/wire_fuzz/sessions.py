"""What one connection sends: whole requests, halves, several in one write, and bytes that are no request at all."""

from __future__ import annotations

import base64
import random
import struct
from dataclasses import dataclass, replace
from typing import Any

from headwater_broker.wire import Api, apis
from wire_fuzz.author import Author
from wire_fuzz.schemas import VERSIONS, schema
from wire_fuzz.values import FORGED, HOSTILE_TEXTS, PASSWORD, USER, World

PLAIN, SASL = "plain", "sasl"
_WILDNESS = (0.0, 0.0, 0.02, 0.05, 0.15, 0.5)
_OFTEN = {apis.PRODUCE: 8, apis.FETCH: 8, apis.JOIN_GROUP: 3, apis.SYNC_GROUP: 2, apis.INIT_PRODUCER_ID: 3}
_SIZES = (0, -1, -5, 1, 9, 2**31 - 1, -(2**31), 200_000_000)
_STRANGERS = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
)
_BOUNDARIES = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
)


@dataclass(frozen=True)
class Session:
    """What is sent, and how.

    Attributes:
        listener: `PLAIN`, or `SASL` where one must say who one is.
        writes: What is sent at once each; answers are waited for only behind the last.
        leaves: Whether the client goes away without reading.
        is_ordinary: Whether all are requests that a client might send, so that each must be answered.
    """

    listener: str
    writes: tuple[bytes, ...]
    leaves: bool = False
    is_ordinary: bool = False

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return sum(map(len, self.writes))

    def to_json(self) -> dict[str, Any]:
        """As the corpus keeps it."""
        return {
            "listener": self.listener,
            "writes": [base64.b64encode(each).decode() for each in self.writes],
            "leaves": self.leaves,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Session:
        """The session that `to_json` gave."""
        return cls(fields["listener"], tuple(map(base64.b64decode, fields["writes"])), fields["leaves"])


def framed(body: bytes) -> bytes:
    """A request behind its length."""
    return struct.pack(">i", len(body)) + body


class Writer:
    """Makes sessions up."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self._rng = rng
        self._author = Author(rng, world)
        self._weights = [_OFTEN.get(api.key, 1) for api, _ in VERSIONS]

    def ordinary(self, api: Api, version: int, listener: str = PLAIN) -> Session:
        """One request as a client might send it."""
        self._author.wildness = 0.0
        return Session(
            listener, (*self._introduction(listener), framed(self._request(api, version))), is_ordinary=True
        )

    def session(self) -> Session:
        """A new one."""
        rng = self._rng
        listener = SASL if rng.random() < 0.15 else PLAIN
        self._author.wildness = wildness = rng.choice(_WILDNESS)
        pairs = rng.choices(VERSIONS, self._weights, k=rng.choice((1, 1, 1, 2, 3, 6)))
        if wildness == 0.0 and rng.random() < 0.6:
            requests = [framed(self._request(*pair)) for pair in pairs]
            return self._pieces(listener, requests, is_ordinary=True)
        requests = [framed(self._request(*pair)) for pair in pairs]
        if rng.random() < 0.05:
            requests *= rng.choice((20, 100))
        if rng.random() < 0.4:
            at = rng.randrange(len(requests))
            requests[at] = self._damaged(requests[at])
        if rng.random() < 0.02:
            requests.append(rng.choice(_STRANGERS))
        return self._pieces(listener, requests, is_ordinary=False)

    def like(self, session: Session) -> Session:
        """Another one, that differs from it in some bytes, or goes on as another."""
        rng = self._rng
        writes = list(session.writes)
        at = rng.randrange(len(writes))
        if rng.random() < 0.8:
            writes[at] = self._damaged(writes[at])
        else:
            writes.insert(at, writes[at])
        return replace(session, writes=tuple(writes), is_ordinary=False)

    # -- one request -----------------------------------------------------------------------------------

    def _request(self, api: Api, version: int) -> bytes:
        return self._header(api, version) + self._author.body(schema(api, version, "request"))

    def _header(self, api: Api, version: int) -> bytes:
        rng, wild = self._rng, self._author.wildness
        key, client_id = api.key, rng.choice((b"c-1", b"", None))
        flexible = api.is_flexible(version)
        if rng.random() < wild / 4:
            key, version = rng.choice(
                ((key, version + 1), (key, -1), (rng.randrange(-2, 90), version), (key, 99))
            )
        if rng.random() < wild:
            client_id = rng.choice(HOSTILE_TEXTS)[:32_766]
        length = -1 if client_id is None else len(client_id)
        if rng.random() < wild / 4:
            length = rng.choice((-2, length + 1, 32_767, -32_768))
        start = struct.pack(">hhih", key, version, rng.getrandbits(31), length) + (client_id or b"")
        return start + (self._author.tags() if flexible else b"")

    def _damaged(self, data: bytes) -> bytes:
        """Some bytes are others; the length in front is right, as a rule."""
        rng = self._rng
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            at = rng.randrange(4, len(changed)) if len(changed) > 4 else 0
            kind = rng.randrange(6)
            if kind == 0:
                changed[at : at + 1] = bytes((changed[at] ^ (1 << rng.randrange(8)),)) if changed else b"\0"
            elif kind == 1:
                changed[at : at + 4] = rng.choice(_BOUNDARIES)
            elif kind == 2:
                del changed[at : at + rng.choice((1, 2, 4, 1000))]
            elif kind == 3:
                changed[at:at] = rng.choice(
                    (b"\0", b"\xff\xff", rng.randbytes(rng.randrange(30)), FORGED.encode())
                )
            elif kind == 4:
                changed[at:at] = changed[at : at + rng.randrange(60)] * rng.choice((1, 3))
            else:
                changed += rng.choice((b"\0", rng.randbytes(9)))
        size = len(changed) - 4
        if rng.random() < 0.08:
            size = rng.choice((*_SIZES, size + 1, size - 1, size + 100))
        changed[:4] = struct.pack(">i", size)
        return bytes(changed)

    # -- several ---------------------------------------------------------------------------------------

    def _pieces(self, listener: str, requests: list[bytes], *, is_ordinary: bool) -> Session:
        rng = self._rng
        requests = [*self._introduction(listener), *requests]
        if not is_ordinary and listener == SASL and rng.random() < 0.3:
            rng.shuffle(requests)
        leaves = rng.random() < 0.05
        if rng.random() < 0.5:
            requests = [b"".join(requests)]
        if not is_ordinary and rng.random() < 0.05:
            cut = rng.randrange(1, len(requests[-1]) + 1)
            requests[-1] = requests[-1][:cut]
        elif rng.random() < 0.1 and len(requests[-1]) < 5000:
            cut = rng.randrange(len(requests[-1]))
            requests[-1:] = [requests[-1][:cut], requests[-1][cut:]]
        return Session(listener, tuple(filter(None, requests)), leaves, is_ordinary)

    def _introduction(self, listener: str) -> list[bytes]:
        """What opens the listener: SaslHandshake and SaslAuthenticate, or the message without a header."""
        if listener == PLAIN:
            return []
        token = f"\0{USER}\0{PASSWORD}".encode()
        handshake = struct.pack(">hhihh", apis.SASL_HANDSHAKE, 1, 1, -1, 5) + b"PLAIN"
        if self._rng.random() < 0.2 and self._author.wildness:
            return [framed(handshake.replace(b"\0\x11\0\1", b"\0\x11\0\0", 1)), framed(token)]
        authenticate = struct.pack(">hhihi", apis.SASL_AUTHENTICATE, 1, 2, -1, len(token)) + token
        return [framed(handshake), framed(authenticate)]
