"""Listening sockets, and the connections that came through them."""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from headwater_broker.server.connection import Connection
from headwater_broker.server.connection_limits import ConnectionLimits
from headwater_broker.server.core import Core
from headwater_broker.server.errors import PortInUseError, UsageError
from headwater_broker.server.listeners import ListenerSpec
from headwater_broker.server.quotas import Quotas
from headwater_broker.server.request_memory import RequestMemory
from headwater_broker.server.sasl import SaslGate, SaslSettings
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.tls import TlsChannel, TlsSettings
from headwater_broker.server.transport import Channel

_LOG = logging.getLogger(__name__)
_ACCEPTS_A_TICK = 128
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SCARCE_PAUSE_S = 0.25
_EPISODE_S = 10.0
"""So long after the last connection that could not be accepted, the next such one is logged again."""

_RESERVED_DESCRIPTORS = 64
_RESERVED_SHARE = 8
"""Descriptors that connections leave to the logs: so many, but at most this share of all. Without one a log can neither
begin a segment nor read one that was closed."""


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
    """Accepts connections while there is room for them."""

    def __init__(
        self,
        doors: Sequence[Door],
        core: Core,
        settings: BrokerSettings,
        quotas: Quotas,
        limits: ConnectionLimits,
    ) -> None:
        self._doors = doors
        self._quotas = quotas
        self._limits = limits
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._shut: set[Door] = set()  # until somebody leaves
        self._core = core
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._channels: set[Channel] = set()
        self._pauses: dict[Door, asyncio.TimerHandle] = {}
        self._scarce: set[Door] = set()  # paused until a descriptor is free
        self._last_scarce_s = float("-inf")
        self._memory = RequestMemory(settings.queued_max_request_bytes)

    def configure(self, settings: BrokerSettings) -> None:
        """Takes new limits from now on."""
        self._settings = settings
        self._limits.configure(settings)
        self._memory.configure(settings.queued_max_request_bytes)
        self._reopen()

    def start_accepting(self) -> None:
        """Watches the listening sockets."""
        for door in self._doors:
            self._watch(door)

    def stop_accepting(self) -> None:
        """Closes the listening sockets; connections go on."""
        self._shut.clear()
        for timer in self._pauses.values():
            timer.cancel()
        self._pauses.clear()
        self._scarce.clear()
        for door in self._doors:
            self._loop.remove_reader(door.sock)
            door.sock.close()

    def close(self) -> None:
        """Closes all connections."""
        for channel in list(self._channels):
            channel.close()
        for sock, timer in self._waiting.items():
            timer.cancel()
            sock.close()

    def tick(self) -> None:
        """Closes connections that were silent for too long or are too many by now, those first that were silent
        longest, and takes back memory of those that are idle.

        As in Kafka's `IdleExpiryManager`, silent is where no byte moves in either direction: a request that is half
        here and an answer that is not read keep no connection. A wait for this broker's answer does.
        """
        now_s = self._loop.time()
        excess = self._limits.excess
        for channel in sorted(self._channels, key=lambda each: each.last_active)[:excess] if excess else ():
            channel.close()
        oldest = now_s - self._settings.connections_max_idle_ms / 1000
        for channel in list(self._channels):
            if channel.silent_since(now_s) < oldest and not channel.awaits_answer:
                channel.close()
            else:
                channel.release_memory()
        for slow in self._memory.overdue(now_s):
            slow.refuse("its request comes too slowly, and others wait for room (queued.max.request.bytes)")

    def _accept(self, door: Door) -> None:
        for _ in range(_ACCEPTS_A_TICK):
            if not self._limits.has_room(door.spec.name):
                _LOG.warning("listener %s is full: who comes now has to wait", door.spec.name)
                self._loop.remove_reader(door.sock)
                self._shut.add(door)
                return
            try:
                sock, address = door.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _SCARCE:
                    self._wait_for_descriptors(door, error.strerror or str(error))
                    return
                # One that was given up before it was accepted: Linux reports its network's errors here (accept(2)).
                _LOG.debug("a connection was lost before it was accepted: %s", error)
                continue
            wait_s = self._limits.wait_s(door.spec.name)
            if wait_s > 0:
                self._pause(door, wait_s)
                self._later(sock, wait_s, partial(self._admit, door, sock, address))
                return
            fd = sock.fileno()
            self._admit(door, sock, address)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            is_limited = limit != resource.RLIM_INFINITY
            if is_limited and fd >= limit - min(_RESERVED_DESCRIPTORS, limit // _RESERVED_SHARE):
                # The kernel gives the lowest number that is free.
                self._wait_for_descriptors(door, os.strerror(errno.EMFILE))
                return

    def _wait_for_descriptors(self, door: Door, reason: str) -> None:
        """Accepts nothing until a connection is closed, or a while has passed.

        Without that the loop would spin on the same waiting connection.
        """
        now_s = self._loop.time()
        if now_s - self._last_scarce_s > _EPISODE_S:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            _LOG.error(
                "cannot accept connections until others are closed: %s (ulimit -n is %d, and there are %d connections)",
                reason,
                limit,
                len(self._channels),
            )
        self._last_scarce_s = now_s
        self._scarce.add(door)
        self._pause(door, _SCARCE_PAUSE_S)

    def _admit(self, door: Door, sock: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[:2]
        peer = f"{host}:{port}"
        reason = self._limits.refusal(host)
        if reason is not None:
            _LOG.warning("refusing %s: %s", peer, reason)
            sock.close()
            return
        wait_s = self._quotas.connected(host)
        if wait_s > 0:
            # Closed, but late: a client that is closed comes again at once.
            self._limits.turned_away(door.spec.name)
            self._later(sock, wait_s, sock.close)
            return
        try:
            self._prepare(sock)
            channel = self._open(door, sock, peer)
        except OSError as error:  # it did not wait
            _LOG.debug("%s is gone: %s", peer, error)
            sock.close()
            return
        self._channels.add(channel)
        self._limits.opened(door.spec.name, host)

    def _later(self, sock: socket.socket, wait_s: float, then: Callable[[], None]) -> None:
        def end() -> None:
            del self._waiting[sock]
            then()

        self._waiting[sock] = self._loop.call_later(wait_s, end)

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
            return TlsChannel(sock, connection, self._core, self._loop, self._forget, self._memory, door.tls)
        return Channel(sock, connection, self._core, self._loop, self._forget, self._memory)

    def _forget(self, channel: Channel) -> None:
        if channel in self._channels:
            self._channels.discard(channel)
            self._limits.closed(channel.connection.listener, channel.connection.host)
            self._reopen()

    def _reopen(self) -> None:
        """Looks again at the listeners that were full, or had no descriptor."""
        while self._shut:
            self._watch(self._shut.pop())
        for door in self._scarce:
            self._pause(door, 0.0)

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

    def _pause(self, door: Door, pause_s: float) -> None:
        self._loop.remove_reader(door.sock)
        timer = self._pauses.pop(door, None)
        if timer is not None:
            timer.cancel()
        self._pauses[door] = self._loop.call_later(pause_s, self._end_pause, door)

    def _end_pause(self, door: Door) -> None:
        self._pauses.pop(door, None)
        self._scarce.discard(door)
        self._watch(door)

    def _watch(self, door: Door) -> None:
        with suppress(ValueError, OSError):  # closed meanwhile
            self._loop.add_reader(door.sock, self._accept, door)
