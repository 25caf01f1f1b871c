"""Committed offsets of groups, and what their coordinators keep of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kazoo.exceptions import NodeExistsError, NoNodeError

from headwater_broker.coordination.errors import AlreadyOwned, Conflict
from headwater_broker.coordination.model import Committed, TopicPartition
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.naming import escape, unescape
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession
from headwater_broker.coordination.zookeeper.transaction import Create, Operation, SetData, chunked

_ATTEMPTS = 5
_REMEMBERED_ZNODES = 100_000
_PARTS = ("offsets", "ids")


class OffsetStore:
    """Offsets under `/consumers/<group>/offsets`.

    It remembers which znodes exist, so that a commit is one round trip: a wrong memory makes the transaction
    fail, and then they are looked up.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._existing: set[str] = set()

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """See `Coordinator.commit_offsets`."""
        data = {
            znodes.offset(group, tp): znodes.encode_offset(committed) for tp, committed in offsets.items()
        }
        if not data.keys() <= self._existing:
            self._look_up(data)
        for paths in chunked([SetData(path, value) for path, value in data.items()]):
            self._write_offsets({operation.path: data[operation.path] for operation in paths})

    def _write_offsets(self, data: Mapping[str, bytes]) -> None:
        for _ in range(_ATTEMPTS):
            operations: list[Operation] = [
                SetData(path, value) if path in self._existing else Create(path, value)
                for path, value in data.items()
            ]
            new = [path for path in data if path not in self._existing]
            if new:
                self._session.ensure(*{path.rpartition("/")[0] for path in new})
            try:
                self._session.transact(operations)
            except (NodeExistsError, NoNodeError):  # made, or deleted, by somebody else
                self._look_up(data)
                continue
            self._remember(data)
            return
        raise Conflict("offsets were created and deleted by others time and again; commit again")

    def _look_up(self, paths: Iterable[str]) -> None:
        all_paths = list(paths)
        self._existing.difference_update(all_paths)
        self._remember(self._session.get_many(all_paths))

    def _remember(self, paths: Iterable[str]) -> None:
        if len(self._existing) > _REMEMBERED_ZNODES:
            self._existing.clear()
        self._existing.update(paths)

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """See `Coordinator.fetch_offsets`."""
        requested = self._partitions(group) if partitions is None else list(partitions)
        nodes = self._session.get_many(znodes.offset(group, tp) for tp in requested)
        return {
            tp: znodes.decode_offset(path, nodes[path].data)
            for tp in requested
            if (path := znodes.offset(group, tp)) in nodes
        }

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """See `Coordinator.delete_offsets`."""
        paths = [znodes.offset(group, tp) for tp in partitions]
        for path in paths:
            self._session.delete(path)
        for topic_path in {path.rpartition("/")[0] for path in paths}:
            self._session.delete(topic_path)  # stays where offsets are left
        self._existing.difference_update(paths)

    def delete_group(self, group: str) -> None:
        """See `Coordinator.delete_group`."""
        members = self._session.children(znodes.member_ids(group))
        if members:
            holder = unescape(members[0])
            raise AlreadyOwned(f"group {group!r} has a live member, {holder!r}: stop it first", holder)
        self._existing.clear()
        self._session.delete_tree(znodes.group(group))

    def delete_topic_offsets(self, topic: str) -> None:
        """Forgets every group's offsets of a topic."""
        self._existing.clear()
        groups = self._session.children(znodes.CONSUMERS)
        paths = [f"{znodes.CONSUMERS}/{group}/offsets/{escape(topic)}" for group in groups]
        for path in self._session.get_many(paths):
            self._session.delete_tree(path)

    def groups(self, names: Collection[str] | None = None) -> dict[str, bool]:
        """See `Coordinator.groups`."""
        groups: dict[str, bool] = {}
        if names is None:
            names = [unescape(name) for name in self._session.children(znodes.CONSUMERS)]
        directories = {znodes.group(name): name for name in names}
        children = self._session.children_many([f"{each}/{p}" for each in directories for p in _PARTS])
        for directory, name in directories.items():
            offsets, members = (bool(children[f"{directory}/{part}"]) for part in _PARTS)
            if offsets or members:
                groups[name] = members
        return groups

    def keep_group(self, group: str, data: bytes) -> None:
        """See `Coordinator.keep_group`."""
        path = znodes.generation(group)
        for _ in range(_ATTEMPTS):
            try:
                self._session.set(path, data)
                return
            except NoNodeError:
                self._session.ensure(path)
        raise Conflict(f"{path} was deleted time and again; try again")

    def kept_groups(self) -> dict[str, bytes]:
        """See `Coordinator.kept_groups`."""
        names = [unescape(name) for name in self._session.children(znodes.CONSUMERS)]
        nodes = self._session.get_many(znodes.generation(name) for name in names)
        paths = {znodes.generation(name): name for name in names}
        return {paths[path]: znode.data for path, znode in nodes.items() if znode.data}

    def _partitions(self, group: str) -> list[TopicPartition]:
        root = znodes.offsets(group)
        topics = self._session.children(root)
        numbers = self._session.children_many([f"{root}/{topic}" for topic in topics])
        return [(unescape(topic), int(number)) for topic in topics for number in numbers[f"{root}/{topic}"]]
