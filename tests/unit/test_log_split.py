"""A segment whose offsets reach further than an index can say, as a Kafka before 1.1 may have left it."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from headwater_broker.log import Isolation, LogConfig, LogManager, PartitionLog
from headwater_broker.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, encode_offsets
from headwater_broker.log.markers import Marker, encode_marker
from headwater_broker.log.txnindex import AbortedTransaction, encode_transaction_index
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.faults import FaultyFileSystem
from unsynced import Unsynced

FAR, FARTHER, LATER = 2**31 + 3, 2**32 + 9, 2**33
OFFSETS = [0, 2, 5, 9, FAR, FAR + 1, FAR + 2, FAR + 3, FARTHER, FARTHER + 1]
PARTS = [0, FAR, FARTHER]
TRANSACTIONAL = 0x10
ABORTED = AbortedTransaction(7, 5, FAR, FAR + 1)


def keyed(offset: int, **more: int) -> bytearray:
    return build_batch(
        [b"v"], keys=[b"%d" % offset], base_offset=offset, timestamps_ms=[offset], leader_epoch=0, **more
    )


def overflowed() -> bytes:
    """Offsets 0 to 9, of which 5 belongs to a transaction that is aborted at FAR, and some beyond that."""
    marker = encode_marker(7, 0, Marker(committed=False, coordinator_epoch=0), FAR)
    struct.pack_into(">q", marker, 0, FAR)
    struct.pack_into(">i", marker, 12, 0)
    batches = [keyed(offset) for offset in (0, 2)]
    batches.append(keyed(5, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    return b"".join([*batches, keyed(9), marker, *(keyed(each) for each in OFFSETS[5:])])


class CrashError(BaseException):
    """Not to be caught by what is tested."""


class Crashing(FaultyFileSystem, Unsynced):
    """Ends the process at the n-th change of a name or a size."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**9

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CrashError

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._count()
        super().truncate(fd, size_bytes)


class Disk:
    """A log directory, with the overflowed segment and perhaps one behind it."""

    def __init__(self, directory: Path, *, sealed: bool, clean: bool) -> None:
        self.directory = directory
        self.files = directory / "t-0"
        self.files.mkdir(parents=True)
        self.fs = Crashing()
        self.wanted = list(OFFSETS)
        (self.files / f"{0:020d}.log").write_bytes(overflowed())
        (self.files / f"{0:020d}.txnindex").write_bytes(encode_transaction_index([ABORTED]))
        if sealed:
            self.wanted += [LATER, LATER + 1]
            (self.files / f"{LATER:020d}.log").write_bytes(keyed(LATER) + keyed(LATER + 1))
        if clean:
            for base in [0, *([LATER] if sealed else [])]:
                for suffix in (".index", ".timeindex"):
                    (self.files / f"{base:020d}{suffix}").touch()
            ends = encode_offsets({("t", 0): self.wanted[-1] + 1})
            (directory / RECOVERY_POINTS).write_bytes(ends)
            (directory / CLEAN_SHUTDOWN).touch()

    def start(self) -> PartitionLog:
        config = LogConfig.parse({"cleanup.policy": "compact", "index.interval.bytes": "0"})
        self.manager = LogManager([str(self.directory)], config_for=lambda _: config, fs=self.fs)
        self.manager.load()
        log = self.manager.create("t", 0, None)
        log.become_leader(0)
        return log

    def names(self, suffix: str) -> list[int]:
        return sorted(int(path.name[:20]) for path in self.files.glob(f"*{suffix}"))

    def check(self, log: PartitionLog) -> None:
        assert log.offline is None
        assert offsets(log) == self.wanted
        assert not list(self.files.glob("*.broken")) + list(self.files.glob("*.cleaned"))
        assert self.names(".log") == [*PARTS, *([LATER] if self.wanted[-1] >= LATER else [])]
        for offset in set(self.wanted) - {5, FAR}:
            found = log.offset_for_timestamp(offset)
            assert found is not None
            assert found.offset == offset, "each record has its offset for a timestamp"
        assert list(log.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED).aborted) == [(7, 5)]


def offsets(log: PartitionLog) -> list[int]:
    offset, found = 0, []
    while (part := log.read(offset, 1)).count:
        data = os.pread(part.fd, part.count, part.position)
        while data:
            base_offset, length = struct.unpack_from(">qi", data)
            found.append(base_offset)
            data = data[length + 12 :]
        offset = found[-1] + 1
    return found


@pytest.mark.parametrize(("sealed", "clean"), [(False, False), (True, False), (True, True)])
def test_segment_that_outgrew_its_index_is_split_and_loses_nothing(
    tmp_path: Path, sealed: bool, clean: bool
) -> None:
    disk = Disk(tmp_path, sealed=sealed, clean=clean)
    log = disk.start()
    disk.check(log)
    end_offset = log.log_end_offset
    appended = log.append(memoryview(build_batch([b"more"], keys=[b"k"])), now_ms=0)
    log.write_dirty()
    assert appended.base_offset == end_offset == disk.wanted[-1] + 1
    disk.wanted.append(end_offset)
    disk.manager.close()
    assert offsets(disk.start()) == disk.wanted
    assert max(path.stat().st_size for path in disk.files.glob("*.index")) > 0
    disk.manager._release()
    assert offsets(disk.start()) == disk.wanted
    disk.manager.close()


@pytest.mark.parametrize(("sealed", "clean"), [(False, False), (True, False), (True, True)])
def test_crash_at_every_step_of_a_split_loses_nothing(tmp_path: Path, sealed: bool, clean: bool) -> None:
    made = tmp_path / "made"
    Disk(made, sealed=sealed, clean=clean)
    steps = 0
    while True:
        disk = Disk(tmp_path / "unused", sealed=sealed, clean=clean)
        shutil.rmtree(tmp_path / "unused")
        disk.directory, disk.files = tmp_path / f"{steps}", tmp_path / f"{steps}" / "t-0"
        shutil.copytree(made, disk.directory)
        disk.fs.left = steps
        try:
            log = disk.start()
        except CrashError:
            disk.fs.left = 10**9
            disk.manager._release()
            log = disk.start()
        else:
            assert steps > 6
            disk.fs.left = 10**9
            disk.manager.close()
            return
        disk.check(log)
        disk.manager.close()
        steps += 1
