"""A log directory goes from Apache Kafka's broker to ours and back, on the same ZooKeeper, with every record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"segment.bytes": "20000", "index.interval.bytes": "500"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1000"}
Records = list[tuple[int, bytes | None, bytes | None, int]]


def produce(bootstrap: str, codec: str, first: int, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "batch.num.messages": 7,
            "linger.ms": 20,
        }
    )
    for index in range(first, first + count):
        value = b" ".join(b"%d" % (index * factor) for factor in range(1, 30))
        producer.produce(codec, value, b"k%d" % index, partition=0, timestamp=1_600_000_000_000 + index)
    assert producer.flush(60) == 0


def produce_compacted(bootstrap: str, first: int) -> None:
    """Many records of four keys, one of which ends as a tombstone."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "batch.num.messages": 3})
    for index in range(first, first + 100):
        value = None if index % 4 == 3 else b"%d" % index * 50
        producer.produce("compacted", value, b"k%d" % (index % 4), partition=0, timestamp=1_600_000_000_000)
    assert producer.flush(60) == 0


def wait_until_compacted(bootstrap: str) -> None:
    """Returns once most of the topic is gone."""
    deadline = time.monotonic() + 60
    while len(read(bootstrap, "compacted")) > 40:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def produce_transactions(bootstrap: str) -> None:
    """Ten transactions of ten records, every other one aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
    producer.init_transactions(60)
    for number in range(10):
        producer.begin_transaction()
        for index in range(10):
            producer.produce("transactions", b"%d-%d" % (number, index), partition=0, timestamp=1000)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def read(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> Records:
    """Offset, key, value and timestamp of every record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Records = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, f"{topic}: nothing after {len(found)} records"
            if message.error() is not None:
                assert message.error().code() == -191, message.error()  # the end of the partition
                return found
            found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()


def read_all(bootstrap: str) -> dict[str, Records]:
    found = {topic: read(bootstrap, topic) for topic in (*CODECS, "transactions")}
    return found | {"committed": read(bootstrap, "transactions", "read_committed")}


def table(bootstrap: str) -> dict[bytes | None, bytes | None]:
    """The last value of each key of the compacted topic."""
    return {key: value for _, key, value, _ in read(bootstrap, "compacted")}


def wait_until_gone(zookeeper: str) -> None:
    """Returns once the registration of a broker that was killed has ended with its session."""
    client = KazooClient(zookeeper)
    client.start()
    deadline = time.monotonic() + 60
    while client.exists("/brokers/ids/1"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    client.stop()
    client.close()


@pytest.fixture
def homes(
    own_zookeeper: Any, broker_process_class: Any, kafka_broker: Callable[[str, Path], Any], tmp_path: Path
) -> Iterator[tuple[Any, Any]]:
    """Apache Kafka and our broker, neither started, with the same data directory and ZooKeeper."""
    zookeeper = f"{own_zookeeper.hosts}/kafka"
    ours = broker_process_class(tmp_path, ["--zookeeper", zookeeper])
    ours.data.mkdir(parents=True)
    yield kafka_broker(zookeeper, ours.data), ours
    ours.kill()


@pytest.mark.parametrize(
    "how",
    [
        "clean",
        pytest.param(
            "killed",
            marks=pytest.mark.skipif("HEADWATER_LONG" not in os.environ, reason="long: set HEADWATER_LONG"),
        ),
    ],
)
def test_directory_moves_from_kafka_to_us_and_back(homes: tuple[Any, Any], how: str) -> None:
    kafka, ours = homes
    kafka.start(log_cleaner_backoff_ms="200")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topics = [NewTopic(topic, 1, 1, config=SETTINGS) for topic in (*CODECS, "transactions")]
    topics.append(NewTopic("compacted", 1, 1, config=COMPACTED))
    for future in admin.create_topics(topics).values():
        future.result(90)
    for codec in CODECS:
        produce(kafka.bootstrap, codec, 0, 300)
    produce_transactions(kafka.bootstrap)
    produce_compacted(kafka.bootstrap, 0)
    wait_until_compacted(kafka.bootstrap)
    compacted = table(kafka.bootstrap)
    written = read_all(kafka.bootstrap)
    assert len(written["none"]) == 300
    assert len(written["transactions"]) == 100
    assert len(written["committed"]) == 50
    (kafka.stop if how == "clean" else kafka.kill)()
    wait_until_gone(kafka.zookeeper)

    ours.start("log.cleaner.backoff.ms=200")
    assert read_all(ours.bootstrap) == written
    assert table(ours.bootstrap) == compacted
    assert "is damaged" not in ours.log()
    for codec in CODECS:
        produce(ours.bootstrap, codec, 300, 300)
    produce_compacted(ours.bootstrap, 100)
    compacted = table(ours.bootstrap)
    wait_until_compacted(ours.bootstrap)
    assert table(ours.bootstrap) == compacted
    written = read_all(ours.bootstrap)
    assert [record[0] for record in written["zstd"]] == list(range(600))
    if how == "clean":
        assert ours.stop() == 0
    else:
        ours.kill()
        wait_until_gone(kafka.zookeeper)

    kafka.start()
    assert read_all(kafka.bootstrap) == written
    assert table(kafka.bootstrap) == compacted
    produce(kafka.bootstrap, "lz4", 600, 10)
    assert len(read(kafka.bootstrap, "lz4")) == 610
    log = kafka.log()
    assert "Found invalid messages" not in log
    assert "Error while loading log" not in log
