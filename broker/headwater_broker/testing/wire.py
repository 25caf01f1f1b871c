"""A client that sends one request at a time, in the version that a test names."""

import select
import socket
import struct
from collections.abc import Iterable
from io import BytesIO
from types import TracebackType
from typing import Any, Self

from kio.serial import entity_writer

from headwater_broker.wire.apis import API_VERSIONS, APIS
from headwater_broker.wire.codec import build, message_type
from headwater_broker.wire.reader import read_message

_TIMEOUT_S = 30.0
_NO_TAGS = b"\x00"


class WireClient:
    """One connection. Requests are given as plain values; answers are kio's instances.

    Example:
        ```python
        with WireClient(broker.bootstrap) as client:
            answer = client.ask(HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
            assert answer.error_code is ErrorCode.unknown_member_id
        ```
    """

    def __init__(self, bootstrap: str, client_id: str = "wire") -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._client_id = client_id.encode()
        self._correlation_id = 0
        self._requests: dict[int, tuple[int, int]] = {}

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Sends a request and waits for its answer."""
        self.send(api_key, version, **fields)
        return self.receive()

    def send(self, api_key: int, version: int, **fields: Any) -> None:
        """Sends a request; `receive` has its answer when it is its turn."""
        self._socket.sendall(self._frame(api_key, version, fields))

    def send_together(self, api_key: int, version: int, requests: Iterable[dict[str, Any]]) -> None:
        """Sends requests in one piece, so that a broker takes them in at once."""
        self._socket.sendall(b"".join(self._frame(api_key, version, fields) for fields in requests))

    def _frame(self, api_key: int, version: int, fields: dict[str, Any]) -> bytes:
        api = APIS[api_key]
        self._correlation_id += 1
        self._requests[self._correlation_id] = (api_key, version)
        body = BytesIO()
        body.write(struct.pack(">hhih", api_key, version, self._correlation_id, len(self._client_id)))
        body.write(self._client_id)
        if api.is_flexible(version):
            body.write(_NO_TAGS)
        request_type = message_type(api.name, version, "request")
        entity_writer(request_type)(body, build(request_type, fields))
        return struct.pack(">i", body.tell()) + body.getvalue()

    def receive(self) -> Any:
        """The next answer."""
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = memoryview(self._exactly(size))
        (correlation_id,) = struct.unpack_from(">i", frame)
        api_key, version = self._requests.pop(correlation_id)
        api = APIS[api_key]
        has_tags = api.is_flexible(version) and api_key != API_VERSIONS
        return read_message(message_type(api.name, version, "response"), frame, 5 if has_tags else 4)

    def has_answer(self) -> bool:
        """Whether something has come that was not received yet."""
        poll = select.poll()  # select takes no descriptor above 1,023
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError(f"the broker closed the connection after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)
