"""One ZooKeeper session: requests with time limits, watches that stay, and when the server last answered.

The only file that knows how kazoo works. It leaves what the znodes mean to others.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from headwater_broker.coordination.errors import CoordinationError, CoordinatorUnavailable, SessionLost
from headwater_broker.coordination.zookeeper.transaction import Create, Delete, Operation, SetData

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 6000
"""Short enough that a crashed owner is gone soon, long enough for a pause of the machine. Kafka's is 18 s."""

_PIPELINE = 500  # requests in flight of one caller
_HEARTBEATS_PER_TIMEOUT = 5
_SAFE_FRACTION = 2 / 3


class SessionState(Enum):
    """What happened to the session, as told to subscribers."""

    DISCONNECTED = "the connection is down"
    CONNECTED = "connected again"
    LOST = "the session has expired"
    RESTORED = "connected again, with a new session"


@dataclass(frozen=True, slots=True)
class Znode:
    """What a znode holds."""

    data: bytes
    version: int
    ephemeral_owner: int
    czxid: int
    mzxid: int


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Keeps the timeout that the server granted, which kazoo uses and forgets."""

    granted_timeout_ms: int | None = None

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        self.granted_timeout_ms = round(read_timeout_ms * 3 / 2)  # kazoo reads for two thirds of it
        return read_timeout_ms, connect_timeout_ms


class ZooKeeperSession:
    """A session that reconnects, and starts anew once the server has expired it.

    No request is queued while there is no connection: it fails at once, so that none takes effect after its
    caller has given it up. (One that was sent when the connection broke may have taken effect.)
    """

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
        self.hosts = hosts
        addresses, slash, chroot = hosts.partition("/")
        self._root = slash + chroot.strip("/") if chroot.strip("/") else ""
        self._asked_timeout_ms = session_timeout_ms
        self._clock = clock
        self._client = KazooClient(
            addresses,
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_jitter=0.1, max_delay=1.0),
            logger=_kazoo_logger(),
        )
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
        self._last_answer = float("-inf")
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
            self._stop_client()
            raise CoordinatorUnavailable(
                f"no ZooKeeper answers at {self.hosts} within {timeout_s:g} s: "
                "start it, or name another address"
            )
        self._session_id = int(client_id[0])
        for name, run in (("events", self._run_events), ("heartbeat", self._run_heartbeat)):
            thread = threading.Thread(target=run, name=f"coordination-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self.ensure("")
        self.exists("")

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

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()

    # -- state -------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return bool(self._client.connected)

    @property
    def session_id(self) -> int | None:
        """The session's id, over lost connections too; None once the server has said that it expired."""
        return self._session_id

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the server granted."""
        return self._connection.granted_timeout_ms or self._asked_timeout_ms

    def last_answer(self) -> float:
        """When, by the clock, the last request was sent that has been answered since."""
        return self._last_answer

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

    # -- requests ----------------------------------------------------------------------------------

    def get(self, path: str) -> Znode | None:
        """A znode, None if there is none."""
        return self.get_many([path]).get(path)

    def get_many(self, paths: Iterable[str]) -> dict[str, Znode]:
        """Those of the znodes that exist, by path; many requests are in flight at a time."""
        found: dict[str, Znode] = {}
        for batch in _batches(list(paths), _PIPELINE):
            pending = [(path, self._send(self._client.get_async, path)) for path in batch]
            for path, answer in pending:
                try:
                    data, stat = answer()
                except NoNodeError:
                    continue
                found[path] = Znode(data, stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)
        return found

    def exists(self, path: str) -> bool:
        """Whether there is such a znode."""
        return self._send(self._client.exists_async, path)() is not None

    def children(self, path: str) -> list[str]:
        """Names of a znode's children, sorted; none if it does not exist."""
        return self.children_many([path])[path]

    def children_many(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """Children of each of the paths."""
        found: dict[str, list[str]] = {}
        for batch in _batches(paths, _PIPELINE):
            pending = [(path, self._send(self._client.get_children_async, path)) for path in batch]
            for path, answer in pending:
                try:
                    found[path] = sorted(answer())
                except NoNodeError:
                    found[path] = []
        return found

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Creates a znode.

        Returns:
            Its name, with the number that a sequential one got.

        Raises:
            NodeExistsError: it exists.
            NoNodeError: its parent does not.
        """
        created = self._send(self._client.create_async, path, data, ephemeral=ephemeral, sequence=sequence)()
        return str(created).rpartition("/")[2]

    def set(self, path: str, data: bytes, version: int = -1) -> int:
        """Replaces a znode's data.

        Returns:
            Its new version.

        Raises:
            NoNodeError: there is none.
            BadVersionError: it has another version.
        """
        return int(self._send(self._client.set_async, path, data, version)().version)

    def set_many(self, writes: Iterable[tuple[str, bytes, int]]) -> list[int | None]:
        """Replaces data of znodes (path, data, version), each by itself; version -1 creates the znode.

        Returns:
            The new version of each, None where it had another one, or none.
        """
        versions: list[int | None] = []
        for batch in _batches(list(writes), _PIPELINE):
            pending = [
                self._send(self._client.create_async, path, data)
                if version < 0
                else self._send(self._client.set_async, path, data, version)
                for path, data, version in batch
            ]
            for (_, _, version), answer in zip(batch, pending, strict=True):
                try:
                    written = answer()
                except (NodeExistsError, NoNodeError, BadVersionError):
                    versions.append(None)
                else:
                    versions.append(0 if version < 0 else int(written.version))
        return versions

    def delete(self, path: str, version: int = -1) -> bool:
        """Deletes a znode.

        Returns:
            Whether it was there, with that version and without children.
        """
        try:
            self._send(self._client.delete_async, path, version)()
        except (NoNodeError, BadVersionError, NotEmptyError):
            return False
        return True

    def delete_tree(self, path: str) -> None:
        """Deletes a znode and all below it; nothing happens if there is none."""
        for child in self.children(path):
            self.delete_tree(f"{path}/{child}")
        self.delete(path)

    def ensure(self, *paths: str) -> None:
        """Creates persistent znodes, and their parents, where they are missing."""
        wanted: dict[str, None] = {}
        for path in paths:
            parts = (self._root + path).strip("/").split("/")
            wanted.update(dict.fromkeys("/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)))
        wanted.pop("/", None)
        pending = [self._submit(self._client.create_async, path) for path in wanted]
        for answer in pending:
            try:
                answer()
            except NodeExistsError:
                continue

    def transact(self, operations: Sequence[Operation]) -> list[Any]:
        """All of the operations or none.

        Returns:
            kazoo's result of each: the path created, the new stat.

        Raises:
            KazooException: of the operation that failed: NodeExistsError, NoNodeError, BadVersionError.
        """
        if not operations:
            return []
        transaction = self._client.transaction()
        for operation in operations:
            path = self._root + operation.path
            match operation:
                case Create(_, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case SetData(_, data, version):
                    transaction.set_data(path, data, version)
                case Delete(_, version):
                    transaction.delete(path, version)
        results = self._submit(transaction.commit_async)()
        failed = [r for r in results if isinstance(r, KazooException)]
        for failure in failed:
            if not isinstance(failure, RolledBackError | RuntimeInconsistency):
                raise failure
        if failed:
            raise failed[0]
        return list(results)

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> ChildrenWatch:
        """Calls back in the event thread with the children of a znode, now and after each change of them."""
        watch = ChildrenWatch(self, path, changed)
        with self._lock:
            self._watches.append(watch)
        self.call_later(watch.arm)
        return watch

    def _unwatch(self, watch: ChildrenWatch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def _children_watched(self, path: str, fired: Callable[[Any], None]) -> list[str]:
        """Children of a znode that may not exist, with a one-shot watch on them or on its creation."""
        while True:
            try:
                return sorted(self._send(self._client.get_children_async, path, fired)())
            except NoNodeError:
                if self._send(self._client.exists_async, path, fired)() is None:
                    return []

    def _send(self, request: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        return self._submit(request, (self._root + path) or "/", *args, **kwargs)

    def _submit(self, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Sends a request; the function returned waits for its answer."""
        if not self._client.connected:
            raise CoordinatorUnavailable(f"the connection to ZooKeeper at {self.hosts} is down")
        sent_at = self._clock()
        pending = request(*args, **kwargs)

        def answer() -> Any:
            try:
                value = pending.get(timeout=self.timeout_ms / 1000)
            except (ConnectionLoss, ConnectionClosedError, KazooTimeoutError) as error:
                raise CoordinatorUnavailable(
                    f"ZooKeeper at {self.hosts} did not answer; whether the request took effect is not known"
                ) from error
            except SessionExpiredError as error:
                raise SessionLost(f"the session with ZooKeeper at {self.hosts} has expired") from error
            except KazooException:
                self._answered(sent_at)  # an error of the server's is an answer
                raise
            self._answered(sent_at)
            return value

        return answer

    def _answered(self, sent_at: float) -> None:
        with self._lock:
            self._last_answer = max(self._last_answer, sent_at)

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
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.arm()

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
                _log.warning("an event of the session was not handled: %s", error)
            except Exception:
                _log.exception("a callback failed")

    def _run_heartbeat(self) -> None:
        # kazoo's own pings do not tell when they are answered, and go out three times in a timeout.
        while not self._stopping.wait(self.timeout_ms / 1000 / _HEARTBEATS_PER_TIMEOUT):
            try:
                self.exists("")
            except CoordinationError:
                continue  # kazoo reports the connection's state


class ChildrenWatch:
    """A watch on a znode's children that outlives its firing, the connection and the session."""

    def __init__(self, session: ZooKeeperSession, path: str, changed: Callable[[list[str]], None]) -> None:
        self._session = session
        self._path = path
        self._changed = changed
        self._armed = 0
        self._closed = False

    def arm(self) -> None:
        """Asks for the children, and for a call when they change. Runs in the event thread."""
        if self._closed:
            return
        self._armed += 1
        round_ = self._armed

        def fired(_event: Any) -> None:
            # Connection loss fires every watch; the session arms them again once it is back.
            if round_ == self._armed and self._session.connected:
                self._session.call_later(self.arm)

        try:
            children = self._session._children_watched(self._path, fired)  # noqa: SLF001
        except CoordinatorUnavailable:
            return
        self._changed(children)

    def close(self) -> None:
        """Ends the watch."""
        self._closed = True
        self._session._unwatch(self)  # noqa: SLF001


def _batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _kazoo_logger() -> logging.Logger:
    """kazoo warns at each of its attempts to reconnect; the session reports what comes of them, once."""
    logger = logging.getLogger(f"{__name__}.kazoo")
    logger.setLevel(logging.ERROR)
    return logger
