"""One ZooKeeper session: its life, its state, and watches that outlive their firing.

With `client`, the only place that knows how kazoo works. What the znodes mean is left to others.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from headwater_broker.coordination.errors import CoordinationError, CoordinatorUnavailable
from headwater_broker.coordination.zookeeper.client import ZnodeClient
from headwater_broker.shown import MESSAGE_CHARS, shown

_log = logging.getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 6000
"""Short enough that a crashed owner is gone soon, long enough for a pause of the machine. Kafka's is 18 s."""

_HEARTBEATS_PER_TIMEOUT = 5
_SAFE_FRACTION = 2 / 3
_HANG_UPS = 10
_HANG_UP_S = 0.1


class SessionState(Enum):
    """What happened to the session, as told to subscribers."""

    DISCONNECTED = "the connection is down"
    CONNECTED = "connected again"
    LOST = "the session has expired"
    RESTORED = "connected again, with a new session"


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Keeps the timeout that the server granted, which kazoo uses and forgets."""

    granted_timeout_ms: int | None = None

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        self.granted_timeout_ms = round(read_timeout_ms * 3 / 2)  # kazoo reads for two thirds of it
        return read_timeout_ms, connect_timeout_ms

    def hang_up(self) -> None:
        """Ends whatever is being waited for on the socket."""
        with suppress(OSError, AttributeError):  # there may be none yet
            self._socket.shutdown(socket.SHUT_RDWR)


class ZooKeeperSession(ZnodeClient):
    """A session that reconnects, and starts anew once the server has expired it."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares a session.

        Args:
            hosts: `host:port[,host:port...][/chroot]`.
            session_timeout_ms: what to ask the server for; it grants 2 to 20 of its ticks.
            clock: monotonic seconds, for `last_answer`.
        """
        addresses, _, chroot = hosts.partition("/")
        chroot = chroot.strip("/")
        client = KazooClient(
            addresses,
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_jitter=0.1, max_delay=1.0),
            logger=_kazoo_logger(),
        )
        super().__init__(hosts, f"/{chroot}" if chroot else "", client, clock, lambda: self.timeout_ms / 1000)
        self._requested_timeout_ms = session_timeout_ms
        # kazoo has no other way in: it names its connection class itself.
        retry = self._client._conn_retry.copy()  # noqa: SLF001
        self._connection = _Connection(self._client, retry, logger=self._client.logger)
        self._client._connection = self._connection  # noqa: SLF001
        self._client.add_listener(self._on_kazoo_state)
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._subscribers: list[Callable[[SessionState], None]] = []
        self._watches: list[ChildrenWatch] = []
        self._lock = threading.Lock()
        self._session_id: int | None = None
        self._announced_session: int | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout_s: float) -> None:
        """Connects.

        Raises:
            CoordinatorUnavailable: nobody answered in time.
        """
        started = self._client.start_async()
        started.wait(timeout_s)
        client_id = self._client.client_id
        if client_id is None:
            self._give_up()
            raise CoordinatorUnavailable(
                f"no ZooKeeper answers at {self.hosts} within {timeout_s:g} s: "
                "start it, or name another address"
            )
        self._session_id = int(client_id[0])
        for name, run in (("events", self._run_events), ("heartbeat", self._run_heartbeat)):
            thread = threading.Thread(target=run, name=f"coordination-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            self.ensure("")
            self.learn_what_it_reads(timeout_s)
            self.exists("")
        except CoordinationError:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the session; its ephemeral nodes go with it. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._events.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=5)
        self._stop_client()

    def _give_up(self) -> None:
        """Stops a client that never connected.

        kazoo waits for an answer to its greeting for as long as a session lasts, and stopping it waits for that.
        """
        stopping = threading.Thread(target=self._stop_client, name="coordination-stop", daemon=True)
        stopping.start()
        for _ in range(_HANG_UPS):
            self._connection.hang_up()
            stopping.join(_HANG_UP_S)
            if not stopping.is_alive():
                return

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()

    # -- state -------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        """The session's id, over lost connections too; None once the server has said that it expired."""
        return self._session_id

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the server granted."""
        return self._connection.granted_timeout_ms or self._requested_timeout_ms

    def is_alive(self, session_id: int | None) -> bool:
        """Whether the server certainly still holds that session.

        It counts a session's time from the last request that it got, which is later than the time we sent it.
        A third of the timeout is left for a server that heard of that request from another one, and for
        whatever the caller does next.
        """
        safe_s = self.timeout_ms / 1000 * _SAFE_FRACTION
        return (
            session_id is not None
            and session_id == self.session_id
            and self._clock() - self._last_answer < safe_s
        )

    def subscribe(self, subscriber: Callable[[SessionState], None]) -> None:
        """Reports what happens to the session, in order, from the event thread."""
        self._subscribers.append(subscriber)

    def call_later(self, run: Callable[[], None]) -> None:
        """Runs something in the event thread."""
        self._events.put(run)

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> ChildrenWatch:
        """Calls back in the event thread with the children of a znode, now and after each change of them."""
        watch = ChildrenWatch(self, path, changed)
        with self._lock:
            self._watches.append(watch)
        self.call_later(watch.arm)
        return watch

    def _arm_watches(self, *, missing: bool) -> None:
        """Arms all watches, or those that could not be armed when it was their turn."""
        with self._lock:
            self._watches = [watch for watch in self._watches if not watch.closed]
            watches = list(self._watches)
        for watch in watches:
            if not (missing and watch.armed):
                watch.arm()

    # -- threads -----------------------------------------------------------------------------------

    def _on_kazoo_state(self, state: str) -> None:
        """Called by kazoo's connection thread, which must not wait for anything."""
        if state == KazooState.CONNECTED:
            client_id = self._client.client_id
            self._session_id = int(client_id[0]) if client_id is not None else None
            self.call_later(self._reconnected)
        elif state == KazooState.SUSPENDED:
            self.call_later(lambda: self._announce(SessionState.DISCONNECTED))
        else:
            self._session_id = None
            self.call_later(lambda: self._announce(SessionState.LOST))

    def _reconnected(self) -> None:
        session_id = self.session_id
        if session_id is None:
            return  # gone again; the next connection reports itself
        announced, self._announced_session = self._announced_session, session_id
        if announced is None:
            return  # the first connection is `start`'s
        self._announce(SessionState.CONNECTED if session_id == announced else SessionState.RESTORED)
        self._arm_watches(missing=False)

    def _announce(self, state: SessionState) -> None:
        level = logging.WARNING if state in {SessionState.DISCONNECTED, SessionState.LOST} else logging.INFO
        _log.log(level, "ZooKeeper at %s: %s", self.hosts, state.value)
        for subscriber in self._subscribers:
            subscriber(state)

    def _run_events(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                event()
            except CoordinationError as error:
                _log.warning("an event of the session was not handled: %s", shown(error, MESSAGE_CHARS))
            except Exception:
                _log.exception("a callback failed")

    def _run_heartbeat(self) -> None:
        # kazoo's own pings do not tell when they are answered, and go out three times in a timeout.
        while not self._stopping.wait(self.timeout_ms / 1000 / _HEARTBEATS_PER_TIMEOUT):
            try:
                self.exists("")
            except CoordinationError:
                continue  # kazoo reports the connection's state
            self.call_later(lambda: self._arm_watches(missing=True))


class ChildrenWatch:
    """A watch on a znode's children that outlives its firing, the connection and the session.

    Attributes:
        armed: whether a change will be noticed.
        closed: whether it was ended.
    """

    def __init__(self, session: ZooKeeperSession, path: str, changed: Callable[[list[str]], None]) -> None:
        self.armed = False
        self.closed = False
        self._session = session
        self._path = path
        self._changed = changed
        self._round = 0

    def arm(self) -> None:
        """Asks for the children, and for a call when they change. Runs in the event thread."""
        if self.closed:
            return
        self.armed = False
        self._round += 1
        round_ = self._round

        def fired(_event: Any) -> None:
            # Connection loss fires every watch; the session arms them again once it is back.
            if round_ == self._round and self._session.connected:
                self._session.call_later(self.arm)

        try:
            self._changed(self._session.children_watched(self._path, fired))
        except CoordinatorUnavailable:
            return
        self.armed = True

    def close(self) -> None:
        """Ends the watch."""
        self.closed = True


def _kazoo_logger() -> logging.Logger:
    """kazoo warns at each of its attempts to reconnect; the session reports what comes of them, once."""
    logger = logging.getLogger(f"{__name__}.kazoo")
    logger.setLevel(logging.ERROR)
    return logger
