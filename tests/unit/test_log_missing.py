"""Segments that are gone or short: told with their offsets, never passed over without a word, never given out again."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater_broker.log import CorruptLogError, MissingOffsetsError, OffsetOutOfRangeError, PartitionLog
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.faults import no_space
from headwater_broker.testing.logs import OneLog

BATCH_BYTES = 71
SETTINGS = {
    "segment.bytes": str(3 * BATCH_BYTES),
    "index.interval.bytes": "0",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


class Disk(OneLog):
    """One partition of ten batches with one record each; three fill a segment."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, "t", SETTINGS | settings)
        self.write(10)

    def write(self, count: int) -> None:
        for _ in range(count):
            offset = self.log.log_end_offset
            batch = build_batch(
                [b"abc"], producer_id=1, producer_epoch=0, base_sequence=offset, timestamps_ms=[offset]
            )
            assert len(batch) == BATCH_BYTES
            self.log.append(memoryview(batch), now_ms=0)
            self.log.write_dirty()

    def stop(self, *, clean: bool) -> None:
        if clean:
            self.manager.close()
        else:
            self.log.flush()
            self.manager.checkpoint()
            for directory in self.manager.directories:
                directory.release()

    def path(self, offset: int, suffix: str = ".log") -> Path:
        return self.directory / f"t-0/{offset:020d}{suffix}"

    def cut(self, offset: int, size_bytes: int) -> None:
        with self.path(offset).open("r+b") as file:
            file.truncate(size_bytes)

    @property
    def told(self) -> list[tuple[int, int]]:
        return [(each.start_offset, each.end_offset) for each in self.log.missing]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    opened = Disk(tmp_path)
    yield opened
    opened.manager.close()


def readable(log: PartitionLog) -> list[int]:
    """Reads to the end, going on behind whatever is lost."""
    offset, found = log.log_start_offset, []
    while True:
        try:
            span = log.read(offset, 1)
        except MissingOffsetsError as error:
            offset = error.next_offset
            continue
        if not span.count:
            return found
        data = os.pread(span.fd, span.count, span.position)
        assert len(data) == span.count
        found.append(struct.unpack_from(">q", data)[0])
        offset = found[-1] + 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("gone", "cut", "lost"),
    [
        ([3], None, (3, 6)),
        ([3, 6], None, (3, 9)),
        ([], (3, 2 * BATCH_BYTES), (5, 6)),
        ([], (3, 2 * BATCH_BYTES + 20), (5, 6)),
        ([], (3, 10), (3, 6)),
        ([], (3, 0), (3, 6)),
        ([9], None, (9, 10)),
        ([], (9, 0), (9, 10)),
        ([], (9, BATCH_BYTES - 1), (9, 10)),
        ([6, 9], None, (6, 10)),
    ],
)
def test_start_tells_what_is_lost_and_keeps_the_rest_in_its_place(
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
    clean: bool,
    gone: list[int],
    cut: tuple[int, int] | None,
    lost: tuple[int, int],
) -> None:
    disk.stop(clean=clean)
    for offset in gone:
        disk.path(offset).unlink()
    if cut is not None:
        disk.cut(*cut)
    disk.open()
    assert disk.log.offline is None
    assert disk.told == [lost]
    assert f"has lost offsets {lost[0]} to {lost[1] - 1}" in caplog.text
    assert disk.log.log_end_offset == 10
    for offset in range(*lost):
        with pytest.raises(OffsetOutOfRangeError, match="has lost offsets"):
            disk.log.read(offset, 1 << 20)
    assert readable(disk.log) == [each for each in range(10) if not lost[0] <= each < lost[1]]
    disk.write(2)
    assert readable(disk.log)[-2:] == [10, 11]
    word = (disk.directory / ".headwater-missing-offsets").read_text().split()
    assert word[:4] == ["t", "0", str(lost[0]), str(lost[1])]
    # The next start says the same.
    disk.stop(clean=clean)
    disk.open()
    if lost[1] < 10:
        assert disk.told == [lost]


def test_file_that_is_restored_brings_its_offsets_back(disk: Disk) -> None:
    disk.stop(clean=True)
    data = disk.path(3).read_bytes()
    disk.path(3).unlink()
    disk.open()
    assert disk.told == [(3, 6)]
    disk.write(1)
    disk.stop(clean=True)
    disk.path(3).write_bytes(data)
    disk.open()
    assert disk.told == []
    assert readable(disk.log) == list(range(11))
    assert not (disk.directory / ".headwater-missing-offsets").exists()


def test_first_segments_that_are_gone_are_told_and_the_log_starts_behind_them(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.stop(clean=True)
    disk.path(0).unlink()
    disk.open()
    assert "has lost offsets 0 to 2" in caplog.text
    assert disk.log.log_start_offset == 3
    with pytest.raises(OffsetOutOfRangeError):
        disk.log.read(0, 100)
    assert readable(disk.log) == list(range(3, 10))


def test_all_files_gone_gives_no_offset_out_again(disk: Disk) -> None:
    disk.stop(clean=True)
    for path in (disk.directory / "t-0").iterdir():
        path.unlink()
    disk.open()
    disk.write(1)
    assert readable(disk.log) == [10]


def test_deleted_topic_leaves_nothing_that_a_new_one_of_its_name_would_miss(disk: Disk) -> None:
    disk.log.flush()
    disk.manager.checkpoint()
    disk.manager.delete("t", 0)
    disk.log = disk.manager.create("t", 0, bytes(16))
    disk.log.become_leader(0)
    disk.write(2)
    for directory in disk.manager.directories:
        directory.release()
    disk.open()
    assert disk.told == []
    assert readable(disk.log) == [0, 1]


def test_retention_moves_past_what_is_lost(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.stop(clean=True)
    disk.path(3).unlink()
    disk.open()
    disk.log.delete_records(7)
    assert disk.told == []
    assert readable(disk.log) == [7, 8, 9]
    disk.manager.close()


@pytest.mark.parametrize("left_bytes", [0, 30, BATCH_BYTES, 2 * BATCH_BYTES + 1])
def test_sealed_segment_that_is_cut_while_the_broker_runs_is_told_by_the_next_read(
    disk: Disk, caplog: pytest.LogCaptureFixture, left_bytes: int
) -> None:
    assert readable(disk.log) == list(range(10))
    disk.cut(3, left_bytes)
    lost = (3 + left_bytes // BATCH_BYTES, 6)
    assert readable(disk.log) == [*range(lost[0]), *range(6, 10)]
    assert disk.told == [lost]
    assert "has lost offsets" in caplog.text


def test_sealed_segment_that_is_gone_while_the_broker_runs_is_told_once_it_is_wanted(disk: Disk) -> None:
    for _ in range(2):
        disk.log.release_idle()
    disk.path(3).unlink()
    assert readable(disk.log) == [0, 1, 2, 6, 7, 8, 9]
    assert disk.told == [(3, 6)]
    assert disk.log.offline is None
    disk.manager.tick(0)
    found = disk.log.offset_for_timestamp(4)
    assert found is not None
    assert found.offset == 6


@pytest.mark.parametrize("stands_there", [None, b"", b"x" * 1000, "copy"])
def test_newest_segment_whose_name_is_taken_away_is_written_again(
    disk: Disk, caplog: pytest.LogCaptureFixture, stands_there: bytes | str | None
) -> None:
    """What it holds, and what is written to it until then, would go with the process."""
    path = disk.path(9)
    other = path.read_bytes() if isinstance(stands_there, str) else stands_there
    path.unlink()
    if other is not None:
        path.write_bytes(other)
    disk.write(1)
    for now_ms in range(6):
        disk.manager.tick(now_ms)
    disk.write(1)
    assert "it is written again, with all of its records" in caplog.text
    kept = list(path.parent.glob("*.broken"))
    assert [each.read_bytes() for each in kept] == ([] if other is None else [other])
    disk.stop(clean=False)
    disk.open()
    assert readable(disk.log) == list(range(12))
    assert disk.told == []


def test_newest_segment_that_cannot_be_written_again_takes_no_records_until_it_can(disk: Disk) -> None:
    path = disk.path(9)
    path.unlink()
    disk.fs.fault = no_space
    for now_ms in range(6):
        disk.manager.tick(now_ms)
    assert disk.log.is_waiting
    assert "was taken away and cannot be written again: No space left" in str(disk.log.refusal)
    assert readable(disk.log) == list(range(10))
    disk.fs.fault = None
    for now_ms in range(12):
        disk.manager.tick(now_ms)
    disk.write(1)
    disk.stop(clean=False)
    disk.open()
    assert readable(disk.log) == list(range(11))


@pytest.mark.parametrize("what", ["garbage", "one byte", "another segment", "a copy"])
def test_sealed_segment_that_is_replaced_while_nobody_reads_it_is_looked_at_again(
    disk: Disk, what: str
) -> None:
    assert readable(disk.log) == list(range(10))
    for _ in range(2):
        disk.log.release_idle()
    path = disk.path(3)
    data = bytearray(path.read_bytes())
    if what == "garbage":
        data[:] = b"x" * len(data)
    elif what == "one byte":
        data[-2] ^= 1
    elif what == "another segment":
        data[:] = disk.path(0).read_bytes()
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(data)
    fresh.replace(path)
    if what == "a copy":
        assert readable(disk.log) == list(range(10))
        return
    with pytest.raises(CorruptLogError, match=r"0003\.log is damaged"):
        readable(disk.log)
    assert disk.log.offline is not None


@pytest.mark.parametrize("rewritten", [False, True])
def test_newest_segment_that_is_cut_while_the_broker_runs_is_told_and_left(
    disk: Disk, rewritten: bool
) -> None:
    disk.settings["segment.bytes"] = "1000000"
    disk.manager.reconfigure("t")
    disk.write(200)
    disk.cut(9, 5 * BATCH_BYTES + 10)
    if rewritten:
        disk.write(1)  # where it was to be: before it, the file has a hole
    for now_ms in range(6):
        disk.manager.tick(now_ms)
    end = disk.log.log_end_offset
    assert disk.told == [(14, end)]
    disk.write(2)
    assert readable(disk.log) == [*range(14), end, end + 1]


def test_zeros_that_a_file_system_keeps_as_a_hole_are_no_loss(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hole in range(BATCH_BYTES):
        monkeypatch.setattr(disk.fs, "written_bytes", lambda fd, hole=hole: hole)
        for now_ms in range(6):
            disk.manager.tick(now_ms)
    assert disk.told == []
    assert readable(disk.log) == list(range(10))


def test_files_of_others_in_a_log_directory_are_left_alone(disk: Disk) -> None:
    disk.stop(clean=True)
    foreign = [disk.directory / "notes", disk.directory / "t-0" / "README", disk.directory / "lost+found"]
    foreign[0].write_text("mine")
    foreign[1].write_text("mine")
    foreign[2].mkdir()
    (disk.directory / "t-0" / "folder").mkdir()
    disk.open()
    assert readable(disk.log) == list(range(10))
    assert all(path.exists() for path in foreign)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("clean", [True, False])
def test_file_beside_a_segment_that_is_gone_is_made_again(disk: Disk, suffix: str, clean: bool) -> None:
    disk.stop(clean=clean)
    for path in (disk.directory / "t-0").glob(f"*{suffix}"):
        path.unlink()
    disk.open()
    assert disk.told == []
    assert readable(disk.log) == list(range(10))
    found = disk.log.offset_for_timestamp(7)
    assert found is not None
    assert found.offset == 7
    disk.write(1)
    assert readable(disk.log)[-1] == 10
    if suffix != ".snapshot":
        assert disk.path(3, suffix).stat().st_size > 0


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "../recovery-point-offset-checkpoint"])
@pytest.mark.parametrize("content", [None, b"", b"garbage\n\xff", b"0\n1\n"])
def test_checkpoint_that_is_gone_or_garbage_loses_nothing(
    disk: Disk, name: str, content: bytes | None
) -> None:
    disk.stop(clean=True)
    path = disk.directory / "t-0" / name
    path.unlink() if content is None else path.write_bytes(content)
    disk.open()
    assert disk.told == []
    assert readable(disk.log) == list(range(10))


def test_newest_segment_has_its_indexes_on_the_disk_while_it_grows(tmp_path: Path) -> None:
    disk = Disk(tmp_path, **{"segment.bytes": "1000000", "index.interval.bytes": "100"})
    names = [disk.path(0, suffix) for suffix in (".index", ".timeindex")]
    sizes = []
    for _ in range(5):
        disk.write(20)
        disk.manager.tick(0)
        sizes.append([path.stat().st_size for path in names])
        assert sizes[-1][0] % 8 == sizes[-1][1] % 12 == 0
    assert sizes == sorted(sizes)
    disk.write(2000)
    assert names[0].stat().st_size > sizes[-1][0]  # also within a second
    disk.manager.tick(0)
    assert sizes[0][0] > 0
    assert sizes[0] != sizes[-1]
    relative = [
        struct.unpack_from(">iI", names[0].read_bytes(), at) for at in range(0, names[0].stat().st_size, 8)
    ]
    assert relative == sorted(set(relative))
    for last_offset, position in relative:
        assert struct.unpack_from(">q", disk.path(0).read_bytes(), position)[0] == last_offset
    disk.manager.close()


def test_indexes_on_the_disk_follow_a_log_that_is_cut_and_a_start(tmp_path: Path) -> None:
    disk = Disk(tmp_path, **{"segment.bytes": "1000000", "index.interval.bytes": "100"})
    disk.write(50)
    disk.log.truncate_to(20, now_ms=0)
    disk.write(30)
    disk.stop(clean=False)
    disk.open()
    disk.write(30)
    disk.manager.tick(0)
    data = disk.path(0, ".index").read_bytes()
    entries = [struct.unpack_from(">iI", data, at) for at in range(0, len(data), 8)]
    log = disk.path(0).read_bytes()
    assert len(entries) > 30
    assert entries == sorted(set(entries))
    assert all(struct.unpack_from(">q", log, position)[0] == offset for offset, position in entries)
    disk.manager.close()
