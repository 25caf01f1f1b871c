"""A topic's partitions, their offsets and its id, as the broker gives them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater_streams.base.errors import JobDefinitionError, UnavailableError

_TIMEOUT_S = 10.0
SILENT = logging.getLogger(f"{__name__}.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
"""The logger of clients whose connections may come and go: their callers get an exception instead."""


@contextmanager
def _asking(bootstrap: str) -> Iterator[Consumer]:
    if not bootstrap:
        raise UnavailableError("no broker is named, and no stack runs here")
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "headwater-metadata",
        "allow.auto.create.topics": False,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings, logger=SILENT)
    try:
        yield consumer
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {bootstrap} does not answer ({error.args[0].str()}); is it up?"
        ) from error
    finally:
        consumer.close()


def partitions(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """The topic's partitions, each with its earliest and its next offset.

    Raises:
        JobDefinitionError: There is no such topic; the message names the existing ones.
        UnavailableError: The broker does not answer, or none is named.
    """
    with _asking(bootstrap) as consumer:
        bounds = {}
        for partition in _numbers(consumer, topic):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
            bounds[partition] = (low, high)
        return bounds


def first_since(bootstrap: str, topic: str, time_ms: int) -> dict[int, int]:
    """The first offset of each partition whose record's timestamp is not before a time; none where there is none.

    Raises:
        JobDefinitionError: There is no such topic.
        UnavailableError: The broker does not answer, or none is named.
    """
    with _asking(bootstrap) as consumer:
        requests = [TopicPartition(topic, partition, time_ms) for partition in _numbers(consumer, topic)]
        offsets = consumer.offsets_for_times(requests, timeout=_TIMEOUT_S)
        for each in offsets:
            if each.error is not None:
                raise KafkaException(each.error)
    return {each.partition: each.offset for each in offsets if each.offset >= 0}


def _numbers(consumer: Consumer, topic: str) -> list[int]:
    """The topic's partitions."""
    topics = consumer.list_topics(timeout=_TIMEOUT_S).topics
    if topic not in topics or topics[topic].error is not None:
        existing = ", ".join(sorted(name for name in topics if not name.startswith("__"))) or "none"
        raise JobDefinitionError(
            f"there is no topic {topic!r}; the broker has {existing} (make it with: headwater topics create {topic})"
        )
    return sorted(topics[topic].partitions)


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


class TopicIds:
    """The ids of topics, which distinguish a topic from another one of the same name; the broker gives each its id."""

    def __init__(self, bootstrap: str) -> None:
        """Args: the broker's `host:port`; the connection is made at the first request and kept."""
        self._bootstrap = bootstrap
        self._admin: AdminClient | None = None

    def of(self, topic: str) -> str | None:
        """The topic's id; None where the broker gives none, has no such topic or does not answer now."""
        if not self._bootstrap:
            return None
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=SILENT)
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
        try:
            topic_id = str(futures[topic].result(2 * _TIMEOUT_S).topic_id)
        except KafkaException:
            return None
        return None if topic_id == _NO_ID else topic_id
