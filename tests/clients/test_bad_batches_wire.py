"""What a broker acknowledges can be read: batches with something wrong inside are refused, and nobody waits for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from bad_batches import ACCEPTED, GZIP, LZ4, NONE, NOW_MS, SNAPPY, ZSTD, cases, plain, raw_batch, raw_record
from headwater_broker.log.compression import compress
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import LIST_OFFSETS, PRODUCE

NO_LIMIT = str(2**63 - 1)
NOT_INVALID_RECORD = {"append time": ErrorCode.invalid_timestamp}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"message.max.bytes": str(64 << 20)}) as started:
        yield started


def create(running: RunningBroker, name: str, **config: str) -> str:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)
    return name


def fields(topic: str, batch: bytes | bytearray) -> dict[str, Any]:
    partition = {"index": 0, "records": bytes(batch)}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": topics}


def answer_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def end_offset(client: WireClient, topic: str, timestamp_ms: int = -1) -> int:
    partitions = [{"partition_index": 0, "timestamp": timestamp_ms}]
    topics = [{"name": topic, "partitions": partitions}]
    found: int = client.ask(LIST_OFFSETS, 1, replica_id=-1, topics=topics).topics[0].partitions[0].offset
    return found


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_produce_refuses_what_no_reader_could_read(running: RunningBroker, codec: int) -> None:
    topic = create(running, f"bad-{codec}", message_timestamp_after_max_ms=NO_LIMIT)
    end = 0
    with WireClient(running.bootstrap) as client:
        for name, batch in cases(codec).items():
            answer = answer_of(client.ask(PRODUCE, 9, **fields(topic, batch)))
            if name in ACCEPTED:
                assert answer.error_code is ErrorCode.none, f"{name}: {answer.error_message}"
                end += struct.unpack_from(">i", batch, 57)[0]
            else:
                expected = NOT_INVALID_RECORD.get(name, ErrorCode.invalid_record)
                assert answer.error_code is expected, name
                assert answer.error_message, name
        assert end_offset(client, topic) == end
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": topic,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(end))


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("claimed_ms", [-1, 0])
def test_produce_records_are_found_by_time_whatever_the_header_claims(
    running: RunningBroker, codec: int, claimed_ms: int
) -> None:
    topic = create(running, f"found-{codec}-{claimed_ms}", message_timestamp_after_max_ms=NO_LIMIT)
    records = raw_record(0) + raw_record(1, stamp_delta_ms=900) + raw_record(2)
    batch = raw_batch(records, 3, codec=codec, greatest_ms=claimed_ms)
    with WireClient(running.bootstrap) as client:
        assert answer_of(client.ask(PRODUCE, 9, **fields(topic, batch))).error_code is ErrorCode.none
        assert end_offset(client, topic, NOW_MS) == 0
        assert end_offset(client, topic, NOW_MS + 1) == 1
        assert end_offset(client, topic, NOW_MS + 901) == -1


def _message(offset: int, value: bytes, codec: int = NONE) -> bytes:
    body = struct.pack(">bbq", 1, codec, NOW_MS) + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), crc32(body)) + body


def _old_produce(topic: str, messages: bytes) -> bytes:
    name = topic.encode()
    frame = struct.pack(">hhihhi", 0, 2, 77, -1, -1, 30_000)
    frame += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(messages)) + messages
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize("kind", ["tiny records", "zeros", "keyless", "old format", "old format, compressed"])
def test_produce_of_much_work_lets_others_go_first(running: RunningBroker, kind: str) -> None:
    name = "slow-" + kind.replace(", ", "-").replace(" ", "-")
    slow = create(running, name, cleanup_policy="compact" if kind == "keyless" else "delete")
    quick = create(running, f"{name}-quick")
    count = {"zeros": 1, "old format": 20_000, "old format, compressed": 30_000}.get(kind, 400_000)
    if kind == "old format":
        frame = _old_produce(slow, b"".join(_message(n, b"") for n in range(count)))
    elif kind == "old format, compressed":
        inside = b"".join(_message(n, b"") for n in range(100)) * (count // 100)
        frame = _old_produce(slow, _message(0, compress(inside, GZIP), GZIP))
    else:
        value = bytes(128 << 20) if kind == "zeros" else None
        records = b"".join(raw_record(number, value) for number in range(count))
        batch = raw_batch(records, count, codec=ZSTD)
    with WireClient(running.bootstrap) as client:
        for sent in range(1, 11):  # this process may not run while the broker does all of it
            answered = 0
            with WireClient(running.bootstrap) as hostile:
                if "old" in kind:
                    hostile._socket.sendall(frame)
                else:
                    hostile.send(PRODUCE, 9, **fields(slow, batch))
                while not hostile.has_answer():
                    answer = answer_of(client.ask(PRODUCE, 9, **fields(quick, raw_batch(plain(1), 1))))
                    assert answer.error_code is ErrorCode.none
                    answered += 1
                if "old" not in kind:
                    answer = answer_of(hostile.receive())
                    assert answer.error_code is (
                        ErrorCode.invalid_record if kind == "keyless" else ErrorCode.none
                    )
                    assert len(answer.record_errors) == (100 if kind == "keyless" else 0)
            assert end_offset(client, slow) == (0 if kind == "keyless" else sent * count)
            if answered:
                return
    pytest.fail("nobody else was answered meanwhile")


def test_produce_of_several_partitions_answers_all_where_one_takes_long(running: RunningBroker) -> None:
    topics = [create(running, f"several-{number}") for number in range(3)]
    large = raw_batch(b"".join(raw_record(number, None) for number in range(400_000)), 400_000, codec=LZ4)
    bad = raw_batch(plain(3), 2)
    sent = fields("", b"")
    sent["topic_data"] = [
        {"name": topic, "partition_data": [{"index": index, "records": bytes(batch)}]}
        for topic, index, batch in (
            (topics[0], 0, raw_batch(plain(2), 2)),
            (topics[1], 0, large),
            (topics[2], 0, bad),
            ("not-there", 0, bad),
            (topics[2], 0, raw_batch(plain(4), 4)),
        )
    ]
    with WireClient(running.bootstrap) as client:
        client.send(PRODUCE, 9, **sent)
        client.send(PRODUCE, 9, **fields(topics[1], raw_batch(plain(1), 1)))
        codes = {}
        for each in client.receive().responses:
            for answer in each.partition_responses:
                codes.setdefault(each.name, []).append((answer.error_code, answer.base_offset))
        after = answer_of(client.receive())
        assert codes == {
            topics[0]: [(ErrorCode.none, 0)],
            topics[1]: [(ErrorCode.none, 0)],
            topics[2]: [(ErrorCode.invalid_record, -1), (ErrorCode.none, 0)],
            "not-there": [(ErrorCode.unknown_topic_or_partition, -1)],
        }
        assert (after.error_code, after.base_offset) == (ErrorCode.none, 400_000)


@pytest.mark.parametrize("acks", [0, -1])
def test_produce_of_much_work_keeps_the_order_of_a_connection(running: RunningBroker, acks: int) -> None:
    topic = create(running, f"order-{acks}")
    large = raw_batch(b"".join(raw_record(number, None) for number in range(300_000)), 300_000, codec=GZIP)
    with WireClient(running.bootstrap) as client:
        for batch in (raw_batch(plain(1), 1), large, raw_batch(plain(2), 2), raw_batch(plain(3), 3)):
            client.send(PRODUCE, 9, **fields(topic, batch) | {"acks": acks})
        if acks:
            offsets = [answer_of(client.receive()).base_offset for _ in range(4)]
            assert offsets == [0, 1, 300_001, 300_003]
        else:
            client._requests.clear()
            while end_offset(client, topic) < 300_006:
                pass
