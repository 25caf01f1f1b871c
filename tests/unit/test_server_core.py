"""The core without a socket: frames in, parts out, one step at the end of each tick."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater_broker.log import StorageError
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core, Request, Response
from headwater_broker.wire import MalformedFrame, RequestHeader
from headwater_broker.wire.apis import HEARTBEAT, PRODUCE


class FakeLoop:
    """Collects what the core wants done; `turn` does it."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.coroutines: list[Coroutine[Any, Any, None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.coroutines.append(coroutine)

    def turn(self) -> None:
        for coroutine in self.coroutines:
            asyncio.run(coroutine)
        self.coroutines.clear()
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class FakeLog:
    """A log whose writes are counted, or fail."""

    topic = "t"
    partition = 0

    def __init__(self, error: Exception | None = None) -> None:
        self.writes = 0
        self.error = error

    def write_dirty(self) -> None:
        self.writes += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def core(loop: FakeLoop) -> Core:
    return Core(loop)


def connect(core: Core, sent: list[Any]) -> Connection:
    connection = Connection("peer:1", core.touch)

    def flush() -> None:
        while (part := connection.take_ready()) is not None:
            sent.append(part)

    core.attach(connection, flush)
    return connection


def heartbeat(core: Core, connection: Connection, correlation_id: int) -> None:
    body = struct.pack(">hhih", HEARTBEAT, 0, correlation_id, -1) + struct.pack(">hih", 0, 1, 0)
    frame = bytearray(b"before" + body + b"behind")
    core.handle(connection, memoryview(frame), 6, 6 + len(body))


def answered(sent: list[Any]) -> list[int]:
    return [struct.unpack_from(">i", part, 4)[0] for part in sent]


def test_core_answer_is_sent_at_the_end_of_the_tick_not_before(core: Core, loop: FakeLoop) -> None:
    core.register(HEARTBEAT, lambda _: {"error_code": 0})
    sent: list[Any] = []
    connection = connect(core, sent)
    core.schedule_tick()
    heartbeat(core, connection, 7)
    assert sent == []
    loop.turn()
    assert sent == [struct.pack(">iih", 6, 7, 0)]


def test_core_answers_that_take_time_keep_their_place(core: Core, loop: FakeLoop) -> None:
    async def later() -> Response:
        return {"error_code": 27}

    core.register(
        HEARTBEAT, lambda request: later() if request.header.correlation_id == 1 else {"error_code": 0}
    )
    sent: list[Any] = []
    connection = connect(core, sent)
    heartbeat(core, connection, 1)
    assert connection.waiting_for is not None
    heartbeat(core, connection, 2)
    core.end_of_tick()
    assert sent == []
    loop.turn()
    assert connection.waiting_for is None
    core.end_of_tick()
    assert answered(sent) == [1, 2]


def test_core_dirty_log_is_written_once_a_tick_before_anything_is_sent(core: Core, loop: FakeLoop) -> None:
    log: Any = FakeLog()
    sent: list[Any] = []

    def produce(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        core.dirty(log, connection)
        connection.output.append(b"ok")

    order: list[str] = []
    core.register_raw(PRODUCE, produce)
    core.on_written(lambda written: order.append(f"written {written.topic}, sent {len(sent)}"))
    connections = [connect(core, sent) for _ in range(3)]
    frame = bytearray(struct.pack(">hhih", PRODUCE, 7, 1, -1))
    for connection in connections:
        core.schedule_tick()
        core.handle(connection, memoryview(frame), 0, len(frame))
    assert log.writes == 0
    loop.turn()
    assert log.writes == 1
    assert order == ["written t, sent 0"]
    assert sent == [b"ok"] * 3
    core.end_of_tick()
    assert log.writes == 1


def test_core_failed_write_closes_those_who_produced_and_sends_them_nothing(
    core: Core, loop: FakeLoop
) -> None:
    log: Any = FakeLog(StorageError("No space left on device"))

    def produce(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        core.dirty(log, connection)
        connection.output.append(b"acknowledged")

    core.register_raw(PRODUCE, produce)
    core.register(HEARTBEAT, lambda _: {"error_code": 0})
    sent: list[Any] = []
    producer, other = connect(core, sent), connect(core, sent)
    frame = bytearray(struct.pack(">hhih", PRODUCE, 7, 1, -1))
    core.handle(producer, memoryview(frame), 0, len(frame))
    heartbeat(core, other, 5)
    core.end_of_tick()
    assert answered(sent) == [5]
    assert producer.close_reason == "t-0 could not be written"
    assert other.close_reason is None


def test_core_failed_write_takes_acknowledgements_back(core: Core, loop: FakeLoop) -> None:
    log: Any = FakeLog(StorageError("No space left on device"))

    class Promise:
        def take_back(self, connection: Connection, log: Any, error: Exception) -> bool:
            connection.output[-1] = str(error).encode()
            return True

    def produce(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        core.dirty(log, connection, Promise())
        connection.output.append(b"acknowledged")

    core.register_raw(PRODUCE, produce)
    sent: list[Any] = []
    producer = connect(core, sent)
    frame = bytearray(struct.pack(">hhih", PRODUCE, 7, 1, -1))
    core.handle(producer, memoryview(frame), 0, len(frame))
    core.end_of_tick()
    assert sent == [b"No space left on device"]
    assert producer.close_reason is None


def test_core_handler_that_fails_closes_the_connection_and_logs_why(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Request) -> Response:
        raise KeyError("our bug")

    core.register(HEARTBEAT, broken)
    connection = connect(core, [])
    heartbeat(core, connection, 1)
    assert connection.close_reason is not None
    assert "our bug" in caplog.text


def test_core_answer_for_a_connection_that_closed_is_dropped(core: Core, loop: FakeLoop) -> None:
    async def later() -> Response:
        return {"error_code": 0}

    core.register(HEARTBEAT, lambda _: later())
    connection = connect(core, [])
    heartbeat(core, connection, 1)
    connection.is_closed = True
    core.detach(connection)
    loop.turn()
    core.end_of_tick()


class FakeGate:
    """Lets nobody in, or everybody."""

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open

    def intercept(self, connection: Connection, frame: memoryview) -> bool:
        return not self.is_open


class FakeMeter:
    """Stands for quotas."""


def test_core_requests_that_look_alike_are_taken_unless_each_must_be_looked_at(core: Core) -> None:
    connection = connect(core, [])
    buffer = bytearray(b"firstsecond")
    asked: list[tuple[int, int]] = []

    def take(_: Connection, buffer: bytearray, view: memoryview, start: int, end: int) -> int:
        asked.append((start, end))
        return start + 6

    def handle() -> int:
        return core.handle_alike(connection, buffer, memoryview(buffer), 5, 11)

    assert handle() == 5  # nobody is there to take them
    core.register_alike(take)
    assert handle() == 11
    connection.gate = FakeGate(is_open=True)
    assert handle() == 11
    connection.gate = FakeGate(is_open=False)
    assert handle() == 5
    connection.gate = None
    core.meter = FakeMeter()  # type: ignore[assignment]
    assert handle() == 5
    assert asked == [(5, 11)] * 2


def test_core_requests_that_look_alike_and_fail_close_the_connection_and_are_not_tried_again(
    core: Core, loop: FakeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect(core, [])

    def take(*_: object) -> int:
        raise ValueError("a bug")

    core.register_alike(take)
    buffer = bytearray(20)
    assert core.handle_alike(connection, buffer, memoryview(buffer), 3, 20) == 20
    assert connection.close_reason is not None
    assert "a bug" in caplog.text


def test_core_requests_that_only_seem_alike_are_left_to_the_parser(core: Core) -> None:
    connection = connect(core, [])

    def take(*_: object) -> int:
        raise MalformedFrame("a varint of more than five bytes")

    core.register_alike(take)
    buffer = bytearray(20)
    assert core.handle_alike(connection, buffer, memoryview(buffer), 3, 20) == 3
    assert connection.close_reason is None
