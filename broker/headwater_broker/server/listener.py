"""Listening sockets, and the connections that came through them."""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core
from headwater_broker.server.errors import PortInUseError, UsageError
from headwater_broker.server.listeners import ListenerSpec
from headwater_broker.server.quotas import Quotas
from headwater_broker.server.sasl import SaslGate, SaslSettings
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.tls import TlsChannel, TlsSettings
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


@dataclass(frozen=True, slots=True)
class Door:
    """A listening socket, and what clients go through behind it.

    Attributes:
        spec: Its listener.
        sock: The socket.
        tls: What TLS needs, None without TLS.
        sasl: What SASL needs, None without SASL.
    """

    spec: ListenerSpec
    sock: socket.socket
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


class Listener:
    """Accepts connections while there is room for them.

    Raises:
        UsageError: `max.connections.per.ip.overrides` is malformed.
    """

    def __init__(self, doors: Sequence[Door], core: Core, settings: BrokerSettings, quotas: Quotas) -> None:
        self._doors = doors
        self._quotas = quotas
        self._too_early: set[socket.socket] = set()
        self._per_host: Counter[str] = Counter()
        self._per_host_overrides = _parse_overrides(settings.max_connections_per_ip_overrides)
        self._core = core
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._channels: set[Channel] = set()

    def configure(self, settings: BrokerSettings) -> None:
        """Takes new limits from now on."""
        self._settings = settings
        self._per_host_overrides = _parse_overrides(settings.max_connections_per_ip_overrides)

    def start_accepting(self) -> None:
        """Watches the listening sockets."""
        for door in self._doors:
            self._loop.add_reader(door.sock, self._accept, door)

    def stop_accepting(self) -> None:
        """Closes the listening sockets; connections go on."""
        for door in self._doors:
            self._loop.remove_reader(door.sock)
            door.sock.close()

    def close(self) -> None:
        """Closes all connections."""
        for channel in list(self._channels):
            channel.close()
        for sock in self._too_early:
            sock.close()

    def tick(self) -> None:
        """Closes connections that were silent for too long, and takes back memory of those that are idle."""
        oldest = self._loop.time() - self._settings.connections_max_idle_ms / 1000
        for channel in list(self._channels):
            if channel.is_idle:
                if channel.last_active < oldest:
                    channel.close()
                else:
                    channel.release_memory()

    def _accept(self, door: Door) -> None:
        for _ in range(_ACCEPTS_A_TICK):
            try:
                sock, address = door.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(door, error)
                return
            peer = f"{address[0]}:{address[1]}"
            reason = self._refusal(address[0])
            if reason is not None:
                _LOG.warning("refusing %s: %s", peer, reason)
                sock.close()
                continue
            wait_s = self._quotas.connected(address[0])
            if wait_s > 0:
                self._keep_waiting(sock, wait_s)
                continue
            self._prepare(sock)
            self._channels.add(self._open(door, sock, peer))
            self._per_host[address[0]] += 1

    def _keep_waiting(self, sock: socket.socket, wait_s: float) -> None:
        """Closes a connection that came too early, but late: a client that is closed comes again at once."""
        self._too_early.add(sock)

        def close() -> None:
            self._too_early.discard(sock)
            sock.close()

        self._loop.call_later(wait_s, close)

    def _refusal(self, host: str) -> str | None:
        """Why there is no room for a connection from there."""
        limit = self._settings.max_connections
        if len(self._channels) + len(self._too_early) >= limit:
            return f"max.connections={limit} is reached"
        limit = self._per_host_overrides.get(host, self._settings.max_connections_per_ip)
        if self._per_host[host] >= limit:
            return f"max.connections.per.ip={limit} is reached for it"
        return None

    def _open(self, door: Door, sock: socket.socket, peer: str) -> Channel:
        connection = Connection(
            peer,
            self._core.touch,
            listener=door.spec.name,
            max_frame_bytes=self._settings.socket_request_max_bytes,
        )
        if door.sasl is not None:
            connection.gate = SaslGate(connection, door.sasl)
        if door.tls is not None:
            return TlsChannel(sock, connection, self._core, self._loop, self._forget, door.tls)
        return Channel(sock, connection, self._core, self._loop, self._forget)

    def _forget(self, channel: Channel) -> None:
        if channel in self._channels:
            self._channels.discard(channel)
            host = channel.connection.host
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

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

    def _pause(self, door: Door, error: OSError) -> None:
        """Out of descriptors: without a pause the loop would spin on the same waiting connection."""
        _LOG.error("cannot accept connections for a while: %s", error)
        self._loop.remove_reader(door.sock)

        def resume() -> None:
            with suppress(ValueError, OSError):  # closed meanwhile
                self._loop.add_reader(door.sock, self._accept, door)

        self._loop.call_later(_OUT_OF_DESCRIPTORS_PAUSE_S, resume)


def _parse_overrides(text: str) -> Mapping[str, int]:
    """Limits by address, from `host:number,...`; a name stands for all of its addresses."""
    limits: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, number = entry.rpartition(":")
        if not colon or not number.isdigit():
            raise UsageError(f"broker property max.connections.per.ip.overrides: {entry}: write host:number")
        try:
            infos = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UsageError(
                f"broker property max.connections.per.ip.overrides: {host}: {error.strerror or error}"
            ) from error
        for info in infos:
            limits[str(info[4][0])] = int(number)
    return limits
