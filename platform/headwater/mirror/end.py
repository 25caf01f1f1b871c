"""One of the two clusters: who leads which partition, where partitions begin and end, and an admin client."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from headwater.errors import UsageError
from headwater.mirror.connection import (
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    Connection,
    passes,
)
from headwater.mirror.errors import AwayError, MirrorError
from headwater_streams.base.errors import RefusedError
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import UNANSWERED, new_client

EARLIEST, LATEST = -2, -1
TIMEOUT_S = 15.0
"""For an admin client's request."""

_NOT_NOW = (
    *UNANSWERED,
    "REQUEST_TIMED_OUT",
    "NOT_CONTROLLER",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
)
_OF_GROUP = 0
"""The kind of key by which a coordinator is found."""
Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True)
class Layout:
    """A cluster as its brokers describe it.

    Attributes:
        cluster_id: Its id.
        brokers: Their addresses.
        leaders: By topic and partition; a partition that nobody leads now is there with -1.
        ids: By topic; brokers before Kafka 3.1 give none.
    """

    cluster_id: str
    brokers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    leaders: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    ids: Mapping[str, UUID] = field(default_factory=dict)


def text_of(topic_id: UUID | None) -> str:
    """A topic's id as Kafka's tools show it; empty where it has none."""
    return "" if topic_id is None else urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def why_refused(error: KafkaException) -> str:
    """Why the brokers refuse a request of an admin client.

    Raises:
        KafkaException: They do not; they cannot answer now.
    """
    if error.args[0].name() in _NOT_NOW:
        raise error
    return str(error.args[0].str()).rstrip(".").lower()


class End:
    """A cluster that is mirrored, or one that is mirrored into. For one thread."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.layout = Layout("")
        self._connections: dict[int, Connection] = {}
        self._coordinators: dict[str, int] = {}
        self._any: Connection | None = None
        self._admin: Any = None

    def refresh(self) -> Layout:
        """Asks any of its brokers what there is.

        Raises:
            AwayError: None answers.
        """
        connection = self._some_connection()
        try:
            answer = connection.ask(
                METADATA,
                topics=None,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        except AwayError:
            connection.close()
            self._any = None
            raise
        if not answer.cluster_id:
            raise MirrorError(
                f"{self.cluster.bootstrap} has no cluster id: its brokers are too old to be mirrored"
            )
        topics = [topic for topic in answer.topics if not topic.error_code]
        self.layout = Layout(
            answer.cluster_id,
            {each.node_id: (each.host, each.port) for each in answer.brokers},
            {
                topic.name: {each.partition_index: each.leader_id for each in topic.partitions}
                for topic in topics
            },
            {topic.name: topic.topic_id for topic in topics if getattr(topic, "topic_id", None) is not None},
        )
        return self.layout

    def _some_connection(self) -> Connection:
        if self._any is None:
            self._any = self._first()
        return self._any

    def _first(self) -> Connection:
        reached: AwayError | None = None
        for address in self.cluster.bootstrap.split(","):
            host, _, port = address.strip().rpartition("://")[2].rpartition(":")
            if not port.isdecimal():
                raise UsageError(
                    f"{address} is neither a broker nor a cluster of the settings: give HOST:PORT, or the NAME of a "
                    "[cluster.NAME]"
                )
            try:
                return Connection(self.cluster, host.strip("[]"), int(port))
            except AwayError as error:
                reached = error
        fault = self.cluster.fault([])
        if isinstance(fault, RefusedError):
            raise MirrorError(str(fault)) from reached
        raise reached or AwayError("no broker is named")

    def leader(self, place: Place) -> int:
        """Who leads a partition; -1 where nobody does."""
        return self.layout.leaders.get(place[0], {}).get(place[1], -1)

    def connection(self, broker: int) -> Connection:
        """The connection to a broker.

        Raises:
            AwayError: It is not there.
        """
        if broker not in self._connections:
            self._connections[broker] = self.connect(broker)
        return self._connections[broker]

    def connect(self, broker: int) -> Connection:
        """A new connection to a broker, which is the caller's to close.

        Raises:
            AwayError: It is not there.
        """
        if broker not in self.layout.brokers:
            raise AwayError(f"broker {broker} of {self.cluster.bootstrap} is away")
        return Connection(self.cluster, *self.layout.brokers[broker])

    def offsets(self, places: Iterable[Place], which: int, *, committed: bool = False) -> dict[Place, int]:
        """Where partitions begin (`EARLIEST`) or end (`LATEST`); those without a leader are left out.

        Args:
            places: The partitions.
            which: Which end.
            committed: Whether the end is that of what is committed of transactions.

        Raises:
            AwayError: A leader does not answer.
        """
        by_leader: dict[int, dict[str, list[int]]] = {}
        for place in places:
            leader = self.leader(place)
            if leader >= 0:
                by_leader.setdefault(leader, {}).setdefault(place[0], []).append(place[1])
        found: dict[Place, int] = {}
        for leader, topics in by_leader.items():
            answer = self.connection(leader).ask(
                LIST_OFFSETS,
                replica_id=-1,
                isolation_level=int(committed),
                topics=[
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": each, "current_leader_epoch": -1, "timestamp": which}
                            for each in partitions
                        ],
                    }
                    for name, partitions in topics.items()
                ],
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        found[topic.name, each.partition_index] = each.offset
                    elif not passes(each.error_code):
                        raise MirrorError(
                            f"{topic.name}, partition {each.partition_index}: {self.cluster.bootstrap} does not tell "
                            f"where it ends: {each.error_code.name}"
                        )
        return found

    def admin(self) -> Any:
        """An admin client."""
        if self._admin is None:
            self._admin = self._new_admin()
        return self._admin

    def committed(self, group: str) -> dict[Place, int]:
        """What a group has committed.

        Its coordinator is asked by a connection that stays: a client of librdkafka's for each of hundreds of groups
        would take longer than the pause between two looks.

        Raises:
            AwayError: The coordinator cannot answer now.
            KafkaException: The brokers refuse.
        """
        if group not in self._coordinators:
            found = self._some_connection().ask(FIND_COORDINATOR, key=group, key_type=_OF_GROUP)
            _require_no_error(found.error_code, f"the coordinator of group {group}")
            self._coordinators[group] = found.node_id
        answer = self.connection(self._coordinators[group]).ask(OFFSET_FETCH, group_id=group, topics=None)
        if answer.error_code:
            del self._coordinators[group]
        _require_no_error(answer.error_code, f"the coordinator of group {group}")
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }

    def _new_admin(self) -> Any:
        properties = {"client.id": "headwater-mirror", "log_level": 0, **self.cluster.rdkafka([])}
        try:
            return new_client(AdminClient, properties, self.cluster)
        except RefusedError as error:
            raise MirrorError(str(error)) from error

    def drop_connections(self) -> None:
        """Ends its connections; the next request makes new ones."""
        for each in (*self._connections.values(), *filter(None, (self._any,))):
            each.close()
        self._connections, self._coordinators, self._any = {}, {}, None


def _require_no_error(code: ErrorCode, who: str) -> None:
    if passes(code):
        raise AwayError(f"{who} is away")
    if code:
        raise KafkaException(KafkaError(code.value))
