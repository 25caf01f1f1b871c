"""Versions that kio has no schema for, and Apache Kafka 3.9 answers: as clients from before Kafka 0.11 ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire import APIS
from headwater_broker.wire.apis import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
)
from headwater_broker.wire.codec import decode_request, message_type

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[WireClient]:
    with WireClient(running.bootstrap) as made:
        yield made


def create(client: WireClient, name: str, version: int = 0) -> ErrorCode:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = client.ask(CREATE_TOPICS, version, topics=[topic], timeout=10_000, validate_only=False)
    code: ErrorCode = answer.topics[0].error_code
    return code


def commit(client: WireClient, group: str, topic: str, version: int) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}
    answer = client.ask(
        *(OFFSET_COMMIT, version),
        group_id=group,
        member_id="",
        topics=[{"name": topic, "partitions": [partition]}],
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed(client: WireClient, group: str, topic: str, version: int) -> tuple[int, str | None, ErrorCode]:
    topics = [{"name": topic, "partition_indexes": [0]}]
    answer = client.ask(OFFSET_FETCH, version, group_id=group, topics=topics)
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.metadata, found.error_code


def test_offset_commit_version_1_golden_bytes() -> None:
    # Kafka's OffsetCommitRequest.json: group, generation, member, topics of name and partitions of index, offset,
    # timestamp and metadata.
    body = (
        bytes.fromhex("000167" "00000005" "00026d31" "00000001" "000174" "00000001")
        + bytes.fromhex("00000003" "0000000000000007" "0000000000000009" "ffff")
    )  # fmt: skip
    request = decode_request(APIS[OFFSET_COMMIT], 1, memoryview(body), 0)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 5, "m1")
    assert (topic.name, partition.partition_index, partition.committed_offset) == ("t", 3, 7)
    assert (partition.commit_timestamp, partition.committed_metadata) == (9, None)


@pytest.mark.parametrize(
    ("api_key", "version", "kind", "lacking"),
    [
        (CREATE_TOPICS, 0, "request", "validate_only"),
        (CREATE_TOPICS, 1, "response", "throttle_time"),
        (DELETE_TOPICS, 0, "response", "throttle_time"),
        (OFFSET_COMMIT, 0, "request", "member_id"),
        (OFFSET_COMMIT, 1, "request", "retention_time"),
    ],
)
def test_older_message_lacks_what_came_later(api_key: int, version: int, kind: str, lacking: str) -> None:
    found = message_type(APIS[api_key].name, version, kind)
    newer = message_type(APIS[api_key].name, APIS[api_key].highest if kind == "response" else 2, kind)
    assert lacking not in found.__dataclass_fields__
    assert lacking in newer.__dataclass_fields__


@pytest.mark.parametrize("version", [0, 1])
def test_create_and_delete_topic(client: WireClient, version: int) -> None:
    name = f"made-{version}"
    assert create(client, name, version) is ErrorCode.none
    assert create(client, name, version) is ErrorCode.topic_already_exists
    (answer,) = client.ask(DELETE_TOPICS, 0, topic_names=[name], timeout=10_000).responses
    assert (answer.name, answer.error_code) == (name, ErrorCode.none)


@pytest.mark.parametrize("version", [0, 1])
def test_offset_commit_and_fetch(client: WireClient, version: int) -> None:
    topic, group = f"read-{version}", f"group-{version}"
    create(client, topic)
    assert committed(client, group, topic, 0)[::2] == (-1, ErrorCode.unknown_topic_or_partition)
    assert committed(client, group, topic, 1)[::2] == (-1, ErrorCode.none)
    assert commit(client, group, topic, version) is ErrorCode.none
    assert commit(client, group, "nowhere", version) is ErrorCode.unknown_topic_or_partition
    for fetch_version in (0, 1):
        assert committed(client, group, topic, fetch_version) == (7, "note", ErrorCode.none)


@pytest.mark.parametrize("version", [0, 1])
def test_offset_for_leader_epoch(client: WireClient, version: int) -> None:
    create(client, "epochs")
    partition = {"partition": 0, "leader_epoch": 0}
    topics = [{"topic": "epochs", "partitions": [partition]}]
    answer = client.ask(OFFSET_FOR_LEADER_EPOCH, version, topics=topics)
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.partition, found.end_offset) == (ErrorCode.none, 0, 0)
    assert hasattr(found, "leader_epoch") == (version == 1)


@pytest.mark.parametrize("release", ["0.8.2.0", "0.9.0.1"])
def test_librdkafka_that_takes_the_broker_for_an_old_one_reads_and_commits(
    running: RunningBroker, release: str
) -> None:
    old = {"api.version.request": False, "broker.version.fallback": release}
    topic = f"a-topic-with-a-long-name-{release}"  # librdkafka has no room to parse the shortest answers in
    producer = Producer({"bootstrap.servers": running.bootstrap, **old})
    producer.produce(topic, b"value")
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": release, "enable.auto.commit": False, **old}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.error() is None
    consumer.commit(message, asynchronous=False)
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
    assert found.offset == 1
    consumer.close()
