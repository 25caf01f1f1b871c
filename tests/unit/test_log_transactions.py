"""Transactions in one partition: markers, the last stable offset, the index of aborted transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.records.readers import read_batch

from headwater_broker.log import (
    Appended,
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTransactionStateError,
    Isolation,
    LogConfig,
    LogManager,
    Marker,
    OutOfOrderSequenceError,
    PartitionLog,
)
from headwater_broker.log.batch import BASE_TIMESTAMP_MS, HEADER
from headwater_broker.log.cleaner.keys import KeyOffsets
from headwater_broker.log.cleaner.rewrite import Retention, compact_batch
from headwater_broker.log.cleaner.transactions import TransactionPass
from headwater_broker.log.markers import decode_marker, encode_marker
from headwater_broker.log.txnindex import AbortedTransaction, find_aborted
from headwater_broker.testing.batches import build_batch

TRANSACTIONAL = 0x10
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)
COMMITTED = Isolation.READ_COMMITTED


def _anybody(log: PartitionLog, producer_id: int, producer_epoch: int) -> None:
    """Lets every producer begin a transaction."""


class Partition:
    """One partition and what its producers have sent."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.settings = settings
        self.sequences: dict[tuple[int, int], int] = {}
        self.open()

    def open(self) -> None:
        self.manager = LogManager(
            [str(self.directory)],
            config_for=lambda _: LogConfig.parse(self.settings),
            retention_check_interval_ms=0,
        )
        self.manager.load()
        self.log = self.manager.create("t", 0, bytes(16))
        self.log.become_leader(0)

    def crash(self) -> None:
        self.log.write_dirty()
        self.manager._release()
        self.open()

    def restart(self) -> None:
        self.manager.close()
        self.open()

    def send(self, producer_id: int, *values: bytes, epoch: int = 0, plain: bool = False) -> Appended:
        sequence = self.sequences.get((producer_id, epoch), 0)
        batch = build_batch(
            values or [b"x"],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=0 if plain else TRANSACTIONAL,
        )
        appended = self.log.append(memoryview(batch), now_ms=0, may_begin=_anybody)
        self.sequences[producer_id, epoch] = sequence + len(values or [b"x"])
        self.log.write_dirty()
        return appended

    def end(self, producer_id: int, marker: Marker, epoch: int = 0) -> Appended:
        appended = self.log.append_marker(producer_id, epoch, marker, now_ms=5)
        self.log.write_dirty()
        return appended

    def aborted(self, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
        return list(self.log.read(offset, max_bytes, isolation=COMMITTED).aborted)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    made = Partition(tmp_path)
    yield made
    made.manager.close()


def test_marker_golden_bytes_are_kafkas() -> None:
    batch = bytes(encode_marker(7, 3, Marker(False, 9), 1000))
    assert batch[61:] == bytes.fromhex("20 00 00 00 08 00000000 0c 0000 00000009 00")
    assert batch[8:12] == struct.pack(">i", len(batch) - 12)
    read, size = read_batch(batch, 0)
    assert size == len(batch)
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 3, -1)
    assert read.attributes == 0x30
    assert decode_marker(batch) == Marker(False, 9)
    assert decode_marker(bytes(encode_marker(7, 3, COMMIT, 1000))) == COMMIT


def test_marker_is_read_behind_compaction_which_counts_its_time_from_a_delete_horizon() -> None:
    batch = bytes(encode_marker(7, 3, Marker(True, 9), 1000))
    header = HEADER.unpack_from(batch)
    retention = Retention(KeyOffsets(1 << 10, 0), 1_000_000, 86_400_000, {})
    for _ in range(2):  # the marker of no data, the first time and before its horizon
        left = compact_batch(batch, header, retention, TransactionPass([], 0))
        assert left is not None
        batch, header = left, HEADER.unpack_from(left)
        assert header[BASE_TIMESTAMP_MS] == 87_400_000
        assert decode_marker(batch) == Marker(True, 9)


def test_marker_of_another_kind_is_none() -> None:
    batch = encode_marker(7, 3, COMMIT, 1000)
    batch[61 + 8] = 2
    assert decode_marker(bytes(batch)) is None
    assert decode_marker(bytes(batch[:61])) is None


def test_find_aborted_stops_where_no_later_entry_can_matter() -> None:
    entries = [
        AbortedTransaction(1, 0, 4, 2),
        AbortedTransaction(2, 2, 6, 7),
        AbortedTransaction(3, 8, 9, 10),
    ]
    assert find_aborted(entries, 0, 3) == (entries[:2], True)
    assert find_aborted(entries, 5, 9) == (entries[1:], True)
    assert find_aborted(entries, 5, 20) == (entries[1:], False)
    assert find_aborted(entries, 10, 20) == ([], False)


def test_last_stable_offset_stays_before_an_open_transaction(partition: Partition) -> None:
    partition.send(1, plain=True)
    partition.send(2)
    partition.send(1, plain=True)
    log = partition.log
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert log.latest(COMMITTED).offset == 1
    assert log.latest().offset == 3
    found = log.read(0, 1 << 20, isolation=COMMITTED)
    assert found.count == log.read(1, 1 << 20).position
    assert (found.high_watermark, found.last_stable_offset) == (3, 1)
    assert log.read(1, 1 << 20, isolation=COMMITTED).count == 0
    assert log.read(1, 1 << 20).count > 0
    partition.end(2, COMMIT)
    assert log.last_stable_offset == log.high_watermark == 4


def test_last_stable_offset_waits_for_the_marker_to_be_written(partition: Partition) -> None:
    partition.send(2)
    partition.log.append_marker(2, 0, COMMIT, now_ms=0)
    assert partition.log.last_stable_offset == 0
    partition.log.write_dirty()
    assert partition.log.last_stable_offset == 2


def test_last_stable_offset_where_messages_are_exposed_once_flushed(tmp_path: Path) -> None:
    partition = Partition(tmp_path, **{"expose": "flushed", "flush.messages": "1000"})
    partition.send(2)
    partition.log.flush()
    partition.end(2, COMMIT)
    assert (partition.log.last_stable_offset, partition.log.high_watermark) == (0, 1)
    partition.log.flush()
    assert partition.log.last_stable_offset == 2
    partition.manager.close()


def test_offset_for_timestamp_committed_stops_before_an_open_transaction(partition: Partition) -> None:
    partition.send(2)
    assert partition.log.offset_for_timestamp(0) is not None
    assert partition.log.offset_for_timestamp(0, COMMITTED) is None


def test_read_committed_tells_aborted_transactions(partition: Partition) -> None:
    partition.send(1)
    partition.send(2)
    partition.end(1, ABORT)
    partition.end(2, COMMIT)
    partition.send(1)
    partition.end(1, ABORT)
    assert partition.aborted(0) == [(1, 0), (1, 4)]
    assert partition.aborted(3) == [(1, 4)]
    assert partition.aborted(0, max_bytes=80) == [(1, 0)]
    assert partition.log.read(0, 1 << 20).aborted == ()


@pytest.mark.parametrize("reopen", ["restart", "crash"])
def test_reopened_log_knows_open_and_aborted_transactions(tmp_path: Path, reopen: str) -> None:
    partition = Partition(tmp_path, **{"segment.bytes": "200", "index.interval.bytes": "0"})
    for _ in range(4):
        partition.send(1, b"a" * 60)
        partition.send(2, b"b" * 60)
        partition.end(1, ABORT)
    before = [partition.aborted(offset) for offset in range(2)]
    getattr(partition, reopen)()
    assert [partition.aborted(offset) for offset in range(2)] == before
    assert partition.log.last_stable_offset == 1
    partition.end(2, ABORT)
    assert partition.log.last_stable_offset == partition.log.high_watermark == 13
    assert partition.log.aborted_transactions() == [
        *(AbortedTransaction(1, first, first + 2, 1) for first in (0, 3, 6, 9)),
        AbortedTransaction(2, 1, 12, 13),
    ]
    partition.manager.close()


def test_reopened_log_rebuilds_a_damaged_transaction_index(tmp_path: Path) -> None:
    partition = Partition(tmp_path, **{"segment.bytes": "300"})
    for _ in range(6):
        partition.send(1, b"a" * 60)
        partition.send(2, b"b" * 60)
        partition.end(1, ABORT)
    partition.manager.close()
    files = sorted((tmp_path / "t-0").glob("*.txnindex"))
    before = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(b"\1" + file.read_bytes()[1:])
    partition.open()
    assert [file.read_bytes() for file in files[:-1]] == before[:-1]
    assert partition.aborted(0) == [(1, 0)]
    partition.manager.close()
    assert [file.read_bytes() for file in files] == before


def test_truncate_takes_aborted_transactions_back(partition: Partition) -> None:
    for _ in range(3):
        partition.send(1)
        partition.end(1, ABORT)
    partition.log.truncate_to(3, now_ms=0)
    assert partition.log.aborted_transactions() == [AbortedTransaction(1, 0, 1, 2)]
    assert partition.log.last_stable_offset == 2
    assert dict(partition.log.producers())[1].transaction_first_offset == 2


def test_append_plain_batch_within_a_transaction_refused(partition: Partition) -> None:
    partition.send(1)
    with pytest.raises(InvalidTransactionStateError, match="since offset 0"):
        partition.send(1, plain=True)
    with pytest.raises(InvalidTransactionStateError, match="since offset 0"):
        partition.send(1, plain=True, epoch=1)
    partition.end(1, COMMIT)
    partition.send(1, plain=True)


def test_append_transactional_batch_asks_once_for_each_transaction(partition: Partition) -> None:
    asked = []

    def may_begin(log: PartitionLog, producer_id: int, producer_epoch: int) -> None:
        asked.append((log.partition, producer_id, producer_epoch))

    for sequence in range(4):
        batch = build_batch(
            [b"x"], producer_id=1, producer_epoch=2, base_sequence=sequence, attributes=TRANSACTIONAL
        )
        partition.log.append(memoryview(batch), now_ms=0, may_begin=may_begin)
        if sequence == 1:
            partition.end(1, COMMIT, epoch=2)
    assert asked == [(0, 1, 2)] * 2


def test_append_transactional_batch_without_transactional_id_refused(partition: Partition) -> None:
    batch = build_batch([b"x"], producer_id=1, producer_epoch=2, base_sequence=0, attributes=TRANSACTIONAL)
    with pytest.raises(InvalidTransactionStateError):
        partition.log.append(memoryview(batch), now_ms=0)
    anonymous = build_batch([b"x"], attributes=TRANSACTIONAL)
    with pytest.raises(InvalidRecordError):
        partition.log.append(memoryview(anonymous), now_ms=0, may_begin=_anybody)
    control = bytes(encode_marker(1, 2, COMMIT, 0))
    with pytest.raises(InvalidRecordError):
        partition.log.append(memoryview(bytearray(control)), now_ms=0, may_begin=_anybody)
    assert partition.log.log_end_offset == 0


def test_append_marker_of_an_older_producer_or_coordinator_refused(partition: Partition) -> None:
    partition.send(1, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        partition.end(1, COMMIT, epoch=2)
    partition.end(1, Marker(True, 5), epoch=3)
    with pytest.raises(CoordinatorFencedError):
        partition.end(1, Marker(True, 4), epoch=3)


def test_append_marker_with_newer_epoch_fences_the_older(partition: Partition) -> None:
    partition.send(1)
    partition.end(1, ABORT, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        partition.send(1)
    batch = build_batch([b"x"], producer_id=1, producer_epoch=1, base_sequence=5, attributes=TRANSACTIONAL)
    with pytest.raises(OutOfOrderSequenceError):
        partition.log.append(memoryview(batch), now_ms=0, may_begin=_anybody)
    partition.crash()
    with pytest.raises(InvalidProducerEpochError):
        partition.send(1)
    partition.send(1, epoch=1)


def test_append_marker_without_transaction_leaves_no_trace_for_consumers(partition: Partition) -> None:
    partition.end(1, ABORT)
    assert partition.aborted(0) == []
    assert partition.log.last_stable_offset == 1


def test_duplicate_within_a_transaction_answers_the_first_offsets(partition: Partition) -> None:
    first = partition.send(1)
    partition.end(1, COMMIT)
    batch = build_batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    again = partition.log.append(memoryview(batch), now_ms=0, may_begin=_anybody)
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    assert partition.log.last_stable_offset == 2


@pytest.mark.parametrize("reopen", [None, "restart", "crash"])
def test_sequence_of_an_aborted_transaction_given_out_again_is_no_duplicate(
    tmp_path: Path, reopen: str | None
) -> None:
    partition = Partition(tmp_path)
    partition.send(2)
    partition.send(1, b"aborted")
    partition.end(1, ABORT)
    if reopen:
        getattr(partition, reopen)()
    batch = build_batch([b"new"], producer_id=1, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    with pytest.raises(OutOfOrderSequenceError, match="was aborted"):
        partition.log.append(memoryview(batch), now_ms=0, may_begin=_anybody)
    again = build_batch([b"x"], producer_id=2, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    assert partition.log.append(memoryview(again), now_ms=0, may_begin=_anybody).duplicate
    partition.manager.close()


def test_delete_records_past_an_open_transaction_moves_the_stable_offset(partition: Partition) -> None:
    partition.send(1)
    partition.send(1)
    partition.log.delete_records(1)
    assert partition.log.last_stable_offset == 1
