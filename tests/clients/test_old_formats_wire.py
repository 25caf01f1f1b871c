"""Producers and consumers from before Kafka 0.11: Produce 0 to 2 and Fetch 0 to 3, with message formats 0 and 1.

Apache Kafka 3.9 answers them, makes record batches of what they send, and messages of what they fetch.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from zlib import crc32

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire.apis import ALTER_CLIENT_QUOTAS, CREATE_TOPICS, FETCH, PRODUCE

DEADLINE_S = 60.0
NO_LIMIT = 2**31 - 1
NO_TIMESTAMP = -1


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "1"}) as started:
        yield started


def create(running: RunningBroker, name: str, **config: str) -> str:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
    topic = {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": [],
        "configs": configs,
    }
    with WireClient(running.bootstrap) as client:
        answer = client.ask(CREATE_TOPICS, 2, topics=[topic], timeout=10_000, validate_only=False)
        assert answer.topics[0].error_code is ErrorCode.none
    return name


def message(value: bytes, magic: int, timestamp_ms: int = 0) -> bytes:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp_ms) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, 4 + len(body), crc32(body)) + body


class OldClient:
    """Asks in versions that have no schema here, and takes the answers apart by Kafka's definitions of them."""

    def __init__(self, running: RunningBroker) -> None:
        self._client = WireClient(running.bootstrap)

    def _ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        frame = struct.pack(">hhih", api_key, version, 7, -1) + body
        self._client._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._client._exactly(4))
        answer = memoryview(self._client._exactly(size))
        assert answer[:4] == struct.pack(">i", 7)
        return answer[4:]

    def produce(self, version: int, topic: str, *sets: bytes) -> tuple[list[tuple[int, ...]], bytes]:
        """Partition, error, base offset and append time of each partition; and what follows them."""
        body = struct.pack(">hiih", -1, 10_000, 1, len(topic)) + topic.encode() + struct.pack(">i", len(sets))
        if version >= 3:
            body = b"\xff\xff" + body
        for number, records in enumerate(sets):
            body += struct.pack(">ii", number, len(records)) + records
        answer = self._ask(PRODUCE, version, body)
        at = 4 + 2 + len(topic)
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        kind = struct.Struct(">ihqq" if version >= 2 else ">ihq")
        results = [kind.unpack_from(answer, at + number * kind.size) for number in range(count)]
        return results, bytes(answer[at + count * kind.size :])

    def fetch(
        self, version: int, topic: str, offset: int = 0, partitions: int = 1, limit: int = NO_LIMIT
    ) -> tuple[list[tuple[int, int, int]], list[bytes], bytes]:
        """Partition, error and high watermark of each partition; its messages; and what precedes all of them."""
        body = struct.pack(">iii", -1, 0, 1) + (struct.pack(">i", NO_LIMIT) if version >= 3 else b"")
        body += struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">i", partitions)
        for number in range(partitions):
            body += struct.pack(">iqi", number, offset, limit)
        answer = self._ask(FETCH, version, body)
        before = bytes(answer[: 4 if version else 0])
        at = len(before) + 4 + 2 + len(topic) + 4
        results, messages = [], []
        for _ in range(partitions):
            *result, size = struct.unpack_from(">ihqi", answer, at)
            results.append(tuple(result))
            at += 18 + size
            messages.append(bytes(answer[at - size : at]))
        assert at == len(answer)
        return results, messages, before

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def old(running: RunningBroker) -> Iterator[OldClient]:
    made = OldClient(running)
    yield made
    made.close()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_answer_has_the_fields_of_its_version(
    running: RunningBroker, old: OldClient, version: int
) -> None:
    topic = create(running, f"produced-{version}")
    magic = 1 if version == 2 else 0
    sent = message(b"a", magic) + message(b"b", magic)
    for base in (0, 2):  # the second request of a connection may take another way
        results, rest = old.produce(version, topic, sent)
        assert results == [(0, 0, base, -1)[: 4 if version == 2 else 3]]
        assert rest == (bytes(4) if version else b"")
    (_, again), _ = old.produce(version, topic, sent, message(b"c", magic))
    assert again[:3] == (1, 0, 0)


def test_old_produce_append_time_is_the_brokers(running: RunningBroker, old: OldClient) -> None:
    topic = create(running, "stamped", message_timestamp_type="LogAppendTime")
    ((_, error, _, append_time_ms),), _ = old.produce(2, topic, message(b"a", 1, 5))
    assert error == 0
    _, (messages,), _ = old.fetch(2, topic)
    assert struct.unpack_from(">bbq", messages, 16) == (1, 8, append_time_ms)


def test_old_produce_damaged_message_is_corrupt_and_stores_nothing(
    running: RunningBroker, old: OldClient
) -> None:
    topic = create(running, "damaged")
    damaged = message(b"a", 1)[:-1] + b"?"
    results, _ = old.produce(2, topic, damaged, message(b"b", 1))
    assert results == [(0, ErrorCode.corrupt_message, -1, -1), (1, 0, 0, -1)]
    assert old.fetch(3, topic)[:2] == ([(0, 0, 0)], [b""])


def test_old_produce_without_a_key_into_a_compacted_topic_is_refused(
    running: RunningBroker, old: OldClient
) -> None:
    topic = create(running, "compacted", cleanup_policy="compact")
    results, _ = old.produce(0, topic, message(b"a", 0))
    assert results == [(0, ErrorCode.invalid_record, -1)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_fetch_answer_has_the_format_of_its_version(
    running: RunningBroker, old: OldClient, version: int
) -> None:
    topic = create(running, f"fetched-{version}")
    old.produce(2, topic, message(b"a", 1, 11) + message(b"b", 1, 22))
    results, (messages,), before = old.fetch(version, topic, offset=1)
    magic = 1 if version >= 2 else 0
    assert results == [(0, 0, 2)]
    assert messages == b"\0" * 7 + b"\1" + message(b"b", magic, 22)[8:]
    assert before == (bytes(4) if version else b"")


def test_old_fetch_gets_a_message_that_is_larger_than_its_limit_from_each_partition(
    running: RunningBroker, old: OldClient
) -> None:
    topic = create(running, "large")
    old.produce(2, topic, message(b"a" * 5000, 1), message(b"b" * 5000, 1))
    _, messages, _ = old.fetch(2, topic, partitions=2, limit=100)
    assert messages == [message(b"a" * 5000, 1), message(b"b" * 5000, 1)]


def test_old_fetch_offset_out_of_range(running: RunningBroker, old: OldClient) -> None:
    topic = create(running, "short")
    assert old.fetch(0, topic, offset=9)[0] == [(0, ErrorCode.offset_out_of_range, -1)]


def test_old_fetch_unknown_topic(old: OldClient) -> None:
    assert old.fetch(3, "nowhere")[0] == [(0, ErrorCode.unknown_topic_or_partition, -1)]


def test_old_fetch_where_conversion_is_off_is_refused(running: RunningBroker, old: OldClient) -> None:
    topic = create(running, "kept", message_downconversion_enable="false")
    old.produce(2, topic, message(b"a", 1))
    assert old.fetch(3, topic)[:2] == ([(0, ErrorCode.unsupported_version, -1)], [b""])


def test_old_clients_have_no_zstd(running: RunningBroker, old: OldClient) -> None:
    topic = create(running, "zstd")
    producer = Producer({"bootstrap.servers": running.bootstrap, "compression.type": "zstd"})
    producer.produce(topic, b"a" * 1000, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert old.fetch(3, topic)[:2] == ([(0, ErrorCode.unsupported_compression_type, -1)], [b""])
    batch = bytes(build_batch([b"a"], attributes=4))
    for _ in range(2):
        ((_, error, _, _),), _ = old.produce(3, topic, batch)
        assert error == ErrorCode.unsupported_compression_type
    plain = bytes(build_batch([b"a"]))
    assert [old.produce(3, topic, each)[0][0][1] for each in (plain, plain, batch)] == [0, 0, 76]


def test_old_produce_over_a_quota_is_answered_without_a_throttle_time() -> None:
    with broker() as limited:
        topic = create(limited, "limited")
        entity = [{"entity_type": "client-id", "entity_name": None}]
        ops = [{"key": "producer_byte_rate", "value": 100.0, "remove": False}]
        with WireClient(limited.bootstrap) as client:
            client.ask(ALTER_CLIENT_QUOTAS, 0, entries=[{"entity": entity, "ops": ops}], validate_only=False)
        one = OldClient(limited)
        assert one.produce(0, topic, message(b"a" * 300, 0)) == ([(0, 0, 0)], b"")
        one.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_old_librdkafka_reads_what_old_librdkafka_wrote(running: RunningBroker, codec: str) -> None:
    """librdkafka speaks as to Kafka 0.9 where it is told to: Produce 1, Fetch 1, message format 0."""
    old = {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}
    topic = create(running, f"both-{codec}")
    sent = [(b"key %d" % number, b"value %d " % number * 20) for number in range(100)]
    problems: list[object] = []
    done = threading.Event()

    def delivered(error: object, each: Message) -> None:
        problems.extend([error] if error else [])
        if each.offset() == len(sent) - 1:
            done.set()

    producer = Producer(
        {"bootstrap.servers": running.bootstrap, "compression.type": codec, "linger.ms": 5, **old}
    )
    for key, value in sent:
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    assert not problems
    assert done.is_set()
    for config in (old, {}):
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "old", **config})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[bytes | str | None, bytes | str | None]] = []
        while len(found) < len(sent):
            got = consumer.poll(DEADLINE_S)
            assert got is not None
            assert got.error() is None
            assert got.offset() == len(found)
            assert got.timestamp()[1] in (0, NO_TIMESTAMP)  # format 0 has none
            found.append((got.key(), got.value()))
        consumer.close()
        assert found == sent
