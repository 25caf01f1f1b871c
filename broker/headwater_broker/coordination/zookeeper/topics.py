"""Topics: their assignment, and leader and ISR of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from headwater_broker.coordination.api import Assignment
from headwater_broker.coordination.errors import AlreadyExists, Conflict, DoesNotExist
from headwater_broker.coordination.model import (
    ConfigKind,
    PartitionState,
    TopicPartition,
    TopicState,
    led_by_first,
)
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.naming import unescape
from headwater_broker.coordination.zookeeper.notifications import NotificationLog
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession
from headwater_broker.coordination.zookeeper.transaction import (
    Create,
    Operation,
    SetData,
    chunked,
)

_PUBLISHED_AT_ONCE = 1000  # a topic's name may have 249 characters, a znode 1 MiB


class TopicStore:
    """Topics under `/brokers/topics`.

    A partition's state is not watched by itself: each change is published to `/isr_change_notification`, so
    that a broker holds a fixed number of watches however many partitions there are.
    """

    def __init__(self, session: ZooKeeperSession, changes: NotificationLog) -> None:
        self._session = session
        self._isr_changes = changes

    def create_topic(
        self,
        name: str,
        assignment: Assignment,
        configs: Mapping[str, str],
        topic_id: UUID,
        *,
        controller_epoch: int = 0,
    ) -> TopicState:
        """See `Coordinator.create_topic`."""
        if self._session.exists(znodes.topic_deletion(name)):
            raise AlreadyExists(f"topic {name!r} is being deleted; create it again once it is gone")
        partitions = led_by_first(assignment, controller_epoch)
        config_path = znodes.config(ConfigKind.TOPIC, name)
        config = znodes.encode_config(configs)
        operations: list[Operation] = [
            # It may be left from a deletion that broke off.
            SetData(config_path, config)
            if self._session.exists(config_path)
            else Create(config_path, config),
            Create(znodes.topic(name), znodes.encode_topic(topic_id, partitions)),
            Create(f"{znodes.topic(name)}/partitions"),
            *_partition_znodes(name, partitions),
        ]
        try:
            self._write_topic(name, operations, partitions)
        except NodeExistsError as error:
            raise AlreadyExists(f"Topic '{name}' already exists.") from error
        return TopicState(name, topic_id, _stored(partitions))

    def add_partitions(self, name: str, assignment: Assignment, *, controller_epoch: int = 0) -> TopicState:
        """See `Coordinator.add_partitions`."""
        path = znodes.topic(name)
        node = self._session.get(path)
        if node is None:
            raise DoesNotExist(f"there is no topic {name!r}")
        topic_id, partitions = znodes.decode_topic(path, node.data)
        existing = sorted(partitions.keys() & assignment.keys())
        if existing:
            raise Conflict(f"topic {name!r} has partition {existing[0]} already")
        new = led_by_first(assignment, controller_epoch)
        operations: list[Operation] = [
            SetData(path, znodes.encode_topic(topic_id, {**partitions, **new}), node.version),
            *_partition_znodes(name, new),
        ]
        try:
            self._write_topic(name, operations, new)
        except (NodeExistsError, NoNodeError, BadVersionError) as error:
            raise Conflict(
                f"topic {name!r} was changed by somebody else meanwhile; look at it again"
            ) from error
        self._publish([(name, number) for number in new])
        topic = self.topic(name)
        if topic is None:
            raise DoesNotExist(f"topic {name!r} was deleted meanwhile")
        return topic

    def delete_topic(self, name: str) -> None:
        """See `Coordinator.delete_topic`."""
        if not self._session.exists(znodes.topic(name)):
            raise DoesNotExist(f"there is no topic {name!r}")
        self._session.ensure(znodes.topic_deletion(name))

    def pending_deletions(self) -> set[str]:
        """See `Coordinator.pending_deletions`."""
        return {unescape(child) for child in self._session.children(znodes.DELETE_TOPICS)}

    def remove_topic(self, name: str) -> None:
        """Removes the topic's znodes and, last, the mark that it is to be deleted."""
        self._session.delete_tree(znodes.topic(name))
        self._session.delete(znodes.config(ConfigKind.TOPIC, name))
        self._session.delete(znodes.topic_deletion(name))

    def topics(self) -> dict[str, TopicState]:
        """See `Coordinator.topics`."""
        return self._read(unescape(child) for child in self._session.children(znodes.TOPICS))

    def topic(self, name: str) -> TopicState | None:
        """See `Coordinator.topic`."""
        return self._read([name]).get(name)

    def set_leader_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """See `Coordinator.set_leader_states`."""
        self._session.ensure(*(znodes.partition(*tp) for tp, state in states.items() if state.version < 0))
        versions = self._session.set_many(
            (znodes.partition_state(*tp), znodes.encode_partition_state(state), state.version)
            for tp, state in states.items()
        )
        written = {
            tp: replace(state, version=version)
            for (tp, state), version in zip(states.items(), versions, strict=True)
            if version is not None
        }
        self._publish(list(written))
        return written

    def _write_topic(
        self, name: str, operations: list[Operation], partitions: Mapping[int, PartitionState]
    ) -> None:
        """All at once if that fits into a transaction, else the topic first and then its partitions."""
        chunks = list(chunked(operations))
        for chunk in chunks:
            self._session.transact(chunk)
        if len(chunks) > 1:  # who saw the topic appear did not see all of it
            self._publish([(name, min(partitions))])

    def _publish(self, changed: Sequence[TopicPartition]) -> None:
        for start in range(0, len(changed), _PUBLISHED_AT_ONCE):
            part = changed[start : start + _PUBLISHED_AT_ONCE]
            self._isr_changes.publish(znodes.encode_isr_change(part))

    def _read(self, names: Iterable[str]) -> dict[str, TopicState]:
        by_path = {znodes.topic(name): name for name in names}
        assignments = {
            by_path[path]: znodes.decode_topic(path, znode.data)
            for path, znode in self._session.get_many(by_path).items()
        }
        states = self._session.get_many(
            znodes.partition_state(name, number)
            for name, (_, partitions) in assignments.items()
            for number in partitions
        )

        def led(name: str, number: int, assigned: PartitionState) -> PartitionState:
            path = znodes.partition_state(name, number)
            znode = states.get(path)
            if znode is None:
                return assigned
            return znodes.decode_partition_state(path, znode.data, znode.version, assigned)

        return {
            name: TopicState(
                name, topic_id, {n: led(name, n, assigned) for n, assigned in partitions.items()}
            )
            for name, (topic_id, partitions) in assignments.items()
        }


def _partition_znodes(name: str, partitions: Mapping[int, PartitionState]) -> list[Operation]:
    operations: list[Operation] = []
    for number, state in partitions.items():
        operations.append(Create(znodes.partition(name, number)))
        operations.append(Create(znodes.partition_state(name, number), znodes.encode_partition_state(state)))
    return operations


def _stored(partitions: Mapping[int, PartitionState]) -> dict[int, PartitionState]:
    return {number: replace(state, version=0) for number, state in partitions.items()}
