"""Members of decentralised groups and running jobs: who is there, and who owns which partition."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from headwater_broker.coordination.errors import AlreadyOwned, Conflict, LeaseLost
from headwater_broker.coordination.model import TopicPartition
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.multi_read import Znode
from headwater_broker.coordination.zookeeper.naming import unescape
from headwater_broker.coordination.zookeeper.process import Liveness, ProcessIdentity
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession
from headwater_broker.coordination.zookeeper.transaction import Create, Delete, Operation, chunked

_ATTEMPTS = 20
_POLL_S = 0.1
_EXPIRY_SLACK = 1.5  # a server expires sessions in steps of its tick, which is at most half a session timeout


class MemberStore:
    """Registrations under `/consumers/<group>/ids` and `.../owners`, all of them ephemeral."""

    def __init__(
        self,
        session: ZooKeeperSession,
        wall_ms: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._wall_ms = wall_ms
        self._sleep = sleep
        self._process = ProcessIdentity.current()

    def register_member(
        self,
        group: str,
        member: str,
        subscription: Mapping[str, int],
        about: Mapping[str, str] | None = None,
    ) -> None:
        """See `Coordinator.register_member`."""
        path = znodes.member_id(group, member)
        about = {"host": socket.gethostname(), **(about or {})}
        data = znodes.encode_member(subscription, self._process, self._wall_ms(), about)
        self._session.ensure(znodes.member_ids(group))
        polls_left = int(self._session.timeout_ms / 1000 * _EXPIRY_SLACK / _POLL_S)
        while True:
            existing = self._session.get(path)
            operations: list[Operation] = []
            if existing is not None and existing.ephemeral_owner != self._session.session_id:
                liveness = self._liveness(path, existing)
                if liveness is Liveness.GONE:
                    operations.append(Delete(path, existing.version))
                elif liveness is Liveness.UNKNOWN and polls_left > 0:
                    polls_left -= 1
                    self._sleep(_POLL_S)
                    continue
                else:
                    raise AlreadyOwned(
                        f"{member!r}{_pid(path, existing)} runs already as a member of {group!r}; stop it first",
                        member,
                    )
            elif existing is not None:
                self._session.set(path, data)
                return
            operations.append(Create(path, data, ephemeral=True))
            try:
                self._session.transact(operations)
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue
            return

    def deregister_member(self, group: str, member: str) -> None:
        """See `Coordinator.deregister_member`."""
        owned = [tp for tp, owner in self.owners(group).items() if owner == member]
        self.release_partitions(group, member, owned)
        path = znodes.member_id(group, member)
        existing = self._session.get(path)
        if existing is not None and existing.ephemeral_owner == self._session.session_id:
            self._session.delete(path, existing.version)

    def members(self, group: str) -> dict[str, dict[str, Any]]:
        """See `Coordinator.members`."""
        directory = znodes.member_ids(group)
        paths = {f"{directory}/{child}": unescape(child) for child in self._session.children(directory)}
        nodes = self._session.get_many(paths)
        return {paths[path]: znodes.decode(path, znode.data) for path, znode in nodes.items()}

    def claim_partitions(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """See `Coordinator.claim_partitions`."""
        session_id = self._session.session_id
        registration = self._session.get(znodes.member_id(group, member))
        if registration is None or registration.ephemeral_owner != session_id:
            raise LeaseLost(
                f"{member!r} is not registered in {group!r}: its session was lost; register it again"
            )
        paths = {znodes.owner(group, tp): tp for tp in partitions}
        self._session.ensure(*{path.rpartition("/")[0] for path in paths})
        claimed: list[str] = []
        try:
            for _ in range(_ATTEMPTS):
                unclaimed = [path for path in paths if path not in claimed]
                operations = self._claims(group, member, {path: paths[path] for path in unclaimed})
                try:
                    for chunk in chunked(operations):
                        self._session.transact(chunk)
                        claimed.extend(operation.path for operation in chunk if isinstance(operation, Create))
                except (NodeExistsError, NoNodeError, BadVersionError):
                    continue  # an owner came or went: look again
                break
            else:
                raise Conflict(f"owners of {group!r} changed time and again; claim them again")
        except AlreadyOwned:
            for path in claimed:
                self._session.delete(path)
            raise
        if self._session.session_id != session_id:
            raise LeaseLost(f"{member!r} lost its session while it claimed partitions of {group!r}")

    def release_partitions(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """See `Coordinator.release_partitions`."""
        nodes = self._session.get_many(znodes.owner(group, tp) for tp in partitions)
        for path, znode in nodes.items():
            if znode.data.decode() == member and znode.ephemeral_owner == self._session.session_id:
                self._session.delete(path, znode.version)

    def owners(self, group: str) -> dict[TopicPartition, str]:
        """See `Coordinator.owners`."""
        root = znodes.owners(group)
        topics = self._session.children(root)
        numbers = self._session.children_many([f"{root}/{topic}" for topic in topics])
        paths = {
            f"{root}/{topic}/{number}": (unescape(topic), int(number))
            for topic in topics
            for number in numbers[f"{root}/{topic}"]
        }
        nodes = self._session.get_many(paths)
        return {paths[path]: znode.data.decode() for path, znode in nodes.items()}

    def plan(self, group: str) -> tuple[bytes, int]:
        """See `Coordinator.plan`."""
        directory = znodes.plans(group)
        while numbers := sorted(map(int, self._session.children(directory))):
            node = self._session.get(f"{directory}/{numbers[-1]}")
            if node is not None:  # else it was replaced just now
                return node.data, numbers[-1]
        return b"", 0

    def replace_plan(self, group: str, data: bytes, number: int) -> bool:
        """See `Coordinator.replace_plan`."""
        directory = znodes.plans(group)
        # The first plan makes the directory; whoever comes later finds it there.
        operations: list[Operation] = [Delete(f"{directory}/{number}") if number else Create(directory)]
        operations.append(Create(f"{directory}/{number + 1}", data))
        if not number:
            self._session.ensure(znodes.group(group))
        try:
            self._session.transact(operations)
        except (NodeExistsError, NoNodeError):
            return False
        return True

    def watch_members(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Coordinator.watch_members`."""
        directories = (znodes.member_ids(group), znodes.plans(group))
        watches = [self._session.watch_children(each, lambda _: callback()) for each in directories]

        def close() -> None:
            for watch in watches:
                watch.close()

        return close

    def _claims(self, group: str, member: str, paths: Mapping[str, TopicPartition]) -> list[Operation]:
        """What has to be done to own the partitions.

        An owner that holds this member's name in another session is this member before a crash: the name
        itself is registered in this session. So is one whose process is gone.
        """
        operations: list[Operation] = []
        nodes = self._session.get_many(paths)
        for path, tp in paths.items():
            znode = nodes.get(path)
            if znode is not None:
                holder = znode.data.decode()
                if znode.ephemeral_owner == self._session.session_id and holder == member:
                    continue
                if holder != member:
                    self._refuse_unless_gone(group, tp, holder)
                operations.append(Delete(path, znode.version))
            operations.append(Create(path, member.encode(), ephemeral=True))
        return operations

    def _refuse_unless_gone(self, group: str, tp: TopicPartition, holder: str) -> None:
        path = znodes.member_id(group, holder)
        registration = self._session.get(path)
        if registration is not None and self._liveness(path, registration) is Liveness.GONE:
            return
        pid = _pid(path, registration) if registration is not None else ""
        raise AlreadyOwned(f"{tp[0]}-{tp[1]} in {group!r} is owned by {holder!r}{pid}; stop it first", holder)

    def _liveness(self, path: str, registration: Znode) -> Liveness:
        identity = _process(path, registration)
        if identity is None:
            return Liveness.UNKNOWN
        # Within one process only the session tells a live registration from a stale one.
        return Liveness.UNKNOWN if identity == self._process else identity.liveness()


def _process(path: str, registration: Znode) -> ProcessIdentity | None:
    process = (znodes.decode(path, registration.data).get("headwater") or {}).get("process")
    return ProcessIdentity.from_json(process) if process else None


def _pid(path: str, registration: Znode) -> str:
    """The process to look for, where it can be told."""
    process = _process(path, registration)
    return f" (process {process.pid})" if process is not None and process.liveness() is Liveness.ALIVE else ""
