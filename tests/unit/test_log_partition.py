"""One partition's log: append, read, roll, look up by time, retention, flush."""

from __future__ import annotations

import gc
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from kio.records.readers import read_batch

from headwater_broker.log import (
    Appended,
    BatchTooLargeError,
    CorruptBatchError,
    EpochEnd,
    FileRange,
    InvalidRecordError,
    InvalidTimestampError,
    LogConfig,
    LogManager,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    StorageError,
    TimestampAndOffset,
)
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    CHECKED_FROM,
    CHECKSUM_VALUE,
    GREATEST_TIMESTAMP_MS,
    HEADER,
    PRODUCER_ID,
    SIZE_BEFORE_LENGTH_BYTES,
)
from headwater_broker.log.checkpoints import encode_epochs
from headwater_broker.log.records import uncompressed_records
from headwater_broker.testing.batches import build_batch, reseal_batch
from headwater_broker.testing.faults import broken_disk
from headwater_broker.testing.logs import OneLog

DAY_MS = 86_400_000


class Broker(OneLog):
    """A manager with one partition, on a clock that the test sets."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, "events", settings)

    def append(self, *values: bytes, **batch: object) -> Appended:
        data = build_batch(values or (b"x",), **batch)  # type: ignore[arg-type]
        return self.log.append(memoryview(data), now_ms=self.time_ms)

    def write(self, *values: bytes, **batch: object) -> Appended:
        appended = self.append(*values, **batch)
        self.log.write_dirty()
        return appended

    def read_offsets(self, start: int | None = None, max_bytes: int = 1 << 20) -> list[int]:
        """Reads to the end; the base offsets of all batches."""
        offset = self.log.log_start_offset if start is None else start
        found = []
        while True:
            data = take(self.log.read(offset, max_bytes))
            if not data:
                return found
            while data:
                base_offset, length = struct.unpack_from(">qi", data)
                batch, size = read_batch(data[: length + 12], 0)
                assert size == length + 12
                found.append(base_offset)
                offset = base_offset + batch.last_offset_delta + 1
                data = data[size:]

    def files(self, suffix: str) -> list[str]:
        return sorted(
            path.name for path in (self.directory / "events-0").iterdir() if path.name.endswith(suffix)
        )


def take(found: FileRange) -> bytes:
    return os.pread(found.fd, found.count, found.position) if found.count else b""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    opened = Broker(tmp_path)
    yield opened
    opened.fs.fault = None
    opened.manager.close()


def small_segments(tmp_path: Path, **settings: str) -> Broker:
    """Two one-record batches to a segment."""
    return Broker(tmp_path, **{"segment.bytes": "150", "index.interval.bytes": "0"} | settings)


def test_append_stamps_offset_and_epoch_in_the_callers_buffer(broker: Broker) -> None:
    broker.log.become_leader(7)
    broker.append(b"a", b"b", b"c")
    data = build_batch([b"d", b"e"], leader_epoch=55)
    assert broker.log.append(memoryview(data), now_ms=5) == Appended(3, 4, -1, 0, False)
    assert struct.unpack_from(">q", data) == (3,)
    assert struct.unpack_from(">i", data, 12) == (7,)
    read_batch(bytes(data), 0)


def test_append_is_readable_only_once_written(broker: Broker) -> None:
    broker.append(b"a")
    assert broker.log.is_dirty
    assert (broker.log.log_end_offset, broker.log.high_watermark) == (1, 0)
    assert broker.log.read(0, 1000).count == 0
    broker.log.write_dirty()
    assert not broker.log.is_dirty
    assert broker.log.high_watermark == broker.log.last_stable_offset == 1
    assert broker.read_offsets() == [0]


def test_append_lets_go_of_the_buffer_once_written(broker: Broker) -> None:
    data = build_batch([b"a"])
    broker.log.append(memoryview(data), now_ms=0)
    with pytest.raises(BufferError):
        data.clear()
    broker.log.write_dirty()
    data.clear()


def test_append_refused_batch_changes_nothing(broker: Broker) -> None:
    data = build_batch([b"a"])
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        broker.log.append(memoryview(data), now_ms=0)
    assert broker.log.log_end_offset == 0
    assert not broker.log.is_dirty


def test_append_duplicate_answers_the_first_offsets(broker: Broker) -> None:
    producer = {"producer_id": 9, "producer_epoch": 0}
    broker.write(b"x")
    first = broker.write(b"a", b"b", base_sequence=0, **producer)
    broker.write(b"c", base_sequence=2, **producer)
    again = broker.append(b"a", b"b", base_sequence=0, **producer)
    assert again == first._replace(duplicate=True)
    assert not broker.log.is_dirty
    with pytest.raises(OutOfOrderSequenceError):
        broker.append(b"a", base_sequence=9, **producer)


def test_append_log_append_time_is_stamped_and_answered(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"message.timestamp.type": "LogAppendTime"})
    broker.time_ms = 777
    appended = broker.write(b"a", timestamps_ms=[5], producer_id=1, producer_epoch=0, base_sequence=0)
    assert appended.log_append_time_ms == 777
    broker.time_ms = 900
    again = broker.append(b"a", timestamps_ms=[5], producer_id=1, producer_epoch=0, base_sequence=0)
    assert (again.duplicate, again.log_append_time_ms) == (True, 777)
    batch, _ = read_batch(take(broker.log.read(0, 1000)), 0)
    assert (batch.attributes, batch.max_timestamp) == (8, 777)
    assert broker.log.offset_for_timestamp(600) == TimestampAndOffset(777, 0, 0)
    broker.manager.close()


def test_append_time_beyond_what_readers_hold_is_refused(broker: Broker) -> None:
    """A producer's nanoseconds for milliseconds: Spark stopped at the record, each time it was started."""
    broker.write(b"a", timestamps_ms=[GREATEST_TIMESTAMP_MS])
    with pytest.raises(
        InvalidTimestampError, match=r"^timestamp 1704067200000000000 is no time in milliseconds"
    ):
        broker.append(b"b", timestamps_ms=[1_704_067_200_000_000_000])
    assert broker.log.log_end_offset == 1


@pytest.mark.parametrize("sent", range(5))
@pytest.mark.parametrize(
    ("wanted", "stored"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_append_compression_type_names_the_codec_that_is_stored(
    tmp_path: Path, wanted: str, stored: int, sent: int
) -> None:
    broker = Broker(tmp_path, **{"compression.type": wanted, "compression.lz4.level": "3"})
    values = [b"value %d " % number * 20 for number in range(10)]
    producer = {"producer_id": 7, "producer_epoch": 0}
    plain = build_batch(values, timestamps_ms=range(5, 15))
    for sequence in (0, 10):
        broker.write(*values, **producer, base_sequence=sequence, attributes=sent, timestamps_ms=range(5, 15))
    data = take(broker.log.read(0, 1 << 20))
    for base_offset in (0, 10):
        size = HEADER.unpack_from(data)[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES
        header = HEADER.unpack_from(data)
        assert crc32c(data[CHECKED_FROM:size]) == header[CHECKSUM_VALUE]
        assert (header[BASE_OFFSET], header[ATTRIBUTES]) == (base_offset, stored)
        assert (header[PRODUCER_ID], header[BASE_SEQUENCE]) == (7, base_offset)
        assert uncompressed_records(data[:size], header) == plain[HEADER.size :]
        data = data[size:]
    assert not data
    again = broker.append(*values, **producer, base_sequence=10, attributes=sent, timestamps_ms=range(5, 15))
    assert again.duplicate


def test_append_plain_leaves_batches_that_are_to_be_compressed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"compression.type": "gzip"})
    broker.write(b"first of the segment")
    assert broker.log.append_plain([memoryview(build_batch([b"x"]))], 0, now_ms=broker.time_ms) == []


def test_append_compression_type_batch_that_grows_too_large_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"compression.type": "uncompressed", "max.message.bytes": "500"})
    with pytest.raises(RecordTooLargeError):
        broker.append(b"a" * 1000, attributes=1)
    assert broker.log.log_end_offset == 0


def test_append_compression_type_records_that_do_not_decompress_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"compression.type": "zstd"})
    batch = build_batch([b"a" * 1000], attributes=1)
    batch[-9] ^= 0xFF
    reseal_batch(batch)
    with pytest.raises(InvalidRecordError):
        broker.log.append(memoryview(batch), now_ms=broker.time_ms)


def test_append_larger_than_a_segment_refused(tmp_path: Path) -> None:
    broker = small_segments(tmp_path)
    with pytest.raises(BatchTooLargeError, match="segment of 150"):
        broker.append(b"x" * 200)
    broker.manager.close()


def test_write_dirty_many_batches_in_one_tick(broker: Broker) -> None:
    for _ in range(3000):
        broker.append(b"x")
    broker.log.write_dirty()
    assert broker.read_offsets() == list(range(3000))


def test_write_dirty_short_writes_are_completed(broker: Broker) -> None:
    broker.fs.short_writes = True
    for number in range(10):
        broker.append(b"x" * number)
    broker.log.write_dirty()
    assert broker.read_offsets() == list(range(10))


def test_read_broken_disk_takes_the_partition_offline(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.write(b"a")
    broker.write(b"b")
    broker.fs.fault = broken_disk
    with pytest.raises(StorageError, match="cannot read"):
        broker.log.read(0, 80)
    broker.fs.fault = None
    broker.manager.close()


@pytest.mark.parametrize("max_bytes", [0, 1, 70, 139, 140, 150, 1000, 1 << 20])
def test_read_any_size_returns_whole_batches(tmp_path: Path, max_bytes: int) -> None:
    broker = small_segments(tmp_path, **{"segment.bytes": "1000"})
    for _ in range(50):
        broker.write(b"a", b"b")
    assert broker.read_offsets(max_bytes=max_bytes) == list(range(0, 100, 2))
    broker.manager.close()


def test_read_smaller_than_a_batch_without_at_least_one_is_empty(broker: Broker) -> None:
    broker.write(b"a")
    broker.write(b"a")
    assert broker.log.read(0, 10, at_least_one=False).count == 0
    assert broker.log.read(0, 10).count > 0


def test_read_within_a_batch_returns_it_whole(broker: Broker) -> None:
    broker.write(b"a", b"b", b"c")
    broker.write(b"d", b"e", b"f")
    assert broker.read_offsets(start=1)[0] == 0
    assert broker.read_offsets(start=5) == [3]


def test_read_at_the_end_is_empty_and_past_it_an_error(broker: Broker) -> None:
    broker.write(b"a")
    assert broker.log.read(1, 100) == FileRange(-1, 0, 0, 1, 1, 0, None)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 1, not 2") as caught:
        broker.log.read(2, 100)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 1)
    with pytest.raises(OffsetOutOfRangeError):
        broker.log.read(-1, 100)


def test_read_tail_after_roll_goes_to_the_new_segment(tmp_path: Path) -> None:
    broker = small_segments(tmp_path)
    for offset in range(9):
        assert broker.log.read(offset, 1000).count == 0
        broker.write(b"a")
        assert broker.read_offsets(start=offset) == [offset]
    broker.manager.close()


def test_roll_by_size_leaves_kafkas_files(tmp_path: Path) -> None:
    broker = small_segments(tmp_path)
    for number in range(5):
        broker.write(
            b"a", timestamps_ms=[100 + number], producer_id=1, producer_epoch=0, base_sequence=number
        )
    directory = tmp_path / "events-0"
    assert broker.files(".log") == [f"{offset:020d}.log" for offset in (0, 2, 4)]
    assert broker.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 4)]
    size = (directory / f"{0:020d}.log").stat().st_size // 2
    assert (directory / f"{0:020d}.index").read_bytes() == struct.pack(">ii", 1, size)
    assert (directory / f"{0:020d}.timeindex").read_bytes() == struct.pack(">qi", 101, 1)
    assert broker.read_offsets() == [0, 1, 2, 3, 4]
    broker.manager.close()


def test_roll_by_time_counts_from_the_first_timestamp(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"segment.ms": "1000"})
    for stamp in (5000, 6000, 6001, 5500):
        broker.write(b"a", timestamps_ms=[stamp])
    assert broker.files(".log") == [f"{offset:020d}.log" for offset in (0, 2)]
    broker.manager.close()


def test_roll_by_time_jitter_spreads_partitions_within_the_time_and_stays(tmp_path: Path) -> None:
    def rolls_after_ms(partition: int, config: LogConfig) -> int:
        path = tmp_path / f"{config.segment_jitter_ms}-{partition}"
        manager = LogManager([str(path)], config_for=lambda _: config)
        manager.load()
        log = manager.create("t", partition, None)
        waited_ms = log._segment_ms
        manager.close()
        return waited_ms

    config = LogConfig(segment_ms=1000, segment_jitter_ms=400)
    waits = [rolls_after_ms(partition, config) for partition in range(20)]
    assert all(600 < wait_ms <= 1000 for wait_ms in waits)
    assert len(set(waits)) > 10
    assert rolls_after_ms(3, config) == waits[3]
    # More than the time itself means at most the time itself, as in Kafka.
    beyond = LogConfig(segment_ms=1000, segment_jitter_ms=10**9)
    waits = [rolls_after_ms(partition, beyond) for partition in range(20)]
    assert all(0 < wait_ms <= 1000 for wait_ms in waits)
    assert len(set(waits)) > 10


def test_roll_by_age_in_tick_counts_by_the_brokers_clock(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"segment.ms": "1000", "retention.ms": "-1"})
    broker.time_ms = 500
    broker.write(b"a", timestamps_ms=[10**9])
    broker.manager.tick(1500)
    assert len(broker.files(".log")) == 1
    broker.manager.tick(1501)
    assert len(broker.files(".log")) == 2
    broker.manager.tick(9999)
    assert len(broker.files(".log")) == 2
    broker.manager.close()


def test_roll_when_an_index_is_full(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"segment.index.bytes": "24", "index.interval.bytes": "0"})
    for _ in range(12):
        broker.write(b"a")
    assert len(broker.files(".log")) > 2
    assert max(path.stat().st_size for path in (tmp_path / "events-0").glob("*.index")) <= 24
    assert broker.read_offsets() == list(range(12))
    broker.manager.close()


def test_roll_before_offsets_outgrow_the_index(broker: Broker) -> None:
    broker.write(b"a")
    # A batch may claim as many records as its header can count.
    broker.log.log_end_offset = 2**31 - 1
    broker.write(b"b")
    broker.write(b"c")
    assert broker.files(".log") == [f"{0:020d}.log", f"{2**31:020d}.log"]


@pytest.mark.parametrize(
    ("timestamp_ms", "found"), [(0, (100, 0)), (100, (100, 0)), (101, (300, 2)), (300, (300, 2)), (301, None)]
)
def test_offset_for_timestamp_finds_the_record(
    broker: Broker, timestamp_ms: int, found: tuple[int, int] | None
) -> None:
    broker.write(b"a", b"b", b"c", timestamps_ms=[100, 50, 300])
    broker.write(b"d", timestamps_ms=[200])
    expected = None if found is None else TimestampAndOffset(*found, 0)
    assert broker.log.offset_for_timestamp(timestamp_ms) == expected


def test_offset_for_timestamp_over_segments_and_restarts(tmp_path: Path) -> None:
    broker = small_segments(tmp_path)
    for number in range(20):
        broker.write(b"a", timestamps_ms=[1000 + number * 10])
    for reopened in (False, True):
        if reopened:
            broker.manager.close()
            broker.open()
        for number in range(20):
            assert broker.log.offset_for_timestamp(991 + number * 10) == TimestampAndOffset(
                1000 + number * 10, number, 0
            )
        assert broker.log.max_timestamp() == TimestampAndOffset(1190, 19, 0)
    broker.log.delete_records(15)
    assert broker.log.offset_for_timestamp(0) == TimestampAndOffset(1150, 15, 0)
    broker.manager.close()


def test_timestamps_of_what_is_not_written_yet_are_not_seen(broker: Broker) -> None:
    broker.write(b"a", timestamps_ms=[100])
    broker.append(b"b", timestamps_ms=[200])
    assert broker.log.offset_for_timestamp(150) is None
    assert broker.log.max_timestamp() == TimestampAndOffset(100, 0, 0)


def test_max_timestamp_is_the_first_record_that_has_it(broker: Broker) -> None:
    assert broker.log.max_timestamp() is None
    broker.write(b"a", b"b", timestamps_ms=[10, 90])
    broker.write(b"c", timestamps_ms=[90])
    assert broker.log.max_timestamp() == TimestampAndOffset(90, 1, 0)


def test_earliest_and_latest_carry_the_epoch(broker: Broker) -> None:
    broker.write(b"a", b"b")
    broker.log.become_leader(3)
    broker.write(b"c")
    assert broker.log.earliest() == TimestampAndOffset(-1, 0, 0)
    assert broker.log.latest() == TimestampAndOffset(-1, 3, 3)
    assert [broker.log.epoch_at(offset) for offset in range(3)] == [0, 0, 3]
    assert broker.log.end_of_epoch(0) == EpochEnd(0, 2)
    assert broker.log.end_of_epoch(3) == EpochEnd(3, 3)


def test_become_leader_older_epoch_changes_nothing(broker: Broker) -> None:
    broker.log.become_leader(5)
    broker.log.become_leader(4)
    assert broker.log.leader_epoch == 5
    assert (broker.directory / "events-0/leader-epoch-checkpoint").read_bytes() == encode_epochs([(5, 0)])


def test_retention_by_time_removes_old_segments(tmp_path: Path) -> None:
    broker = small_segments(tmp_path, **{"retention.ms": str(DAY_MS), "file.delete.delay.ms": "60"})
    for number in range(6):
        broker.write(b"a", timestamps_ms=[number * DAY_MS])
    in_flight = broker.log.read(0, 1000)
    broker.manager.tick(3 * DAY_MS + 1)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (2, 6)
    assert [name.removesuffix(".deleted") for name in broker.files(".deleted")] == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
    ]
    assert read_batch(take(in_flight), 0)[0].base_offset == 0
    with pytest.raises(OffsetOutOfRangeError):
        broker.log.read(1, 100)
    broker.manager.tick(3 * DAY_MS + 100)
    assert broker.files(".deleted") == []
    assert read_batch(take(in_flight), 0)[0].base_offset == 0
    assert broker.read_offsets() == [2, 3, 4, 5]
    broker.manager.close()


def test_retention_by_time_of_everything_keeps_the_end(tmp_path: Path) -> None:
    broker = small_segments(tmp_path, **{"retention.ms": "1", "file.delete.delay.ms": "0"})
    for _ in range(3):
        broker.write(b"a", timestamps_ms=[5])
    broker.manager.tick(DAY_MS)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (3, 3)
    assert broker.files(".log") == [f"{3:020d}.log"]
    broker.manager.close()
    broker.open()
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (3, 3)
    assert broker.write(b"b").base_offset == 3
    broker.manager.close()


def test_retention_by_size_keeps_at_least_that_much(tmp_path: Path) -> None:
    broker = small_segments(
        tmp_path, **{"retention.ms": "-1", "retention.bytes": "300", "file.delete.delay.ms": "0"}
    )
    for _ in range(20):
        broker.write(b"a")
    broker.manager.tick(0)
    assert 300 <= broker.log.size_bytes < 300 + 150
    assert broker.read_offsets() == list(range(broker.log.log_start_offset, 20))
    broker.manager.close()


def test_retention_by_size_of_nothing_keeps_the_end(tmp_path: Path) -> None:
    broker = small_segments(
        tmp_path, **{"retention.ms": "-1", "retention.bytes": "0", "file.delete.delay.ms": "0"}
    )
    for _ in range(5):
        broker.write(b"a")
    broker.manager.tick(0)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (5, 5)
    assert broker.write(b"b").base_offset == 5
    broker.manager.close()


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "start"),
    [(2 * DAY_MS, -1, 4), (-1, 300, 2), (2 * DAY_MS, 300, 4), (4 * DAY_MS, 150, 4), (4 * DAY_MS, 300, 2)],
)
def test_retention_by_time_and_size_removes_what_either_would(
    tmp_path: Path, retention_ms: int, retention_bytes: int, start: int
) -> None:
    # Segments of 138 bytes, by the days of their records: [0 1] [2 3] [4 5] [6 7]; now it is day 6.
    settings = {"retention.ms": str(retention_ms), "retention.bytes": str(retention_bytes)}
    broker = small_segments(tmp_path, **settings)
    for day in range(8):
        broker.write(b"a", timestamps_ms=[day * DAY_MS])
    broker.manager.tick(6 * DAY_MS)
    assert broker.log.log_start_offset == start
    broker.manager.close()


def test_retention_of_a_compacted_topic_deletes_nothing(tmp_path: Path) -> None:
    broker = small_segments(
        tmp_path, **{"retention.ms": "1", "retention.bytes": "1", "cleanup.policy": "compact"}
    )
    for _ in range(6):
        broker.write(b"a", keys=[b"k"])
    broker.manager.tick(DAY_MS)
    assert broker.log.log_start_offset == 0
    broker.manager.close()


def test_delete_records_moves_the_start_and_then_removes_segments(tmp_path: Path) -> None:
    broker = small_segments(tmp_path, **{"retention.ms": "-1", "file.delete.delay.ms": "0"})
    for _ in range(7):
        broker.write(b"a")
    assert broker.log.delete_records(5) == 5
    assert broker.log.delete_records(3) == 5
    with pytest.raises(OffsetOutOfRangeError):
        broker.log.read(4, 100)
    with pytest.raises(OffsetOutOfRangeError, match="up to offset 7, not up to 8"):
        broker.log.delete_records(8)
    broker.manager.checkpoint()
    broker.manager.tick(0)
    assert broker.files(".log") == [f"{offset:020d}.log" for offset in (4, 6)]
    broker.manager.close()
    broker.open()
    assert broker.log.log_start_offset == 5
    assert broker.log.delete_records(-1) == 7
    broker.manager.close()


def test_truncate_to_drops_batches_that_reach_the_offset(tmp_path: Path) -> None:
    broker = small_segments(tmp_path)
    for number in range(9):
        broker.write(
            b"a",
            b"b",
            producer_id=1,
            producer_epoch=0,
            base_sequence=2 * number,
            timestamps_ms=[number, number],
        )
    broker.log.truncate_to(9, now_ms=0)
    assert broker.log.log_end_offset == broker.log.high_watermark == 8
    assert broker.read_offsets() == [0, 2, 4, 6]
    assert broker.log.max_timestamp() == TimestampAndOffset(3, 6, 0)
    assert broker.append(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=6).duplicate
    assert broker.write(b"a", producer_id=1, producer_epoch=0, base_sequence=8).base_offset == 8
    broker.log.truncate_to(0, now_ms=0)
    assert broker.read_offsets() == []
    assert broker.write(b"a").base_offset == 0
    broker.manager.close()


def test_flush_due_by_messages_time_and_roll(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"flush.messages": "3", "flush.ms": "100"})
    broker.time_ms = 50
    broker.write(b"a", b"b")
    assert not broker.log.flush_due(149)
    assert broker.log.flush_due(150)
    broker.write(b"c")
    assert broker.log.flush_due(50)
    assert broker.log.flush() == 3
    assert not broker.log.flush_due(10**9)
    broker.manager.close()
    rolled = small_segments(tmp_path / "rolled")
    for _ in range(3):
        rolled.write(b"a")
    assert rolled.log.flush_due(0)
    assert len(rolled.manager.flushes_due(0)) == 1
    rolled.manager.close()


def test_start_flush_covers_what_was_written_when_it_started(broker: Broker) -> None:
    broker.write(b"a")
    flush = broker.log.start_flush()
    assert flush is not None
    broker.write(b"b")
    assert broker.log.start_flush() is None
    assert not broker.log.flush_due(0)
    flush.run()
    assert flush.complete() == broker.log.recovery_point == 1
    assert broker.log.flush() == 2
    assert broker.log.start_flush() is None


def test_expose_flushed_shows_messages_only_then(tmp_path: Path) -> None:
    broker = small_segments(tmp_path, **{"expose": "flushed", "flush.messages": "10"})
    broker.write(b"a")
    assert broker.log.high_watermark == 0
    flush = broker.log.start_flush()
    assert flush is not None
    for _ in range(4):
        broker.write(b"b")
    flush.run()
    flush.complete()
    assert broker.log.high_watermark == 1
    assert broker.read_offsets() == [0]
    broker.log.flush()
    assert broker.read_offsets() == [0, 1, 2, 3, 4]
    broker.manager.close()


def test_configure_takes_new_limits(broker: Broker) -> None:
    broker.settings["max.message.bytes"] = "70"
    broker.manager.reconfigure("events")
    with pytest.raises(RecordTooLargeError):
        broker.append(b"x" * 100)


def test_release_idle_segments_open_again_when_read(tmp_path: Path) -> None:
    broker = small_segments(tmp_path, **{"retention.ms": "-1"})
    for _ in range(10):
        broker.write(b"a")
    gc.collect()  # what earlier tests left, which may go at any time
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    broker.manager.tick(1)
    broker.manager.tick(2)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors - 4
    assert broker.read_offsets() == list(range(10))
    broker.manager.close()
