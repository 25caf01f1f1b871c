"""Shared state without ZooKeeper: for one broker by itself, and for tests.

Each `MemoryCoordinator` is a session with a `MemoryCluster`: what ZooKeeper would make ephemeral goes when the
coordinator stops. Everything else is kept, if a directory is given, in one JSON file there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater_broker.coordination.api import Assignment
from headwater_broker.coordination.errors import (
    AlreadyExists,
    AlreadyOwned,
    BrokerIdInUse,
    Conflict,
    DoesNotExist,
    LeaseLost,
)
from headwater_broker.coordination.memory_cluster import MemoryCluster
from headwater_broker.coordination.memory_file import Durable, MemoryFile
from headwater_broker.coordination.memory_security import MemorySecurity
from headwater_broker.coordination.model import (
    PRODUCER_ID_BLOCK_SIZE,
    BrokerInfo,
    Change,
    ChangeKind,
    Committed,
    ConfigKind,
    Controller,
    PartitionState,
    TopicPartition,
    TopicState,
    led_by_first,
)

_SESSION_TIMEOUT_MS = 6000


class MemoryCoordinator(MemorySecurity):
    """`Coordinator` within one process."""

    def __init__(self, state_dir: Path | None = None, *, cluster: MemoryCluster | None = None) -> None:
        """Opens the state.

        Args:
            state_dir: where to keep what outlives the process (`coordinator.json`); None: nowhere.
            cluster: state to share with other coordinators of the process, in place of a directory.

        Raises:
            CorruptState: the file in the directory cannot be read.
        """
        # A broker that comes back serves what it has, although its disk is full: only a new one has to keep its state.
        self._is_returning = False
        if cluster is None:
            file = MemoryFile(state_dir) if state_dir is not None else None
            self._is_returning = file is not None and file.exists
            cluster = MemoryCluster(file, file.read() if file is not None else Durable())
        self._cluster = cluster
        self._mine: BrokerInfo | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout_s: float = 15.0) -> None:
        """Nothing to connect to."""

    def stop(self) -> None:
        """See `Coordinator.stop`."""
        cluster = self._cluster
        self.deregister_broker()
        self._resign()
        with cluster.lock:
            cluster.callbacks = [item for item in cluster.callbacks if item[0] is not self]
            cluster.member_callbacks = [item for item in cluster.member_callbacks if item[0] is not self]
            mine = [
                (group, member)
                for group, members in cluster.members.items()
                for member, (session, _) in members.items()
                if session is self
            ]
        for group, member in mine:
            self.deregister_member(group, member)

    def watch(self, callback: Callable[[Change], None]) -> None:
        """See `Coordinator.watch`."""
        with self._cluster.lock:
            self._cluster.callbacks.append((self, callback))

    def last_answer_monotonic(self) -> float:
        """Now: there is nobody to lose."""
        return time.monotonic()

    @property
    def session_timeout_ms(self) -> int:
        """See `Coordinator.session_timeout_ms`."""
        return _SESSION_TIMEOUT_MS

    @property
    def connected(self) -> bool:
        """Always."""
        return True

    def cluster_id(self) -> str:
        """See `Coordinator.cluster_id`."""
        with self._cluster.changing(may_wait=self._is_returning):
            return self._cluster.durable.cluster_id

    # -- brokers, controller -----------------------------------------------------------------------

    def register_broker(self, broker: BrokerInfo) -> int:
        """See `Coordinator.register_broker`."""
        cluster = self._cluster
        with cluster.changing(may_wait=self._is_returning):
            registered = cluster.brokers.get(broker.broker_id)
            if registered is not None and not (broker.identity and registered[1].identity == broker.identity):
                address = ", ".join(str(endpoint) for endpoint in registered[1].endpoints)
                raise BrokerIdInUse(
                    f"broker id {broker.broker_id} is registered by another broker at {address}; "
                    "give this one another id, or stop that one"
                )
            cluster.durable.broker_epoch += 1
            epoch = cluster.durable.broker_epoch
            cluster.brokers[broker.broker_id] = (self, broker, epoch)
            self._mine = broker
        cluster.report(ChangeKind.BROKERS)
        return epoch

    def deregister_broker(self) -> None:
        """See `Coordinator.deregister_broker`."""
        cluster = self._cluster
        with cluster.lock:
            broker, self._mine = self._mine, None
            if broker is None or cluster.brokers[broker.broker_id][0] is not self:
                return
            del cluster.brokers[broker.broker_id]
        cluster.report(ChangeKind.BROKERS)
        self._resign()

    def _resign(self) -> None:
        with self._cluster.lock:
            if self._cluster.controller is None or self._cluster.controller[0] is not self:
                return
            self._cluster.controller = None
        self._cluster.report(ChangeKind.CONTROLLER)

    def brokers(self) -> dict[int, BrokerInfo]:
        """See `Coordinator.brokers`."""
        with self._cluster.lock:
            return {broker_id: info for broker_id, (_, info, _) in sorted(self._cluster.brokers.items())}

    def allocate_broker_id(self, reserved_max: int = 1000) -> int:
        """See `Coordinator.allocate_broker_id`."""
        with self._cluster.changing():
            self._cluster.durable.broker_sequence += 1
            return reserved_max + self._cluster.durable.broker_sequence

    def elect_controller(self, broker_id: int) -> Controller:
        """See `Coordinator.elect_controller`."""
        cluster = self._cluster
        with cluster.changing(may_wait=self._is_returning):
            standing = cluster.controller
            if standing is not None and (standing[1].broker_id != broker_id or standing[0] is self):
                return standing[1]
            cluster.durable.controller_epoch += 1
            elected = Controller(broker_id, cluster.durable.controller_epoch)
            cluster.controller = (self, elected)
        cluster.report(ChangeKind.CONTROLLER)
        return elected

    def controller(self) -> Controller | None:
        """See `Coordinator.controller`."""
        standing = self._cluster.controller
        return standing[1] if standing is not None else None

    # -- topics ------------------------------------------------------------------------------------

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
        cluster = self._cluster
        with cluster.changing():
            if name in cluster.durable.deletions:
                raise AlreadyExists(f"topic {name!r} is being deleted; create it again once it is gone")
            if name in cluster.durable.topics:
                raise AlreadyExists(f"Topic '{name}' already exists.")
            topic = TopicState(name, topic_id, _stored(led_by_first(assignment, controller_epoch)))
            cluster.durable.topics[name] = topic
            cluster.durable.configs[ConfigKind.TOPIC.value, name] = dict(configs)
        cluster.report(ChangeKind.TOPICS, name)
        return topic

    def add_partitions(self, name: str, assignment: Assignment, *, controller_epoch: int = 0) -> TopicState:
        """See `Coordinator.add_partitions`."""
        cluster = self._cluster
        with cluster.changing():
            topic = cluster.durable.topics.get(name)
            if topic is None:
                raise DoesNotExist(f"there is no topic {name!r}")
            existing = sorted(topic.partitions.keys() & assignment.keys())
            if existing:
                raise Conflict(f"topic {name!r} has partition {existing[0]} already")
            new = _stored(led_by_first(assignment, controller_epoch))
            topic = replace(topic, partitions=dict(sorted({**topic.partitions, **new}.items())))
            cluster.durable.topics[name] = topic
        cluster.report(ChangeKind.TOPICS, name)
        return topic

    def delete_topic(self, name: str) -> None:
        """See `Coordinator.delete_topic`."""
        with self._cluster.changing():
            if name not in self._cluster.durable.topics:
                raise DoesNotExist(f"there is no topic {name!r}")
            self._cluster.durable.deletions.add(name)
        self._cluster.report(ChangeKind.DELETIONS)

    def pending_deletions(self) -> set[str]:
        """See `Coordinator.pending_deletions`."""
        with self._cluster.lock:
            return set(self._cluster.durable.deletions)

    def complete_topic_deletion(self, name: str) -> None:
        """See `Coordinator.complete_topic_deletion`."""
        durable = self._cluster.durable
        with self._cluster.changing():
            durable.topics.pop(name, None)
            durable.configs.pop((ConfigKind.TOPIC.value, name), None)
            durable.deletions.discard(name)
            for offsets in durable.offsets.values():
                for tp in [tp for tp in offsets if tp[0] == name]:
                    del offsets[tp]
        self._cluster.report(ChangeKind.TOPICS, name)

    def topics(self) -> dict[str, TopicState]:
        """See `Coordinator.topics`."""
        with self._cluster.lock:
            return dict(sorted(self._cluster.durable.topics.items()))

    def topic(self, name: str) -> TopicState | None:
        """See `Coordinator.topic`."""
        return self._cluster.durable.topics.get(name)

    def set_leader_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """See `Coordinator.set_leader_states`."""
        cluster = self._cluster
        written: dict[TopicPartition, PartitionState] = {}
        changed: dict[str, dict[int, PartitionState]] = {}
        with cluster.changing():
            for (name, number), state in states.items():
                topic = cluster.durable.topics.get(name)
                stored = topic.partitions.get(number) if topic is not None else None
                if stored is not None and stored.version == state.version:
                    new = replace(state, version=state.version + 1)
                    written[name, number] = changed.setdefault(name, {})[number] = new
            for name, partitions in changed.items():
                topic = cluster.durable.topics[name]
                cluster.durable.topics[name] = replace(topic, partitions={**topic.partitions, **partitions})
        for name in {name for name, _ in written}:
            cluster.report(ChangeKind.TOPICS, name)
        return written

    # -- configuration, producers ------------------------------------------------------------------

    def get_config(self, kind: ConfigKind, name: str) -> dict[str, str]:
        """See `Coordinator.get_config`."""
        with self._cluster.lock:
            return dict(self._cluster.durable.configs.get((kind.value, name), {}))

    def configs(self, kind: ConfigKind) -> dict[str, dict[str, str]]:
        """See `Coordinator.configs`."""
        with self._cluster.lock:
            return {
                name: dict(values)
                for (kind_name, name), values in self._cluster.durable.configs.items()
                if kind_name == kind.value and values
            }

    def set_config(self, kind: ConfigKind, name: str, values: Mapping[str, str]) -> None:
        """See `Coordinator.set_config`."""
        with self._cluster.changing():
            if values:
                self._cluster.durable.configs[kind.value, name] = dict(values)
            else:
                self._cluster.durable.configs.pop((kind.value, name), None)
        self._cluster.report(ChangeKind.CONFIGS, f"{kind.value}/{name}")

    def allocate_producer_ids(self) -> tuple[int, int]:
        """See `Coordinator.allocate_producer_ids`."""
        with self._cluster.changing():
            start = self._cluster.durable.next_producer_id
            self._cluster.durable.next_producer_id += PRODUCER_ID_BLOCK_SIZE
            return start, PRODUCER_ID_BLOCK_SIZE

    # -- groups' offsets ---------------------------------------------------------------------------

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """See `Coordinator.commit_offsets`."""
        if not offsets:
            return
        with self._cluster.changing():
            self._cluster.durable.offsets.setdefault(group, {}).update(offsets)

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """See `Coordinator.fetch_offsets`."""
        with self._cluster.lock:
            offsets = self._cluster.durable.offsets.get(group, {})
            requested = sorted(offsets) if partitions is None else partitions
            return {tp: offsets[tp] for tp in requested if tp in offsets}

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """See `Coordinator.delete_offsets`."""
        with self._cluster.changing():
            offsets = self._cluster.durable.offsets.get(group, {})
            for tp in partitions:
                offsets.pop(tp, None)

    def delete_group(self, group: str) -> None:
        """See `Coordinator.delete_group`."""
        with self._cluster.changing():
            for member in self._cluster.members.get(group, {}):
                raise AlreadyOwned(f"group {group!r} has a live member, {member!r}: stop it first", member)
            self._cluster.durable.offsets.pop(group, None)
            self._cluster.durable.groups.pop(group, None)
            self._cluster.plans.pop(group, None)

    def groups(self, names: Collection[str] | None = None) -> dict[str, bool]:
        """See `Coordinator.groups`."""
        with self._cluster.lock:
            groups = {group: False for group, offsets in self._cluster.durable.offsets.items() if offsets}
            groups.update({group: True for group, members in self._cluster.members.items() if members})
            return groups if names is None else {name: groups[name] for name in names if name in groups}

    def keep_group(self, group: str, data: bytes) -> None:
        """See `Coordinator.keep_group`."""
        with self._cluster.changing():
            self._cluster.durable.groups[group] = data

    def kept_groups(self) -> dict[str, bytes]:
        """See `Coordinator.kept_groups`."""
        with self._cluster.lock:
            return dict(self._cluster.durable.groups)

    # -- members of decentralised groups -----------------------------------------------------------

    def register_member(
        self,
        group: str,
        member: str,
        subscription: Mapping[str, int],
        about: Mapping[str, str] | None = None,
    ) -> None:
        """See `Coordinator.register_member`."""
        registration = {
            "version": 1,
            "subscription": dict(subscription),
            "pattern": "static",
            "timestamp": str(time.time_ns() // 1_000_000),
            "headwater": {"host": "localhost", **(about or {})},
        }
        with self._cluster.lock:
            members = self._cluster.members.setdefault(group, {})
            if member in members and members[member][0] is not self:
                raise AlreadyOwned(f"{member!r} runs already as a member of {group!r}; stop it first", member)
            members[member] = (self, registration)
        self._cluster.report_members(group)

    def deregister_member(self, group: str, member: str) -> None:
        """See `Coordinator.deregister_member`."""
        with self._cluster.lock:
            members = self._cluster.members.get(group, {})
            if member not in members or members[member][0] is not self:
                return
            owners = self._cluster.owners.get(group, {})
            for tp in [tp for tp, owner in owners.items() if owner == (self, member)]:
                del owners[tp]
            del members[member]
        self._cluster.report_members(group)

    def members(self, group: str) -> dict[str, dict[str, Any]]:
        """See `Coordinator.members`."""
        with self._cluster.lock:
            members = self._cluster.members.get(group, {})
            return {member: dict(registration) for member, (_, registration) in sorted(members.items())}

    def claim_partitions(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """See `Coordinator.claim_partitions`."""
        with self._cluster.lock:
            registered = self._cluster.members.get(group, {}).get(member)
            if registered is None or registered[0] is not self:
                raise LeaseLost(f"{member!r} is not registered in {group!r}; register it again")
            owners = self._cluster.owners.setdefault(group, {})
            for tp in partitions:
                _, holder = owners.get(tp, (self, member))
                if holder != member:
                    raise AlreadyOwned(
                        f"{tp[0]}-{tp[1]} in {group!r} is owned by {holder!r}; stop it first", holder
                    )
            owners.update(dict.fromkeys(partitions, (self, member)))

    def release_partitions(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """See `Coordinator.release_partitions`."""
        with self._cluster.lock:
            owners = self._cluster.owners.get(group, {})
            for tp in partitions:
                if owners.get(tp) == (self, member):
                    del owners[tp]

    def owners(self, group: str) -> dict[TopicPartition, str]:
        """See `Coordinator.owners`."""
        with self._cluster.lock:
            owners = self._cluster.owners.get(group, {})
            return {tp: member for tp, (_, member) in sorted(owners.items())}

    def plan(self, group: str) -> tuple[bytes, int]:
        """See `Coordinator.plan`."""
        with self._cluster.lock:
            return self._cluster.plans.get(group, (b"", 0))

    def replace_plan(self, group: str, data: bytes, number: int) -> bool:
        """See `Coordinator.replace_plan`."""
        with self._cluster.lock:
            if self.plan(group)[1] != number:
                return False
            self._cluster.plans[group] = (data, number + 1)
        self._cluster.report_members(group)
        return True

    def watch_members(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Coordinator.watch_members`."""
        entry = (self, group, callback)
        with self._cluster.lock:
            self._cluster.member_callbacks.append(entry)

        def close() -> None:
            with self._cluster.lock:
                if entry in self._cluster.member_callbacks:
                    self._cluster.member_callbacks.remove(entry)

        return close


def _stored(partitions: Mapping[int, PartitionState]) -> dict[int, PartitionState]:
    return {number: replace(state, version=0) for number, state in partitions.items()}
