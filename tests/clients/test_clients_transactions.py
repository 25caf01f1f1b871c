"""Transactions as librdkafka's transactional producer and consumers of committed records see them."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from crc32c import crc32c

from headwater_broker.log import LogConfig, LogManager
from headwater_broker.testing import broker
from headwater_broker.transactions import (
    PendingOffset,
    Transaction,
    TransactionState,
    encode_key,
    encode_value,
    partition_for,
)
from headwater_broker.transactions import (
    Producer as ProducerInstance,
)

DEADLINE_S = 60
FAST = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


def transactional(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    """A producer that holds the id."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
            **config,
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def create(bootstrap: str, *topics: str, partitions: int = 1) -> None:
    """Creates topics."""
    made = [NewTopic(topic, partitions, 1) for topic in topics]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(made).values():
        future.result()


@contextmanager
def consumer(bootstrap: str, group: str, *topics: str, **config: Any) -> Iterator[Consumer]:
    """A consumer of committed records that is closed at the end."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            **config,
        }
    )
    made.subscribe(list(topics))
    try:
        yield made
    finally:
        made.close()


def take(source: Consumer, count: int, wait_s: float = DEADLINE_S) -> list[Message]:
    """Polls until so many messages are there, or the time is up."""
    messages: list[Message] = []
    deadline = time.monotonic() + wait_s
    while len(messages) < count and time.monotonic() < deadline:
        messages += [each for each in source.consume(count - len(messages), 0.1) if each.error() is None]
    return messages


def end_offset(bootstrap: str, topic: str, level: IsolationLevel) -> int:
    """The last offset that a consumer of this isolation may see, as ListOffsets says it."""
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)
    offset: int = futures[partition].result().offset
    return offset


def committed(bootstrap: str, group: str, topic: str, *, stable: bool = True) -> int:
    """A group's committed offset of partition 0; -1001 if there is none."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    futures = admin.list_consumer_group_offsets(request, require_stable=stable)
    answer = futures[group].result().topic_partitions[0]
    if answer.error is not None:
        raise KafkaException(answer.error)
    offset: int = answer.offset
    return offset


def until_committed(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Waits for a group's stable offset: it is applied after its transaction was answered, and unstable until then."""
    deadline = time.monotonic() + DEADLINE_S
    found: int | None = None
    while found != offset:
        assert time.monotonic() < deadline, f"group {group!r} is at {found}, not at {offset}"
        try:
            found = committed(bootstrap, group, topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise


def test_consume_transform_produce_with_aborts_gives_every_record_once(shared_process: Any) -> None:
    address = shared_process.bootstrap
    create(address, "in", "out", partitions=2)
    plain = Producer({"bootstrap.servers": address})
    for index in range(60):
        plain.produce("in", b"%d" % index, partition=index % 2)
    plain.flush()
    worker = transactional(address, "copier")
    done = attempts = 0
    with consumer(address, "copy", "in") as source:
        while done < 60:
            messages = take(source, 7, 1)
            attempts += 1
            worker.begin_transaction()
            for message in messages:
                worker.produce("out", message.value(), partition=message.partition())
            positions = source.position(source.assignment())
            worker.send_offsets_to_transaction(positions, source.consumer_group_metadata())
            if attempts % 3 == 2:
                worker.abort_transaction(DEADLINE_S)
                for partition in source.committed(source.assignment()):
                    source.seek(
                        TopicPartition(partition.topic, partition.partition, max(partition.offset, 0))
                    )
            else:
                worker.commit_transaction(DEADLINE_S)
                done += len(messages)
    with consumer(address, "check", "out") as sink:
        values = [int(message.value()) for message in take(sink, 60)]
        assert take(sink, 1, 0.3) == []
    assert [value for value in values if value % 2 == 0] == list(range(0, 60, 2))
    assert [value for value in values if value % 2] == list(range(1, 60, 2))
    until_committed(address, "copy", "in", 30)
    assert attempts > 9


def test_open_transaction_is_seen_only_uncommitted_until_it_is_committed(shared_process: Any) -> None:
    address = shared_process.bootstrap
    create(address, "seen")
    worker = transactional(address, "seen")
    worker.begin_transaction()
    worker.produce("seen", b"first", partition=0)
    worker.flush()
    plain = Producer({"bootstrap.servers": address})
    plain.produce("seen", b"plain", partition=0)
    plain.flush()
    assert end_offset(address, "seen", IsolationLevel.READ_UNCOMMITTED) == 2
    assert end_offset(address, "seen", IsolationLevel.READ_COMMITTED) == 0
    with consumer(address, "dirty", "seen", **{"isolation.level": "read_uncommitted"}) as source:
        assert [each.value() for each in take(source, 2)] == [b"first", b"plain"]
    with consumer(address, "clean", "seen") as source:
        assert take(source, 1, 0.5) == []
        worker.commit_transaction(DEADLINE_S)
        assert [each.value() for each in take(source, 2)] == [b"first", b"plain"]
    assert end_offset(address, "seen", IsolationLevel.READ_COMMITTED) == 3


def test_offsets_of_an_open_transaction_are_unstable(shared_process: Any) -> None:
    address = shared_process.bootstrap
    create(address, "unstable")
    plain = Producer({"bootstrap.servers": address})
    plain.produce("unstable", b"x", partition=0)
    plain.flush()
    worker = transactional(address, "unstable")
    with consumer(address, "unstable", "unstable") as source:
        assert len(take(source, 1)) == 1
        worker.begin_transaction()
        worker.send_offsets_to_transaction(
            [TopicPartition("unstable", 0, 1)], source.consumer_group_metadata()
        )
        assert committed(address, "unstable", "unstable", stable=False) == -1001
        with pytest.raises(KafkaException) as unstable:
            committed(address, "unstable", "unstable")
        assert unstable.value.args[0].code() == KafkaError.UNSTABLE_OFFSET_COMMIT
        worker.commit_transaction(DEADLINE_S)
        until_committed(address, "unstable", "unstable", 1)


def test_second_producer_fences_the_first_and_aborts_its_transaction(shared_process: Any) -> None:
    address = shared_process.bootstrap
    create(address, "fenced")
    first = transactional(address, "fenced")
    first.begin_transaction()
    first.produce("fenced", b"lost", partition=0)
    first.flush()
    second = transactional(address, "fenced")
    second.begin_transaction()
    second.produce("fenced", b"kept", partition=0)
    second.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(DEADLINE_S)
    assert fenced.value.args[0].fatal()
    with consumer(address, "fenced", "fenced") as source:
        assert [each.value() for each in take(source, 1)] == [b"kept"]
        assert take(source, 1, 0.3) == []


def test_transaction_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    with broker(tmp_path, properties=FAST) as running:
        create(running.bootstrap, "t")
        slow = transactional(running.bootstrap, "slow", **{"transaction.timeout.ms": 1000})
        slow.begin_transaction()
        slow.produce("t", b"lost", partition=0)
        slow.flush()
        plain = Producer({"bootstrap.servers": running.bootstrap})
        plain.produce("t", b"kept", partition=0)
        plain.flush()
        with consumer(running.bootstrap, "g", "t") as source:
            assert [each.value() for each in take(source, 1)] == [b"kept"]
        with pytest.raises(KafkaException):
            slow.commit_transaction(DEADLINE_S)


def test_broker_restarted_keeps_ids_epochs_and_open_transactions(broker_process: Any) -> None:
    address = broker_process.bootstrap
    create(address, "t")
    worker = transactional(address, "worker")
    for end in (broker_process.stop, broker_process.kill):
        worker.begin_transaction()
        worker.produce("t", b"before", partition=0)
        worker.flush()
        end()
        broker_process.start()
        assert end_offset(address, "t", IsolationLevel.READ_COMMITTED) < end_offset(
            address, "t", IsolationLevel.READ_UNCOMMITTED
        )
        worker.produce("t", b"after", partition=0)
        worker.commit_transaction(DEADLINE_S)
    with consumer(address, "g", "t") as source:
        assert [each.value() for each in take(source, 4)] == [b"before", b"after"] * 2


@pytest.mark.parametrize("outcome", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_broker_killed_between_decision_and_markers_finishes_at_its_start(
    broker_process: Any, outcome: TransactionState
) -> None:
    """The decision is the record: what a kill -9 right after it leaves is made here, byte by byte."""
    address = broker_process.bootstrap
    create(address, "t", "in")
    worker = transactional(address, "worker")
    worker.begin_transaction()
    worker.produce("t", b"decided", partition=0)
    worker.flush()
    broker_process.kill()
    _decide(broker_process.data, "worker", outcome)
    broker_process.start()
    commits = outcome is TransactionState.PREPARE_COMMIT
    plain = Producer({"bootstrap.servers": address})
    plain.produce("t", b"plain", partition=0)
    plain.flush()
    with consumer(address, "g", "t") as source:
        expected = [b"decided", b"plain"] if commits else [b"plain"]
        assert [each.value() for each in take(source, len(expected))] == expected
    until_committed(address, "group", "in", 7 if commits else -1001)
    # The producer asks again, as after a lost answer.
    if commits:
        worker.commit_transaction(DEADLINE_S)
    else:
        worker.abort_transaction(DEADLINE_S)


def test_offsets_committed_while_zookeeper_is_away_are_applied_when_it_is_back(
    own_zookeeper: Any, broker_process_class: Any, tmp_path: Path
) -> None:
    """The decision is in the broker's own log; what it means for the group follows."""
    process = broker_process_class(tmp_path, ["--zookeeper", f"{own_zookeeper.hosts}/away"]).start()
    try:
        address = process.bootstrap
        create(address, "t")
        worker = transactional(address, "worker")
        worker.begin_transaction()
        worker.produce("t", b"x", partition=0)
        worker.flush()
        nobody = Consumer({"bootstrap.servers": address, "group.id": "g"})  # no member, and so no generation
        worker.send_offsets_to_transaction([TopicPartition("t", 0, 7)], nobody.consumer_group_metadata())
        nobody.close()
        own_zookeeper.kill()
        worker.commit_transaction(DEADLINE_S)
        assert end_offset(address, "t", IsolationLevel.READ_COMMITTED) == 2
        time.sleep(1.2)  # the broker tries again to keep the offsets, but writes no second marker
        assert end_offset(address, "t", IsolationLevel.READ_COMMITTED) == 2
        own_zookeeper.start()
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                if committed(address, "g", "t") == 7:
                    break
            except KafkaException as error:
                if error.args[0].code() not in (
                    KafkaError._TIMED_OUT,
                    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                    KafkaError.UNSTABLE_OFFSET_COMMIT,
                ):
                    raise
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.kill()


def test_transactions_do_not_span_brokers_yet_and_say_so(
    zookeeper: Any, broker_process_class: Any, tmp_path: Path
) -> None:
    shared_state = ["--zookeeper", f"{zookeeper.hosts}/{tmp_path.name}-{os.getpid()}"]
    brokers = [broker_process_class(tmp_path, shared_state, number) for number in (1, 2)]
    try:
        for each in brokers:
            each.start("transaction.state.log.num.partitions=1")
        address = brokers[0].bootstrap
        create(address, "t", partitions=2)
        outcomes = []
        for partition in (0, 1):
            worker = transactional(address, f"worker-{partition}")
            worker.begin_transaction()
            worker.produce("t", b"x", partition=partition)
            try:
                worker.commit_transaction(DEADLINE_S)
                outcomes.append("committed")
            except KafkaException as error:
                outcomes.append(error.args[0].name())
        assert sorted(outcomes) == ["POLICY_VIOLATION", "committed"]
    finally:
        for each in brokers:
            each.kill()


def _decide(data: Path, transactional_id: str, outcome: TransactionState) -> None:
    """Appends the decision to the log of a broker that is down."""
    manager = LogManager([str(data)], config_for=lambda _: LogConfig())
    manager.load()
    state = manager.get("__transaction_state", partition_for(transactional_id, 50))
    target = manager.get("t", 0)
    assert state is not None
    assert target is not None
    ((producer_id, entry),) = target.producers()
    transaction = Transaction(
        transactional_id,
        ProducerInstance(producer_id, entry.producer_epoch),
        60_000,
        outcome,
        updated_ms=int(time.time() * 1000),
        started_ms=int(time.time() * 1000),
        partitions=frozenset({("t", 0)}),
        groups=frozenset({"group"}),
        offsets={"group": {("in", 0): PendingOffset(7, 0, "m", 5)}}
        if outcome is TransactionState.PREPARE_COMMIT
        else {},
    )
    state.append(memoryview(_batch(encode_key(transactional_id), encode_value(transaction))), now_ms=0)
    state.write_dirty()
    manager._release()


def _batch(key: bytes, value: bytes) -> bytearray:
    """One record with a key."""

    def varint(number: int) -> bytes:
        number *= 2
        return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])

    body = b"\0\0\0" + varint(len(key)) + key + varint(len(value)) + value + b"\0"
    records = varint(len(body)) + body
    batch = bytearray(
        struct.pack(">qiibIhiqqqhii", 0, 49 + len(records), -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) + records
    )
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch
