"""Opening a partition after an unclean stop: what is cut, what is kept, what stays offline."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest

from headwater_broker.log import CorruptLogError, LogConfig, LogManager, PartitionLog, StorageError
from headwater_broker.log.checkpoints import encode_epochs, encode_offsets
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.faults import FaultyFileSystem, broken_disk

BATCH_BYTES = 71
CONFIG = LogConfig(segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0, retention_ms=-1)


class Disk:
    """A log directory whose broker may stop cleanly or not."""

    def __init__(self, directory: Path, config: LogConfig = CONFIG) -> None:
        self.directory = directory
        self.config = config
        self.fs = FaultyFileSystem()

    def start(self) -> PartitionLog:
        self.manager = LogManager([str(self.directory)], config_for=lambda _: self.config, fs=self.fs)
        self.manager.load()
        log = self.manager.create("t", 0, None)
        if log.offline is None:
            log.become_leader(0)
        self.log = log
        return log

    def write(self, count: int) -> None:
        """Batches of one record; three fill a segment."""
        for _ in range(count):
            offset = self.log.log_end_offset
            batch = build_batch(
                [b"abc"], producer_id=1, producer_epoch=0, base_sequence=offset, timestamps_ms=[1000 + offset]
            )
            assert len(batch) == BATCH_BYTES
            self.log.append(memoryview(batch), now_ms=0)
            self.log.write_dirty()

    def crash(self) -> None:
        """What kill -9 leaves: the locks go, nothing else happens."""
        self.manager._release()

    def path(self, offset: int, suffix: str) -> Path:
        return self.directory / f"t-0/{offset:020d}{suffix}"

    def flip(self, offset: int, position: int, bit: int = 1) -> None:
        path = self.path(offset, ".log")
        data = bytearray(path.read_bytes())
        data[position] ^= bit
        path.write_bytes(data)

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in (self.directory / "t-0").iterdir() if path.name.endswith(suffix))

    def offsets(self) -> list[int]:
        offset, found = self.log.log_start_offset, []
        while (part := self.log.read(offset, 1)).count:
            data = self.fs.pread(part.fd, part.count, part.position)
            while data:
                base_offset, length = struct.unpack_from(">qi", data)
                found.append(base_offset)
                data = data[length + 12 :]
            offset = found[-1] + 1
        return found


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path)
    made.start()
    return made


def test_recovery_after_a_crash_finds_everything(disk: Disk) -> None:
    disk.write(8)
    disk.crash()
    log = disk.start()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 8, 8)
    assert disk.offsets() == list(range(8))
    assert log.offset_for_timestamp(1004) is not None
    assert disk.names(".broken") == []
    disk.manager.close()


def test_recovery_torn_tail_is_cut_quietly(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    disk.write(5)
    disk.crash()
    path = disk.path(3, ".log")
    path.write_bytes(path.read_bytes()[:-10])
    disk.start()
    assert disk.offsets() == [0, 1, 2, 3]
    assert disk.names(".broken") == []
    (line,) = [record for record in caplog.records if "cut off" in record.message]
    assert line.levelname == "INFO"
    assert path.stat().st_size == BATCH_BYTES
    disk.manager.close()


def test_recovery_tail_of_zeros_is_torn(disk: Disk) -> None:
    disk.write(4)
    disk.crash()
    path = disk.path(3, ".log")
    path.write_bytes(path.read_bytes() + bytes(100_000))
    disk.start()
    assert disk.offsets() == [0, 1, 2, 3]
    assert disk.names(".broken") == []
    disk.manager.close()


def test_recovery_corruption_is_cut_and_kept(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.write(9)
    disk.crash()
    disk.flip(3, BATCH_BYTES + 65)
    damaged = disk.path(3, ".log").read_bytes()
    last = disk.path(6, ".log").read_bytes()
    disk.start()
    assert disk.offsets() == [0, 1, 2, 3]
    assert disk.names(".log") == [f"{offset:020d}.log" for offset in (0, 3)]
    assert disk.path(4, ".broken").read_bytes() == damaged[BATCH_BYTES:]
    assert disk.path(6, ".broken").read_bytes() == last
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the log is cut before offset 4" in line.message
    assert f"{4:020d}.broken" in line.message
    disk.write(3)
    assert disk.offsets() == list(range(7))
    disk.crash()
    disk.start()
    assert disk.offsets() == list(range(7))
    disk.manager.close()


def test_recovery_second_cut_at_the_same_offset_keeps_both(disk: Disk) -> None:
    disk.write(2)
    for _ in range(2):
        disk.crash()
        disk.flip(0, BATCH_BYTES + 65)
        disk.start()
        disk.write(1)
    assert disk.names(".broken") == [f"{1:020d}-1.broken", f"{1:020d}.broken"]
    disk.manager.close()


def test_recovery_wrong_length_before_whole_batches_is_no_torn_tail(disk: Disk) -> None:
    disk.write(3)
    disk.crash()
    disk.flip(0, 8 + 2, 0x40)  # the first batch claims to reach past the end of the file
    disk.start()
    assert disk.offsets() == []
    assert disk.path(0, ".broken").stat().st_size == 3 * BATCH_BYTES
    disk.manager.close()


@pytest.mark.parametrize("position", [7, 15])
def test_recovery_checks_offset_and_epoch_which_the_checksum_leaves_out(disk: Disk, position: int) -> None:
    disk.write(3)
    disk.crash()
    disk.flip(0, BATCH_BYTES + position, 4)
    disk.start()
    assert disk.offsets() == [0]
    disk.manager.close()


def test_recovery_corruption_below_the_recovery_point_stays_offline(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.write(5)
    disk.log.flush()
    disk.manager.checkpoint()
    disk.crash()
    disk.flip(3, 65)
    before = disk.path(3, ".log").read_bytes()
    log = disk.start()
    assert isinstance(log.offline, CorruptLogError)
    assert "before offset 5" in str(log.offline)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    with pytest.raises(CorruptLogError):
        log.read(0, 100)
    disk.manager.close()
    assert disk.path(3, ".log").read_bytes() == before
    assert not (disk.directory / ".kafka_cleanshutdown").exists()
    assert (disk.directory / "recovery-point-offset-checkpoint").read_bytes() == encode_offsets({("t", 0): 5})
    assert disk.start().offline is not None
    disk.manager.close()
    # The way out that the message names.
    (disk.directory / "recovery-point-offset-checkpoint").unlink()
    disk.start()
    assert disk.offsets() == [0, 1, 2]
    disk.manager.close()


def test_recovery_torn_tail_below_the_recovery_point_is_cut_with_a_warning(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.write(5)
    disk.manager.close()
    path = disk.path(3, ".log")
    path.write_bytes(path.read_bytes()[:-1])
    log = disk.start()
    assert [(each.start_offset, each.end_offset) for each in log.missing] == [(4, 5)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert log.log_end_offset == 5
    disk.manager.close()


def test_clean_start_does_not_scan_but_checks_what_is_read(disk: Disk) -> None:
    disk.write(5)
    disk.manager.close()
    disk.flip(0, BATCH_BYTES + 65)
    log = disk.start()
    assert log.log_end_offset == 5
    assert log.offline is None
    assert log.read(3, 1000).count > 0
    assert log.read(0, 1).count == BATCH_BYTES
    with pytest.raises(CorruptLogError, match="damaged"):
        log.read(1, 1)
    assert isinstance(log.offline, CorruptLogError)
    disk.manager.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "garbage", "shifted"])
@pytest.mark.parametrize("offset", [0, 3])
def test_clean_start_damaged_indexes_are_rebuilt(disk: Disk, suffix: str, damage: str, offset: int) -> None:
    disk.write(5)
    disk.manager.close()
    path = disk.path(offset, suffix)
    good = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(good[:-1])
    elif damage == "garbage":
        path.write_bytes(b"\xff" * len(good))
    else:
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    disk.start()
    assert disk.offsets() == [0, 1, 2, 3, 4]
    for number in range(5):
        assert disk.log.offset_for_timestamp(1000 + number) is not None
    assert disk.log.offline is None
    disk.manager.close()


def test_recovery_rebuilds_the_indexes_of_what_it_scans(disk: Disk) -> None:
    disk.write(8)
    disk.manager.close()
    good = {path.name: path.read_bytes() for path in (disk.directory / "t-0").glob("*index")}
    disk.start()
    disk.crash()
    for path in (disk.directory / "t-0").glob("*index"):
        path.write_bytes(b"\x01" * 33)
    (disk.directory / "recovery-point-offset-checkpoint").unlink()
    disk.start()
    disk.manager.close()
    assert {path.name: path.read_bytes() for path in (disk.directory / "t-0").glob("*index")} == good


@pytest.mark.parametrize("written", [0, 3])
def test_start_again_writes_no_checkpoint_of_epochs_that_says_the_same(disk: Disk, written: int) -> None:
    disk.write(written)
    path = disk.directory / "t-0/leader-epoch-checkpoint"
    stored = path.read_bytes()
    replaced: list[str] = []
    for leave in (disk.crash, disk.manager.close):
        leave()

        def note(operation: str, path: str) -> OSError | None:
            replaced.extend([path] if operation == "replace" and path.endswith("checkpoint") else [])
            return None

        disk.fs.fault = note
        disk.start()
        assert not [each for each in replaced if "leader-epoch" in each]
    assert path.read_bytes() == stored


def test_start_after_a_cut_writes_the_epochs_that_are_left_before_anything_is_appended(disk: Disk) -> None:
    disk.write(2)
    disk.log.become_leader(3)
    disk.write(1)
    disk.crash()
    with disk.path(0, ".log").open("r+b") as file:
        file.truncate(2 * BATCH_BYTES + 5)
    disk.start()  # leader epoch 0: nothing of epoch 3 is left
    path = disk.directory / "t-0/leader-epoch-checkpoint"
    assert path.read_bytes() == encode_epochs([(0, 0)])
    disk.write(2)
    disk.crash()
    disk.start()
    assert disk.offsets() == [0, 1, 2, 3]
    disk.manager.close()


def test_start_removes_leftovers(disk: Disk) -> None:
    disk.write(1)
    disk.crash()
    for name in (f"{0:020d}.log.deleted", f"{7:020d}.index", f"{0:020d}.index.tmp", f"{5:020d}.log.cleaned"):
        (disk.directory / "t-0" / name).write_bytes(b"x")
    disk.start()
    disk.manager.close()
    assert sorted(path.name for path in (disk.directory / "t-0").iterdir()) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{1:020d}.snapshot",
        "leader-epoch-checkpoint",
    ]


def test_missing_segment_behind_the_recovery_point_cuts_the_log_before_the_gap(disk: Disk) -> None:
    disk.write(9)
    disk.crash()
    disk.path(3, ".log").unlink()
    disk.start()
    assert disk.offsets() == [0, 1, 2]
    assert disk.path(6, ".broken").exists()
    disk.manager.close()


def test_start_offset_past_the_end_begins_an_empty_log(disk: Disk) -> None:
    disk.write(2)
    disk.crash()
    (disk.directory / "log-start-offset-checkpoint").write_bytes(encode_offsets({("t", 0): 10}))
    log = disk.start()
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    disk.write(1)
    assert disk.offsets() == [10]
    disk.manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_a_restart_with_five_batches(disk: Disk, clean: bool) -> None:
    disk.write(10)
    disk.manager.close() if clean else disk.crash()
    log = disk.start()

    def append(sequence: int) -> tuple[int, bool]:
        batch = build_batch([b"abc"], producer_id=1, producer_epoch=0, base_sequence=sequence)
        appended = log.append(memoryview(batch), now_ms=0)
        return appended.base_offset, appended.duplicate

    # A snapshot holds one batch of each producer; the four before it come from the log.
    assert [append(sequence) for sequence in range(5, 11)] == [
        *((sequence, True) for sequence in range(5, 10)),
        (10, False),
    ]
    disk.manager.close()


def test_damaged_snapshot_is_replaced_by_an_older_one(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.write(8)
    disk.manager.close()
    disk.path(8, ".snapshot").write_bytes(b"\0" * 50)
    log = disk.start()
    assert any("older snapshot" in record.message for record in caplog.records)
    batch = build_batch([b"abc"], producer_id=1, producer_epoch=0, base_sequence=7)
    assert log.append(memoryview(batch), now_ms=0).duplicate
    disk.manager.close()


def test_leader_epochs_are_rebuilt_from_the_batches(disk: Disk) -> None:
    disk.write(2)
    disk.log.become_leader(4)
    disk.write(2)
    disk.crash()
    path = disk.directory / "t-0/leader-epoch-checkpoint"
    path.write_bytes(b"nonsense")
    log = disk.start()
    assert log.leader_epoch == 4
    assert [log.epoch_at(offset) for offset in range(4)] == [0, 0, 4, 4]
    log.become_leader(5)
    assert path.read_bytes() == encode_epochs([(0, 0), (4, 2), (5, 4)])
    disk.manager.close()


def test_unreadable_partition_stays_offline_and_the_others_go_on(disk: Disk) -> None:
    disk.manager.create("good", 0, None)
    disk.write(1)
    disk.crash()
    disk.fs.fault = lambda operation, path: broken_disk(operation, path) if "/t-0/" in path else None
    assert isinstance(disk.start().offline, StorageError)
    good = disk.manager.get("good", 0)
    assert good is not None
    assert good.offline is None
    disk.fs.fault = None
    disk.manager.close()


def test_damaged_checkpoints_cost_only_a_longer_scan(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.write(5)
    disk.manager.close()
    (disk.directory / "recovery-point-offset-checkpoint").write_bytes(b"\xff\xff")
    (disk.directory / ".kafka_cleanshutdown").unlink()
    disk.start()
    assert disk.offsets() == [0, 1, 2, 3, 4]
    assert any("starting without it" in record.message for record in caplog.records)
    disk.manager.close()
