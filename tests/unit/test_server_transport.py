"""One client's channel over a socket pair: its receive buffer, and when it reads."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headwater_broker.server.connection import Connection, Deferred
from headwater_broker.server.core import Core
from headwater_broker.server.request_memory import RequestMemory
from headwater_broker.server.transport import Channel
from headwater_broker.wire import RequestHeader
from headwater_broker.wire.apis import PRODUCE

MAX_FRAME_BYTES = 4_000_000


class LoopOfTest:
    """The running loop as the core needs it."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_soon(callback)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> object:
        return asyncio.get_running_loop().create_task(coroutine)


class Pair:
    """A channel, and the client's end of its socket. The core answers a frame with its length."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.frames: list[bytes] = []
        self.views: list[tuple[memoryview, bytes]] = []
        self.core = Core(LoopOfTest())
        self.core.register_raw(PRODUCE, self._answer)
        self.core.on_detached(lambda _: None)
        connection = Connection("peer:1", self.core.touch, max_frame_bytes=MAX_FRAME_BYTES)
        self.memory = RequestMemory(-1)
        self.channel = Channel(ours, connection, self.core, loop, lambda _: None, self.memory)

    def _answer(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        self.frames.append(frame.tobytes())
        self.views.append((frame, frame.tobytes()))
        connection.output.append(struct.pack(">i", len(frame)))

    async def exchange(self, *sizes: int) -> list[int]:
        """Sends a frame of each size at once and waits for the answers."""
        loop = asyncio.get_running_loop()
        frames = [_frame(size) for size in sizes]
        sending = loop.create_task(_wait(loop.sock_sendall(self.client, b"".join(frames))))
        answers = b""
        while len(answers) < 4 * len(sizes):
            answers += await asyncio.wait_for(loop.sock_recv(self.client, 65536), 20)
        await sending
        assert self.frames[-len(sizes) :] == [frame[4:] for frame in frames]
        return [value for (value,) in struct.iter_unpack(">i", answers)]

    @property
    def buffer_bytes(self) -> int:
        return len(self.channel._buffer)

    def close(self) -> None:
        self.channel.close()
        self.client.close()


def _frame(size: int) -> bytes:
    """A Produce frame of so many bytes behind its length prefix; its body is not looked at."""
    header = struct.pack(">hhih", PRODUCE, 7, 1, -1)
    return struct.pack(">i", size) + header + bytes([size % 251]) * (size - len(header))


async def _wait(awaitable: Awaitable[None]) -> None:
    await awaitable


def run(story: Callable[[Pair], Awaitable[None]]) -> None:
    """Runs a story in a loop of its own."""

    async def body() -> None:
        pair = Pair()
        try:
            await story(pair)
        finally:
            pair.close()

    asyncio.run(body())


def test_channel_buffer_begins_small_grows_for_a_large_frame_and_shrinks_after() -> None:
    async def story(pair: Pair) -> None:
        first = pair.buffer_bytes
        assert await pair.exchange(20) == [20]
        assert pair.buffer_bytes == first < 100_000
        assert await pair.exchange(3_000_000) == [3_000_000]
        assert 3_000_000 <= pair.buffer_bytes < 6_100_000
        for _ in range(70):
            await pair.exchange(20)
        assert pair.buffer_bytes == 256 * 1024

    run(story)


def test_channel_announced_size_alone_allocates_nothing() -> None:
    async def story(pair: Pair) -> None:
        before = pair.buffer_bytes
        pair.client.send(struct.pack(">i", MAX_FRAME_BYTES) + bytes(100))
        await asyncio.sleep(0.05)
        assert pair.buffer_bytes == before

    run(story)


@pytest.mark.parametrize("size", [11, 300, 5000, 16_380, 16_381, 70_000])
def test_channel_many_frames_at_once_arrive_whole_and_in_order(size: int) -> None:
    async def story(pair: Pair) -> None:
        sizes = [size + index % 7 for index in range(min(2000, 4_000_000 // size))]
        assert await pair.exchange(*sizes) == sizes

    run(story)


def test_channel_goes_on_after_a_wait_and_reads_nothing_over_what_the_tick_still_needs() -> None:
    """A slow request ends, the channel goes on with the frame behind it, and more bytes arrive at once."""

    async def story(pair: Pair) -> None:
        slow, behind, later = (_frame(size) for size in (30, 3000, 9000))
        deferred: list[Deferred] = []

        def handle(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
            pair.views.append((frame, frame.tobytes()))
            if not deferred:
                deferred.append(connection.defer(exclusive=True))

        pair.core.register_raw(PRODUCE, handle)
        pair.client.send(slow + behind)
        while not deferred:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        pair.client.send(later)
        deferred[0].resolve([])
        pair.channel._resume()
        pair.channel._on_readable()
        assert len(pair.views) == 2
        view, copy = pair.views[1]
        assert view == copy == behind[4:]
        while len(pair.views) < 3:
            await asyncio.sleep(0.001)
        assert pair.views[2][1] == later[4:]

    run(story)


def test_channel_client_that_goes_away_is_detached() -> None:
    async def story(pair: Pair) -> None:
        gone: list[Connection] = []
        pair.core.on_detached(gone.append)
        pair.client.close()
        await asyncio.sleep(0.05)
        assert gone == [pair.channel.connection]
        assert pair.channel.connection.is_closed

    run(story)


def test_channel_client_that_never_reads_has_few_requests_begun() -> None:
    """Answers of 64 KiB, none of them read: the next request waits until those before it are with the kernel."""

    async def story(pair: Pair) -> None:
        begun = 0

        def answer(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
            nonlocal begun
            begun += 1
            connection.output.append(bytes(65536))
            connection.debt_bytes += 65536

        pair.core.register_raw(PRODUCE, answer)
        pair.channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        pair.client.send(_frame(20) * 5000)
        before = -1
        while begun != before:
            before = begun
            await asyncio.sleep(0.05)
        kept = sum(len(part) for part in (*pair.channel._unsent, *pair.channel.connection.output))
        assert 0 < kept < 65536 * 4
        assert begun < 20

        read = 0
        while begun < 1000:
            read += len(await asyncio.get_running_loop().sock_recv(pair.client, 1 << 20))
        assert read > 900 * 65536

    run(story)


def test_channel_requests_whose_answers_are_not_made_are_begun_up_to_a_bound() -> None:
    async def story(pair: Pair) -> None:
        unfinished: list[Deferred] = []

        def handle(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
            unfinished.append(connection.defer(exclusive=False))

        pair.core.register_raw(PRODUCE, handle)
        loop = asyncio.get_running_loop()
        sending = loop.create_task(_wait(loop.sock_sendall(pair.client, _frame(20) * 3000)))
        before = -1
        while len(unfinished) != before:
            before = len(unfinished)
            await asyncio.sleep(0.05)
        assert 500 <= before < 600
        done = 0
        while done < 3000:
            for each in unfinished[done:]:
                each.resolve([b"done"])
                done += 1
            await asyncio.sleep(0)
        await sending

    run(story)


def test_channel_large_frames_wait_for_memory_and_small_ones_do_not() -> None:
    async def story(pair: Pair) -> None:
        pair.memory.configure(1)
        other = Pair()
        other.channel._memory = pair.memory
        try:
            large = _frame(900_000)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(pair.client, large[:400_000])
            while not pair.memory.used_bytes:
                await asyncio.sleep(0.001)
            sending = loop.create_task(_wait(loop.sock_sendall(other.client, large)))
            while not pair.memory.is_short:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert other.buffer_bytes <= 256 * 1024
            assert not other.frames

            await loop.sock_sendall(pair.client, large[400_000:])
            while not (pair.frames and other.frames):
                await asyncio.sleep(0.001)
            await sending
            assert other.frames == pair.frames == [large[4:]]
            assert not pair.memory.is_short
        finally:
            other.close()
        assert pair.memory.used_bytes <= 900_004

    run(story)


def test_channel_size_that_is_refused_makes_no_room_behind_an_answer_that_takes_its_time() -> None:
    """Nobody has looked at the size yet when its bytes come in."""

    async def story(pair: Pair) -> None:
        deferred: list[Deferred] = []
        pair.core.register_raw(
            PRODUCE, lambda connection, *_: deferred.append(connection.defer(exclusive=True))
        )
        pair.client.send(_frame(30))
        while not deferred:
            await asyncio.sleep(0.001)
        loop = asyncio.get_running_loop()
        flood = struct.pack(">i", 2**31 - 1) + bytes(6_000_000)
        sending = loop.create_task(_wait(loop.sock_sendall(pair.client, flood)))
        await asyncio.sleep(0.2)
        assert pair.buffer_bytes <= 256 * 1024
        assert pair.memory.used_bytes == 0
        deferred[0].resolve([])
        while not pair.channel.connection.is_closed:
            await asyncio.sleep(0.001)
        with pytest.raises(OSError):
            await sending

    run(story)


def test_channel_larger_requests_are_read_on_once_they_are_allowed() -> None:
    """As those of a client that has said who it is: the first one lay there, larger than was allowed until then."""

    async def story(pair: Pair) -> None:
        deferred: list[Deferred] = []
        connection = pair.channel.connection
        connection.max_frame_bytes = 1000

        def handle(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
            pair.frames.append(frame.tobytes())
            if not deferred:
                deferred.append(connection.defer(exclusive=True))

        pair.core.register_raw(PRODUCE, handle)
        loop = asyncio.get_running_loop()
        sending = loop.create_task(_wait(loop.sock_sendall(pair.client, _frame(30) + _frame(900_000))))
        while not deferred:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        connection.max_frame_bytes = MAX_FRAME_BYTES
        deferred[0].resolve([])
        await asyncio.wait_for(sending, 20)
        while len(pair.frames) < 2:
            await asyncio.sleep(0.001)
        assert pair.frames[1] == _frame(900_000)[4:]

    run(story)
