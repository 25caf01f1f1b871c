"""A connection that fetches and produces whole batches, which no client library hands out."""

import socket
import ssl
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import islice
from math import inf
from time import monotonic
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from headwater.mirror.batches import Buffer, Outgoing
from headwater.mirror.errors import AwayError, MirrorError
from headwater.mirror.login import exchange, tls_context
from headwater_broker.wire.codec import build, message_type
from headwater_broker.wire.errors import MalformedFrame
from headwater_broker.wire.reader import read_message
from headwater_streams.sources.kafka_cluster import KafkaCluster

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 9, 10
_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36
BY_ID = 13
"""The first version of a fetch that names topics by their ids: one that was deleted and made anew is another topic."""

_VERSIONS: Mapping[int, tuple[str, tuple[int, ...]]] = {
    PRODUCE: ("produce", (8,)),
    FETCH: ("fetch", (BY_ID, 11)),
    LIST_OFFSETS: ("list_offsets", (5,)),
    METADATA: ("metadata", (12, 8)),
    OFFSET_FETCH: ("offset_fetch", (5,)),
    FIND_COORDINATOR: ("find_coordinator", (2,)),
    _HANDSHAKE: ("sasl_handshake", (1,)),
    _AUTHENTICATE: ("sasl_authenticate", (1,)),
}
"""Versions of each request, the best one first. Every broker since Kafka 2.4 has the last ones."""

_CLIENT = b"headwater-mirror"
_WORTH_GATHERING, _BUFFERS_AT_ONCE = 16 << 10, 512
"""From how many bytes on they are not joined first; Linux takes 1024 pieces at once."""
_TIMEOUT_S = 30.0
_CONNECT_S = 10.0
_MOST_BYTES = 1 << 30
_ALL = -1
"""Acknowledged by all replicas that are in sync."""
_PRODUCE_MS = 20_000
_SHARE_OF_SESSION = 0.8
"""After which a session of SASL is begun anew."""


class Connection:
    """One connection to one broker. Requests are answered in their order; several may be under way."""

    def __init__(self, cluster: KafkaCluster, host: str, port: int) -> None:
        """Connects, and logs in.

        Raises:
            AwayError: Nothing answers there.
            MirrorError: The broker refuses the login.
        """
        login = cluster.login
        self._cluster = cluster
        self.place = f"{host}:{port}"
        self._under_way: list[tuple[str, int]] = []
        self._versions: dict[int, int] = {}
        self._again_s = inf
        self._correlation = 0
        self._frame = bytearray()
        context = tls_context(login, cluster.section)
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._socket.settimeout(_TIMEOUT_S)
        except ssl.SSLCertVerificationError as error:
            raise MirrorError(
                f"{self.place}: its certificate is not trusted: {error.verify_message}"
            ) from error
        except OSError as error:
            raise AwayError(f"no broker answers at {self.place}") from error
        try:
            self._choose_versions()
            if login.has_sasl:
                self._log_in()
        except BaseException:
            self.close()
            raise

    def _choose_versions(self) -> None:
        self._send("api_versions", _API_VERSIONS, 0, [])
        offered = {each.api_key: each for each in self.receive().api_keys}
        for api, (name, versions) in _VERSIONS.items():
            has = offered.get(api)
            fitting = (
                []
                if has is None
                else [each for each in versions if has.min_version <= each <= has.max_version]
            )
            if fitting:
                self._versions[api] = fitting[0]
            elif api not in (_HANDSHAKE, _AUTHENTICATE):
                raise MirrorError(
                    f"{self.place} has no version {versions[-1]} of the request {name}: its brokers are too old to be "
                    "mirrored; Kafka 2.4 has it"
                )

    @property
    def fetches_by_id(self) -> bool:
        """Whether a fetch names topics by their ids."""
        return self._versions[FETCH] >= BY_ID

    def _log_in(self) -> None:
        login, section = self._cluster.login, self._cluster.section
        self._again_s, steps = inf, exchange(login)
        try:
            answer = self.ask(_HANDSHAKE, mechanism=login.mechanism)
            token = next(steps)
            while not answer.error_code:
                answer = self.ask(_AUTHENTICATE, auth_bytes=token)
                if answer.error_code:
                    break
                token = steps.send(answer.auth_bytes)
        except StopIteration:
            lasts_s = answer.session_lifetime.total_seconds()
            self._again_s = monotonic() + _SHARE_OF_SESSION * lasts_s if lasts_s else inf
            return
        except (ValueError, KeyError) as error:
            raise MirrorError(f"{self.place}: the login of {login.who!r} failed: {error}") from error
        why = getattr(answer, "error_message", None) or f"it does not take {login.mechanism}"
        raise MirrorError(
            f"{self.place} refuses {login.who!r}: {why} ({section}.sasl_mechanism is {login.mechanism})"
        )

    def ask(self, api: int, **fields: Any) -> Any:
        """Sends a request and waits for its answer, which must be the next one."""
        self.send(api, **fields)
        return self.receive()

    def send(self, api: int, **fields: Any) -> None:
        """Sends a request."""
        name, version = _VERSIONS[api][0], self._versions[api]
        request_type, body = message_type(name, version, "request"), BytesIO()
        entity_writer(request_type)(body, build(request_type, fields))
        self._send(name, api, version, [body.getvalue()], is_flexible=request_type.__flexible__)

    def produce(self, batches: Sequence[tuple[str, int, Outgoing]]) -> None:
        """Sends batches, each with its topic and partition; at most one for a partition, as brokers want it."""
        by_topic: dict[str, list[tuple[int, Outgoing]]] = {}
        for topic, partition, batch in batches:
            by_topic.setdefault(topic, []).append((partition, batch))
        parts: list[Buffer] = [struct.pack(">hhii", -1, _ALL, _PRODUCE_MS, len(by_topic))]
        for topic, partitions in by_topic.items():
            name = topic.encode()
            parts.append(struct.pack(f">h{len(name)}si", len(name), name, len(partitions)))
            for partition, batch in partitions:
                parts += (struct.pack(">ii", partition, batch.size), batch.header, batch.records)
        self._send("produce", PRODUCE, self._versions[PRODUCE], parts)

    def _send(
        self,
        name: str,
        api: int,
        version: int,
        parts: Sequence[Buffer],
        *,
        is_flexible: bool = False,
    ) -> None:
        if monotonic() >= self._again_s and not self._under_way:
            self._log_in()  # before the broker ends the session (KIP-368)
        self._correlation += 1
        header = struct.pack(f">hhih{len(_CLIENT)}s", api, version, self._correlation, len(_CLIENT), _CLIENT)
        header += b"\0" if is_flexible else b""  # no tagged fields
        size = len(header) + sum(map(len, parts))
        try:
            self._send_all([struct.pack(">i", size), header, *parts])
        except OSError as error:
            raise AwayError(f"{self.place} went away") from error
        self._under_way.append((name, version))

    def _send_all(self, parts: Sequence[Buffer]) -> None:
        if isinstance(self._socket, ssl.SSLSocket) or sum(map(len, parts)) < _WORTH_GATHERING:
            self._socket.sendall(b"".join(parts))
            return
        # Not joined: that would copy all that is mirrored once more.
        left = deque[memoryview](memoryview(part) for part in parts)
        while left:
            sent = self._socket.sendmsg(islice(left, _BUFFERS_AT_ONCE))
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if sent:
                left[0] = left[0][sent:]

    def receive(self) -> Any:
        """The next answer.

        Raises:
            AwayError: The broker went away, or answers something else.
        """
        response_type = message_type(*self._under_way.pop(0), "response")
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= _MOST_BYTES:
                raise AwayError(f"{self.place} does not speak Kafka's protocol")
            frame = self._exactly(size)
            return read_message(response_type, frame, 5 if response_type.__flexible__ else 4)
        except (OSError, MalformedFrame) as error:
            raise AwayError(f"{self.place} went away") from error

    def _exactly(self, size: int) -> memoryview:
        if size > len(self._frame):  # kept: the system clears the pages of a new one
            self._frame = bytearray(size)
        data, at = memoryview(self._frame)[:size], 0
        while at < size:
            count = self._socket.recv_into(data[at:])
            if not count:
                raise ConnectionResetError
            at += count
        return data

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def passes(code: ErrorCode) -> bool:
    """Whether a broker's error is one that passes by itself."""
    return code.retriable and code is not ErrorCode.corrupt_message
