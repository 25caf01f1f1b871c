"""Requests to ZooKeeper with time limits, and what their answers are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from headwater_broker.coordination.errors import CoordinationError, CoordinatorUnavailable, SessionLost
from headwater_broker.coordination.zookeeper.multi_read import MultiRead, Znode
from headwater_broker.coordination.zookeeper.transaction import (
    MAX_TRANSACTION_BYTES,
    Create,
    Delete,
    Operation,
    SetData,
)

_T = TypeVar("_T")

_EXPECTED = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, UnimplementedError)
"""Answers that the stores act on; any other error of kazoo's means that the server is not set up for us."""

_PIPELINE = 500  # requests in flight of one caller
_READ_AT_ONCE = 100  # znodes of one request: what they hold, the server has in memory once more
_READS_IN_FLIGHT = 8
_CLOSES_WITHIN_S = 1.0
_POLL_S = 0.01


class ZnodeClient:
    """Reads and writes znodes through a connected kazoo client.

    No request is queued while there is no connection: it fails at once, so that none takes effect after its
    caller has given it up. (One that was sent when the connection broke may have taken effect.)

    Every method may raise `CoordinatorUnavailable`, and `SessionLost` if the session has expired.
    """

    def __init__(
        self,
        hosts: str,
        root: str,
        client: KazooClient,
        clock: Callable[[], float],
        timeout_s: Callable[[], float],
    ) -> None:
        """Wraps a client.

        Args:
            hosts: the address, for messages.
            root: what all paths are below; "" for none.
            client: a client that somebody else starts and stops.
            clock: monotonic seconds, for `last_answer`.
            timeout_s: how long to wait for an answer.
        """
        self.hosts = hosts
        self._root = root
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s
        self._reads_many = True
        self._answer_lock = threading.Lock()
        self._last_answer = float("-inf")

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return bool(self._client.connected)

    def last_answer(self) -> float:
        """When, by the clock, the last request was sent that has been answered since."""
        return self._last_answer

    def get(self, path: str) -> Znode | None:
        """A znode, None if there is none."""
        return self.get_many([path]).get(path)

    def get_many(self, paths: Iterable[str]) -> dict[str, Znode]:
        """Those of the znodes that exist, by path."""
        nodes: dict[str, Znode] = {}
        all_paths = list(paths)
        if len(all_paths) > 1 and self._reads_many:
            return self._get_at_once(all_paths)
        for batch in _batches(all_paths, _PIPELINE):
            pending = [(path, self._send(self._client.get_async, path)) for path in batch]
            for path, answer in pending:
                try:
                    data, stat = answer()
                except NoNodeError:
                    continue
                nodes[path] = Znode(data, stat.version, stat.ephemeralOwner, stat.czxid)
        return nodes

    def learn_what_it_reads(self, timeout_s: float) -> None:
        """Finds out whether the server reads many znodes in one request.

        A server before 3.6 closes the connection at such a request, but keeps the session. This waits until the
        connection is back.

        Args:
            timeout_s: How long that may take.
        """
        try:
            self._get_at_once([""])
        except UnimplementedError:
            self._reads_many = False
            for is_connected, within_s in ((False, _CLOSES_WITHIN_S), (True, timeout_s)):
                until_s = time.monotonic() + within_s
                while self.connected is not is_connected and time.monotonic() < until_s:
                    time.sleep(_POLL_S)

    def _get_at_once(self, paths: Sequence[str]) -> dict[str, Znode]:
        nodes: dict[str, Znode] = {}
        for batches in _batches(list(_of_size(paths)), _READS_IN_FLIGHT):
            pending = [
                (
                    batch,
                    self._submit(
                        self._multi_read_async, MultiRead([(self._root + path) or "/" for path in batch])
                    ),
                )
                for batch in batches
            ]
            for batch, answer in pending:
                znodes = zip(batch, answer(), strict=True)
                nodes.update((path, znode) for path, znode in znodes if znode is not None)
        return nodes

    def _multi_read_async(self, request: MultiRead) -> Any:
        pending = self._client.handler.async_result()
        self._client._call(request, pending)  # noqa: SLF001 - as kazoo's own methods do
        return pending

    def exists(self, path: str) -> bool:
        """Whether there is such a znode."""
        return self._send(self._client.exists_async, path)() is not None

    def children(self, path: str) -> list[str]:
        """Names of a znode's children, sorted; none if it does not exist."""
        return self.children_many([path])[path]

    def children_many(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """Children of each of the paths."""
        children: dict[str, list[str]] = {}
        for batch in _batches(paths, _PIPELINE):
            pending = [(path, self._send(self._client.get_children_async, path)) for path in batch]
            for path, answer in pending:
                try:
                    children[path] = sorted(answer())
                except NoNodeError:
                    children[path] = []
        return children

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
        to_create: dict[str, None] = {}
        for path in paths:
            parts = (self._root + path).strip("/").split("/")
            to_create.update(dict.fromkeys("/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)))
        to_create.pop("/", None)
        pending = [self._submit(self._client.create_async, path) for path in to_create]
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
            NodeExistsError, NoNodeError, BadVersionError: of the operation that failed.
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
            if isinstance(failure, _EXPECTED):
                raise failure
        if failed:
            raise CoordinationError(f"ZooKeeper at {self.hosts} refused a transaction: {failed!r}")
        return list(results)

    def children_watched(self, path: str, fired: Callable[[Any], None]) -> list[str]:
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
                value = pending.get(timeout=self._timeout_s())
            except (ConnectionLoss, ConnectionClosedError, KazooTimeoutError) as error:
                raise CoordinatorUnavailable(
                    f"ZooKeeper at {self.hosts} did not answer; whether the request took effect is not known"
                ) from error
            except SessionExpiredError as error:
                raise SessionLost(f"the session with ZooKeeper at {self.hosts} has expired") from error
            except _EXPECTED:
                self._answered(sent_at)  # an error of the server's is an answer
                raise
            except KazooException as error:
                raise CoordinationError(f"ZooKeeper at {self.hosts} refused a request: {error!r}") from error
            self._answered(sent_at)
            return value

        return answer

    def _answered(self, sent_at: float) -> None:
        with self._answer_lock:
            self._last_answer = max(self._last_answer, sent_at)


def _batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _of_size(paths: Sequence[str]) -> Iterator[list[str]]:
    """Paths that go into one request each: names of groups may be long."""
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and (len(batch) == _READ_AT_ONCE or size + len(path.encode()) > MAX_TRANSACTION_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(path.encode())
    if batch:
        yield batch
