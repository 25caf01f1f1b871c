"""Topics to mirror, and what both clusters have of them in the end."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.mirror import Mirror, MirrorOptions
from headwater.mirror.topics import Choice
from headwater_streams.sources.kafka_cluster import KafkaCluster
from kafka_clients import QUIET, admin_of

Row = tuple[int, int, bytes | None, bytes | None, int, Any]


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Creates a topic; settings with underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result()


def make_anew(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """Deletes a topic, and has the cluster's own producers fill another of its name."""
    admin_of(bootstrap).delete_topics([topic])[topic].result(10)
    make_topic(bootstrap, topic)
    send(bootstrap, topic, numbers)


def send(bootstrap: str, topic: str, numbers: Iterable[int], **properties: Any) -> None:
    """Sends a record of each number."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **QUIET, **properties})
    for number in numbers:
        producer.produce(
            topic, b"value %d" % number, b"key %d" % (number % 97), headers=[("n", b"%d" % number)]
        )
        producer.poll(0)
    assert producer.flush(30) == 0


def send_transaction(bootstrap: str, topic: str, numbers: Iterable[int], *, aborts: bool = False) -> None:
    """Sends a record of each number in one transaction, whose marker takes an offset."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"sender-{topic}", **QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    producer.flush(30)
    producer.abort_transaction(30) if aborts else producer.commit_transaction(30)


def rows(bootstrap: str, topic: str) -> list[Row]:
    """All records that are committed: partition, offset, key, value, timestamp and headers, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test-rows",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    found: list[Row] = []
    try:
        left = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, 0) for each in left])
        while left:
            message = consumer.poll(20)
            assert message is not None, f"{bootstrap} does not send {topic}"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                left.discard(message.partition())
                continue
            key, value = message.key(), message.value()
            found.append(
                (message.partition(), message.offset(), key, value, message.timestamp()[1], message.headers())
            )
    finally:
        consumer.close()
    return sorted(found, key=lambda row: row[:2])


def contents(of: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Rows without their offsets."""
    return [(row[0], *row[2:]) for row in of]


def mirror_once(
    source: str, target: str, topics: str = ".*", **options: Any
) -> tuple[dict[str, Any], list[str]]:
    """Mirrors what is there: the last status, and what was told."""
    told: list[str] = []
    choice = Choice((re.compile(topics),), prefix=options.pop("prefix", ""))
    mirror = Mirror(
        KafkaCluster(source),
        KafkaCluster(target),
        MirrorOptions(choice, **{"once": True, **options}),
        stop=threading.Event(),
        tell=told.append,
    )
    return mirror.run(), told


class RunningMirror:
    """A mirror in a thread, until the block ends."""

    def __init__(self, source: str, target: str, topics: str = ".*", **options: Any) -> None:
        self.told: list[str] = []
        self.stop = threading.Event()
        choice = Choice((re.compile(topics),), prefix=options.pop("prefix", ""))
        fast = {"refresh_s": 0.5, "groups_s": 0.5, "settle_s": 1.0}
        self.mirror = Mirror(
            KafkaCluster(source),
            KafkaCluster(target),
            MirrorOptions(choice, **{**fast, **options}),
            stop=self.stop,
            tell=self.told.append,
        )
        self._thread = threading.Thread(target=self.mirror.run, daemon=True)

    def __enter__(self) -> RunningMirror:
        self._thread.start()
        return self

    def join(self) -> None:
        """Waits until one that mirrors once has ended."""
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()
