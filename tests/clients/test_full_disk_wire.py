"""What clients see of a broker whose disk is full: errors that they try again after, and all that was acknowledged."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from broker_process import BrokerProcess
from headwater_broker.coordination import CoordinatorUnavailable
from headwater_broker.coordination.memory_file import MemoryFile
from headwater_broker.log.fs import Buffer, OsFileSystem
from headwater_broker.testing import WireClient, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.transactions import TransactionCoordinator
from headwater_broker.wire.apis import LIST_OFFSETS, PRODUCE

DISK_BYTES = 4 << 20
TIMEOUT_S = 60


class FullFor:
    """A disk that is full for the files of one partition, while `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partition: str, but_for: str = "") -> None:
        self.is_full = False
        write = OsFileSystem.pwritev

        def pwritev(fs: OsFileSystem, fd: int, buffers: Sequence[Buffer], position: int) -> int:
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            if self.is_full and f"/{partition}" in path and not (but_for and path.endswith(but_for)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fs, fd, buffers, position)

        monkeypatch.setattr(OsFileSystem, "pwritev", pwritev)


def produce_fields(topic: str, *partitions: int, acks: int = 1, sequence: int = -1) -> dict[str, object]:
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": index, "records": bytes(build_batch([b"x" * 100], **producer))}
                    for index in partitions
                ],
            }
        ],
    }


def codes(answer: object) -> list[tuple[int, ErrorCode, int]]:
    return [
        (each.index, each.error_code, each.base_offset)
        for topic in answer.responses  # type: ignore[attr-defined]
        for each in topic.partition_responses
    ]


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("settings", [{}, {"acks.fsync": "true"}])
def test_produce_to_a_full_disk_is_told_partition_by_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, acks: int, settings: dict[str, str]
) -> None:
    disk = FullFor(monkeypatch, "t-0/")
    with broker(tmp_path) as running, WireClient(running.bootstrap) as client:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1, config=settings)])["t"].result(TIMEOUT_S)
        ok, full = ErrorCode.none, ErrorCode.kafka_storage_error
        assert codes(client.ask(PRODUCE, version, **produce_fields("t", 0, 1, acks=acks))) == [
            (0, ok, 0),
            (1, ok, 0),
        ]
        disk.is_full = True
        assert codes(client.ask(PRODUCE, version, **produce_fields("t", 0, 1, acks=acks))) == [
            (0, full, -1),
            (1, ok, 1),
        ]
        for number in range(200):
            client.send(PRODUCE, version, **produce_fields("t", number % 2, acks=acks))
        answers = [codes(client.receive())[0] for _ in range(200)]
        assert {code for index, code, _ in answers if index == 0} == {full}
        assert [offset for index, _, offset in answers if index == 1] == list(range(2, 102))
        disk.is_full = False
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            ((_, code, offset),) = codes(client.ask(PRODUCE, version, **produce_fields("t", 0, acks=acks)))
            if code == ok:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert offset == 1


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
@pytest.mark.parametrize("settings", [{}, {"acks.fsync": "true"}])
def test_produce_before_a_segment_that_takes_nothing_stays_acknowledged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    partitions: tuple[int, ...],
    settings: dict[str, str],
) -> None:
    """A tick that begins a segment writes twice: what the first write kept is not refused for the second one."""
    disk = FullFor(monkeypatch, "t-0/", but_for=f"{0:020}.log")
    config = {"segment.bytes": "2000", **settings}
    with broker(tmp_path) as running, WireClient(running.bootstrap) as client:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1, config=config)])["t"].result(TIMEOUT_S)
        fields = produce_fields("t", *partitions, acks=-1)
        disk.is_full = True
        kept = -1
        for _ in range(2):  # the second time by the bytes of the first
            client.send_together(PRODUCE, version, [fields] * 40)
            answers = [codes(client.receive()) for _ in range(40)]
            found = [(code, offset) for answer in answers for index, code, offset in answer if index == 0]
            kept = max([kept, *(offset for _, offset in found)])
            assert {code for code, offset in found if offset == -1} == {ErrorCode.kafka_storage_error}
            assert len([code for code, _ in found if code == ErrorCode.none]) <= kept + 1
            assert end_of(client, "t") == kept + 1
        assert kept > 5
        for answer in answers:
            assert all(code == ErrorCode.none for index, code, _ in answer if index == 1)
        disk.is_full = False
        deadline = time.monotonic() + TIMEOUT_S
        while codes(client.ask(PRODUCE, version, **fields))[0][1:] != (ErrorCode.none, kept + 1):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def end_of(client: WireClient, topic: str) -> int:
    """The end of its partition 0."""
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    answer = client.ask(LIST_OFFSETS, 4, replica_id=-1, isolation_level=0, topics=topics)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def test_produce_without_acknowledgement_to_a_full_disk_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullFor(monkeypatch, "t-0/")
    with broker(tmp_path) as running, WireClient(running.bootstrap) as client:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        disk.is_full = True
        client.send(PRODUCE, 9, **produce_fields("t", 0, acks=0))
        client.send(PRODUCE, 9, **produce_fields("t", 0))
        with pytest.raises(ConnectionError):
            client.receive()


class SmallDisk:
    """A broker whose data lie on a small disk of their own, that a test fills and empties."""

    def __init__(self, directory: Path) -> None:
        mount = 'mkdir -p "$0" && mount -t tmpfs -o size=$1 tmpfs "$0" && shift && exec "$@"'
        data = directory / "broker-1"
        within = ["unshare", "-m", "sh", "-c", mount, str(data), str(DISK_BYTES)]
        self.process = BrokerProcess(directory, ["--coordinator", "memory"], within=within)
        self.process.start()
        self._filler = Path(f"/proc/{self.process.pid}/root{data}/filler")

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        assert os.statvfs(self._filler).f_bavail == 0

    def empty(self) -> None:
        self._filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    probe = tmp_path / "probe"
    probe.mkdir()
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(probe)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine does not let a test mount a small disk of its own: {error}")
    disk = SmallDisk(tmp_path)
    yield disk
    disk.process.kill()


def read_all(bootstrap: str, topic: str, end: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(values) < end:
        assert time.monotonic() < deadline
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            values.append(message.value() or b"")
    consumer.close()
    return values


def test_full_disk_keeps_what_was_acknowledged_and_takes_the_rest_when_there_is_room(
    small_disk: SmallDisk,
) -> None:
    process = small_disk.process
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    config = {"segment.bytes": "20000", "index.interval.bytes": "1000"}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(TIMEOUT_S)
    acknowledged: list[bytes] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            errors.append(error)
        else:
            acknowledged.append(message.value())  # type: ignore[attr-defined]

    producer = Producer(
        {
            "bootstrap.servers": process.bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 5,
            "linger.ms": 1,
        }
    )
    sent = [b"%05d" % number * 40 for number in range(600)]
    for value in sent[:100]:
        producer.produce("t", value, partition=0, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    small_disk.fill()
    for value in sent[100:]:
        producer.produce("t", value, partition=0, on_delivery=delivered)
    deadline = time.monotonic() + TIMEOUT_S
    while "takes no records until that works again" not in process.log():
        assert time.monotonic() < deadline
        producer.poll(0.05)
    producer.poll(2)
    assert 100 <= len(acknowledged) < 600
    assert read_all(process.bootstrap, "t", len(acknowledged)) == sent[: len(acknowledged)]
    consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "g"})
    with pytest.raises(Exception, match=r"(?i)coordinator|timed out"):
        consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    small_disk.empty()
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    assert acknowledged == sent
    assert read_all(process.bootstrap, "t", 600) == sent
    consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    consumer.close()
    assert "takes records again" in process.log()
    assert "Traceback" not in process.log()
    assert process.stop() == 0


def test_broker_that_stops_on_a_full_disk_says_so_in_sentences(small_disk: SmallDisk) -> None:
    process = small_disk.process
    producer = Producer({"bootstrap.servers": process.bootstrap, "message.timeout.ms": 1500})
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic("t", 3, 1)])["t"].result(TIMEOUT_S)
    small_disk.fill()
    failed: list[object] = []
    for number in range(300):
        producer.produce("t", b"%d" % number * 500, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert any(error is not None for error in failed)
    assert process.stop() == 0
    assert "Traceback" not in process.log()
    assert "Logging error" not in process.log()


def transactional(bootstrap: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx", **settings})
    producer.init_transactions(TIMEOUT_S)
    return producer


def commit_one(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce("t", value, partition=0)
    producer.commit_transaction(TIMEOUT_S)


def test_transaction_that_the_disk_does_not_let_be_complete_is_so_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then its id is busy: the next transaction waits, and does not fail."""
    disk = FullFor(monkeypatch, "__transaction_state-")
    written = []
    complete = TransactionCoordinator.complete

    def completing(coordinator: TransactionCoordinator, now_ms: int, transactional_id: str) -> object:
        disk.is_full = not written
        return complete(coordinator, now_ms, transactional_id)

    monkeypatch.setattr(TransactionCoordinator, "complete", completing)
    with broker(tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        producer = transactional(running.bootstrap)
        commit_one(producer, b"one")
        deadline = time.monotonic() + TIMEOUT_S
        while "waits to be complete" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        written.append(True)  # there is room again
        disk.is_full = False
        commit_one(producer, b"two")
        assert read_all(running.bootstrap, "t", 2) == [b"one", b"two"]
    assert [each for each in caplog.records if each.exc_info] == []


def test_transaction_that_cannot_be_decided_on_a_full_disk_is_decided_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullFor(monkeypatch, "__transaction_state-")
    with broker(tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for each in admin.create_topics([NewTopic("t", 1, 1), NewTopic("other", 1, 1)]).values():
            each.result(TIMEOUT_S)
        producer = transactional(running.bootstrap)
        commit_one(producer, b"one")
        producer.begin_transaction()
        producer.produce("t", b"two", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        disk.is_full = True
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(1.5)
        assert caught.value.args[0].retriable()
        plain = Producer({"bootstrap.servers": running.bootstrap})
        plain.produce("other", b"goes on", partition=0)
        assert plain.flush(TIMEOUT_S) == 0
        disk.is_full = False
        producer.commit_transaction(TIMEOUT_S)
        assert read_all(running.bootstrap, "t", 2) == [b"one", b"two"]
    with broker(tmp_path) as running:
        commit_one(transactional(running.bootstrap), b"three")
        assert read_all(running.bootstrap, "t", 3) == [b"one", b"two", b"three"]
    assert [each for each in caplog.records if each.exc_info] == []


def test_broker_starts_on_a_full_disk_with_what_it_has_and_takes_more_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("t", b"one", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    disk = FullFor(monkeypatch, "")
    disk.is_full = True
    write_file, write_state = OsFileSystem.write_file, MemoryFile.write

    def replaced(fs: OsFileSystem, path: str, data: Buffer, *, durable: bool) -> None:
        if disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write_file(fs, path, data, durable=durable)

    def kept(file: MemoryFile, data: bytes) -> None:
        if disk.is_full:
            raise CoordinatorUnavailable("coordinator.json cannot be written: No space left on device")
        write_state(file, data)

    monkeypatch.setattr(OsFileSystem, "write_file", replaced)
    monkeypatch.setattr(MemoryFile, "write", kept)
    with broker(tmp_path) as running:
        assert read_all(running.bootstrap, "t", 1) == [b"one"]
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("t", b"two", partition=0)
        assert producer.flush(2) == 1
        assert "coordinator.json cannot be written" in caplog.text
        disk.is_full = False
        assert producer.flush(TIMEOUT_S) == 0
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()
        assert read_all(running.bootstrap, "t", 2) == [b"one", b"two"]
    with broker(tmp_path) as running:
        assert read_all(running.bootstrap, "t", 2) == [b"one", b"two"]
    assert [each for each in caplog.records if each.exc_info] == []


def test_topic_whose_log_cannot_be_made_or_removed_is_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has to ask for it again."""
    refused = []
    make_dir, rename = OsFileSystem.make_dir, OsFileSystem.rename

    def made(fs: OsFileSystem, path: str) -> None:
        if "new-0" in refused and path.endswith("/new-0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        make_dir(fs, path)

    def renamed(fs: OsFileSystem, source: str, target: str) -> None:
        if "old-0" in refused and source.endswith("/old-0"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), source)
        rename(fs, source, target)

    monkeypatch.setattr(OsFileSystem, "make_dir", made)
    monkeypatch.setattr(OsFileSystem, "rename", renamed)
    with broker(tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("old", 1, 1)])["old"].result(TIMEOUT_S)
        refused += ["new-0", "old-0"]
        admin.create_topics([NewTopic("new", 1, 1)], operation_timeout=0)
        admin.delete_topics(["old"], operation_timeout=0)
        deadline = time.monotonic() + TIMEOUT_S
        while not all(text in caplog.text for text in ("new-0 cannot be led", "old-0 cannot be removed")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        refused.clear()
        producer = Producer({"bootstrap.servers": running.bootstrap, "message.timeout.ms": TIMEOUT_S * 1000})
        producer.produce("new", b"x", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        while (tmp_path / "old-0").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert caplog.text.count("new-0 cannot be led") == 1
    assert caplog.text.count("old-0 cannot be removed") == 1
    assert [each for each in caplog.records if each.exc_info] == []
