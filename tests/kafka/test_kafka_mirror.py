"""`headwater mirror` with Apache Kafka as either end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from headwater_broker.testing import RunningBroker, broker
from kafka_clients import QUIET, admin_of
from mirrored_topics import contents, make_topic, mirror_once, rows, send
from support import apache_kafka

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=[apache_kafka.VERSION, apache_kafka.NEWEST])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka's address."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    try:
        apache_kafka.require_jars(request.param)
        directory = tmp_path_factory.mktemp("kafka")
        with apache_kafka.running_kafka(directory, settings, heap="256m", version=request.param) as (
            _,
            address,
        ):
            yield address
    except apache_kafka.NoKafkaError as error:
        pytest.skip(str(error))


@pytest.fixture
def ours() -> Iterator[RunningBroker]:
    """Our broker."""
    with broker() as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_mirror_of_kafka_has_what_kafka_has(kafka: str, ours: RunningBroker, codec: str) -> None:
    topic = f"from-{codec}"
    make_topic(kafka, topic, 3)
    send(kafka, topic, range(3000), **{"compression.type": codec})

    mirror_once(kafka, ours.bootstrap, topic)

    assert rows(ours.bootstrap, topic) == rows(kafka, topic)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_mirror_into_kafka_has_what_ours_has(kafka: str, ours: RunningBroker, codec: str) -> None:
    topic = f"into-{codec}"
    make_topic(ours.bootstrap, topic, 3)
    for part in range(3):
        send(ours.bootstrap, topic, range(part * 1000, part * 1000 + 1000), **{"compression.type": codec})
        mirror_once(ours.bootstrap, kafka, topic)

    assert rows(kafka, topic) == rows(ours.bootstrap, topic)


@pytest.mark.parametrize("into_kafka", [True, False])
def test_mirror_of_transactions_and_groups_with_kafka(
    kafka: str, ours: RunningBroker, into_kafka: bool
) -> None:
    source, target = (ours.bootstrap, kafka) if into_kafka else (kafka, ours.bootstrap)
    topic = f"transactions-{into_kafka}".lower()
    make_topic(source, topic)
    producer = Producer({"bootstrap.servers": source, "transactional.id": topic, **QUIET})
    producer.init_transactions()
    for number in range(12):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(topic, b"%d" % (10 * number + each))
        producer.flush()
        producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
    there = rows(source, topic)
    group, offset = f"readers-{topic}", there[10][1] + 1
    place = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    admin_of(source).alter_consumer_group_offsets([place])[group].result()

    mirror_once(source, target, topic, groups=lambda name: name == group)

    assert contents(rows(target, topic)) == contents(there)
    admin = admin_of(target)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert found.topic_partitions[0].offset == 11


def test_mirror_of_what_is_stamped_by_kafka_keeps_the_stamps(kafka: str, ours: RunningBroker) -> None:
    make_topic(kafka, "stamped", message_timestamp_type="LogAppendTime")
    send(kafka, "stamped", range(100))

    mirror_once(kafka, ours.bootstrap, "stamped")

    assert rows(ours.bootstrap, "stamped") == rows(kafka, "stamped")


def test_mirror_into_kafka_goes_on_where_all_that_it_wrote_has_expired(
    kafka: str, ours: RunningBroker
) -> None:
    make_topic(ours.bootstrap, "expiring")
    send(ours.bootstrap, "expiring", range(100))
    mirror_once(ours.bootstrap, kafka, "expiring")
    place = TopicPartition("expiring", 0, 100)
    admin_of(kafka).delete_records([place])[place].result()
    send(ours.bootstrap, "expiring", range(100, 110))

    mirror_once(ours.bootstrap, kafka, "expiring")

    assert rows(kafka, "expiring") == rows(ours.bootstrap, "expiring")[100:]


def test_mirror_settings_that_kafka_does_not_know_are_left_out(
    kafka: str, ours: RunningBroker, tmp_path: Path
) -> None:
    make_topic(ours.bootstrap, "ours", flush_messages="1", expose="flushed", retention_ms="86400000")
    send(ours.bootstrap, "ours", range(10))

    _, told = mirror_once(ours.bootstrap, kafka, "ours")

    assert (rows(kafka, "ours"), told) == (rows(ours.bootstrap, "ours"), [])
