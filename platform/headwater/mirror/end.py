"""One of the two clusters: who leads which partition, where partitions begin and end, and an admin client."""

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.errors import UserError
from headwater.mirror.connection import INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, Connection, passes
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
_TRIES, _PAUSE_S = 50, 0.2
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
        self._any: Connection | None = None
        self._admin: Any = None

    def refresh(self) -> Layout:
        """Asks any of its brokers what there is.

        Raises:
            AwayError: None answers.
        """
        if self._any is None:
            self._any = self._first()
        try:
            answer = self._any.ask(
                METADATA,
                topics=None,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        except AwayError:
            self._any.close()
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

    def _first(self) -> Connection:
        reached: AwayError | None = None
        for address in self.cluster.bootstrap.split(","):
            host, _, port = address.strip().rpartition("://")[2].rpartition(":")
            if not port.isdecimal():
                raise UserError(f"{address} is no address of a broker: give HOST:PORT")
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

    def new_producer(self) -> tuple[int, int]:
        """A producer id and its epoch.

        Raises:
            AwayError: No broker gives one.
        """
        broker = next(iter(self.layout.brokers), -1)
        for _ in range(_TRIES):
            answer = self.connection(broker).ask(
                INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=60_000
            )
            if not passes(answer.error_code):
                break
            time.sleep(_PAUSE_S)  # Apache Kafka's broker gets ids from its controller only now
        else:
            raise AwayError(f"{self.cluster.bootstrap} gives no producer id yet")
        if answer.error_code:
            raise MirrorError(
                f"{self.cluster.bootstrap} gives no producer id: {answer.error_code.name}; an ACL is to allow "
                "IdempotentWrite"
            )
        return answer.producer_id, answer.producer_epoch

    def admin(self) -> Any:
        """An admin client."""
        if self._admin is None:
            self._admin = self._client(AdminClient)
        return self._admin

    def committed(self, group: str) -> dict[Place, int]:
        """What a group has committed of the topics there are.

        A consumer of the group asks, which joins nothing. librdkafka's admin client would end the process at a
        coordinator that is only coming (confluentinc/librdkafka#5040).

        Raises:
            KafkaException: The brokers refuse, or cannot answer now.
        """
        places = [TopicPartition(topic, number) for topic, of in self.layout.leaders.items() for number in of]
        if not places:
            return {}
        consumer = self._client(Consumer, {"group.id": group, "enable.auto.commit": False})
        try:
            found = consumer.committed(places, timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return {(at.topic, at.partition): at.offset for at in found if at.error is None and at.offset >= 0}

    def _client(self, kind: Callable[..., Any], more: Mapping[str, Any] = MappingProxyType({})) -> Any:
        properties = {"client.id": "headwater-mirror", "log_level": 0, **self.cluster.rdkafka([]), **more}
        try:
            return new_client(kind, properties, self.cluster)
        except RefusedError as error:
            raise MirrorError(str(error)) from error

    def drop_connections(self) -> None:
        """Ends its connections; the next request makes new ones."""
        for each in (*self._connections.values(), *filter(None, (self._any,))):
            each.close()
        self._connections, self._any = {}, None
