"""`__consumer_offsets` as tools see it: internal, compacted, written by the broker alone, in Kafka's records."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import MemoryCoordinator
from headwater_broker.coordination.memory_cluster import MemoryCluster
from headwater_broker.log.fs import Buffer, OsFileSystem
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.transactions import partition_for
from headwater_broker.wire.apis import DELETE_GROUPS, METADATA, OFFSET_COMMIT, OFFSET_DELETE, PRODUCE

NAME = "__consumer_offsets"
DEADLINE_S = 30

Offset = tuple[str, str, int]
"""Group, topic and partition."""


class Seen(NamedTuple):
    """What a tool makes of the topic: the last value of each key, and the partitions that groups are in."""

    offsets: dict[Offset, tuple[int, str]]
    groups: dict[str, tuple[int, int]]
    partitions: dict[str, set[int]]


class Reader:
    """Takes fields out of a key or a value."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return value

    def text(self) -> str | None:
        length = self.take("h")
        if length < 0:
            return None
        self._at += length
        return self._data[self._at - length : self._at].decode()


def read(bootstrap: str) -> Seen:
    """Reads all partitions from their beginning to their end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    seen = Seen({}, {}, {})
    try:
        partitions = consumer.list_topics(NAME, timeout=DEADLINE_S).topics[NAME].partitions
        ends = {}
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(NAME, partition), timeout=DEADLINE_S)
            if high > low:
                ends[partition] = high
        consumer.assign([TopicPartition(NAME, partition, 0) for partition in ends])
        while ends:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None
            _take(seen, message)
            if message.offset() + 1 >= ends.get(message.partition(), 2**63):
                del ends[message.partition()]
    finally:
        consumer.close()
    return seen


def _take(seen: Seen, message: Any) -> None:
    key = Reader(message.key())
    version, group = key.take("h"), key.text()
    assert group is not None
    seen.partitions.setdefault(group, set()).add(message.partition())
    if version == 2:
        seen.groups.pop(group, None)
        if message.value() is not None:
            value = Reader(message.value())
            assert (value.take("h"), value.text()) == (3, "consumer")
            generation = value.take("i")
            value.text(), value.text(), value.take("q")
            seen.groups[group] = generation, value.take("i")
        return
    assert version == 1
    topic = key.text()
    assert topic is not None
    place = (group, topic, key.take("i"))
    seen.offsets.pop(place, None)
    if message.value() is not None:
        value = Reader(message.value())
        assert value.take("h") == 3
        offset, _ = value.take("q"), value.take("i")
        seen.offsets[place] = offset, value.text() or ""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def commit(client: WireClient, group: str, offsets: Mapping[int, int], topic: str = "t") -> None:
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": f"at {offset}"}
        for index, offset in offsets.items()
    ]
    answer = client.ask(
        OFFSET_COMMIT,
        7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            {"name": topic, "partitions": [{"committed_leader_epoch": -1, **each} for each in partitions]}
        ],
    )
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.none}


def topics_of(client: WireClient, *names: str) -> dict[str, Any]:
    asked = [{"name": name, "topic_id": None} for name in names] or None
    answer = client.ask(
        METADATA,
        12,
        topics=asked,
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return {each.name: each for each in answer.topics}


@pytest.fixture
def admin(any_broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": any_broker.bootstrap})


@pytest.fixture
def client(any_broker: RunningBroker) -> Iterator[WireClient]:
    with WireClient(any_broker.bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"read-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(DEADLINE_S)
    return name


def test_commits_are_in_kafkas_partition_and_gone_when_deleted(
    any_broker: RunningBroker, client: WireClient, topic: str
) -> None:
    group = f"committing-{topic}"
    commit(client, group, {0: 5, 2: 7}, topic)
    for offset in range(10, 60):
        commit(client, group, {0: offset}, topic)
    until(lambda: NAME in topics_of(client))
    until(lambda: read(any_broker.bootstrap).offsets.get((group, topic, 0)) == (59, "at 59"))
    seen = read(any_broker.bootstrap)
    assert seen.offsets[group, topic, 2] == (7, "at 7")
    assert seen.partitions[group] == {partition_for(group, 50)}

    doomed = [{"name": topic, "partitions": [{"partition_index": 2}]}]
    assert client.ask(OFFSET_DELETE, 0, group_id=group, topics=doomed).error_code is ErrorCode.none
    until(lambda: (group, topic, 2) not in read(any_broker.bootstrap).offsets)
    assert (group, topic, 0) in read(any_broker.bootstrap).offsets
    answer = client.ask(DELETE_GROUPS, 2, groups_names=[group])
    assert answer.results[0].error_code is ErrorCode.none
    until(lambda: (group, topic, 0) not in read(any_broker.bootstrap).offsets)


def test_offsets_of_a_deleted_topic_are_gone(
    any_broker: RunningBroker, admin: AdminClient, client: WireClient, topic: str
) -> None:
    other = f"other-{topic}"
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(DEADLINE_S)
    group = f"left-{topic}"
    commit(client, group, {0: 5, 1: 6}, topic)
    commit(client, group, {0: 7}, other)
    until(lambda: NAME in topics_of(client))
    until(lambda: sum(key[0] == group for key in read(any_broker.bootstrap).offsets) == 3)
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    until(lambda: sum(key[0] == group for key in read(any_broker.bootstrap).offsets) == 1)
    assert read(any_broker.bootstrap).offsets[group, other, 0] == (7, "at 7")


def test_generations_of_a_group_are_there_until_it_is_deleted(
    any_broker: RunningBroker, admin: AdminClient, topic: str
) -> None:
    group = f"subscribing-{topic}"
    producer = Producer({"bootstrap.servers": any_broker.bootstrap})
    for partition in range(3):
        producer.produce(topic, b"x", partition=partition)
    producer.flush(DEADLINE_S)
    consumer = Consumer(
        {"bootstrap.servers": any_broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    got: list[Any] = []
    until(lambda: bool(got.extend(consumer.consume(3, 0.1)) or len(got) >= 3))
    consumer.commit(asynchronous=False)
    expected = {(group, topic, partition): (1, "") for partition in range(3)}
    until(lambda: expected.items() <= read(any_broker.bootstrap).offsets.items())
    generation, members = read(any_broker.bootstrap).groups[group]
    assert (generation >= 1, members) == (True, 1)
    consumer.close()
    until(lambda: read(any_broker.bootstrap).groups[group][1] == 0)
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    until(lambda: group not in read(any_broker.bootstrap).groups)


def test_offsets_of_a_transaction_come_when_it_is_committed(any_broker: RunningBroker, topic: str) -> None:
    group = f"transactional-{topic}"
    producer = Producer({"bootstrap.servers": any_broker.bootstrap, "transactional.id": group})
    consumer = Consumer({"bootstrap.servers": any_broker.bootstrap, "group.id": group})
    producer.init_transactions(DEADLINE_S)
    for offset, is_committed in ((3, True), (9, False)):
        producer.begin_transaction()
        offsets = [TopicPartition(topic, 1, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(DEADLINE_S)
    consumer.close()
    until(lambda: (group, topic, 1) in read(any_broker.bootstrap).offsets)
    assert read(any_broker.bootstrap).offsets[group, topic, 1] == (3, "")


def test_topic_is_internal_and_compacted_and_written_by_the_broker_alone(
    any_broker: RunningBroker, admin: AdminClient, client: WireClient, topic: str
) -> None:
    commit(client, f"first-{topic}", {0: 1}, topic)
    until(lambda: NAME in topics_of(client))
    found = topics_of(client)[NAME]
    assert (found.error_code, found.is_internal, len(found.partitions)) == (ErrorCode.none, True, 50)
    resource = ConfigResource(ResourceType.TOPIC, NAME)
    configs = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    wanted = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert {name: configs[name].value for name in wanted} == wanted

    records = bytes(build_batch([b"x"], keys=[b"k"]))
    data = [{"name": NAME, "partition_data": [{"index": 0, "records": records}]}]
    for acks in (-1, 1):
        answer = client.ask(PRODUCE, 9, transactional_id=None, acks=acks, timeout=1000, topic_data=data)
        (refused,) = answer.responses[0].partition_responses
        assert refused.error_code is ErrorCode.invalid_topic_exception
    for future in (
        admin.create_topics([NewTopic(NAME, 1, 1)])[NAME],
        admin.create_partitions([NewPartitions(NAME, 60)])[NAME],
    ):
        with pytest.raises(KafkaException) as refusal:
            future.result(DEADLINE_S)
        assert refusal.value.args[0].name() in ("TOPIC_ALREADY_EXISTS", "INVALID_PARTITIONS")


def test_topic_asked_for_before_there_is_a_group_is_made_as_the_brokers_own() -> None:
    with (
        broker(properties={"offsets.topic.num.partitions": "3"}) as running,
        WireClient(running.bootstrap) as client,
    ):
        assert topics_of(client) == {}
        asked = topics_of(client, NAME)[NAME]
        assert asked.error_code is ErrorCode.leader_not_available
        found = topics_of(client)[NAME]
        assert (found.is_internal, len(found.partitions)) == (True, 3)


def test_topic_is_filled_with_what_was_committed_before_it_was_there(tmp_path: Path) -> None:
    """A directory of a version that had no such topic, and a topic that somebody deleted."""
    with broker(tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        with WireClient(running.bootstrap) as client:
            for group in ("one", "two"):
                commit(client, group, {0: 4})
            until(lambda: ("two", "t", 0) in read_if_there(running).offsets)
            admin.delete_topics([NAME])[NAME].result(DEADLINE_S)
            commit(client, "three", {0: 6})
            until(lambda: len(read_if_there(running).offsets) == 3)
            expected = {("one", "t", 0): 4, ("two", "t", 0): 4, ("three", "t", 0): 6}
            assert {key: each[0] for key, each in read(running.bootstrap).offsets.items()} == expected
            commit(client, "three", {0: 8})
    with broker(tmp_path) as running:
        assert read(running.bootstrap).offsets["three", "t", 0][0] == 8
        groups = [ConsumerGroupTopicPartitions("three")]
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        (future,) = admin.list_consumer_group_offsets(groups).values()
        assert future.result(DEADLINE_S).topic_partitions[0].offset == 8


def read_if_there(running: RunningBroker) -> Seen:
    with WireClient(running.bootstrap) as client:
        if NAME not in topics_of(client):
            return Seen({}, {}, {})
    try:
        return read(running.bootstrap)
    except KafkaException:  # it was being deleted
        return Seen({}, {}, {})


def test_topic_of_several_brokers_has_every_group() -> None:
    shared = MemoryCluster()
    with (
        broker(broker_id=1, coordinator=MemoryCoordinator(cluster=shared)) as first,
        broker(broker_id=2, coordinator=MemoryCoordinator(cluster=shared)) as second,
    ):
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        for index in range(12):
            consumer = Consumer({"bootstrap.servers": second.bootstrap, "group.id": f"g{index}"})
            consumer.commit(offsets=[TopicPartition("t", 0, index)], asynchronous=False)
            consumer.close()
        expected = {(f"g{index}", "t", 0): (index, "") for index in range(12)}
        until(lambda: read(first.bootstrap).offsets == expected)
        groups = read(first.bootstrap).partitions
        assert groups == {group: {partition_for(group, 50)} for group, _, _ in expected}


def test_topic_of_several_brokers_has_every_group_again_when_a_broker_is_back(tmp_path: Path) -> None:
    """Each group's records are in Kafka's partition for it alone, whoever coordinated it meanwhile."""
    shared = MemoryCluster()
    groups = [f"g{index}" for index in range(12)]

    def second() -> AbstractContextManager[RunningBroker]:
        return broker(tmp_path, broker_id=2, coordinator=MemoryCoordinator(cluster=shared))

    def commit_all(bootstrap: str, offset: int) -> None:
        for group in groups:
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            consumer.close()

    with broker(broker_id=1, coordinator=MemoryCoordinator(cluster=shared)) as first:
        with second() as other:
            admin = AdminClient({"bootstrap.servers": first.bootstrap})
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
            commit_all(other.bootstrap, 1)
            until(lambda: len(read_if_there(first).offsets) == len(groups))
        commit_all(first.bootstrap, 2)
        with second() as other:
            expected = {(group, "t", 0): (2, "") for group in groups}
            until(lambda: read(other.bootstrap).offsets == expected)
            commit_all(other.bootstrap, 3)
            expected = {(group, "t", 0): (3, "") for group in groups}
            until(lambda: read(other.bootstrap).offsets == expected)
            assert read(other.bootstrap).partitions == {group: {partition_for(group, 50)} for group in groups}


def test_what_a_full_disk_did_not_take_is_in_the_topic_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A group that commits once and never again is not to be missed there."""
    write = OsFileSystem.pwritev
    full: list[bool] = []

    def pwritev(fs: OsFileSystem, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if full and f"/{NAME}-" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fs, fd, buffers, position)

    monkeypatch.setattr(OsFileSystem, "pwritev", pwritev)
    with broker(tmp_path) as running, WireClient(running.bootstrap) as client:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        commit(client, "before", {0: 1})
        until(lambda: ("before", "t", 0) in read_if_there(running).offsets)
        full.append(True)
        for group in ("before", "during"):
            commit(client, group, {0: 2})
        until(lambda: "is behind shared state" in caplog.text)
        commit(client, "during", {0: 3})
        full.clear()
        expected = {("before", "t", 0): 2, ("during", "t", 0): 3}
        until(lambda: {key: each[0] for key, each in read(running.bootstrap).offsets.items()} == expected)
    assert [each for each in caplog.records if each.exc_info] == []
