"""Bytes that no decent client sends: each closes its own connection with one log line and harms nobody."""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import crc32c
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from amount import drawn_seed
from headwater_broker.testing import RunningBroker, broker
from headwater_broker.wire.apis import API_VERSIONS, FETCH, METADATA, OFFSET_COMMIT, PRODUCE
from headwater_broker.wire.primitives import write_uvarint

SEED = drawn_seed()
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"socket.request.max.bytes": "1000000"}) as started:
        yield started


class Client:
    """A socket and Kafka's framing."""

    def __init__(self, to: RunningBroker) -> None:
        self.sock = socket.create_connection((to.host, to.port), timeout=TIMEOUT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, body: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            assert piece, f"the connection was closed after {len(data)} of {size} bytes"
            data += piece
        return data

    def is_closed_by_the_broker(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, -1)


def metadata_v1(correlation_id: int, *topics: bytes) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic for topic in topics)
    return header(METADATA, 1, correlation_id) + struct.pack(">i", len(topics)) + names


def fetch_v4(
    correlation_id: int, topic: bytes, offset: int, max_wait_ms: int, max_bytes: int = 2**31 - 1
) -> bytes:
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, 0)
    body += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return header(FETCH, 4, correlation_id) + body


def produce_v3(topic: bytes, records: bytes, acks: int = 1) -> bytes:
    body = struct.pack(">hhi", -1, acks, 1000) + struct.pack(">ih", 1, len(topic)) + topic
    return header(PRODUCE, 3) + body + struct.pack(">iii", 1, 0, len(records)) + records


def batch(value: bytes) -> bytes:
    """A record batch with one record."""
    record = b"\x00\x00\x00\x01" + write_uvarint(2 * len(value)) + value + b"\x00"
    tail = struct.pack(">hiqqqhii", 0, 0, 1, 1, -1, -1, -1, 1) + write_uvarint(2 * len(record)) + record
    body = struct.pack(">iBI", 0, 2, crc32c.crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(body)) + body


MALFORMED = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    "size of zero": struct.pack(">i", 0),
    "negative size": struct.pack(">i", -5) + bytes(20),
    "size over the limit": struct.pack(">i", 1_000_001) + bytes(20),
    "size of two gigabytes": struct.pack(">i", 2**31 - 1) + bytes(20),
    "no header": struct.pack(">i", 3) + b"abc",
    "client id past the end": struct.pack(">ihhih", 10, METADATA, 1, 1, 5000),
    "unknown api": struct.pack(">i", 10) + header(999, 0),
    "inter-broker api": struct.pack(">i", 10) + header(4, 0),
    "version too high": struct.pack(">i", 10) + header(METADATA, 99),
    "version too low": struct.pack(">i", 10) + header(OFFSET_COMMIT, 1),
    "negative version": struct.pack(">i", 10) + header(METADATA, -1),
    "produce of message format 1 ends early": struct.pack(">i", 15) + header(PRODUCE, 2) + bytes(5),
    "fetch of message format 1 ends early": struct.pack(">i", 15) + header(FETCH, 3) + bytes(5),
    "count of billions": struct.pack(">i", 14) + header(METADATA, 1) + struct.pack(">i", 2**31 - 1),
    "compact count of billions": struct.pack(">i", 17)
    + header(METADATA, 9)
    + b"\x00\xff\xff\xff\xff\x0f\x00",
    "produce ends early": struct.pack(">i", 20) + header(PRODUCE, 3) + bytes(10),
    "produce counts past the end": struct.pack(">i", 24)
    + header(PRODUCE, 3)
    + struct.pack(">hhihi", -1, 1, 9, 0, 2**31 - 1),
    "fetch ends early": struct.pack(">i", 20) + header(FETCH, 11) + bytes(10),
    "text is not UTF-8": struct.pack(">i", 18) + header(METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frame_closes_its_connection_with_one_line(
    data: bytes, running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Client(running) as bystander, Client(running) as offender:
        bystander.send(metadata_v1(1))
        bystander.receive()
        caplog.clear()
        offender.sock.sendall(data)
        assert offender.is_closed_by_the_broker()
        bystander.send(metadata_v1(2))
        assert bystander.receive()[:4] == struct.pack(">i", 2)
    lines = [record for record in caplog.records if record.name.startswith("headwater_broker")]
    assert len(lines) == 1, [record.getMessage() for record in lines]
    assert lines[0].exc_info is None
    assert "closing the connection of 127.0.0.1:" in lines[0].getMessage()


def test_malformed_random_frames_leave_the_broker_answering(running: RunningBroker) -> None:
    print(f"HEADWATER_SEED={SEED}")
    rng = random.Random(SEED)
    for _ in range(300):
        with Client(running) as client:
            body = rng.randbytes(rng.randrange(80))
            if rng.random() < 0.7:  # a header that leads somewhere
                body = header(rng.randrange(62), rng.randrange(18)) + body
            client.send(body or b"x")
    with Client(running) as client:
        client.send(metadata_v1(3))
        assert client.receive()[:4] == struct.pack(">i", 3)


def test_answers_before_the_malformed_frame_are_still_sent(running: RunningBroker) -> None:
    with Client(running) as client:
        good = metadata_v1(7)
        client.sock.sendall(struct.pack(">i", len(good)) + good + struct.pack(">i", -1))
        assert client.receive()[:4] == struct.pack(">i", 7)
        assert client.is_closed_by_the_broker()


def test_half_a_frame_and_silence_holds_nobody_up(running: RunningBroker) -> None:
    with Client(running) as silent, Client(running) as client:
        silent.sock.sendall(struct.pack(">i", 900_000) + header(METADATA, 1))
        client.send(metadata_v1(1))
        assert client.receive()[:4] == struct.pack(">i", 1)


def test_frame_sent_byte_by_byte_is_answered(running: RunningBroker) -> None:
    with Client(running) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = metadata_v1(5)
        for byte in struct.pack(">i", len(body)) + body:
            client.sock.sendall(bytes([byte]))
        assert client.receive()[:4] == struct.pack(">i", 5)


def test_api_versions_of_the_future_gets_version_0_with_error_35(running: RunningBroker) -> None:
    with Client(running) as client:
        client.send(header(API_VERSIONS, 99, 11) + b"whatever a later version carries")
        correlation_id, error, count = struct.unpack_from(">ihi", client.receive())
        assert (correlation_id, error) == (11, 35)
        assert count > 20
        client.send(header(API_VERSIONS, 3, 12) + b"\x00\x02x\x02y\x00")
        correlation_id, error = struct.unpack_from(">ih", client.receive())
        assert (correlation_id, error) == (12, 0), "version 3 has no tagged fields in its response header"


def test_answers_come_in_order_though_one_takes_long(running: RunningBroker) -> None:
    with Client(running) as client:
        client.send(metadata_v1(0, b"ordered"))
        client.receive()
        started = time.monotonic()
        client.send(fetch_v4(1, b"ordered", 0, max_wait_ms=300))
        client.send(metadata_v1(2))
        client.send(fetch_v4(3, b"ordered", 0, max_wait_ms=0))
        assert [struct.unpack_from(">i", client.receive())[0] for _ in range(3)] == [1, 2, 3]
        assert time.monotonic() - started >= 0.3


def test_pipelined_requests_of_every_kind_store_each_batch_once_and_in_order(running: RunningBroker) -> None:
    """Appended batches lie in the receive buffer until the tick ends: nothing may move or refill it before.

    Requests that take time (a topic to create, a long poll) make the connection stop and go on in the middle of
    a buffer; sizes are such that frames lie across the buffer's end.
    """
    print(f"HEADWATER_SEED={SEED}")
    rng = random.Random(SEED)
    values = [b"%d:" % index + bytes([index % 251]) * rng.choice((10, 1000, 50_000)) for index in range(400)]
    bodies: list[bytes] = [metadata_v1(0, b"pipelined")]
    for index, value in enumerate(values):
        bodies.append(produce_v3(b"pipelined", batch(value)))
        if index % 40 == 7:
            bodies.append(metadata_v1(0, b"made-%d" % index))
        if index % 40 == 21:
            bodies.append(fetch_v4(0, b"pipelined", 10**9, max_wait_ms=5))
        if index % 40 == 33:
            bodies.append(fetch_v4(0, b"made-7", 0, max_wait_ms=5))
    data = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    with Client(running) as client:
        sender = threading.Thread(target=client.sock.sendall, args=(data,))
        sender.start()
        for _ in bodies:
            client.receive()
        sender.join()
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "raw", "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition("pipelined", 0, OFFSET_BEGINNING)])
    seen: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(seen) < len(values) and time.monotonic() < deadline:
        seen += [message.value() for message in consumer.consume(400, timeout=0.5)]
    consumer.close()
    assert seen == values


def test_produce_of_garbage_is_answered_with_an_error_and_the_connection_goes_on(
    running: RunningBroker,
) -> None:
    with Client(running) as client:
        client.send(metadata_v1(0, b"garbage"))
        client.receive()
        for records in (
            b"",
            b"short",
            bytes(61),
            bytes(16) + b"\x01" + bytes(60),
            bytes(16) + b"\x02" + bytes(60),
        ):
            client.send(produce_v3(b"garbage", records))
            (error,) = struct.unpack_from(">h", client.receive(), 4 + 4 + 2 + 7 + 4 + 4)
            assert error in (2, 43, 87), error
        client.send(produce_v3(b"missing", b"x"))
        assert struct.unpack_from(">h", client.receive(), 25)[0] == 3


def test_produce_acks_0_that_fails_closes_the_connection(running: RunningBroker) -> None:
    with Client(running) as client:
        client.send(metadata_v1(0, b"garbage"))
        client.receive()
        client.send(produce_v3(b"garbage", b"short", acks=0))
        assert client.is_closed_by_the_broker()


def test_slow_reader_gets_everything_and_holds_nobody_up(running: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for index in range(40):
        producer.produce("slow", bytes([index]) * 400_000, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    with Client(running) as slow, Client(running) as client:
        for correlation_id in range(3):
            slow.send(fetch_v4(correlation_id, b"slow", 0, max_wait_ms=0))
        client.send(metadata_v1(1))
        assert client.receive()[:4] == struct.pack(">i", 1)
        answers = [slow.receive() for _ in range(3)]
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == [0, 1, 2]
    assert len(answers[0]) > 16_000_000
    assert answers[0][4:] == answers[1][4:] == answers[2][4:]


def test_client_that_goes_away_in_a_long_poll_leaves_nothing_behind(running: RunningBroker) -> None:
    with Client(running) as client:
        client.send(metadata_v1(0, b"left"))
        client.receive()
        client.send(fetch_v4(1, b"left", 0, max_wait_ms=30_000))
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce("left", b"x", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_small_requests_with_large_answers_are_taken_a_few_at_a_time(running: RunningBroker) -> None:
    with Client(running) as greedy, Client(running) as client:
        body = header(API_VERSIONS, 0)
        frame = struct.pack(">i", len(body)) + body
        greedy.sock.sendall(frame * 10_000)
        client.send(metadata_v1(1))
        assert client.receive()[:4] == struct.pack(">i", 1)
        answers = {greedy.receive() for _ in range(10_000)}
    assert len(answers) == 1
