"""A disk that takes no writes: nothing is kept that was not written, all else can be read, and writes come back."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import struct
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater_broker.log import (
    Marker,
    OutOfOrderSequenceError,
    PartitionLog,
    PartitionOfflineError,
    StorageError,
)
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.faults import (
    Fault,
    broken_disk,
    broken_writes,
    no_space,
    read_only,
)
from headwater_broker.testing.logs import OneLog
from open_files import open_files, without_collector

SETTINGS = {"index.interval.bytes": "100", "retention.ms": "-1", "file.delete.delay.ms": "0"}
SMALL = {"segment.bytes": "500"}


class Disk(OneLog):
    """One partition."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, "t", SETTINGS | settings)

    def crash(self) -> None:
        """Ends without a word, as a killed process does, and starts again."""
        self.end()
        self.open()

    def end(self) -> None:
        """Ends without a word."""
        for directory in self.manager.directories:
            directory.release()


@pytest.fixture(params=[{}])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    opened = Disk(tmp_path, **request.param)
    yield opened
    opened.fs.fault = None
    opened.manager.close()


def append(log: PartitionLog, *values: bytes, timestamp_ms: int = 0, **batch: int) -> int:
    """Queues a batch; returns its base offset."""
    stamps = [timestamp_ms] * max(len(values), 1)
    data = build_batch(list(values or [b"x" * 40]), timestamps_ms=stamps, **batch)
    return log.append(memoryview(data), now_ms=0, may_begin=lambda *_: None).base_offset


def write(log: PartitionLog, *values: bytes, **batch: int) -> int:
    base_offset = append(log, *values, **batch)
    log.write_dirty()
    return base_offset


def stored(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Every batch that can be read, with its base offset."""
    offset, found = log.log_start_offset, []
    while (span := log.read(offset, 1 << 20)).count:
        data = os.pread(span.fd, span.count, span.position)
        while data:
            base_offset, length = struct.unpack_from(">qi", data)
            found.append((base_offset, data[: length + 12]))
            offset = base_offset + struct.unpack_from(">i", data, 23)[0] + 1
            data = data[length + 12 :]
    return found


def state(log: PartitionLog) -> object:
    """All that appending changes."""
    return (
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.size_bytes,
        [
            (
                producer_id,
                entry.producer_epoch,
                tuple(entry.batches[-1:]),
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            for producer_id, entry in sorted(log.producers())
        ],
        log.max_timestamp(),
        log.offset_for_timestamp(50),
        log.aborted_transactions(),
        stored(log),
    )


@pytest.mark.parametrize("fault", [no_space, read_only])
@pytest.mark.parametrize("short_writes", [False, True])
def test_write_that_is_refused_leaves_the_log_as_it_was(
    disk: Disk, fault: Fault, short_writes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = disk.log
    for number in range(5):
        write(log, b"%d" % number * 30, timestamp_ms=number * 10)
    before, end_position = state(log), log.size_bytes
    attempts = 0

    def partly(operation: str, path: str) -> OSError | None:
        nonlocal attempts
        if operation == "write" and short_writes:
            attempts += 1
            return fault(operation, path) if attempts > 1 else None  # half of it arrives
        return fault(operation, path)

    disk.fs.fault, disk.fs.short_writes = partly, short_writes
    append(log, b"lost" * 10, timestamp_ms=1000)
    append(log, b"lost too" * 10, timestamp_ms=2000)
    with pytest.raises(StorageError, match=r"No space left|Read-only"):
        log.write_dirty()
    assert log.offline is None
    assert state(log) == before
    with pytest.raises(StorageError, match="takes no records until that works again"):
        append(log)
    disk.manager.tick(1)
    assert log.is_waiting
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    disk.fs.fault, disk.fs.short_writes = None, False
    disk.manager.tick(2)
    assert log.refusal is None
    assert log.size_bytes == end_position
    assert write(log, b"kept") == 5
    assert [offset for offset, _ in stored(log)] == [0, 1, 2, 3, 4, 5]
    assert "takes records again" in caplog.text or caplog.records[-1].levelno >= logging.INFO
    disk.crash()
    assert [offset for offset, _ in stored(disk.log)] == [0, 1, 2, 3, 4, 5]


def test_what_was_written_partly_is_cut_before_the_next_write_where_it_could_not_be_at_once(
    disk: Disk,
) -> None:
    write(disk.log, b"a" * 40)
    written = 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal written
        if operation == "write":
            written += 1
        return (
            OSError(errno.ENOSPC, "full", path)
            if operation == "truncate" or (operation == "write" and written > 1)
            else None
        )

    disk.fs.fault, disk.fs.short_writes = fault, True
    append(disk.log, b"lost" * 30)
    with pytest.raises(StorageError):
        disk.log.write_dirty()
    disk.fs.short_writes = False
    disk.manager.tick(1)
    assert disk.log.refusal is not None
    disk.fs.fault = None
    disk.manager.tick(2)
    write(disk.log, b"b")
    path = next((disk.directory / "t-0").glob("*.log"))
    assert path.stat().st_size == disk.log.size_bytes
    assert [offset for offset, _ in stored(disk.log)] == [0, 1]


def test_producers_go_on_where_they_were_after_a_write_that_was_refused(disk: Disk) -> None:
    log = disk.log
    first = {"producer_id": 1, "producer_epoch": 0}
    for number in range(6):
        write(log, base_sequence=number, **first)
    before = state(log)
    disk.fs.fault = no_space
    for number in range(6, 14):  # more than are kept
        append(log, base_sequence=number, **first)
    append(log, base_sequence=0, producer_id=2, producer_epoch=3)
    append(log, base_sequence=0, producer_id=1, producer_epoch=1)
    with pytest.raises(StorageError):
        log.write_dirty()
    assert state(log) == before
    disk.fs.fault = None
    disk.manager.tick(1)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, base_sequence=9, **first)
    assert write(log, base_sequence=6, **first) == 6
    assert write(log, base_sequence=0, producer_id=2, producer_epoch=3) == 7


def test_producer_of_whom_more_was_lost_than_is_kept_goes_on_at_its_sequence(disk: Disk) -> None:
    log, producer = disk.log, {"producer_id": 1, "producer_epoch": 0}
    for number in range(3):
        write(log, base_sequence=number, **producer)
    disk.fs.fault = no_space
    for number in range(3, 12):
        append(log, base_sequence=number, **producer)
    with pytest.raises(StorageError):
        log.write_dirty()
    disk.fs.fault = None
    disk.manager.tick(1)
    for number in (4, 12):
        with pytest.raises(OutOfOrderSequenceError):
            append(log, base_sequence=number, **producer)
    assert write(log, base_sequence=3, **producer) == 3


def test_transactions_are_as_before_after_a_write_that_was_refused(disk: Disk) -> None:
    log = disk.log
    for producer_id in (1, 2):
        write(log, producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=16)
    log.append_marker(2, 0, Marker(False, 4), now_ms=0)
    log.write_dirty()
    before = state(log)
    disk.fs.fault = no_space
    append(log, producer_id=1, producer_epoch=0, base_sequence=1, attributes=16)
    log.append_marker(1, 0, Marker(False, 5), now_ms=0)
    append(log, producer_id=3, producer_epoch=0, base_sequence=0, attributes=16)
    with pytest.raises(StorageError):
        log.write_dirty()
    assert state(log) == before
    disk.fs.fault = None
    disk.manager.tick(1)
    log.append_marker(1, 0, Marker(True, 5), now_ms=0)
    log.write_dirty()
    assert log.last_stable_offset == log.high_watermark == 4


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
@pytest.mark.parametrize("fault", [no_space, read_only])
def test_segment_that_cannot_be_begun_refuses_only_what_was_to_be_in_it(disk: Disk, fault: Fault) -> None:
    log = disk.log
    for _ in range(2):
        write(log, b"x" * 60)
    assert append(log, b"y" * 60) == 2  # waits for the end of the tick, as its writes go well

    def no_new_files(operation: str, path: str) -> OSError | None:
        is_new = operation == "replace" or (operation == "open_to_write" and not Path(path).exists())
        return fault("write", path) if is_new else None

    disk.fs.fault = no_new_files
    with pytest.raises(StorageError, match="cannot begin a segment"):
        append(log, b"z" * 60)
    log.write_dirty()
    assert [offset for offset, _ in stored(log)] == [0, 1, 2]
    assert len(list((disk.directory / "t-0").glob("*.log"))) == 1
    disk.fs.fault = None
    disk.manager.tick(1)
    assert write(log, b"z" * 60) == 3
    assert len(list((disk.directory / "t-0").glob("*.log"))) == 2
    disk.crash()
    assert [offset for offset, _ in stored(disk.log)] == [0, 1, 2, 3]


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
def test_write_that_fails_in_the_middle_of_a_tick_refuses_all_of_the_tick(disk: Disk) -> None:
    log = disk.log
    for _ in range(2):
        write(log, b"x" * 60)
    append(log, b"lost" * 15)
    disk.fs.fault = no_space
    with pytest.raises(StorageError):
        append(log, b"z" * 60)  # begins a segment, before which what waits is written
    disk.fs.fault = None
    disk.manager.tick(1)
    with pytest.raises(StorageError):
        append(log, b"too early")
    with pytest.raises(StorageError):
        log.write_dirty()
    assert log.write_error is not None
    disk.manager.tick(2)
    assert write(log, b"kept") == 2
    assert log.write_error is None


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
def test_indexes_that_have_no_room_are_made_again(disk: Disk) -> None:
    log = disk.log
    disk.fs.fault = lambda operation, path: (
        OSError(errno.ENOSPC, "full", path)
        if path.endswith(("index", ".snapshot")) and operation in ("write", "replace")
        else None
    )
    for number in range(20):
        write(log, b"%02d" % number * 30, timestamp_ms=number)
    assert log.refusal is None
    disk.manager.tick(1)
    disk.fs.fault = None
    found = log.offset_for_timestamp(7)
    assert found is not None
    assert found.offset == 7
    disk.crash()
    assert [offset for offset, _ in stored(disk.log)] == list(range(20))
    found = disk.log.offset_for_timestamp(7)
    assert found is not None
    assert found.offset == 7


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
def test_start_on_a_full_disk_reads_all_and_writes_once_there_is_room(disk: Disk) -> None:
    for number in range(12):
        write(disk.log, b"%02d" % number * 30)
    disk.end()
    disk.fs.fault = no_space
    disk.open()
    log = disk.log
    log.become_leader(7)
    assert [offset for offset, _ in stored(log)] == list(range(12))
    with pytest.raises(StorageError):
        append(log)
    disk.manager.tick(1)
    assert log.refusal is not None
    disk.fs.fault = None
    disk.manager.tick(2)
    assert write(log) == 12
    disk.crash()
    assert [offset for offset, _ in stored(disk.log)] == list(range(13))


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
@pytest.mark.parametrize("fault", [no_space, read_only])
def test_stop_on_a_full_disk_says_so_and_the_next_start_has_all(disk: Disk, fault: Fault) -> None:
    for number in range(8):
        write(disk.log, b"%02d" % number * 30)
    disk.fs.fault = fault
    disk.manager.close()
    assert not (disk.directory / ".kafka_cleanshutdown").exists()
    disk.fs.fault = None
    disk.open()
    assert [offset for offset, _ in stored(disk.log)] == list(range(8))


def test_retention_frees_space_on_a_full_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path, **SMALL | {"retention.bytes": "600", "file.delete.delay.ms": "60000"})
    log = disk.log
    for _ in range(20):
        write(log, b"x" * 60)
    disk.fs.fault = no_space
    append(log)
    with pytest.raises(StorageError):
        log.write_dirty()
    before = log.log_start_offset
    disk.manager.tick(10)
    disk.manager.tick(11)
    assert log.log_start_offset > before
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    assert log.offline is None
    disk.fs.fault = None
    disk.manager.tick(12)
    assert write(log) == 20
    disk.manager.close()


def test_retention_of_all_there_is_needs_no_room(tmp_path: Path) -> None:
    disk = Disk(tmp_path, **SMALL | {"retention.bytes": "0"})
    for _ in range(20):
        write(disk.log, b"x" * 60)
    disk.fs.fault = no_space
    append(disk.log)
    with pytest.raises(StorageError):
        disk.log.write_dirty()
    disk.manager.tick(1)
    assert disk.log.log_start_offset == disk.log.log_end_offset == 20
    assert sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log")) == 0
    disk.fs.fault = None
    disk.manager.tick(2)
    assert write(disk.log) == 20
    disk.manager.close()


def test_retention_on_a_read_only_disk_harms_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, **SMALL | {"retention.bytes": "600"})
    for _ in range(20):
        write(disk.log, b"x" * 60)
    disk.fs.fault = read_only
    disk.log.apply_retention(1)
    assert disk.log.offline is None
    end = [offset for offset, _ in stored(disk.log)]
    assert end[-1] == 19
    disk.fs.fault = None
    disk.manager.tick(2)
    disk.manager.tick(3)
    assert min(int(path.stem) for path in (tmp_path / "t-0").glob("*.log")) == end[0]
    disk.manager.close()


def test_failed_write_of_which_nobody_knows_what_it_did_stops_writes_and_not_reads(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    write(disk.log, b"a")
    disk.fs.fault = broken_writes
    append(disk.log)
    with pytest.raises(StorageError, match="until the broker is restarted"):
        disk.log.write_dirty()
    disk.fs.fault = None
    for now_ms in range(3):
        disk.manager.tick(now_ms)
    with pytest.raises(StorageError):
        append(disk.log)
    assert [offset for offset, _ in stored(disk.log)] == [0]
    disk.manager.close()
    assert not (disk.directory / ".kafka_cleanshutdown").exists()
    disk.open()
    assert write(disk.log) == 1


def test_flush_that_fails_is_never_tried_again_and_what_is_read_is_checked(disk: Disk) -> None:
    write(disk.log, b"a" * 50)
    write(disk.log, b"b" * 50)
    flush = disk.log.start_flush()
    assert flush is not None
    disk.fs.fault = broken_writes
    flush.run()
    disk.fs.fault = None
    with pytest.raises(StorageError, match="cannot flush"):
        flush.complete()
    assert disk.log.recovery_point == 0
    assert not disk.log.flush_due(1 << 60)
    with pytest.raises(StorageError):
        disk.log.flush()
    assert len(stored(disk.log)) == 2
    # The kernel drops a page that it could not write, and what is read from then on is what was there before.
    path = next((disk.directory / "t-0").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 20)
        file.write(bytes(20))
    with pytest.raises(PartitionOfflineError):
        stored(disk.log)
    disk.manager.close()
    assert not (disk.directory / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
def test_flush_without_descriptors_is_tried_again(disk: Disk) -> None:
    for _ in range(5):
        write(disk.log, b"a" * 80)
    flush = disk.log.start_flush()
    assert flush is not None
    disk.fs.fault = lambda operation, path: (
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), path) if operation == "open" else None
    )
    flush.run()
    disk.fs.fault = None
    with pytest.raises(StorageError, match="Too many open files"):
        flush.complete()
    disk.manager.tick(1)
    assert disk.log.flush() == 5


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_read_without_descriptors_is_an_error_and_no_end(disk: Disk, code: int) -> None:
    for _ in range(10):
        write(disk.log, b"a" * 80)
    disk.manager.tick(1)
    disk.log.release_idle()
    disk.log.release_idle()
    disk.fs.fault = lambda operation, path: OSError(code, "no more", path) if operation == "open" else None
    with pytest.raises(StorageError, match="no more"):
        disk.log.read(0, 1 << 20)
    disk.fs.fault = None
    assert len(stored(disk.log)) == 10


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
def test_sealed_segments_are_read_on_a_disk_that_became_read_only(disk: Disk) -> None:
    for _ in range(10):
        write(disk.log, b"a" * 80)
    disk.log.release_idle()
    disk.log.release_idle()
    disk.fs.fault = read_only
    assert len(stored(disk.log)) == 10


class _Caller:
    """Something that stands in a frame which an error goes through."""


def _full(disk: Disk) -> None:
    disk.fs.fault = no_space
    append(disk.log)


def _broken(disk: Disk) -> None:
    disk.fs.fault = broken_disk
    disk.log.release_idle()
    disk.log.release_idle()
    with contextlib.suppress(PartitionOfflineError):
        disk.log.read(0, 1 << 20)


def _deleted(disk: Disk) -> None:
    disk.manager.delete("t", 0)


@pytest.mark.parametrize("end", [_full, _broken, _deleted])
@pytest.mark.parametrize(
    "call",
    [
        lambda log: log.write_dirty(),
        lambda log: append(log),
        lambda log: log.read(0, 1 << 20),
        lambda log: log.flush(),
        lambda log: log.offset_for_timestamp(0),
        lambda log: log.delete_records(1),
    ],
    ids=["write", "append", "read", "flush", "times", "delete-records"],
)
def test_errors_that_a_partition_keeps_keep_nothing_of_who_met_them(
    disk: Disk, end: Callable[[Disk], None], call: Callable[[PartitionLog], object]
) -> None:
    write(disk.log)

    def meet() -> weakref.ref[_Caller]:
        caller = _Caller()
        with contextlib.suppress(PartitionOfflineError):
            call(disk.log)
        return weakref.ref(caller)

    with without_collector():
        end(disk)
        assert [meet()() for _ in range(3)] == [None] * 3


@pytest.mark.parametrize("disk", [SMALL], indirect=True)
def test_deleted_partition_lets_go_of_its_files_at_once(disk: Disk) -> None:
    for _ in range(20):
        write(disk.log, b"a" * 80)
    assert len(stored(disk.log)) == 20
    disk.manager.close()
    disk.open()
    assert len(stored(disk.log)) == 20
    span = disk.log.read(0, 1 << 20)
    with without_collector():
        disk.manager.delete("t", 0)
        disk.manager.tick(10**15)
        assert not list(disk.directory.glob("*-delete"))
        held = [link for link in open_files(str(disk.directory)) if link.endswith("(deleted)")]
        assert held == [str(Path(f"/proc/self/fd/{span.fd}").readlink())]
        assert len(os.pread(span.fd, span.count, span.position)) == span.count
    disk.open()


def test_folder_of_a_deleted_topic_that_cannot_be_removed_is_removed_later(disk: Disk) -> None:
    write(disk.log)
    (disk.directory / "t-0" / "somebody's").mkdir()
    (disk.directory / "t-0" / "somebody's" / "file").write_text("")
    disk.manager.delete("t", 0)
    left = next(disk.directory.glob("*-delete"))
    busy: list[Callable[..., object]] = []

    def refuse(path: str) -> None:
        busy.append(refuse)
        raise OSError(errno.EBUSY, "busy", path)

    disk.fs.remove_tree = refuse  # type: ignore[method-assign]
    disk.manager.tick(10**15)
    assert left.exists()
    del disk.fs.remove_tree  # type: ignore[method-assign]
    disk.manager.tick(10**15)
    assert not left.exists()
    disk.open()


def test_stop_removes_the_folders_of_deleted_topics(disk: Disk) -> None:
    write(disk.log)
    disk.manager.delete("t", 0)
    disk.manager.close()
    assert not list(disk.directory.glob("*-delete"))
    disk.open()


def test_any_disk_that_comes_and_goes_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    disk = Disk(tmp_path, **SMALL)
    acknowledged: list[tuple[int, bytes]] = []
    sequences = dict.fromkeys(range(3), 0)
    for step in range(150):
        log = disk.log
        fault = rng.choice([None, None, no_space, read_only])
        chance = rng.random()

        def sometimes(
            operation: str, path: str, fault: Fault | None = fault, chance: float = chance
        ) -> OSError | None:
            return fault(operation, path) if fault is not None and rng.random() < chance else None

        disk.fs.fault = sometimes if fault is not None else None
        disk.fs.short_writes = rng.random() < 0.3
        queued = []
        sent = dict(sequences)
        for _ in range(rng.randrange(1, 5)):
            producer = rng.randrange(3)
            value = b"%d." % step * rng.randrange(1, 30)
            try:
                offset = append(
                    log, value, producer_id=producer, producer_epoch=0, base_sequence=sent[producer]
                )
            except StorageError:
                continue
            sent[producer] += 1
            queued.append((offset, value, producer))
        with contextlib.suppress(StorageError):
            log.write_dirty()
        for offset, value, producer in queued:
            if offset < log.log_end_offset:  # a new segment may have been begun in between
                acknowledged.append((offset, value))
                sequences[producer] += 1
        assert log.offline is None
        if rng.random() < 0.7:
            disk.manager.tick(step)
        disk.fs.fault, disk.fs.short_writes = None, False
        if rng.random() < 0.05:
            disk.manager.tick(step)  # cuts what could not be cut at once, and would be found again
            disk.crash()
            disk.log.become_leader(disk.log.leader_epoch + 1)
        if rng.random() < 0.2:
            disk.manager.tick(step)
    disk.manager.tick(10**6)
    found = stored(disk.log)
    assert [offset for offset, _ in found] == [offset for offset, _ in acknowledged]
    for (_, batch), (_, value) in zip(found, acknowledged, strict=True):
        assert value in batch
    disk.manager.close()


def test_broken_disk_ends_reads_where_they_fail(disk: Disk) -> None:
    write(disk.log)
    write(disk.log)
    disk.fs.fault = broken_disk
    with pytest.raises(StorageError, match="cannot read"):
        disk.log.read(0, 80)
    assert disk.log.offline is not None
