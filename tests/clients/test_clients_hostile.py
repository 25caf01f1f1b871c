"""Clients that send and never read, or stop half-way: they cost the others nothing, and are closed in time."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from amount import amount, drawn_seed
from bad_batches import raw_batch
from broker_process import BrokerProcess
from headwater_broker.log.compression import GZIP, ZSTD
from headwater_broker.log.records import write_varint
from headwater_broker.server import slices
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
)
from readable import is_readable

TIMEOUT_S = 30.0
TOPICS = 200
CONNECTIONS = 30
PIPELINED = 300


def frame(api_key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(request)) + request


ALL_METADATA = frame(METADATA, 1, struct.pack(">i", -1))


def fetch(topic: bytes, max_wait_ms: int, partitions: int = 1) -> bytes:
    body = struct.pack(">iiiib", -1, max_wait_ms, 2**31 - 1, 2**31 - 1, 0)
    body += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iqi", number, 0, 1000) for number in range(partitions))
    return frame(FETCH, 4, body)


def produce(topic: bytes, records: bytes, version: int = 3) -> bytes:
    body = struct.pack(">hhi", -1, 1, 10_000) + struct.pack(">ih", 1, len(topic)) + topic
    return frame(PRODUCE, version, body + struct.pack(">iii", 1, 0, len(records)) + records)


@contextmanager
def connected(running: RunningBroker | BrokerProcess) -> Iterator[socket.socket]:
    host, _, port = running.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock:
        yield sock


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return bytes(data)


def answer(sock: socket.socket) -> bytes:
    return exactly(sock, struct.unpack(">i", exactly(sock, 4))[0])


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker closes the connection; what it sent before is read."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def create(running: RunningBroker | BrokerProcess, partitions: int, *names: str) -> None:
    topics = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    with WireClient(running.bootstrap) as client:
        made = client.ask(CREATE_TOPICS, 2, topics=topics, timeout=30_000, validate_only=False)
        assert not any(topic.error_code for topic in made.topics)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        create(started, 1, *(f"topic-{number}" for number in range(TOPICS)))
        create(started, 500, "wide")
        yield started


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A process of its own, where it matters who is served first: in one process two threads have one interpreter."""
    process = BrokerProcess(tmp_path_factory.mktemp("apart"), ["--coordinator", "memory"]).start()
    try:
        create(process, 1, "topic-3")
        create(process, 500, "wide")
        yield process
    finally:
        process.kill()


HOSTILE = {
    "metadata": ALL_METADATA * PIPELINED,
    "long polls": fetch(b"topic-0", 100) * PIPELINED,
    "wide long polls": fetch(b"wide", 100, 500) * 20,
    "wide fetches": fetch(b"wide", 0, 500) * 20,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_clients_that_never_read_leave_the_others_their_answers(running: RunningBroker, data: bytes) -> None:
    """All of what they ask for takes longer than the good client waits for a single answer."""
    batch = bytes(build_batch([b"x" * 200]))
    with ExitStack() as stack:
        good = stack.enter_context(connected(running))
        good.sendall(produce(b"topic-0", batch))
        answer(good)
        hostile = [stack.enter_context(connected(running)) for _ in range(CONNECTIONS)]
        for sock in hostile:
            sock.setblocking(False)
            assert sock.send(data)
        for _ in range(50):
            good.sendall(produce(b"topic-0", batch))
            answer(good)
        # A connection that was closed would have made it easy.
        assert all(is_open(sock) for sock in hostile)


def is_open(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True


def test_answers_to_the_same_question_are_the_same_and_each_has_its_own_correlation_id(
    running: RunningBroker,
) -> None:
    with connected(running) as sock:
        requests = []
        for number in range(20):
            request = struct.pack(">hhih", METADATA, 1, number, -1) + struct.pack(">i", -1)
            requests.append(struct.pack(">i", len(request)) + request)
        sock.sendall(b"".join(requests))
        answers = [answer(sock) for _ in requests]
    assert [struct.unpack(">i", each[:4])[0] for each in answers] == list(range(20))
    assert len({each[4:] for each in answers}) == 1


def test_logs_of_many_partitions_are_made_while_others_are_served(running: RunningBroker) -> None:
    batch = bytes(build_batch([b"x"]))
    create(running, 1, "many")
    with WireClient(running.bootstrap) as asking, connected(running) as good:
        more = [{"name": "many", "count": 1000, "assignments": None}]
        asking.send(CREATE_PARTITIONS, 1, topics=more, timeout=30_000, validate_only=False)
        amounts = set()
        while not asking.has_answer():
            good.sendall(produce(b"topic-2", batch))
            answer(good)
            amounts.add(len(list(running.data_dir.glob("many-*"))))
        # One answer was on its way when the work began.
        assert len(amounts - {1, 1000}) > 2
        assert asking.receive().results[0].error_code == 0


def test_clients_that_leave_before_their_answer_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go at each stage of it: while it is made, and between what is made and its encoding."""
    monkeypatch.setattr(slices, "_SLICE_S", 1e-9)
    seed = random.Random(drawn_seed())
    with broker() as small:
        create(small, 1, *(f"topic-{number}" for number in range(TOPICS)))
        for _ in range(amount(small=100, full=400)):
            with connected(small) as leaving:
                leaving.sendall(ALL_METADATA * 5)
                time.sleep(seed.random() * 0.01)
        with connected(small) as staying:
            staying.sendall(ALL_METADATA)
            assert answer(staying)


def large(kind: str) -> tuple[int, int, dict[str, Any]]:
    """API, version and fields of a request of some hundreds of kilobytes."""
    names = [f"large-{number}" for number in range(20_000)]
    if kind == "metadata":
        return METADATA, 5, {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    if kind == "configs":
        resources = [
            {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names
        ]
        return DESCRIBE_CONFIGS, 1, {"resources": resources, "include_synonyms": False}
    partitions = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": ""}
        for number in range(30_000)
    ]
    topics = [{"name": "wide", "partitions": partitions}]
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1}
    return OFFSET_COMMIT, 2, {**asked, "topics": topics}


@pytest.mark.parametrize("kind", ["metadata", "configs", "commit"])
def test_large_requests_let_the_others_in_and_keep_the_order_of_their_connection(
    apart: BrokerProcess, kind: str
) -> None:
    key, version, asked = large(kind)
    batch = bytes(build_batch([b"x"]))
    with WireClient(apart.bootstrap) as asking, connected(apart) as good:
        good.sendall(produce(b"topic-3", batch))
        answer(good)
        asking.send(key, version, **asked)
        asking.send(METADATA, 1, topics=[])
        answered = 0
        while not asking.has_answer():
            good.sendall(produce(b"topic-3", batch))
            answer(good)
            answered += 1
        # One may be answered before the request is there, one while its answer is on its way.
        assert answered > 4
        first = asking.receive()
        if kind == "commit":
            codes = [each.error_code for each in first.topics[0].partitions]
            assert codes == [ErrorCode.none] * 500 + [ErrorCode.unknown_topic_or_partition] * 29_500
        else:
            entries = first.topics if kind == "metadata" else first.results
            assert {each.error_code for each in entries} == {ErrorCode.unknown_topic_or_partition}
            assert len(entries) == 20_000
        assert asking.receive().brokers


def test_large_request_that_is_malformed_at_its_end_lets_the_others_in_and_closes_its_connection(
    apart: BrokerProcess,
) -> None:
    """Nothing but the reading takes time."""
    names = b"".join(struct.pack(">h", 5) + b"topic" for _ in range(200_000))
    batch = bytes(build_batch([b"x"]))
    with connected(apart) as good, connected(apart) as bad:
        good.sendall(produce(b"topic-3", batch))
        answer(good)
        bad.sendall(frame(METADATA, 1, struct.pack(">i", 200_001) + names))
        answered = 0
        while not is_readable(bad):
            good.sendall(produce(b"topic-3", batch))
            answer(good)
            answered += 1
        assert is_closed(bad)
        assert answered > 4


IDLE = {"connections.max.idle.ms": "300"}


@pytest.mark.parametrize(
    "sent",
    [struct.pack(">i", 100) + b"half", b"\0\0", ALL_METADATA[:-1]],
    ids=["half", "size", "all but one"],
)
def test_idle_half_sent_request_is_closed(sent: bytes) -> None:
    with broker(properties=IDLE) as idle, connected(idle) as sock:
        sock.sendall(sent)
        assert is_closed(sock)


def test_idle_unread_answers_are_closed() -> None:
    with broker(properties=IDLE) as idle:
        create(idle, 1, *(f"topic-{number}" for number in range(50)))
        with connected(idle) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            data = memoryview(ALL_METADATA * 20_000)
            deadline = time.monotonic() + TIMEOUT_S
            closed = False
            while not closed:
                assert time.monotonic() < deadline
                try:
                    data = data[sock.send(data) :]
                except BlockingIOError:
                    time.sleep(0.02)
                except (ConnectionResetError, BrokenPipeError):
                    closed = True


def test_idle_is_not_who_waits_for_an_answer() -> None:
    with broker(properties=IDLE) as idle:
        create(idle, 1, "t")
        with connected(idle) as waiting, connected(idle) as silent:
            waiting.sendall(fetch(b"t", 2500))
            assert is_closed(silent)
            answer(waiting)
            assert is_closed(waiting)


def test_request_memory_that_is_full_stops_large_requests_and_no_small_one() -> None:
    properties = {"queued.max.request.bytes": "1000000", "socket.request.max.bytes": "1000000"}
    with broker(properties=properties) as small:
        create(small, 1, "t")
        large = produce(b"t", bytes(build_batch([b"x" * 600_000])))
        with ExitStack() as stack:
            holders = [stack.enter_context(connected(small)) for _ in range(2)]
            for sock in holders:
                sock.sendall(large[:500_000])
            third = stack.enter_context(connected(small))
            third.setblocking(False)
            sent = third.send(large)
            client = stack.enter_context(WireClient(small.bootstrap))
            for _ in range(20):
                client.ask(METADATA, 1, topics=None)
            holders[0].close()
            third.setblocking(True)
            third.settimeout(TIMEOUT_S)
            third.sendall(large[sent:])
            assert answer(third)
            holders[1].sendall(large[500_000:])
            assert answer(holders[1])
            listed = client.ask(
                LIST_OFFSETS,
                1,
                replica_id=-1,
                topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
            )
            assert listed.topics[0].partitions[0].offset == 2


def old_fetch(topic: bytes, offset: int) -> bytes:
    body = struct.pack(">iiiiih", -1, 0, 1, 2**31 - 1, 1, len(topic)) + topic
    return frame(FETCH, 3, body + struct.pack(">iiqi", 1, 0, offset, 1 << 20))


def look_up(topic: bytes, timestamp_ms: int) -> bytes:
    body = struct.pack(">iih", -1, 1, len(topic)) + topic
    return frame(LIST_OFFSETS, 1, body + struct.pack(">iiq", 1, 0, timestamp_ms))


RECORDS = 200_000


@pytest.fixture(scope="module")
def tiny(running: RunningBroker) -> bytes:
    """A topic with a batch of as many records as fit into the smallest space, the last one later than the others."""
    create(running, 1, "tiny")
    times_ms = [1000] * (RECORDS - 1) + [9000]
    with connected(running) as sock:
        records = build_batch([None] * RECORDS, attributes=GZIP, timestamps_ms=times_ms)
        sock.sendall(produce(b"tiny", bytes(records)))
        (code,) = struct.unpack_from(">h", answer(sock), 4 + 4 + 2 + 4 + 4 + 4)
        assert code == 0
    return b"tiny"


@pytest.mark.parametrize(
    "asked", [old_fetch(b"tiny", 0), look_up(b"tiny", 5000)], ids=["old fetch", "look-up by time"]
)
def test_work_within_a_batch_lets_the_others_in(running: RunningBroker, tiny: bytes, asked: bytes) -> None:
    batch = bytes(build_batch([b"x"]))
    with connected(running) as good, connected(running) as slow:
        good.sendall(produce(b"topic-1", batch))
        answer(good)
        slow.sendall(asked * 20)
        for _ in range(5):
            good.sendall(produce(b"topic-1", batch))
            answer(good)
        before = 0
        while is_readable(slow):
            answer(slow)
            before += 1
        assert before < 20
        for _ in range(before, 20):
            answer(slow)


def long_batch(count: int) -> bytes:
    """A batch of records of two gigabytes of zeros each, in blocks of zstd that repeat one byte (RFC 8878, 3.1.1.2)."""
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00\x50")
    size = 2**31 - 1000
    for number in range(count):
        start = b"\0\0" + write_varint(number) + b"\1" + write_varint(size)
        start = write_varint(len(start) + size + 1) + start
        for raw in (start, b"\0"):
            frame += (len(raw) << 3).to_bytes(3, "little") + raw
            left = size if raw is start else 0
            while left:
                block = min(left, 128 << 10)
                frame += (block << 3 | 2).to_bytes(3, "little") + b"\0"
                left -= block
    return bytes(raw_batch(b"", count, codec=ZSTD, packed=bytes(frame + b"\x01\0\0")))


def test_large_batch_waits_for_none_that_comes_to_very_much(running: RunningBroker) -> None:
    large = bytes(build_batch([bytes(1000) for _ in range(5_000)], attributes=GZIP))
    with connected(running) as bad, connected(running) as good:
        bad.sendall(produce(b"topic-4", long_batch(5), 7))
        time.sleep(0.1)
        good.sendall(produce(b"topic-5", large))
        answer(good)
        assert not is_readable(bad)
        answer(bad)


def test_work_within_a_batch_ends_with_its_connection(running: RunningBroker, tiny: bytes) -> None:
    with connected(running) as good:
        for asked in (old_fetch(tiny, 0), look_up(tiny, 5000)):
            for _ in range(20):
                with connected(running) as gone:
                    gone.sendall(asked)
        good.sendall(look_up(tiny, 5000))
        assert struct.unpack(">q", answer(good)[-8:]) == (RECORDS - 1,)


def test_old_fetches_read_a_batch_of_many_records_to_its_end(running: RunningBroker, tiny: bytes) -> None:
    with connected(running) as sock:
        sock.sendall(old_fetch(tiny, RECORDS - 10))
        found = answer(sock)
    start = 4 + 4 + 4 + 2 + len(tiny) + 4 + 4 + 2 + 8 + 4
    offset, _, _, magic, attributes = struct.unpack_from(">qiIbb", found, start)
    assert (offset, magic, attributes) == (RECORDS - 1, 1, GZIP)
