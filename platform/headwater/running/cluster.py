"""The brokers that a command or a call was pointed at: clients of them, and librdkafka's errors as sentences."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from headwater.config import Settings, load_settings
from headwater.errors import UsageError, UserError
from headwater.running.clusters import Clusters
from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.base.topics import bare_topic, cluster_of
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import UNANSWERED, first_metadata, new_client

_FORBIDDEN = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)
_UNKNOWN_TOPIC = ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART")


class Cluster:
    """The brokers that a verb was pointed at.

    Args:
        home: Its running stack is used unless brokers are named.
        bootstrap: What --bootstrap names, if anything: brokers, or a cluster of the settings.
    """

    def __init__(self, home: Path, bootstrap: str | None) -> None:
        settings: Settings = load_settings(os.environ).settings
        self._cluster: KafkaCluster = Clusters(home, bootstrap, settings).require_default()
        self.bootstrap = self._cluster.bootstrap
        section = settings.cluster.get(self._cluster.section.removeprefix("cluster."), settings.client)
        self.timeout_s = section.timeout_s
        self._admin: Any = None
        self._complaints: list[Complaint] = []

    def client_properties(self) -> dict[str, Any]:
        """The properties that every client of this cluster starts from."""
        return {
            "client.id": "headwater-cli",
            # Its log lines about connections would come before our sentence about the same thing.
            "log_level": 0,
            **self._cluster.rdkafka(self._complaints),
        }

    def admin(self) -> Any:
        """The admin client."""
        if self._admin is None:
            self._admin = self._made(AdminClient, self.client_properties())
        return self._admin

    def topics(self) -> dict[str, Any]:
        """The metadata of all topics, by name.

        Raises:
            UserError: No broker answers, or one refuses this client.
        """
        with self.errors("topics"):
            metadata = first_metadata(self.admin(), self._cluster, self._complaints, self.timeout_s)
        return dict(metadata.topics)

    def _made(self, kind: Callable[..., Any], properties: dict[str, Any]) -> Any:
        try:
            return new_client(kind, properties, self._cluster)
        except RefusedError as error:
            raise UsageError(str(error)) from error

    @contextmanager
    def consumer(self, **properties: Any) -> Iterator[Any]:
        """A consumer that belongs to no group unless `properties` name one; partitions are assigned by hand."""
        consumer = self._made(
            Consumer,
            {
                **self.client_properties(),
                "group.id": "headwater-cli",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "allow.auto.create.topics": False,
                **properties,
            },
        )
        try:
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def errors(self, subject: str) -> Iterator[None]:
        """Turn librdkafka's exceptions into one sentence each.

        Args:
            subject: What was being done or asked for, such as `topic flights`.
        """
        try:
            yield
        except KafkaException as error:
            raise self.explain(error.args[0], subject) from error
        except (RefusedError, UnavailableError) as error:
            raise UserError(str(error)) from error

    def explain(self, error: Any, subject: str) -> UserError:
        """The sentence for one of librdkafka's errors."""
        name = error.name()
        if self._admin is not None:
            self._admin.poll(0)  # calls `error_cb` for the errors of its connections so far
        if name in (*UNANSWERED, "_MSG_TIMED_OUT"):
            fault = self._cluster.fault(self._complaints)
            if fault is not None:
                return UserError(str(fault))
        if name in UNANSWERED:
            return UserError(
                f"no broker answers at {self.bootstrap}: is it running, is the address right, and does it speak "
                f"{self._cluster.login.protocol} there ({self._cluster.section}.security_protocol)?"
            )
        if name == "_MSG_TIMED_OUT":
            return UserError(
                f"{subject}: no broker took the records in {self.timeout_s:g} s: is it running at {self.bootstrap}, "
                "and is the address right?"
            )
        if name in _FORBIDDEN:
            who = self._cluster.login.who
            return UserError(
                f"{subject}: the broker at {self.bootstrap} does not let {repr(who) if who else 'this client'} do that "
                f"({error.str().rstrip('.').lower()}): an ACL is to allow it"
            )
        if name in _UNKNOWN_TOPIC:
            return UsageError(
                f"{subject}: there is no such topic or partition; headwater topics list shows them"
            )
        if name == "_UNSUPPORTED_FEATURE":
            return UserError(f"{subject}: the broker at {self.bootstrap} does not offer this")
        if name == "TOPIC_ALREADY_EXISTS":
            return UserError(f"{subject} is there already")
        if name == "NON_EMPTY_GROUP":
            return UserError(f"{subject} has running members: stop them first")
        if name == "GROUP_ID_NOT_FOUND":
            return UsageError(f"there is no {subject}: headwater groups list shows them")
        if name == "MSG_SIZE_TOO_LARGE":
            return UserError(
                f"{subject}: a record is larger than the topic takes: headwater topics alter TOPIC --config "
                "max.message.bytes=N raises that"
            )
        message = f"{error.str()[:1].lower()}{error.str()[1:]}".removesuffix(".")
        return UserError(message if message.startswith(subject) else f"{subject}: {message}")

    def require_leaders(self, topic: str, partition: int | None = None) -> list[int]:
        """The partitions of a topic, or the one that is named, if records can be read from them and sent to them now.

        Raises:
            UserError: If there is no such topic, a partition has no leader, or no broker answers.
        """
        partitions = self.describe_topic(topic).partitions
        if partition is not None and partition not in partitions:
            raise UserError(f"topic {topic} has no partition {partition}: it has {len(partitions)}, from 0")
        requested = sorted(partitions) if partition is None else [partition]
        without = [number for number in requested if partitions[number].leader < 0]
        if without:
            brokers = sorted({broker for number in without for broker in partitions[number].replicas})
            others = "" if len(without) == len(partitions) else "; --partition N names one of the others"
            lacks = (
                f"partition {without[0]} has" if len(without) == 1 else f"partitions {_listed(without)} have"
            )
            raise UserError(
                f"topic {topic}: {lacks} no leader, as broker "
                f"{_listed(brokers)} is away or its log is offline: headwater status and its broker.log "
                f"say more{others}"
            )
        return requested

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, in order.

        Raises:
            UserError: If there is no such topic, or no broker answers.
        """
        return sorted(self.describe_topic(topic).partitions)

    def describe_topic(self, topic: str) -> Any:
        """A topic's metadata.

        Raises:
            UserError: If there is no such topic, or no broker answers.
        """
        if cluster_of(topic):  # as the ledger calls it
            raise UsageError(
                f"there is no topic {topic} here: commands take the cluster apart, --bootstrap {cluster_of(topic)} and "
                f"the topic {bare_topic(topic)}"
            )
        topics = self.topics()  # asking for one topic by name would have the broker create it
        if topic not in topics:
            near = get_close_matches(topic, topics, n=1)
            hint = f"did you mean {near[0]}?" if near else "see headwater topics list"
            raise UsageError(f"there is no topic {topic}: {hint}")
        return topics[topic]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
