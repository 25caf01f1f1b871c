"""Listening sockets, and the connections that came through them."""

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress

from headwater_broker.server.core import Core
from headwater_broker.server.errors import PortInUseError, UsageError
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.transport import Channel

_LOG = logging.getLogger(__name__)
_ACCEPTS_A_TICK = 128
_OUT_OF_DESCRIPTORS_PAUSE_S = 1.0


def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Binds and listens, on the first address that the host's name has.

    Args:
        host: Name or address; IPv6 too.
        port: Port, 0 for a free one.
        backlog: Connections that may wait.

    Raises:
        PortInUseError: Another process listens there.
        UsageError: The host is not one of this machine's.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}: {error.strerror or error}") from error
    family, kind, _, _, address = infos[0]
    # The protocol is named: accepted sockets inherit it, and code that asks for it finds TCP.
    sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is in use: stop what listens there, or give another port"
            raise PortInUseError(message) from error
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return [sock]


class Listener:
    """Accepts connections while there is room for them."""

    def __init__(self, sockets: Sequence[socket.socket], core: Core, settings: BrokerSettings) -> None:
        self._sockets = sockets
        self._core = core
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._channels: set[Channel] = set()

    def configure(self, settings: BrokerSettings) -> None:
        """Takes new limits from now on."""
        self._settings = settings

    def start_accepting(self) -> None:
        """Watches the listening sockets."""
        for sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)

    def stop_accepting(self) -> None:
        """Closes the listening sockets; connections go on."""
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()

    def close(self) -> None:
        """Closes all connections."""
        for channel in list(self._channels):
            channel.close()

    def tick(self) -> None:
        """Closes connections that were silent for too long, and takes back memory of those that are idle."""
        oldest = self._loop.time() - self._settings.connections_max_idle_ms / 1000
        for channel in list(self._channels):
            if channel.is_idle:
                if channel.last_active < oldest:
                    channel.close()
                else:
                    channel.release_memory()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_TICK):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            peer = f"{address[0]}:{address[1]}"
            if len(self._channels) >= self._settings.max_connections:
                _LOG.warning("refusing %s: max.connections=%d is reached", peer, len(self._channels))
                sock.close()
                continue
            self._prepare(sock)
            channel = Channel(
                sock,
                peer,
                self._core,
                self._loop,
                self._settings.socket_request_max_bytes,
                self._channels.discard,
            )
            self._channels.add(channel)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_RCVBUF, self._settings.socket_receive_buffer_bytes),
            (socket.SO_SNDBUF, self._settings.socket_send_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Out of descriptors: without a pause the loop would spin on the same waiting connection."""
        _LOG.error("cannot accept connections for a while: %s", error)
        self._loop.remove_reader(listening)

        def resume() -> None:
            with suppress(ValueError, OSError):  # closed meanwhile
                self._loop.add_reader(listening, self._accept, listening)

        self._loop.call_later(_OUT_OF_DESCRIPTORS_PAUSE_S, resume)
