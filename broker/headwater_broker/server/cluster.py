"""What this broker knows of the cluster: a copy of the shared state, kept current by its watches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol
from uuid import UUID
from zlib import crc32

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import (
    NO_LEADER,
    BrokerInfo,
    Change,
    ChangeKind,
    ConfigKind,
    Coordinator,
    TopicState,
)
from headwater_broker.log import PartitionLog
from headwater_broker.server.internal_topics import OFFSETS_TOPIC
from headwater_broker.transactions import partition_for

_EVERYTHING = frozenset(
    {
        ChangeKind.BROKERS,
        ChangeKind.TOPICS,
        ChangeKind.CONFIGS,
        ChangeKind.DELETIONS,
        ChangeKind.CONTROLLER,
    }
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Shared state as it was read at one time; what was not read is None.

    Attributes:
        brokers: All live brokers.
        topics: All topics.
        changed_topics: Some topics; None as a value where there is no such topic any more.
        topic_configs: The settings of all topics that have some.
        changed_configs: The settings of some topics, empty where one has none.
        broker_configs: What was changed of brokers' settings, by broker; `<default>` is for all of them.
        pending_deletions: All topics that are being deleted.
        controller_id: The controller, -1 for nobody.
    """

    brokers: Mapping[int, BrokerInfo] | None = None
    topics: Mapping[str, TopicState] | None = None
    changed_topics: Mapping[str, TopicState | None] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] | None = None
    changed_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] | None = None
    pending_deletions: frozenset[str] | None = None
    controller_id: int | None = None


class StaleParts:
    """The parts of the shared state that have to be read again."""

    def __init__(self) -> None:
        self._kinds: set[ChangeKind] = set()
        self._topic_names: set[str] = set()
        self._config_names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._kinds or self._topic_names or self._config_names)

    def add(self, change: Change) -> None:
        """Notes a report of a watch."""
        if change.kind in (ChangeKind.CONNECTED, ChangeKind.SESSION_RESTORED):
            self._kinds |= _EVERYTHING
        elif change.kind is ChangeKind.TOPICS and change.name is not None:
            self._topic_names.add(change.name)
            self._config_names.add(change.name)  # a new topic's settings hold from its first record on
        elif change.kind is ChangeKind.CONFIGS and change.name is not None:
            kind, _, name = change.name.partition("/")
            if kind == ConfigKind.TOPIC.value:
                self._config_names.add(name)
            elif kind == ConfigKind.BROKER.value:
                self._kinds.add(ChangeKind.CONFIGS)
        elif change.kind is ChangeKind.TOPICS:
            self._kinds |= {ChangeKind.TOPICS, ChangeKind.CONFIGS}
        elif change.kind in _EVERYTHING:
            self._kinds.add(change.kind)

    def add_everything(self) -> None:
        """Notes that all parts have to be read again."""
        self._kinds |= _EVERYTHING

    def read(self, coordinator: Coordinator) -> Snapshot:
        """Reads these parts; blocks, so it runs in a helper thread.

        Raises:
            CoordinationError: Shared state cannot be reached.
        """
        kinds = self._kinds
        all_topics, all_configs = ChangeKind.TOPICS in kinds, ChangeKind.CONFIGS in kinds
        controller_id = None
        if ChangeKind.CONTROLLER in kinds:
            controller = coordinator.controller()
            controller_id = -1 if controller is None else controller.broker_id
        return Snapshot(
            brokers=coordinator.brokers() if ChangeKind.BROKERS in kinds else None,
            topics=coordinator.topics() if all_topics else None,
            changed_topics=(
                {} if all_topics else {name: coordinator.topic(name) for name in self._topic_names}
            ),
            topic_configs=coordinator.configs(ConfigKind.TOPIC) if all_configs else None,
            changed_configs=(
                {}
                if all_configs
                else {name: coordinator.get_config(ConfigKind.TOPIC, name) for name in self._config_names}
            ),
            broker_configs=coordinator.configs(ConfigKind.BROKER) if all_configs else None,
            # Read after the topics: a topic that is marked meanwhile is then seen as marked, not as live.
            pending_deletions=frozenset(coordinator.pending_deletions()),
            controller_id=controller_id,
        )


class Logs(Protocol):
    """Logs by topic and partition."""

    def get(self, topic: str | bytes, partition: int) -> PartitionLog | None:
        """A log; None where there is none."""


class Absences(Protocol):
    """Says why there is no log of a partition."""

    def why_not_here(self, topic: str | bytes, partition: int) -> ErrorCode:
        """The error for a partition without a log."""

    def name_of(self, topic_id: bytes) -> bytes | None:
        """A topic's name by the 16 bytes of its id."""


@dataclass(frozen=True)
class GroupPlaces:
    """Which broker coordinates which group.

    Attributes:
        brokers: Live brokers by id.
        leaders: Who leads each partition of `__consumer_offsets`; empty while there is no such topic.
    """

    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    leaders: Mapping[int, int] = field(default_factory=dict)

    def coordinator_of(self, group: str) -> BrokerInfo | None:
        """The leader of the group's partition, as in Kafka: the group's records are there. Else one of the others.

        Rendezvous hashing: when a broker comes or goes, only the groups that it had or gets are moved.
        """
        if not self.brokers:
            return None
        if self.leaders:
            leader = self.brokers.get(self.leaders.get(partition_for(group, len(self.leaders)), NO_LEADER))
            if leader is not None:
                return leader
        best = max(self.brokers, key=lambda broker_id: (crc32(f"{broker_id}/{group}".encode()), broker_id))
        return self.brokers[best]


class ClusterView:
    """Brokers, topics and their settings, so that requests are answered without a look into shared state.

    Attributes:
        broker_id: This broker.
        cluster_id: The cluster's id.
        controller_id: The controller's broker id, -1 while there is none.
        brokers: Live brokers by id.
        topics: Topics by name, without those that are being deleted.
        deleting: Topics that are being deleted.
        topic_configs: Settings of topics that have some.
        broker_configs: What was changed of brokers' settings.
        missing: Partitions that this broker has no log of, because a disk fails.
        group_places: What decides who coordinates a group; a new object when that may have changed.
    """

    def __init__(self, broker_id: int, cluster_id: str) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: Mapping[int, BrokerInfo] = MappingProxyType({})
        self.topics: dict[str, TopicState] = {}
        self.deleting: dict[str, TopicState] = {}
        self.topic_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
        self.broker_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
        self.missing: set[tuple[str, int]] = set()
        self.group_places = GroupPlaces()
        self._names_by_id: dict[bytes, bytes] = {}

    def apply(self, snapshot: Snapshot) -> None:
        """Takes over what was read."""
        if snapshot.brokers is not None:
            self.brokers = dict(sorted(snapshot.brokers.items()))
        if snapshot.controller_id is not None:
            self.controller_id = snapshot.controller_id
        if snapshot.topic_configs is not None:
            self.topic_configs = snapshot.topic_configs
        if snapshot.changed_configs:
            merged = {**self.topic_configs, **snapshot.changed_configs}
            self.topic_configs = {name: values for name, values in merged.items() if values}
        if snapshot.broker_configs is not None:
            self.broker_configs = snapshot.broker_configs
        pending = snapshot.pending_deletions or frozenset()
        # A topic whose deletion is no longer pending is gone, unless it was read again.
        still = {name: topic for name, topic in self.deleting.items() if name in pending}
        topics: dict[str, TopicState | None] = {**self.topics, **still}
        if snapshot.topics is not None:
            topics = dict(snapshot.topics)
        topics.update(snapshot.changed_topics)
        self.topics = {name: topic for name, topic in topics.items() if topic and name not in pending}
        self.deleting = {name: topic for name, topic in topics.items() if topic and name in pending}
        self._names_by_id = {topic.topic_id.bytes: name.encode() for name, topic in self.topics.items()}
        offsets = self.topics.get(OFFSETS_TOPIC)
        states = offsets.partitions.items() if offsets is not None else ()
        places = GroupPlaces(self.brokers, {partition: state.leader for partition, state in states})
        if places != self.group_places:
            self.group_places = places

    def name_of(self, topic_id: bytes) -> bytes | None:
        """A topic's name by the 16 bytes of its id."""
        return self._names_by_id.get(topic_id)

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        """A topic by its id."""
        name = self._names_by_id.get(topic_id.bytes)
        return None if name is None else self.topics.get(name.decode())

    def why_not_here(self, topic: str | bytes, partition: int) -> ErrorCode:
        """The error for a partition that has no log on this broker."""
        name = topic.decode(errors="replace") if isinstance(topic, bytes) else topic
        state = self.topics.get(name)
        if state is None or partition not in state.partitions:
            return ErrorCode.unknown_topic_or_partition
        if (name, partition) in self.missing:
            return ErrorCode.kafka_storage_error
        return ErrorCode.not_leader_or_follower

    def lacks_replicas(self, topic: str, partition: int, required: int) -> bool:
        """Whether fewer replicas of a partition are in sync than acks=all asks for.

        As Kafka's `Partition.effectiveMinIsr` has it, no more are asked for than the partition has replicas:
        otherwise min.insync.replicas=2 would make a topic of one replica unwritable.

        Args:
            topic: The topic.
            partition: Its partition; one of which nothing is known has no replicas in sync.
            required: min.insync.replicas.
        """
        state = self.topics.get(topic)
        partition_state = state.partitions.get(partition) if state is not None else None
        return partition_state is None or len(partition_state.isr) < min(
            required, len(partition_state.replicas)
        )

    def group_coordinator(self, group: str) -> BrokerInfo | None:
        """The live broker that coordinates a group, the same on every broker."""
        return self.group_places.coordinator_of(group)

    def coordinates(self, group: str) -> bool:
        """Whether this broker coordinates a group."""
        broker = self.group_coordinator(group)
        return broker is not None and broker.broker_id == self.broker_id
