"""Several log directories: where partitions go, one that fails, partitions that move from one to another."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from pathlib import Path

import pytest

from headwater_broker.log import LogConfig, LogDirError, LogManager, PartitionLog, StorageError
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.faults import FaultyFileSystem, broken_disk, no_space, not_allowed
from open_files import open_files, without_collector
from unsynced import Unsynced

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)


def opened(*directories: Path, fs: FaultyFileSystem | None = None) -> LogManager:
    manager = LogManager([str(path) for path in directories], config_for=lambda _: CONFIG, fs=fs)
    manager.load()
    return manager


def write(log: PartitionLog, *values: bytes, **batch: int) -> None:
    log.append(memoryview(build_batch(values or [b"x"], **batch)), now_ms=0)
    log.write_dirty()


def values(log: PartitionLog) -> list[bytes]:
    """Every batch as it is stored, one record each."""
    offset, found = log.log_start_offset, []
    while (span := log.read(offset, 1 << 20)).count:
        data = os.pread(span.fd, span.count, span.position)
        while data:
            base_offset, length = struct.unpack_from(">qi", data)
            assert base_offset == offset
            found.append(data[: length + 12])
            offset = base_offset + struct.unpack_from(">i", data, 23)[0] + 1
            data = data[length + 12 :]
    return found


def failing(directory: Path) -> FaultyFileSystem:
    """A file system of which one directory fails."""
    fs = FaultyFileSystem()
    fs.fault = lambda operation, path: (
        broken_disk(operation, path) if path.startswith(f"{directory}/") else None
    )
    return fs


def test_new_partitions_go_where_there_are_fewest(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for number in range(6):
        manager.create("t", number, None)
    assert [len(manager.within(each)) for each in manager.directories] == [2, 2, 2]
    manager.close()


def test_disk_that_fails_stops_the_writes_of_its_partitions_only(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = opened(tmp_path / "a", tmp_path / "b", fs=fs)
    logs = [manager.create("t", number, None) for number in range(4)]
    mine = [log for log in logs if log.directory.startswith(str(tmp_path / "a"))]
    others = [log for log in logs if log not in mine]
    write(mine[1])
    fs.fault = failing(tmp_path / "a").fault
    with pytest.raises(StorageError):
        write(mine[0])
    assert mine[1].refusal is None
    manager.tick(1)
    for log in mine:
        with pytest.raises(StorageError):
            write(log)
    assert mine[1].offline is None
    assert mine[1].read(0, 1 << 20).count > 0
    for log in others:
        write(log)
        assert len(values(log)) == 1
    assert list(manager.failed_directories) == [str(tmp_path / "a")]
    assert manager.create("new", 0, None).directory.startswith(str(tmp_path / "b"))
    manager.checkpoint()
    manager.close()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_single_file_that_fails_leaves_the_disk_in_use(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = opened(tmp_path / "a", tmp_path / "b", fs=fs)
    logs = [manager.create("t", number, None) for number in range(4)]
    mine = [log for log in logs if log.directory.startswith(str(tmp_path / "a"))]
    fs.fault = lambda operation, path: (
        broken_disk(operation, path) if path.startswith(mine[0].directory) else None
    )
    with pytest.raises(StorageError):
        write(mine[0])
    manager.tick(1)
    write(mine[1])
    assert manager.failed_directories == {}
    fs.fault = None
    manager.close()


def test_start_goes_on_without_a_disk_and_makes_no_second_copy(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    logs = [manager.create("t", number, None) for number in range(2)]
    for log in logs:
        write(log)
    lost = next(log.partition for log in logs if log.directory.startswith(str(tmp_path / "a")))
    manager.close()
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").write_text("no directory any more")
    manager = opened(tmp_path / "a", tmp_path / "b")
    assert manager.get("t", lost) is None
    with pytest.raises(StorageError, match="may be in"):
        manager.create("t", lost, None, is_new=False)
    kept = manager.get("t", 1 - lost)
    assert kept is not None
    assert len(values(kept)) == 1
    assert manager.create("fresh", 0, None).offline is None
    manager.close()


def test_partition_whose_folder_may_not_be_read_is_offline_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = bytes(range(16))
    manager = opened(tmp_path)
    for number in range(3):
        write(manager.create("t", number, topic_id))
    manager.close()
    fs = FaultyFileSystem()
    fs.fault = not_allowed(f"{tmp_path}/t-1")
    manager = opened(tmp_path, fs=fs)
    assert [(log.partition, log.offline is not None) for log in manager] == [
        (0, False),
        (1, True),
        (2, False),
    ]
    assert f"t-1 is offline: cannot read {tmp_path}/t-1: Permission denied" in caplog.text
    with pytest.raises(StorageError, match="t-1: Permission denied"):
        manager.create("t", 1, topic_id)
    for number in (0, 2):
        log = manager.create("t", number, topic_id)
        write(log)
        assert len(values(log)) == 2
    manager.tick(1)
    manager.close()
    manager = opened(tmp_path)
    assert [len(values(manager.create("t", number, topic_id))) for number in range(3)] == [2, 1, 2]
    manager.close()


def test_partition_whose_topic_id_may_not_be_read_is_taken_for_no_other_topics(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    write(manager.create("t", 0, bytes(range(16))))
    manager.close()
    fs = FaultyFileSystem()
    fs.fault = not_allowed(f"{tmp_path}/t-0/partition.metadata")
    manager = opened(tmp_path, fs=fs)
    with pytest.raises(StorageError, match=r"cannot read .*/t-0/partition\.metadata: Permission denied"):
        manager.create("t", 0, bytes(16))
    manager.close()
    manager = opened(tmp_path)
    with pytest.raises(LogDirError, match="another topic id"):
        manager.create("t", 0, bytes(16))
    manager.close()


@pytest.mark.parametrize("file", ["", "/recovery-point-offset-checkpoint", "/meta.properties"])
def test_start_goes_on_without_a_directory_that_may_not_be_used_and_names_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = opened(*folders)
    for number in range(2):
        write(manager.create("t", number, None))
    manager.claim(broker_id=1, cluster_id="c")
    manager.close()
    fs = FaultyFileSystem()
    fs.fault = not_allowed(f"{folders[0]}{file}")
    manager = opened(*folders, fs=fs)
    manager.claim(broker_id=1, cluster_id="c")
    assert f"log directory {folders[0]}: Permission denied" in caplog.text
    assert file in caplog.text
    assert [len(values(log)) for log in manager if log.refusal is None] == [1]
    manager.close()


def test_new_directory_that_takes_no_file_is_left_out(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a")
    manager.claim(broker_id=1, cluster_id="c")
    manager.close()
    fs = FaultyFileSystem()
    fs.fault = lambda operation, path: (
        no_space(operation, path) if path.startswith(f"{tmp_path}/b/") else None
    )
    manager = opened(tmp_path / "a", tmp_path / "b", fs=fs)
    manager.claim(broker_id=1, cluster_id="c")
    assert list(manager.failed_directories) == [f"{tmp_path}/b"]
    manager.close()
    manager = opened(tmp_path / "b", fs=fs)
    with pytest.raises(LogDirError, match="No space left"):
        manager.claim(broker_id=1, cluster_id="c")
    manager.close()


def test_start_with_no_usable_disk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(LogDirError, match="cannot make the log directory"):
        opened(tmp_path / "a")


def moved(manager: LogManager, log: PartitionLog, target: Path) -> None:
    move = manager.choose(log.topic, log.partition, str(target))
    assert move is not None
    move.run()
    while move.complete():
        move.run()
    assert move.error is None
    assert move.is_done


def test_move_takes_everything_along(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    log = manager.create("t", 0, bytes(range(16)))
    log.become_leader(3)
    for number in range(20):
        write(log, b"%d" % number * 10, producer_id=4, producer_epoch=0, base_sequence=number)
    log.expire_producers(0)
    before, span = values(log), log.read(0, 1 << 20)
    sent = os.pread(span.fd, span.count, span.position)
    target = tmp_path / ("b" if log.directory.startswith(str(tmp_path / "a")) else "a")
    moved(manager, log, target)
    assert manager.get("t", 0) is log
    assert log.directory == str(target / "t-0")
    assert values(log) == before
    assert os.pread(span.fd, span.count, span.position) == sent
    again = log.append(
        memoryview(build_batch([b"15" * 10], producer_id=4, producer_epoch=0, base_sequence=15)), now_ms=0
    )
    assert (again.duplicate, again.base_offset) == (True, 15)
    manager.tick(1)
    write(log, b"after", producer_id=4, producer_epoch=0, base_sequence=20)
    assert (log.leader_epoch, log.log_end_offset) == (3, 21)
    manager.tick(1 << 50)
    others = [
        path.name for path in (tmp_path / "a", tmp_path / "b") for path in path.iterdir() if path.is_dir()
    ]
    assert others == ["t-0"]
    manager.close()
    manager = opened(tmp_path / "a", tmp_path / "b")
    reopened = manager.get("t", 0)
    assert reopened is not None
    assert values(reopened)[:20] == before
    assert reopened.topic_id == bytes(range(16))
    manager.close()


def test_move_catches_up_with_what_is_written_meanwhile(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    log = manager.create("t", 0, None)
    write(log, b"first")
    target = tmp_path / ("b" if log.directory.startswith(str(tmp_path / "a")) else "a")
    move = manager.choose("t", 0, str(target))
    assert move is not None
    move.run()
    manager._config_for = lambda _: LogConfig(segment_bytes=1 << 20)
    manager.reconfigure("t")
    for _ in range(30):
        write(log, bytes(30_000))
    assert move.complete()
    move.run()
    write(log, b"last")
    assert not move.complete()
    assert move.is_done
    assert len(values(log)) == 32
    manager.close()


def test_move_of_a_log_that_is_deleted_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    log = manager.create("t", 0, None)
    write(log)
    target = tmp_path / ("b" if log.directory.startswith(str(tmp_path / "a")) else "a")
    move = manager.choose("t", 0, str(target))
    assert move is not None
    move.run()
    manager.delete("t", 0)
    assert not move.complete()
    assert not move.is_done
    manager.tick(1 << 50)
    assert [
        path for parent in (tmp_path / "a", tmp_path / "b") for path in parent.iterdir() if path.is_dir()
    ] == []
    manager.close()


def test_choose_remembers_a_bounded_number_of_partitions_that_are_not_there(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    for number in range(10_100):
        manager.choose("t", number, str(tmp_path / "b"))
    manager.choose("x" * 100_000, 0, str(tmp_path / "b"))
    assert list(manager._chosen) == [("t", number) for number in range(100, 10_100)]
    manager.close()


def test_choose_before_the_partition_is_there_places_it(tmp_path: Path) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    for number in range(4):
        assert manager.choose("t", number, str(tmp_path / "b")) is None
        assert manager.create("t", number, None).directory == str(tmp_path / "b" / f"t-{number}")
    with pytest.raises(LogDirError, match="no log directory"):
        manager.choose("t", 0, str(tmp_path / "c"))
    manager.close()


class CrashError(BaseException):
    """The process ends here."""


class Crashing(FaultyFileSystem, Unsynced):
    """Ends the process at the n-th rename."""

    left = 1 << 30

    def rename(self, source: str, target: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise CrashError
        super().rename(source, target)


def test_crash_at_every_rename_of_a_move_leaves_one_whole_log(tmp_path: Path) -> None:
    steps = 0
    while True:
        directories = (tmp_path / f"{steps}" / "a", tmp_path / f"{steps}" / "b")
        fs = Crashing()
        manager = opened(*directories, fs=fs)
        log = manager.create("t", 0, bytes(16))
        for number in range(10):
            write(log, b"%d" % number * 10)
        before = values(log)
        target = next(path for path in directories if not log.directory.startswith(str(path)))
        fs.left = steps
        try:
            moved(manager, log, target)
        except CrashError:
            manager._release()
        else:
            break
        manager = opened(*directories)
        found = manager.get("t", 0)
        assert found is not None, steps
        assert values(found) == before
        left = [path.name for parent in directories for path in parent.iterdir() if path.is_dir()]
        assert left == ["t-0"]
        manager.close()
        steps += 1
    assert steps > 5
    fs.left = 1 << 30
    manager.close()


def test_move_to_a_full_disk_closes_what_it_opened_at_once(tmp_path: Path) -> None:
    """Without the collector, which an idle broker does not run."""
    fs = FaultyFileSystem()
    manager = opened(tmp_path / "a", tmp_path / "b", fs=fs)
    log = manager.create("t", 0, None)
    write(log)
    here = log.directory.rpartition("/")[0]
    there = tmp_path / ("b" if here == f"{tmp_path}/a" else "a")
    move = manager.choose("t", 0, str(there))
    assert move is not None
    with without_collector():
        fs.fault = lambda operation, path: (
            no_space(operation, path) if operation == "write" and path.startswith(f"{there}/") else None
        )
        move.run()
        fs.fault = None
        assert not move.complete()
        assert open_files(f"{there}/t-0") == []
    assert "No space left" in str(move.error)
    assert len(values(log)) == 1
    manager.close()


def test_new_partition_goes_to_the_next_directory_where_the_emptiest_takes_it_not(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = opened(tmp_path / "a", tmp_path / "b", fs=fs)
    fs.fault = lambda operation, path: (
        no_space(operation, path) if path.startswith(f"{tmp_path}/a/") else None
    )
    made = [manager.create("t", number, bytes(16)) for number in range(2)]
    assert {log.directory.rpartition("/")[0] for log in made} == {f"{tmp_path}/b"}
    fs.fault = no_space
    with pytest.raises(StorageError, match=r"cannot make .*/b/t-2: No space left"):
        manager.create("t", 2, bytes(16))
    fs.fault = None
    assert manager.create("t", 2, bytes(16)).directory == f"{tmp_path}/a/t-2"
    manager.close()
    manager = opened(tmp_path / "a", tmp_path / "b")
    assert len(list(manager)) == 3
    manager.close()


def test_directory_whose_permission_is_taken_away_is_read_and_written_as_far_as_it_is_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is open stays so; what needs a name is refused in a sentence, and done once it may be."""
    fs = FaultyFileSystem()
    manager = opened(tmp_path / "a", tmp_path / "b", fs=fs)
    logs = [manager.create("t", number, None) for number in range(2)]
    for log in logs:
        write(log)
    refused, other = sorted(logs, key=lambda log: log.directory)
    whole = not_allowed(f"{tmp_path}/a")
    fs.fault = lambda operation, path: whole(operation, path) if operation not in ("write", "read") else None
    written = 1
    with contextlib.suppress(StorageError):
        while written < 20:
            write(refused)
            written += 1
    assert "cannot begin a segment in" in str(refused.refusal)
    assert "Permission denied" in str(refused.refusal)
    assert len(values(refused)) == written
    assert written > 3
    for now_ms in range(0, 700_000, 50_000):
        manager.tick(now_ms)
    for _ in range(20):
        write(other)
    assert len(values(other)) == 21
    with pytest.raises(StorageError, match=r"cannot rename .*/a/t-[01]: Permission denied"):
        manager.delete(refused.topic, refused.partition)
    assert manager.create("fresh", 0, None).directory.startswith(f"{tmp_path}/b/")
    fs.fault = None
    for now_ms in range(700_000, 703_000, 1000):
        manager.tick(now_ms)
    write(refused)
    assert len(values(refused)) == written + 1
    assert [each for each in caplog.records if each.exc_info] == []
    manager.close()
    manager = opened(tmp_path / "a", tmp_path / "b")
    assert sorted(len(values(log)) for log in manager if log.topic == "t") == [written + 1, 21]
    manager.close()
