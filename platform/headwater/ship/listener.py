"""Listens for syslog on a TCP and a UDP port of one number; what it accepts is in the spool."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headwater.errors import PortInUseError, UsageError, UserError, reason
from headwater.ship.errors import ShipError
from headwater.ship.spool import Spool
from headwater.ship.syslog import (
    MAX_COUNT_DIGITS,
    MAX_MESSAGE_BYTES,
    FramingError,
    SyslogFramer,
    SyslogMessage,
    without_line_end,
)
from headwater_broker.numbers import is_natural
from headwater_streams.base.plural import quantity

_RECEIVE_BUFFER_BYTES = 8 << 20
_FULL_CHECK_S = 0.2
_SYNC_S = 1.0
_REPEAT_S = 30.0


class SyslogListener:
    """A thread that receives.

    Attributes:
        address: Where it listens, host:port.
        failure: The fault that ended its thread before it was closed, so that nothing is received; None without one.
    """

    def __init__(self, address: str, spool: Spool, say: Callable[[str], None]) -> None:
        """Opens the ports.

        Args:
            address: host:port; port 0 takes a free one.
            spool: Takes the messages.
            say: Takes a sentence for people.

        Raises:
            UsageError: The address is none.
            PortInUseError: Somebody else listens there.
        """
        host, port = parse_address(address)
        self._spool = spool
        self._say = say
        self._reported_s: dict[str, float] = {}
        self._unsaid: dict[str, str] = {}
        self._dropped = self._cut = 0
        self._open: set[asyncio.Transport] = set()
        self._tcp, self._udp = _bind(host, port, address)
        own = self._tcp.getsockname()
        self.address = f"[{own[0]}]:{own[1]}" if ":" in own[0] else f"{own[0]}:{own[1]}"
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syslog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listens no more; what was received is in the spool."""
        self._stopping.set()
        self._thread.join()
        try:
            self._spool.sync()
        except OSError as error:
            self._complain_of_sync(error)
        self._say_due(now=float("inf"))

    def check(self) -> None:
        """Requires that messages are received.

        Raises:
            ShipError: The thread has ended.
        """
        if self.failure is not None:
            raise ShipError(f"syslog is received no more ({self.failure!r}): start it again")

    def accept(self, peer: bytes, messages: list[SyslogMessage]) -> bool:
        """Puts messages into the spool; False if it cannot take them."""
        if not messages:
            return True
        try:
            self._spool.append(peer, messages)
        except OSError as error:
            self.complain("spool", f"cannot keep syslog messages: {reason(error)}")
            return False
        if cut := sum(each.full_bytes is not None for each in messages):
            self._cut += cut
            self.complain(
                "cut",
                f"cut: {quantity(self._cut, 'syslog message')} longer than {MAX_MESSAGE_BYTES} bytes or broken off "
                "with the connection; the header headwater-syslog-truncated has the full length",
            )
        return True

    def drop(self, count: int) -> None:
        """Counts messages that were lost: a sender cannot be made to wait over UDP."""
        self._dropped += count
        lost = quantity(self._dropped, "syslog message")
        self.complain("lost", f"lost, as the spool was full: {lost} that came over UDP")

    def complain(self, kind: str, sentence: str) -> None:
        """Reports a sentence now, or _REPEAT_S after the last one of its kind; of several, the newest."""
        self._unsaid[kind] = sentence
        self._say_due(time.monotonic())

    def _say_due(self, now: float) -> None:
        for kind in list(self._unsaid):
            if now - self._reported_s.get(kind, -_REPEAT_S) >= _REPEAT_S:
                self._reported_s[kind] = now
                with suppress(OSError):  # what people read may be on the full disk, too
                    self._say(self._unsaid.pop(kind))

    def _complain_of_sync(self, error: OSError) -> None:
        self.complain("sync", f"cannot write syslog messages through to the disk: {reason(error)}")

    @property
    def full(self) -> bool:
        """Whether the spool takes no more."""
        return self._spool.full

    def opened(self, transport: asyncio.Transport) -> None:
        """A sender has connected."""
        self._open.add(transport)

    def closed(self, transport: asyncio.Transport) -> None:
        """A sender has gone."""
        self._open.discard(transport)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error
        finally:
            self._tcp.close()
            self._udp.close()

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Reports what asyncio would log, as that no file can be opened to accept a connection: it tries again."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self.complain("socket", f"cannot receive syslog: {reason(error)}")
        else:
            loop.default_exception_handler(context)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._handle)
        server = await loop.create_server(lambda: _Stream(self), sock=self._tcp)
        datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=self._udp)
        synced = time.monotonic()
        try:
            while not self._stopping.is_set():
                await asyncio.sleep(_FULL_CHECK_S)
                self._say_due(time.monotonic())
                if time.monotonic() - synced >= _SYNC_S:
                    synced = time.monotonic()
                    try:
                        await asyncio.to_thread(self._spool.sync)
                    except OSError as error:
                        self._complain_of_sync(error)
                for transport in self._open:
                    if self.full and transport.is_reading():
                        transport.pause_reading()
                    elif not self.full and not transport.is_reading() and not transport.is_closing():
                        transport.resume_reading()
        finally:
            server.close()
            datagrams.close()
            for transport in list(self._open):
                transport.abort()
            await asyncio.sleep(0)


class _Stream(asyncio.Protocol):
    def __init__(self, listener: SyslogListener) -> None:
        self._listener = listener
        self._framer = SyslogFramer()
        self._transport: Any = None
        self._peer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = _host(transport.get_extra_info("peername"))
        self._listener.opened(transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._framer.feed(data)
        except FramingError as error:
            self._listener.accept(self._peer, error.messages)
            self._listener.complain(
                "framing",
                f"{self._peer.decode()} sent a syslog message with a length of more than {MAX_COUNT_DIGITS} digits: "
                "what follows cannot be told apart, and its connection was closed",
            )
            self._transport.abort()
            return
        if not self._listener.accept(self._peer, messages):
            self._framer = SyslogFramer()  # a message that has begun is not taken, either
            self._transport.abort()  # the sender sees that its messages were not taken
        elif self._listener.full:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.closed(self._transport)
        if exc is None:
            self._listener.accept(self._peer, self._framer.rest())


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, listener: SyslogListener) -> None:
        self._listener = listener

    def datagram_received(self, data: bytes, addr: Any) -> None:
        message = without_line_end(data)
        if not message:
            return
        if self._listener.full or not self._listener.accept(_host(addr), [SyslogMessage(message)]):
            self._listener.drop(1)


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets.

    Raises:
        UsageError: It is not of that form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not is_natural(port) or (":" in host and not host.startswith("[")):
        raise UsageError(f"--syslog {address} is not of the form host:port")
    if int(port) > 65535:
        raise UsageError(f"--syslog {address}: a port is at most 65535")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - an empty host means all addresses


def _bind(host: str, port: int, address: str) -> tuple[socket.socket, socket.socket]:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"--syslog {address}: there is no such address here") from error
    for _ in range(20):
        tcp = socket.socket(family, socket.SOCK_STREAM)
        udp = socket.socket(family, socket.SOCK_DGRAM)
        try:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind(where)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            udp.bind((where[0], tcp.getsockname()[1], *where[2:]))
            tcp.listen(512)
        except OSError as error:
            tcp.close()
            udp.close()
            if port == 0 and error.errno == 98:
                continue  # the free TCP port is somebody's UDP port
            raise PortInUseError(f"cannot listen for syslog on {address}: {reason(error)}") from error
        tcp.setblocking(False)
        udp.setblocking(False)
        return tcp, udp
    raise PortInUseError(f"cannot listen for syslog on {address}: no port is free for both TCP and UDP")


def _host(address: Any) -> bytes:
    return str(address[0]).partition("%")[0].encode() if address else b"-"
