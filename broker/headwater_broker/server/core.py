"""The core: frames in, answers and log writes out, one step at the end of each tick. It knows no socket.

A tick is one turn of the loop. During it `handle` is called for every whole frame that came in: appends are
queued in their logs and answers in their connections. The end of the tick writes each dirty log with one
write, starts the flushes that are due, wakes fetches that waited for what was written, and only then has the
answers sent: nothing is acknowledged before it is written.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic, perf_counter
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from headwater_broker.log import LogError, PartitionLog, Slices
from headwater_broker.server.connection import Connection, Deferred
from headwater_broker.server.resets import Resets
from headwater_broker.server.slices import Work
from headwater_broker.server.turns import Timed, Turns
from headwater_broker.wire import APIS, Api, MalformedFrame, RequestHeader, parse_request_header
from headwater_broker.wire.apis import API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS, METADATA
from headwater_broker.wire.codec import (
    decode_request,
    decode_request_slices,
    encode_response,
    encode_response_slices,
    is_heavy,
)

_LOG = logging.getLogger(__name__)
_COLD_REQUEST_BYTES = 4096  # what a request off the hot path counts for beside its answer: some 20 us
_LARGE_REQUEST_BYTES = 32 * 1024
"""A request off the hot path takes up to a second for a megabyte to be read: some ten milliseconds."""

_SHARED = frozenset({API_VERSIONS, METADATA, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS})
"""APIs that only read: equal requests within one tick may share one answer."""

Response = Mapping[str, Any]
"""A message as plain values; see `wire.codec.build`."""


AlikeHandler = Callable[[Connection, bytearray, memoryview, int, int], int]
"""Answers requests in a row that look like one before, see `Core.handle_alike`."""


class Request:
    """One request off the hot path, as its handler sees it.

    Attributes:
        header: The header.
        body: kio's instance for the request's version.
        connection: Where it came from.
    """

    __slots__ = ("body", "connection", "header")

    def __init__(self, header: RequestHeader, body: Any, connection: Connection) -> None:
        self.header = header
        self.body = body
        self.connection = connection

    @property
    def version(self) -> int:
        """The API version, for what differs by more than fields."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return (self.header.client_id or b"").decode(errors="replace")

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the body, or `default` where this version has no such field."""
        return getattr(self.body, name, default)


Handler = Callable[[Request], Response | Awaitable[Response]]
"""Answers one API; a coroutine where the answer takes time."""

RawHandler = Callable[[Connection, RequestHeader, memoryview], None]
"""Answers an API of the hot path from its frame, straight into the connection's output."""


class Loop(Protocol):
    """What the core needs of an event loop."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Calls back in the next turn."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> object:
        """Runs a coroutine beside everything else."""


class Acknowledgement(Protocol):
    """What the output of a connection says of batches that are not written yet."""

    def take_back(self, connection: Connection, log: PartitionLog, error: LogError) -> bool:
        """Has the output say that the log's batches could not be written; returns whether it does now."""


class Meter(Protocol):
    """Counts what requests use, and makes clients wait; see `quotas`."""

    def after_raw(
        self, connection: Connection, header: RequestHeader, frame_bytes: int, before: int, took_s: float
    ) -> None:
        """Takes note of a request of the hot path."""

    def after_cold(
        self, connection: Connection, header: RequestHeader, answer: Response, took_s: float
    ) -> Response:
        """Takes note of another request, and puts into its answer how long to wait."""

    def mute(self, connection: Connection, answer: Response) -> None:
        """Has the connection wait as its answer says."""


class Core:
    """Dispatch and the end of the tick.

    Attributes:
        meter: Counts what requests use; None while nobody is limited.
        tick: Number of ticks that have ended.
        turns: Who has to wait because it asks for much.
        work: Runs what takes longer than others should wait.
        resets: Where clients go on behind offsets that are lost.
    """

    def __init__(self, loop: Loop) -> None:
        self.tick = 0
        self.meter: Meter | None = None
        self.turns = Turns(loop.call_soon)
        self.work = Work(self.turns)
        self._reading = Work(self.turns, at_once=1)  # else the memory is that of several at once
        self.resets = Resets(monotonic)
        self._loop = loop
        self._is_scheduled = False
        self._answers: dict[tuple[Any, ...], memoryview] = {}  # of this tick, to be shared
        self._raw_handlers: dict[tuple[int, int], RawHandler] = {}  # by key and version
        self._raw_keys: set[int] = set()
        self._handlers: dict[int, Handler] = {}
        self._alike_handler: AlikeHandler | None = None
        self._dirty: dict[PartitionLog, list[tuple[Connection, Acknowledgement | None]]] = {}
        self._touched: dict[Connection, None] = {}
        self._flush_of: dict[Connection, Callable[[], None]] = {}
        self._on_written: list[Callable[[PartitionLog], None]] = []
        self._on_detached: list[Callable[[Connection], None]] = []

    # -- making it -------------------------------------------------------------------------------------

    def register(self, api_key: int, handler: Handler) -> None:
        """Sets who answers an API off the hot path."""
        self._handlers[api_key] = handler

    def wrap(self, api_key: int, wrapper: Callable[[Handler], Handler]) -> None:
        """Puts something before the handler of an API, where there is one."""
        if api_key in self._handlers:
            self._handlers[api_key] = wrapper(self._handlers[api_key])

    def register_raw(self, api_key: int, handler: RawHandler) -> None:
        """Sets who answers an API of the hot path."""
        self._raw_keys.add(api_key)
        api = APIS[api_key]
        for version in range(api.lowest, api.highest + 1):
            self._raw_handlers[api_key, version] = handler

    def register_alike(self, handler: AlikeHandler) -> None:
        """Sets who answers Produce requests that look like one before."""
        self._alike_handler = handler

    @property
    def answered(self) -> frozenset[int]:
        """Keys of the APIs that have a handler."""
        return frozenset(self._handlers) | frozenset(self._raw_keys)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine beside everything else, until the broker stops."""
        self._loop.spawn(coroutine)

    def on_written(self, callback: Callable[[PartitionLog], None]) -> None:
        """Has `callback` called for each log that was written, before answers are sent."""
        self._on_written.append(callback)

    def on_detached(self, callback: Callable[[Connection], None]) -> None:
        """Has `callback` called for each connection that closed."""
        self._on_detached.append(callback)

    # -- connections -----------------------------------------------------------------------------------

    def attach(self, connection: Connection, flush: Callable[[], None]) -> None:
        """Takes a connection in; `flush` sends its output, and closes it where `close_reason` is set."""
        self._flush_of[connection] = flush

    def detach(self, connection: Connection) -> None:
        """Forgets a closed connection and what waited for it."""
        self._flush_of.pop(connection, None)
        self._touched.pop(connection, None)
        self.turns.forget(connection)
        self.work.forget(connection)
        self._reading.forget(connection)
        for callback in self._on_detached:
            callback(connection)

    def touch(self, connection: Connection) -> None:
        """Has the connection's output sent at the end of this tick."""
        self._touched[connection] = None
        if not self._is_scheduled:
            self.schedule_tick()

    def schedule_tick(self) -> None:
        """Makes sure that this tick ends."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.end_of_tick)

    # -- requests --------------------------------------------------------------------------------------

    def handle(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Answers one frame, or starts to.

        Args:
            connection: Where the answer goes.
            buffer: The receive buffer; it must stay as it is until the end of the tick.
            start: Position of the frame's first byte, behind its length prefix.
            end: Position after its last.
        """
        frame = buffer[start:end]
        try:
            gate = connection.gate
            if gate is not None and gate.intercept(connection, frame):
                self._touched[connection] = None
                return
            header = parse_request_header(frame)
            raw = self._raw_handlers.get((header.api_key, header.api_version))
            if raw is not None:
                if self.meter is None:
                    raw(connection, header, frame)
                else:
                    self._handle_metered(raw, self.meter, connection, header, frame)
            else:
                self._handle_cold(connection, header, frame)
        except MalformedFrame as error:
            connection.close_reason = f"a malformed request: {error}"
        except Exception:
            _LOG.exception("answering a request of %s failed", connection.peer)
            connection.close_reason = "the broker failed to answer (see above)"
        self._touched[connection] = None

    def handle_alike(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> int:
        """Answers Produce requests that look like one before and have nothing out of the ordinary, in a row.

        What it does not take, and all that goes wrong, is left to `handle`.

        Args:
            connection: Where the answers go.
            buffer: The receive buffer, as in `handle`.
            view: The same.
            start: Position of the first frame's length prefix.
            end: Position after the last byte that was received.

        Returns:
            The position after the last frame that was taken, `start` if there is none.
        """
        handler, gate = self._alike_handler, connection.gate
        if handler is None or self.meter is not None or (gate is not None and not gate.is_open):
            return start
        try:
            position = handler(connection, buffer, view, start, end)
        except MalformedFrame:
            return start
        except Exception:
            _LOG.exception("answering requests of %s failed", connection.peer)
            connection.close_reason = "the broker failed to answer (see above)"
            position = end
        if position > start:
            self._touched[connection] = None
        return position

    def _handle_metered(
        self,
        raw: RawHandler,
        meter: Meter,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
    ) -> None:
        before = len(connection.output)
        started_s = perf_counter()
        raw(connection, header, frame)
        meter.after_raw(connection, header, len(frame), before, perf_counter() - started_s)

    def _handle_cold(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        api = APIS.get(header.api_key)
        handler = self._handlers.get(header.api_key)
        if api is None or (handler is None and header.api_key not in self._raw_keys):
            raise MalformedFrame(f"API key {header.api_key} is not one that this broker answers")
        version = header.api_version
        if handler is None or not api.lowest <= version <= api.highest:
            if api.key != API_VERSIONS:
                raise MalformedFrame(
                    f"{api.name} version {version} is not one of {api.lowest} to {api.highest}"
                )
            connection.output.append(self._unsupported_api_versions(api, header))
            return
        if len(frame) > _LARGE_REQUEST_BYTES:
            self._read_large(api, handler, header, connection, frame)
            return
        key: tuple[Any, ...] | None = None
        if api.key not in _SHARED or self.meter is not None:
            self._answers.clear()  # which may be wrong after this request
        else:
            body_bytes = frame[header.body_position :].tobytes()
            key = api.key, version, body_bytes, connection.principal, connection.host, connection.listener
            shared = self._answers.get(key)
            if shared is not None:
                start = shared[:4].tobytes() + header.correlation_id.to_bytes(4, signed=True)
                connection.output += (start, shared[8:])
                connection.debt_bytes += len(shared) + _COLD_REQUEST_BYTES
                return
        started_s = perf_counter()
        body = decode_request(api, version, frame, header.body_position)
        answer = handler(Request(header, body, connection))
        if inspect.isawaitable(answer):
            deferred = connection.defer(exclusive=True)
            took_s = perf_counter() - started_s
            timed = Timed(answer, connection, self.turns)
            self._loop.spawn(self._answer_later(api, header, deferred, connection, timed, took_s))
        else:
            if self.meter is not None:
                answer = self.meter.after_cold(connection, header, answer, perf_counter() - started_s)
            if is_heavy(answer):
                self._encode(api, header, connection.defer(exclusive=True), connection, answer)
                return
            encoded = encode_response(api, version, header.correlation_id, answer)
            connection.output.append(encoded)
            connection.debt_bytes += len(encoded) + _COLD_REQUEST_BYTES
            if key is not None:
                self._answers[key] = memoryview(encoded)
            if self.meter is not None:
                self.meter.mute(connection, answer)

    def _read_large(
        self, api: Api, handler: Handler, header: RequestHeader, connection: Connection, frame: memoryview
    ) -> None:
        """Answers a request that takes long to be read: others come first, but for those of its connection."""
        deferred = connection.defer(exclusive=True)
        # The receive buffer is filled again meanwhile.
        copy = memoryview(bytes(frame))
        spent: list[float] = []
        slices = _measured(decode_request_slices(api, header.api_version, copy, header.body_position), spent)

        def then(body: Any, error: Exception | None) -> None:
            if error is None:
                try:
                    self._answer_large(api, handler, header, deferred, connection, body, sum(spent))
                    return
                except Exception as failure:
                    error = failure
            if isinstance(error, MalformedFrame):
                connection.close_reason = f"a malformed request: {error}"
                self.touch(connection)
            else:
                self._failed(api, connection, error)

        self._reading.run(connection, slices, then)

    def _answer_large(
        self,
        api: Api,
        handler: Handler,
        header: RequestHeader,
        deferred: Deferred,
        connection: Connection,
        body: Any,
        took_s: float,
    ) -> None:
        if api.key not in _SHARED:
            self._answers.clear()
        started_s = perf_counter()
        answer = handler(Request(header, body, connection))
        handled_s = perf_counter() - started_s
        took_s += handled_s
        self.turns.charge(connection, started_s, handled_s)
        if inspect.isawaitable(answer):
            timed = Timed(answer, connection, self.turns)
            self._loop.spawn(self._answer_later(api, header, deferred, connection, timed, took_s))
            return
        if self.meter is not None:
            answer = self.meter.after_cold(connection, header, answer, took_s)
        self._encode(api, header, deferred, connection, answer)

    def _unsupported_api_versions(self, api: Api, header: RequestHeader) -> bytes:
        # KIP-511: a client newer than the broker gets a version 0 body with the list, and asks again.
        return encode_response(
            api, 0, header.correlation_id, self.api_versions(ErrorCode.unsupported_version)
        )

    def api_versions(self, error_code: ErrorCode = ErrorCode.none) -> Response:
        """The answer to ApiVersions: the table's entries that have a handler."""
        answered = self.answered
        return {
            "error_code": error_code,
            "api_keys": [
                {"api_key": api.key, "min_version": api.lowest, "max_version": api.highest}
                for api in APIS.values()
                if api.key in answered
            ],
        }

    async def _answer_later(
        self,
        api: Api,
        header: RequestHeader,
        deferred: Deferred,
        connection: Connection,
        answer: Awaitable[Response],
        took_s: float,
    ) -> None:
        try:
            values = await answer
            if self.meter is not None:
                values = self.meter.after_cold(connection, header, values, took_s)
            self._encode(api, header, deferred, connection, values)
        except Exception as error:
            self._failed(api, connection, error)

    def _encode(
        self, api: Api, header: RequestHeader, deferred: Deferred, connection: Connection, values: Response
    ) -> None:
        """Answers with a message, once it is encoded: others come first where that takes long."""

        def then(encoded: bytes | None, error: Exception | None) -> None:
            if encoded is None:
                self._failed(api, connection, error)
                return
            deferred.resolve([encoded])
            if self.meter is not None:
                self.meter.mute(connection, values)

        version, correlation_id = header.api_version, header.correlation_id
        if is_heavy(values):
            slices = encode_response_slices(api, version, correlation_id, values)
            self.work.run(connection, slices, then, is_continuation=True)
        else:
            then(encode_response(api, version, correlation_id, values), None)

    def _failed(self, api: Api, connection: Connection, error: Exception | None) -> None:
        _LOG.error("answering %s of %s failed", api.name, connection.peer, exc_info=error)
        connection.close_reason = "the broker failed to answer (see above)"
        self.touch(connection)

    # -- the end of the tick ---------------------------------------------------------------------------

    def dirty(
        self, log: PartitionLog, connection: Connection, acknowledgement: Acknowledgement | None = None
    ) -> None:
        """Has the log written at the end of this tick.

        If that fails the acknowledgement is taken back; where there is none, the connection is closed.
        """
        waiting = self._dirty.get(log)
        if waiting is None:
            self._dirty[log] = [(connection, acknowledgement)]
        else:
            waiting.append((connection, acknowledgement))

    def write(self, log: PartitionLog) -> None:
        """Has the log written at the end of this tick; `on_written` tells who appended to it."""
        self._dirty.setdefault(log, [])
        self.schedule_tick()

    def end_of_tick(self) -> None:
        """Writes, wakes and sends. See the module."""
        self._is_scheduled = False
        self.tick += 1
        self.turns.spent_s = 0.0
        self._answers.clear()
        if self._dirty:
            dirty, self._dirty = self._dirty, {}
            for log, waiting in dirty.items():
                self._write(log, waiting)
        touched, self._touched = self._touched, {}
        for connection in touched:
            flush = self._flush_of.get(connection)
            if flush is not None:
                flush()

    def _write(self, log: PartitionLog, waiting: list[tuple[Connection, Acknowledgement | None]]) -> None:
        try:
            log.write_dirty()
        except LogError as error:
            # The log has told why. The answers already lie in the output, as if all had gone well: they must not be
            # sent. Those of other partitions in the same output must: else a producer would send their batches again.
            for connection, acknowledgement in waiting:
                if acknowledgement is None or not acknowledgement.take_back(connection, log, error):
                    connection.output.clear()
                    connection.close_reason = f"{log.topic}-{log.partition} could not be written"
        for callback in self._on_written:
            callback(log)


def _measured(slices: Slices[Any], spent: list[float]) -> Slices[Any]:
    """The same work, with how long each slice of it takes."""
    while True:
        started_s = perf_counter()
        try:
            next(slices)
        except StopIteration as end:
            return end.value
        finally:
            spent.append(perf_counter() - started_s)
        yield
