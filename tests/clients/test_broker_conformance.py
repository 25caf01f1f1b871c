"""What a client may expect of a broker, whatever it keeps its shared state in: topics, records, offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from headwater_broker.testing import RunningBroker

DEADLINE_S = 60


@pytest.fixture
def topic(new_topic: Callable[[int], str]) -> str:
    """A topic of three partitions that only this test knows."""
    return new_topic(3)


@pytest.fixture
def reader(any_broker: RunningBroker) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": any_broker.bootstrap,
            "group.id": f"group-{uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,  # what comes after a fetch on its connection waits for it
        }
    )
    yield made
    made.close()


def produce(running: RunningBroker, topic: str, values: list[bytes], **config: Any) -> list[int]:
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": running.bootstrap, **config})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    assert not errors, errors
    return offsets


def take(source: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages after {DEADLINE_S} s"
        for message in source.consume(count - len(messages), timeout=0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


# -- topics ------------------------------------------------------------------------------------------------


def test_topic_is_created_extended_and_deleted(admin: AdminClient, topic: str) -> None:
    described = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2]
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    assert len(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 5
    admin.delete_topics([topic], operation_timeout=30)[topic].result(DEADLINE_S)
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_topic_created_twice_is_refused(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_topic_deleted_and_created_again_is_empty(
    any_broker: RunningBroker, admin: AdminClient, topic: str, reader: Consumer
) -> None:
    produce(any_broker, topic, [b"old"])
    reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(DEADLINE_S)
    admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=30)[topic].result(DEADLINE_S)
    assert produce(any_broker, topic, [b"new"]) == [0]
    (committed,) = reader.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
    assert committed.offset < 0, "the old topic's offsets are gone with it"


# -- records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(
    any_broker: RunningBroker, topic: str, reader: Consumer, codec: str
) -> None:
    producer = Producer({"bootstrap.servers": any_broker.bootstrap, "compression.type": codec})
    headers = [("a", b"1"), ("a", b"2"), ("empty", None)]
    producer.produce(topic, b"value", b"key", 1, headers=headers, timestamp=1_357_000_000_000)
    producer.produce(topic, None, b"tombstone", 1)
    assert producer.flush(DEADLINE_S) == 0
    reader.assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    first, second = take(reader, 2)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert (first.offset(), first.timestamp()[1]) == (0, 1_357_000_000_000)
    assert (second.offset(), second.key(), second.value()) == (1, b"tombstone", None)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_of_any_acks_are_stored_in_order(
    any_broker: RunningBroker, topic: str, reader: Consumer, acks: str
) -> None:
    values = [str(index).encode() for index in range(300)]
    produce(any_broker, topic, values, acks=acks)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [message.value() for message in take(reader, 300)] == values


def test_records_are_read_from_any_offset_and_from_the_end(
    any_broker: RunningBroker, topic: str, reader: Consumer
) -> None:
    produce(any_broker, topic, [str(index).encode() for index in range(100)], **{"linger.ms": 50})
    reader.assign([TopicPartition(topic, 0, 57)])
    assert take(reader, 1)[0].value() == b"57"
    reader.assign([TopicPartition(topic, 0, OFFSET_END)])
    assert reader.poll(0.3) is None
    produce(any_broker, topic, [b"later"])
    assert take(reader, 1)[0].value() == b"later"


def test_offsets_are_found_by_time_and_at_the_ends(
    any_broker: RunningBroker, admin: AdminClient, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": any_broker.bootstrap})
    for time_ms in (1000, 2000, 5000, 3000):
        producer.produce(topic, b"x", partition=0, timestamp=time_ms)
        assert producer.flush(DEADLINE_S) == 0

    def offset(spec: OffsetSpec) -> int:
        partition = TopicPartition(topic, 0)
        return int(admin.list_offsets({partition: spec})[partition].result(DEADLINE_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 4
    assert offset(OffsetSpec.max_timestamp()) == 2
    assert offset(OffsetSpec.for_timestamp(1500)) == 1


# -- committed offsets -------------------------------------------------------------------------------------


def test_commits_of_a_simple_consumer_are_kept_with_their_metadata(topic: str, reader: Consumer) -> None:
    wanted = [TopicPartition(topic, 0, 7, "seven"), TopicPartition(topic, 2, 9)]
    stored = reader.commit(offsets=wanted, asynchronous=False)
    assert [each.error for each in stored] == [None, None]
    found = reader.committed([TopicPartition(topic, index) for index in range(3)], timeout=DEADLINE_S)
    assert [(each.offset, each.metadata) for each in found] == [(7, "seven"), (-1001, None), (9, None)]


def test_commit_to_a_partition_that_is_not_there_is_refused(topic: str, reader: Consumer) -> None:
    with pytest.raises(KafkaException) as refused:
        reader.commit(offsets=[TopicPartition(topic, 3, 7)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_commit_with_too_much_metadata_is_refused(topic: str, reader: Consumer) -> None:
    with pytest.raises(KafkaException) as refused:
        reader.commit(offsets=[TopicPartition(topic, 0, 7, "m" * 4097)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    # Characters count, not bytes; librdkafka sends the string's closing NUL as one of them.
    reader.commit(offsets=[TopicPartition(topic, 0, 8, "é" * 4095)], asynchronous=False)


def test_commits_are_altered_by_an_operator(admin: AdminClient, topic: str) -> None:
    group = f"group-{uuid4().hex[:8]}"
    change = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6)])]
    admin.alter_consumer_group_offsets(change)[group].result(DEADLINE_S)
    request = [ConsumerGroupTopicPartitions(group)]
    everything = admin.list_consumer_group_offsets(request)[group].result(DEADLINE_S)
    assert [(each.partition, each.offset) for each in everything.topic_partitions] == [(0, 5), (1, 6)]
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    everything = admin.list_consumer_group_offsets(request)[group].result(DEADLINE_S)
    assert everything.topic_partitions == []
