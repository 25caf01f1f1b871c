"""Sockets: bytes from a client into the core, and the core's answers out.

Each socket is non-blocking and watched by the loop. The rules that keep it right:

- No further request of a connection is begun while more than a bound of its answers waits, in bytes or in number,
  and one that asks for much takes turns with its like (see `turns`).
- A connection is read at most once between two ends of a tick. The core's appended batches still lie in the
  receive buffer until the end of the tick writes them, so nothing may move or refill it before.
- When the kernel takes no more bytes the writer is armed, and nothing more is read from that client until its
  answers are gone.
- A closed connection is taken out of the loop first and its socket closed after, so that a descriptor number
  that the kernel gives out again is never acted on.
"""

import asyncio
import errno
import logging
import os
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from time import perf_counter

from headwater_broker.log import FileRange
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core
from headwater_broker.server.request_memory import RequestMemory
from headwater_broker.server.turns import BURST_S
from headwater_broker.shown import MESSAGE_CHARS, shown

_LOG = logging.getLogger(__name__)
_SIZE = Struct(">i")
# A connection begins with a small buffer, since most are idle, and gets the large one as soon as it fills it.
_FIRST_BUFFER_BYTES = 16 * 1024
_BUFFER_BYTES = 256 * 1024
_IDLE_S = 10.0
_SMALL_READS_BEFORE_SHRINKING = 64
# Up to here one pread and one send beat the three system calls that sendfile needs around a small answer.
_COPY_BYTES = 64 * 1024
_GATHER_BYTES = 256 * 1024
_DEBT_BYTES = 128 * 1024
_MOST_ANSWERS = 512
"""Pieces of answers that may wait to be sent, those that are not made yet among them."""
_TURN_S = 0.002
_LARGE_REQUEST_BYTES = 4096
"""A request that asks for so many things waits for a turn, whoever sends it."""

_SENDING_S = 1.5e-9
"""What a byte of an answer costs to be sent."""

_SENT_AT_ONCE_BYTES = 8 * 1024 * 1024
"""How much a client that reads fast is sent before the others get their turn."""
_PEER_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOTCONN})


class _FileError(Exception):
    """A range of a log file that was promised cannot be had."""


class Channel:
    """One client's socket."""

    _MORE = int(socket.MSG_MORE)
    """Flag for bytes that a file range follows."""

    __slots__ = (
        "_buffer",
        "_core",
        "_end",
        "_has_sent",
        "_last_sent",
        "_loop",
        "_memory",
        "_on_closed",
        "_parsed_tick",
        "_reading",
        "_small_reads",
        "_start",
        "_unsent",
        "_writing",
        "connection",
        "last_active",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket,
        connection: Connection,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        on_closed: Callable[["Channel"], None],
        memory: RequestMemory,
    ) -> None:
        self.sock = sock
        self.connection = connection
        self.last_active = loop.time()
        self._core = core
        self._loop = loop
        self._on_closed = on_closed
        self._memory = memory
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self._small_reads = 0
        self._has_sent = False
        self._last_sent = 0.0
        self._parsed_tick = -1
        self._unsent: list[bytes | memoryview | FileRange] = []
        self._reading = False
        self._writing = False
        connection.has_left = self._has_left
        core.attach(self.connection, self.flush)
        self._watch_reads(True)

    # -- reading ---------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        # The core may still refer to bytes that were parsed in this tick: come back after its end.
        if self.connection.is_closed or self._parsed_tick == self._core.tick:
            return
        if not self._make_room():
            self._watch_reads(False)
            return
        try:
            with memoryview(self._buffer) as view:
                count = self.sock.recv_into(view[self._end :])
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return
        self.last_active = self._loop.time()
        self._end += count
        self._parse()

    def _make_room(self) -> bool:
        """Makes space behind the bytes that are there; False where they must be worked off first."""
        pending = self._end - self._start
        size = len(self._buffer)
        needed = self._head_frame_bytes() if pending >= _SIZE.size else 0
        if pending == 0:
            was_filled = self._end == size
            self._start = self._end = 0
            if size < _BUFFER_BYTES and was_filled:
                self._buffer = bytearray(_BUFFER_BYTES)
            elif size > _BUFFER_BYTES:
                self._small_reads += 1
                if self._small_reads > _SMALL_READS_BEFORE_SHRINKING:
                    self.give_back()
            return True
        if pending == size:
            # No room is made for a size that will be refused, perhaps only behind an answer that takes its time.
            if needed <= size or needed > self.connection.max_frame_bytes + _SIZE.size:
                return False
            if needed > _BUFFER_BYTES and not self._memory.take(self, needed, self._loop.time()):
                return False
            # Grown as the bytes come in: a size alone, which may be a lie, allocates nothing.
            self._replace_buffer(max(min(needed, 2 * size), _BUFFER_BYTES))
        elif self._start and (self._end == size or self._start + needed > size):
            self._replace_buffer(max(size, _BUFFER_BYTES) if self._end == size else size)
        if needed > _BUFFER_BYTES:
            self._small_reads = 0
        return True

    def _replace_buffer(self, size: int) -> None:
        pending = self._end - self._start
        buffer = bytearray(size) if size != len(self._buffer) else self._buffer
        buffer[:pending] = self._buffer[self._start : self._end]
        self._buffer = buffer
        self._start, self._end = 0, pending

    def _head_frame_bytes(self) -> int:
        size: int = _SIZE.unpack_from(self._buffer, self._start)[0]
        return size + _SIZE.size

    def _parse(self, *, is_turn: bool = False) -> None:
        connection = self.connection
        turns = self._core.turns
        started_s = perf_counter()
        charged_until_s = connection.charged_until_s
        if (
            (charged_until_s - started_s > BURST_S or not charged_until_s)
            and not is_turn
            and turns.must_wait(connection, self._take_turn)
        ):
            return
        now_s = started_s
        turn_ends_s = started_s + _TURN_S
        start, end = self._start, self._end
        handle, handle_alike = self._core.handle, self._core.handle_alike
        buffer = self._buffer
        view = memoryview(buffer)
        is_half = False
        while end - start >= 4:
            if connection.waiting_for is not None or self._writing or connection.close_reason is not None:
                break
            if connection.debt_bytes > _DEBT_BYTES or len(connection.output) > _MOST_ANSWERS:
                break
            frames_end = handle_alike(connection, buffer, view, start, end)
            if frames_end == start:
                (size,) = _SIZE.unpack_from(buffer, start)
                if not 0 < size <= connection.max_frame_bytes:
                    connection.close_reason = _refusal(
                        bytes(view[start : start + 8]), size, connection.max_frame_bytes
                    )
                    self._core.touch(connection)
                    break
                frames_end = start + 4 + size
                if frames_end > end:
                    is_half = True
                    break
                if (
                    size > _LARGE_REQUEST_BYTES
                    and buffer[start + 5]  # Produce is 0; no key has more than one byte
                    and not is_turn
                    and turns.must_wait(connection, self._take_turn)
                ):
                    break
                handle(connection, view, start + 4, frames_end)
            if self._parsed_tick != self._core.tick:
                self._parsed_tick = self._core.tick
                self._core.schedule_tick()
            start = frames_end
            now_s = perf_counter()
            if now_s > turn_ends_s:
                break
        self._start = start
        if now_s > started_s:
            turns.charge(connection, started_s, now_s - started_s + connection.debt_bytes * _SENDING_S)
        if not self._reading and (is_half or self._end - start < len(buffer)):
            self._watch_reads(not self._writing)

    def _has_left(self) -> bool:
        if self.connection.is_closed:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        return bool(poll.poll(0))

    # -- writing ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sends what can be sent, then goes on with requests that waited for it. Called at the tick's end."""
        connection = self.connection
        if connection.is_closed:
            return
        connection.debt_bytes = 0
        if len(self._buffer) > _BUFFER_BYTES and self._memory.is_short:
            self.give_back()
        if not self._writing:
            self._send()
        if connection.close_reason is not None:
            if not self._writing:
                self.refuse(connection.close_reason)
            return
        if (
            self._end - self._start >= _SIZE.size
            and connection.waiting_for is None
            and not connection.is_closed
        ):
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self.connection.is_closed:
            self._parse()

    def _take_turn(self) -> None:
        if not self.connection.is_closed:
            self._parse(is_turn=True)

    def _on_writable(self) -> None:
        if self.connection.is_closed:
            return
        self._loop.remove_writer(self.sock)
        self._writing = False
        self._send()
        if not self._writing and not self.connection.is_closed:
            self._watch_reads(True)
            self.flush()

    def _send(self) -> None:
        """Sends until the output is empty or the kernel takes no more."""
        sent_bytes = 0
        try:
            while sent_bytes < _SENT_AT_ONCE_BYTES:
                if not self._unsent and not self.connection.output:
                    return
                data, file_range = self._gather()
                if not data and file_range is None:
                    return
                sent_bytes += len(data) + (file_range.count if file_range is not None else 0)
                if data and not self._send_bytes(data, more=file_range is not None):
                    if file_range is not None:
                        self._unsent.insert(1, file_range)
                    break
                if file_range is not None and not self._send_file(file_range):
                    break
        except _FileError as error:
            _LOG.error("closing the connection of %s: %s", self.connection.peer, error)
            self.close()
        except OSError as error:
            _LOG.debug("%s is gone: %s", self.connection.peer, error)
            self.close()
        else:
            self._arm_writer()

    def _gather(self) -> tuple[bytes | memoryview, FileRange | None]:
        """Small pieces joined into one, up to a file range that is worth a sendfile of its own."""
        pieces: list[bytes | memoryview] = []
        size = 0
        while size < _GATHER_BYTES:
            part = self._unsent.pop(0) if self._unsent else self.connection.take_ready()
            if part is None:
                break
            if isinstance(part, FileRange):
                if part.count > _COPY_BYTES:
                    return b"".join(pieces), part
                piece: bytes | memoryview = read_range(part, part.count)
            else:
                piece = part
            pieces.append(piece)
            size += len(piece)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), None

    def _send_bytes(self, data: bytes | memoryview, *, more: bool) -> bool:
        try:
            sent = self.sock.send(data, self._MORE if more else 0)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent = 0
        else:
            self._has_sent = True
        if sent == len(data):
            return True
        self._unsent.insert(0, memoryview(data)[sent:])
        return False

    def _send_file(self, file_range: FileRange) -> bool:
        try:
            sent = os.sendfile(self.sock.fileno(), file_range.fd, file_range.position, file_range.count)
        except (BlockingIOError, InterruptedError):
            sent = -1
        except OSError as error:
            if error.errno in _PEER_GONE:
                raise
            raise _FileError(f"{_path(file_range)} cannot be sent: {error}") from error
        if sent == 0:
            raise _FileError(f"{_path(file_range)} ends before byte {file_range.position + 1}")
        self._has_sent = True
        if sent == file_range.count:
            return True
        if sent > 0:
            file_range.position += sent
            file_range.count -= sent
        self._unsent.insert(0, file_range)
        return False

    # -- the loop --------------------------------------------------------------------------------------

    def _arm_writer(self) -> None:
        self._writing = True
        self._watch_reads(False)
        self._loop.add_writer(self.sock, self._on_writable)

    def _watch_reads(self, enabled: bool) -> None:
        if enabled and not self._reading:
            self._loop.add_reader(self.sock, self._on_readable)
        elif not enabled and self._reading:
            self._loop.remove_reader(self.sock)
        self._reading = enabled

    def refuse(self, reason: str) -> None:
        """Closes the connection and says why in the log."""
        _LOG.warning("closing the connection of %s: %s", self.connection.peer, shown(reason, MESSAGE_CHARS))
        self.close()

    def close(self) -> None:
        """Takes the socket out of the loop and closes it."""
        connection = self.connection
        if connection.is_closed:
            return
        connection.is_closed = True
        self._watch_reads(False)
        self._loop.remove_writer(self.sock)
        self._unsent.clear()
        self._core.detach(connection)
        self._memory.release(self)
        connection.output.clear()
        with suppress(OSError):
            self.sock.close()
        self._on_closed(self)

    @property
    def awaits_answer(self) -> bool:
        """Whether it is our turn: the client has asked, and an answer is not there yet."""
        return not self._writing and self.connection.awaits_answer

    def silent_since(self, now_s: float) -> float:
        """When a byte moved last in either direction; what was sent since the last call counts as sent now.

        That spares every answer a look at the clock.
        """
        if self._has_sent:
            self._has_sent = False
            self._last_sent = now_s
        return max(self.last_active, self._last_sent)

    def release_memory(self) -> None:
        """Gives back a buffer that grew, if the client has been silent since."""
        is_silent = self._loop.time() - self.last_active > _IDLE_S
        if is_silent and self._start == self._end and len(self._buffer) > _FIRST_BUFFER_BYTES:
            self._buffer = bytearray(_FIRST_BUFFER_BYTES)
            self._start = self._end = 0
            self._memory.release(self)

    def give_back(self) -> bool:
        """See `Holder`."""
        # The core may still refer to bytes of this tick, and then the memory would stay.
        if self._start != self._end or self._parsed_tick == self._core.tick:
            return False
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = self._end = 0
        self._small_reads = 0
        self._memory.release(self)
        return True

    def read_on(self) -> None:
        """See `Holder`."""
        self._watch_reads(not self._writing)


def _refusal(first_bytes: bytes, size: int, allowed: int) -> str:
    if first_bytes[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return "this is the Kafka protocol's port, and the client speaks HTTP"
    if first_bytes[:2] == b"\x16\x03":
        return "the client speaks TLS to a plaintext port"
    return f"a request of {size} bytes; allowed are 1 to {allowed} (socket.request.max.bytes)"


def read_range(part: FileRange, count: int) -> bytes:
    """The first bytes of a range."""
    try:
        data = os.pread(part.fd, count, part.position)
    except OSError as error:
        raise _FileError(f"{_path(part)} cannot be read: {error}") from error
    if len(data) != count:
        raise _FileError(f"{_path(part)} ends before byte {part.position + count}")
    return data


def _path(file_range: FileRange) -> str:
    return file_range.file.path if file_range.file else "a log file"
