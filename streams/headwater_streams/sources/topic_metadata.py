"""A topic's partitions, their offsets and its id, as the broker gives them."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from headwater_streams.base.errors import JobDefinitionError, RefusedError, UnavailableError
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster

_TIMEOUT_S = 10.0
_FIRST_TRY_S = 1.0
SILENT = logging.getLogger(f"{__name__}.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
"""The logger of clients whose connections may come and go: their callers get an exception instead."""

UNANSWERED = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_RESOLVE",
    "_AUTHENTICATION",
    "_SSL",
    "_DESTROY",
    "_DESTROY_BROKER",  # librdkafka lets go of a broker while it is asked, as another one takes its name
)
"""Names of librdkafka's errors for a request that no broker answered; a broker's own begin with no underscore. It
destroys a connection to an address that the next answer does not name any more."""
_FORBIDDEN = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")


def first_metadata(client: Any, cluster: KafkaCluster, complaints: list[Complaint], timeout_s: float) -> Any:
    """The metadata of all topics that the client may see, by its first request to the brokers.

    It tries again with growing patience, and looks after each try whether a broker refuses the client. librdkafka
    would try to log in ten times a second until the time is up.

    Args:
        client: A consumer or an admin client, made with the complaints' list; see `KafkaCluster.rdkafka`.
        cluster: The cluster.
        complaints: What the client's connections complain of.
        timeout_s: How long to wait in all.

    Raises:
        RefusedError: A broker and the client do not come together.
        UnavailableError: No server of tokens answers.
        KafkaException: No broker answers.
    """
    deadline_s, patience_s = time.monotonic() + timeout_s, _FIRST_TRY_S
    while True:
        left_s = deadline_s - time.monotonic()
        is_last = left_s <= patience_s
        try:
            return client.list_topics(timeout=max(left_s if is_last else patience_s, 0.1))
        except KafkaException as error:
            if error.args[0].name() not in UNANSWERED:
                raise
            client.poll(0)  # has the complaints come
            # A port that does not answer takes seconds to ask: it is asked at the first try and at the last one.
            fault = cluster.fault(complaints, asks_port=is_last or patience_s == _FIRST_TRY_S)
            if fault is not None:
                raise fault from error
            if is_last:
                raise
        patience_s *= 2


@contextmanager
def _asking(cluster: KafkaCluster) -> Iterator[tuple[Consumer, list[Complaint]]]:
    if not cluster.bootstrap:
        raise UnavailableError("no broker is named, and no stack runs here")
    complaints: list[Complaint] = []
    settings = {
        "group.id": "headwater-metadata",
        "allow.auto.create.topics": False,
        "enable.auto.commit": False,
        **cluster.rdkafka(complaints),
    }
    consumer = new_client(Consumer, settings, cluster)
    try:
        yield consumer, complaints
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not answer ({error.args[0].str()}); is it up?"
        ) from error
    finally:
        consumer.close()


def new_client(kind: Callable[..., Any], settings: Mapping[str, Any], cluster: KafkaCluster) -> Any:
    """A client of librdkafka, which logs nothing.

    Raises:
        RefusedError: It does not take its settings: a key's password is wrong, a certificate is none.
    """
    try:
        return kind(dict(settings), logger=SILENT)
    except KafkaException as error:
        raise RefusedError(f"the section {cluster.section} of the settings: {error.args[0].str()}") from error


def topic_names(cluster: KafkaCluster) -> list[str]:
    """The names of all topics that this client may see, as the cluster itself calls them.

    Raises:
        RefusedError: A broker and this client do not come together.
        UnavailableError: The broker does not answer, or none is named.
    """
    with _asking(cluster) as (consumer, complaints):
        return sorted(first_metadata(consumer, cluster, complaints, _TIMEOUT_S).topics)


def cluster_id(cluster: KafkaCluster) -> str | None:
    """The id that a cluster gave itself; None where its brokers give none.

    Raises:
        RefusedError: A broker and this client do not come together.
        UnavailableError: The broker does not answer, or none is named.
    """
    with _asking(cluster) as (consumer, complaints):
        return first_metadata(consumer, cluster, complaints, _TIMEOUT_S).cluster_id or None


def topic_settings(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """A topic's settings; none where this client may not know them.

    Raises:
        RefusedError: The client does not take its settings.
    """
    admin = new_client(AdminClient, cluster.rdkafka(), cluster)
    resource = ConfigResource(ConfigResource.Type.TOPIC, cluster.bare(topic))
    try:
        (answer,) = admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
        return {name: str(entry.value) for name, entry in answer.result().items()}
    except KafkaException:
        return {}


def partitions(cluster: KafkaCluster, topic: str) -> dict[int, tuple[int, int]]:
    """The topic's partitions, each with its earliest and its next offset.

    Raises:
        JobDefinitionError: There is no such topic; the message names the existing ones.
        RefusedError: A broker and this client do not come together, or it may not see the topic.
        UnavailableError: The broker does not answer, or none is named.
    """
    with _asking(cluster) as (consumer, complaints):
        bounds, bare = {}, cluster.bare(topic)
        metadata = _metadata_of(consumer, cluster, complaints, topic)
        for partition, place in sorted(metadata.topics[bare].partitions.items()):
            try:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(bare, partition), timeout=_TIMEOUT_S
                )
            except KafkaException as error:
                leader = metadata.brokers.get(place.leader)
                if leader is None or error.args[0].name() not in UNANSWERED:
                    raise
                consumer.poll(0)  # has the complaints come
                raise _leader_fault(cluster, leader, complaints, error) from error
            bounds[partition] = (low, high)
        return bounds


def _leader_fault(
    cluster: KafkaCluster, leader: Any, complaints: list[Complaint], error: KafkaException
) -> RefusedError | UnavailableError:
    """Why the broker that leads a partition does not answer where the others say that it is."""
    host = f"[{leader.host}]" if ":" in leader.host else leader.host
    address = f"{host}:{leader.port}"
    fault = replace(cluster, bootstrap=address).fault(complaints)
    if fault is not None:
        return fault
    return UnavailableError(
        f"the broker at {cluster.bootstrap} answers, and names {address} for the records (its advertised.listeners), "
        f"which does not answer from here ({error.args[0].str()})"
    )


def first_since(cluster: KafkaCluster, topic: str, time_ms: int) -> dict[int, int]:
    """The first offset of each partition whose record's timestamp is not before a time; none where there is none.

    Raises:
        JobDefinitionError: There is no such topic.
        RefusedError: As `partitions`.
        UnavailableError: The broker does not answer, or none is named.
    """
    with _asking(cluster) as (consumer, complaints):
        bare, metadata = cluster.bare(topic), _metadata_of(consumer, cluster, complaints, topic)
        # To brokers -1 is the end and not a time, and -2 the beginning. No record has a time before 1970.
        at = time_ms if time_ms >= 0 else OFFSET_BEGINNING
        requests = [TopicPartition(bare, partition, at) for partition in metadata.topics[bare].partitions]
        offsets = consumer.offsets_for_times(requests, timeout=_TIMEOUT_S)
        for each in offsets:
            if each.error is not None:
                raise KafkaException(each.error)
    return {each.partition: each.offset for each in offsets if each.offset >= 0}


def _metadata_of(consumer: Consumer, cluster: KafkaCluster, complaints: list[Complaint], topic: str) -> Any:
    """The metadata of a topic that is there."""
    bare = cluster.bare(topic)
    metadata = first_metadata(consumer, cluster, complaints, _TIMEOUT_S)
    topics = metadata.topics
    if bare in topics and topics[bare].error is None:
        return metadata
    # Asked for all topics, brokers leave out those that the client may not see; asked for one, they say so.
    error = consumer.list_topics(bare, timeout=_TIMEOUT_S).topics[bare].error
    if error is not None and error.name() in _FORBIDDEN:
        raise RefusedError(forbidden(cluster, topic), topic)
    existing = ", ".join(sorted(name for name in topics if not name.startswith("__"))) or "none"
    here = f" --bootstrap {cluster.name}" if cluster.name else ""
    raise JobDefinitionError(
        f"there is no topic {topic!r}; the broker has {existing} (make it with: headwater topics create {bare}{here})"
    )


def forbidden(cluster: KafkaCluster, topic: str) -> str:
    """The sentence for a topic that a client may not read."""
    who = f"{cluster.login.who!r}" if cluster.login.who else "this client"
    return (
        f"the broker at {cluster.bootstrap} does not let {who} read the topic {cluster.bare(topic)!r}: it needs the "
        "operation Read on it"
    )


def changed_ids(
    before: Mapping[str, str | None], now: Mapping[str, str | None]
) -> dict[str, tuple[str, str]]:
    """The names that now belong to another topic or table, each with its id before and now; a name whose id is unknown
    before or now is left out.

    Example:
        >>> changed_ids({"clicks": "a", "taps": "b", "bids": "c"}, {"clicks": "a", "taps": "x", "bids": None})
        {'taps': ('b', 'x')}
    """
    both = ((name, before.get(name), now.get(name)) for name in before)
    return {name: (old, new) for name, old, new in both if old and new and old != new}


_NO_ID = "A" * 22  # KIP-516: sixteen zero bytes, from a broker that gives topics no ids


def shown_id(topic_id: str | None) -> str:
    """A topic's id as Kafka and our broker show it: librdkafka has + and / for - and _; empty where there is none."""
    return (topic_id or "").translate(str.maketrans("+/", "-_"))


class TopicIds:
    """The ids of topics, which distinguish a topic from another one of the same name; the broker gives each its id."""

    def __init__(self, cluster: KafkaCluster) -> None:
        """Args: the cluster; the connection is made at the first request and kept."""
        self._cluster = cluster
        self._admin: AdminClient | None = None

    def of(self, topic: str) -> str | None:
        """The topic's id; None where the broker gives none, has no such topic or does not answer now."""
        if not self._cluster.bootstrap:
            return None
        bare = self._cluster.bare(topic)
        if self._admin is None:
            self._admin = self._connected()
        if self._admin is None:
            return None
        futures = self._admin.describe_topics(TopicCollection([bare]), request_timeout=_TIMEOUT_S)
        try:
            topic_id = str(futures[bare].result(2 * _TIMEOUT_S).topic_id)
        except KafkaException:
            return None
        return None if topic_id == _NO_ID else topic_id

    def _connected(self) -> AdminClient | None:
        """A client, once another one got an answer: one that a broker refuses would go on trying to log in."""
        try:
            with _asking(self._cluster) as (consumer, complaints):
                first_metadata(consumer, self._cluster, complaints, _TIMEOUT_S)
        except (RefusedError, UnavailableError):
            return None
        # Without a list of complaints, which nobody would empty as long as the process lives.
        admin: AdminClient = new_client(AdminClient, self._cluster.rdkafka(), self._cluster)
        return admin
