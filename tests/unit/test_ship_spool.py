"""The syslog spool on a disk that is full, broken or emptied by somebody, and with a limit of any size."""

import errno
import glob
import os
import shutil
import time
from pathlib import Path

import pytest

from headwater.ship.frames import SpoolFrames, frame
from headwater.ship.spool import SEGMENT_BYTES, Spool
from headwater.ship.syslog import SyslogMessage

PEER = b"192.0.2.7"


class FaultyDisk:
    """Takes the place of `os` in the spool: does what it does, and fails where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self.short = False
        self.failing: dict[str, int] = {}
        self._pwrite = os.pwrite
        for name in ("open", "fdatasync", "fstat"):
            monkeypatch.setattr(os, name, self._with_faults(name, getattr(os, name)))
        monkeypatch.setattr(os, "pwrite", self._write)

    def _with_faults(self, name, real):
        def call(*args, **options):
            if name in self.failing:
                raise OSError(self.failing[name], os.strerror(self.failing[name]))
            return real(*args, **options)

        return call

    def _write(self, fd: int, data: bytes, at: int) -> int:
        if self.room is None:
            return self._pwrite(fd, data, at)
        count = self._pwrite(fd, data[: self.room], at)
        self.room -= count
        if count == len(data) or (self.short and count):
            return count
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


def messages(*texts: bytes) -> list[SyslogMessage]:
    return [SyslogMessage(each) for each in texts]


def values(folder: Path) -> list[bytes | None]:
    bodies = [each.read_bytes() for each in segments(folder)]
    return [each.value for body in bodies for each in SpoolFrames().split(body, 0, ends=True)]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))


def remove_finished(folder: Path, spool: Spool) -> list[bytes | None]:
    """What a reader does that has caught up: files that grow no more are removed."""
    found: list[bytes | None] = []
    for each in segments(folder):
        if not spool.writes(str(each)):
            found += [record.value for record in SpoolFrames().split(each.read_bytes(), 0, ends=True)]
            spool.remove(str(each))
    return found


def test_spool_segment_that_cannot_be_made_is_made_by_a_later_append(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    spool = Spool(tmp_path, 4 * 100)
    spool.append(PEER, messages(b"x" * 100))
    (first,) = segments(tmp_path)
    disk.failing = {"open": errno.ENOSPC}
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            spool.append(PEER, messages(b"two"))
        spool.sync()
    assert not spool.writes(str(first))
    disk.failing = {}
    spool.append(PEER, messages(b"three"))
    spool.sync()
    spool.close()
    assert values(tmp_path) == [b"x" * 100, b"three"]


def test_spool_segment_that_cannot_be_made_leaves_a_spool_that_closes(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    spool = Spool(tmp_path, 4 * 100)
    spool.append(PEER, messages(b"x" * 100))
    disk.failing = {"open": errno.EMFILE}
    with pytest.raises(OSError, match="Too many open files"):
        spool.append(PEER, messages(b"two"))
    spool.close()


@pytest.mark.parametrize("short", [False, True])
def test_spool_full_disk_within_a_batch_keeps_what_a_reader_may_have_seen(
    tmp_path: Path, disk: FaultyDisk, short: bool
) -> None:
    spool = Spool(tmp_path, 1 << 20)
    spool.append(PEER, messages(b"one"))
    disk.room, disk.short = len(frame(PEER, b"two", received_ms=time.time_ns() // 1_000_000)) + 3, short
    with pytest.raises(OSError, match="No space left on device"):
        spool.append(PEER, messages(b"two", b"three"))
    (torn,) = segments(tmp_path)
    assert values(tmp_path) == [b"one", b"two"]
    assert not spool.writes(str(torn))
    assert spool._sizes[str(torn)] == torn.stat().st_size
    for _ in range(3):
        with pytest.raises(OSError, match="No space left on device"):
            spool.append(PEER, messages(b"four"))
    assert len(segments(tmp_path)) <= 2  # one that is empty waits to be written
    disk.room = None
    spool.append(PEER, messages(b"five"))
    spool.close()
    assert values(tmp_path) == [b"one", b"two", b"five"]


def test_spool_file_that_is_out_of_reach_is_written_no_more(tmp_path: Path, disk: FaultyDisk) -> None:
    spool = Spool(tmp_path, 1 << 20)
    spool.append(PEER, messages(b"one"))
    disk.room, disk.failing = 0, {"fstat": errno.ESTALE}
    with pytest.raises(OSError, match="No space left on device"):
        spool.append(PEER, messages(b"two"))
    disk.room, disk.failing = None, {}
    (first,) = segments(tmp_path)
    assert not spool.writes(str(first))
    spool.append(PEER, messages(b"three"))
    spool.close()
    assert values(tmp_path) == [b"one", b"three"]


def test_spool_file_that_grows_is_not_removed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    spool.append(PEER, messages(b"one"))
    (first,) = segments(tmp_path)
    spool.remove(str(first))
    spool.append(PEER, messages(b"two"))
    assert values(tmp_path) == [b"one", b"two"]
    spool.close()
    spool.remove(str(first))
    assert segments(tmp_path) == []


def test_spool_file_that_cannot_be_synced_is_told_once_and_written_no_more(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    spool = Spool(tmp_path, 1 << 20)
    spool.append(PEER, messages(b"one"))
    disk.failing = {"fdatasync": errno.EIO}
    with pytest.raises(OSError, match="Input/output error"):
        spool.sync()
    spool.sync()
    disk.failing = {}
    spool.append(PEER, messages(b"two"))
    spool.close()
    assert len(segments(tmp_path)) == 2
    assert values(tmp_path) == [b"one", b"two"]


def test_spool_file_that_cannot_be_synced_at_its_end_is_let_go_of(tmp_path: Path, disk: FaultyDisk) -> None:
    spool = Spool(tmp_path, 4 * 100)
    spool.append(PEER, messages(b"x" * 100))
    disk.failing = {"fdatasync": errno.EIO}
    with pytest.raises(OSError, match="Input/output error"):
        spool.append(PEER, messages(b"two"))
    spool.append(PEER, messages(b"three"))
    disk.failing = {}
    spool.close()
    assert values(tmp_path) == [b"x" * 100, b"three"]


@pytest.mark.parametrize("limit_mb", [1, 2, 15, 16, 17, 64])
def test_spool_that_is_full_has_room_again_once_its_reader_has_caught_up(
    tmp_path: Path, limit_mb: int
) -> None:
    spool = Spool(tmp_path, limit_mb << 20)
    sent: list[bytes] = []
    found: list[bytes | None] = []
    fills = 0
    while fills < 3:
        sent.append(b"%d " % len(sent) + bytes(200_000))
        spool.append(PEER, messages(sent[-1]))
        if spool.full:
            fills += 1
            found += remove_finished(tmp_path, spool)
            assert not spool.full
    spool.close()
    assert found + remove_finished(tmp_path, spool) == sent


@pytest.mark.parametrize(
    ("limit_bytes", "segment_bytes"),
    [(1, 1), (1 << 20, 256 << 10), (64 << 20, 16 << 20), (1 << 30, 16 << 20)],
)
def test_spool_segment_is_a_quarter_of_the_limit_at_most(
    tmp_path: Path, limit_bytes: int, segment_bytes: int
) -> None:
    assert Spool(tmp_path, limit_bytes).segment_bytes == segment_bytes <= SEGMENT_BYTES


@pytest.mark.parametrize(("name", "other"), [("home [1]", "home 1"), ("a*b", "a1b"), ("what?", "whats")])
def test_spool_pattern_names_the_files_in_a_folder_of_any_name(tmp_path: Path, name: str, other: str) -> None:
    spools = [Spool(tmp_path / each, 1 << 20) for each in (name, other)]
    for spool in spools:
        spool.append(PEER, messages(b"one"))
        spool.close()
    (place,) = segments(tmp_path / name)
    assert glob.glob(spools[0].pattern) == [str(place)]  # noqa: PTH207 - an absolute pattern


def test_spool_pattern_of_a_plain_folder_is_the_folder(tmp_path: Path) -> None:
    assert Spool(tmp_path, 1 << 20).pattern == f"{tmp_path}/*.spool"


def test_spool_behind_a_symbolic_link_knows_its_files_by_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    spool = Spool(tmp_path / "link", 1 << 20)
    assert spool.pattern == f"{tmp_path}/link/*.spool"  # as it is in saved progress
    spool.append(PEER, messages(b"one"))
    (place,) = segments(tmp_path / "real")
    assert spool.writes(str(place))  # the reader names files by their real paths
    spool.close()
    full = Spool(tmp_path / "link", 10)
    assert full.full
    full.remove(str(place))
    assert not full.full


def test_spool_folder_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1 << 20)
    spool.append(PEER, messages(b"one"))
    shutil.rmtree(tmp_path / "spool")
    spool.append(PEER, messages(b"two"))  # is in a file that has no name
    spool.sync()
    spool.append(PEER, messages(b"three"))
    spool.close()
    assert values(tmp_path / "spool") == [b"three"]


def test_spool_files_that_were_deleted_count_no_more(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    spool.append(PEER, messages(b"x" * 100))
    assert spool.full
    spool.sync()
    assert spool.full
    for each in segments(tmp_path):
        each.unlink()
    spool.sync()
    assert not spool.full


def test_spool_message_keeps_the_time_at_which_it_was_received(tmp_path: Path) -> None:
    clock = iter([1_764_409_500_000_999_999, 1_764_409_501_000_000_000])
    spool = Spool(tmp_path, 1 << 20, clock_ns=lambda: next(clock))
    spool.append(PEER, [SyslogMessage(b"one"), SyslogMessage(b"t@o", 700)])
    spool.append(b"2001:db8::1", messages(b"three"))
    (body,) = (each.read_bytes() for each in segments(tmp_path))
    records = SpoolFrames().split(body, 0, ends=True)
    assert [(each.peer, each.value, each.full_bytes, each.received_ms) for each in records] == [
        (PEER, b"one", None, 1_764_409_500_000),
        (PEER, b"t@o", 700, 1_764_409_500_000),
        (b"2001:db8::1", b"three", None, 1_764_409_501_000),
    ]


def test_spool_file_of_a_version_that_wrote_no_times_is_read() -> None:
    body = b"24 192.0.2.7 <34>1 - - - hi\n21 192.0.2.7,700 <34>1 -\n"
    records = SpoolFrames().split(body, 0, ends=True)
    assert [(each.peer, each.full_bytes, each.received_ms) for each in records] == [
        (b"192.0.2.7", None, None),
        (b"192.0.2.7", 700, None),
    ]
