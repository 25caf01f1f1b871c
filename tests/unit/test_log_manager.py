"""All partitions of a broker: start, stop, and the files beside the partitions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater_broker.log import (
    InconsistentIdentityError,
    LogConfig,
    LogDirError,
    LogManager,
    OutOfOrderSequenceError,
    PartitionLog,
    PartitionOfflineError,
)
from headwater_broker.log.checkpoints import encode_offsets
from headwater_broker.testing.batches import build_batch

TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def opened(*directories: Path, **intervals: int) -> LogManager:
    manager = LogManager(
        [str(path) for path in directories],
        config_for=lambda _: LogConfig(file_delete_delay_ms=0),
        **intervals,  # type: ignore[arg-type]
    )
    manager.load()
    return manager


def write(manager: LogManager, topic: str, partition: int, count: int = 1) -> None:
    log = manager.get(topic, partition)
    assert log is not None
    log.append(memoryview(build_batch([b"x"] * count)), now_ms=0)
    log.write_dirty()


def test_create_makes_kafkas_directory(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = manager.create("a.b-c", 3, TOPIC_ID)
    assert manager.get("a.b-c", 3) is manager.get(b"a.b-c", 3) is log
    assert manager.create("a.b-c", 3, TOPIC_ID) is log
    assert (tmp_path / "a.b-c-3/partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID_TEXT}"
    assert [(found.topic, found.partition) for found in manager] == [("a.b-c", 3)]
    manager.close()


def test_get_unknown_is_none(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.create("a", 0, None)
    assert manager.get("a", 1) is manager.get("b", 0) is manager.get(b"b", 0) is None
    manager.close()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "x" * 250, "../a"])
def test_create_bad_name_refused(tmp_path: Path, topic: str) -> None:
    manager = opened(tmp_path)
    with pytest.raises(LogDirError, match="cannot be a partition's name"):
        manager.create(topic, 0, None)
    manager.close()


def test_create_with_another_topic_id_refused(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.create("a", 0, TOPIC_ID)
    with pytest.raises(LogDirError, match="another topic id"):
        manager.create("a", 0, bytes(16))
    manager.close()


def test_create_gives_an_old_directory_its_topic_id(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.create("a", 0, None)
    assert manager.create("a", 0, TOPIC_ID).topic_id == TOPIC_ID
    manager.close()
    manager = opened(tmp_path)
    log = manager.get("a", 0)
    assert log is not None
    assert log.topic_id == TOPIC_ID
    manager.close()


def test_create_spreads_partitions_over_directories(tmp_path: Path) -> None:
    manager = opened(tmp_path / "one", tmp_path / "two")
    for partition in range(4):
        manager.create("a", partition, None)
    assert len(list((tmp_path / "one").glob("a-*"))) == len(list((tmp_path / "two").glob("a-*"))) == 2
    manager.close()
    manager = opened(tmp_path / "one", tmp_path / "two")
    assert len(list(manager)) == 4
    manager.close()


def test_load_same_partition_in_two_directories_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        manager = opened(tmp_path / name)
        manager.create("a", 0, None)
        manager.close()
    with pytest.raises(LogDirError, match="in another log directory"):
        opened(tmp_path / "one", tmp_path / "two")
    opened(tmp_path / "one").close()


def test_close_writes_checkpoints_and_the_clean_marker(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.create("a", 0, None)
    manager.create("b", 1, None)
    write(manager, "a", 0, 5)
    log = manager.get("a", 0)
    assert log is not None
    log.delete_records(2)
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    ends, starts = encode_offsets({("a", 0): 5, ("b", 1): 0}), encode_offsets({("a", 0): 2, ("b", 1): 0})
    assert (tmp_path / "recovery-point-offset-checkpoint").read_bytes() == ends
    assert (tmp_path / "replication-offset-checkpoint").read_bytes() == ends
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == starts
    assert sorted(path.name for path in (tmp_path / "a-0").iterdir()) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{5:020d}.snapshot",
    ]
    manager = opened(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    manager.close()


def test_tick_writes_checkpoints_when_due(tmp_path: Path) -> None:
    manager = opened(tmp_path, checkpoint_interval_ms=0)
    manager.create("a", 0, None)
    write(manager, "a", 0)
    now_ms = 10**13
    manager.tick(now_ms)
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert path.read_bytes() == encode_offsets({("a", 0): 0})
    before = path.stat().st_mtime_ns
    manager.tick(now_ms + 1)
    assert path.stat().st_mtime_ns == before
    (flush,) = [log.start_flush() for log in manager]
    assert flush is not None
    flush.run()
    flush.complete()
    manager.tick(now_ms + 2)
    assert path.read_bytes() == encode_offsets({("a", 0): 1})
    manager.close()


def test_delete_renames_at_once_and_removes_later(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = manager.create("a" * 240, 0, None)
    write(manager, "a" * 240, 0)
    in_flight = log.read(0, 1000)
    assert manager.delete("a" * 240, 0)
    assert not manager.delete("a" * 240, 0)
    assert manager.get("a" * 240, 0) is None
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert left.name.endswith("-delete")
    assert len(left.name) <= 255
    with pytest.raises(PartitionOfflineError, match="was deleted"):
        log.append(memoryview(build_batch([b"x"])), now_ms=0)
    manager.tick(10**15)
    assert not left.exists()
    assert len(os.pread(in_flight.fd, in_flight.count, in_flight.position)) == in_flight.count
    manager.create("a" * 240, 0, None)
    manager.close()


def test_upkeep_passes_over_what_is_deleted_between_its_slices(tmp_path: Path) -> None:
    manager = opened(tmp_path, retention_check_interval_ms=0, producer_id_check_interval_ms=0)
    for number in range(10):
        manager.create("a", number, TOPIC_ID)
        write(manager, "a", number)
    upkeep = manager.upkeep(now_ms=10_000_000)
    for number in range(10):
        next(upkeep)
        manager.delete("a", 9 - number)
    manager.create("a", 9, bytes(16))
    assert sum(1 for _ in upkeep) > 10
    manager.tick(now_ms=10_000_000)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["a-9"]
    manager.close()


def test_create_of_a_partition_that_lost_its_directory_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = opened(tmp_path)
    for topic in ("t", "deleted", "empty"):
        manager.create(topic, 0, None)
        if topic != "empty":
            write(manager, topic, 0, 2)
    manager.close()
    for topic in ("t", "deleted", "empty"):
        shutil.rmtree(tmp_path / f"{topic}-0")
    manager = opened(tmp_path)
    manager.create("deleted", 0, None, is_new=True)
    manager.create("empty", 0, None, is_new=False)
    assert caplog.messages == []
    manager.create("t", 0, None, is_new=False)
    (told,) = caplog.messages
    assert told.startswith("t-0 has lost offsets 0 to 1: ")
    write(manager, "t", 0)
    log = manager.get("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    manager.close()


def test_create_does_not_count_all_partitions_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    walks: list[LogManager] = []
    walk = LogManager.__iter__

    def counted(each: LogManager) -> Iterator[PartitionLog]:
        walks.append(each)
        return walk(each)

    monkeypatch.setattr(LogManager, "__iter__", counted)
    for number in range(20):
        manager.create("t", number, None)
    manager.delete("t", 0)
    manager.delete("t", 2)
    for number in (20, 21, 22):
        manager.create("t", number, None)
    assert len(walks) == 1
    assert sorted(len(manager.within(each)) for each in manager.directories) == [10, 11]
    manager.close()


def test_load_removes_what_was_being_deleted(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.create("a", 0, None)
    manager.delete("a", 0)
    manager._release()
    manager = opened(tmp_path)
    assert not list(tmp_path.glob("a-*"))
    manager.close()


def test_load_leaves_unknown_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "looks-like-1").write_text("a file")
    (tmp_path / "some directory").mkdir()
    manager = opened(tmp_path)
    assert list(manager) == []
    manager.close()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "looks-like-1").exists()
    assert (tmp_path / "some directory").is_dir()


def test_load_locked_by_another_process_refused(tmp_path: Path) -> None:
    code = (
        "import sys, headwater_broker.log as log\n"
        "try:\n"
        "    log.LogManager([sys.argv[1]], config_for=lambda _: log.LogConfig()).load()\n"
        "except log.LogDirLockedError as error:\n"
        "    print(error)\n"
    )
    manager = opened(tmp_path)
    command = [sys.executable, "-c", code, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"another broker is running on {tmp_path}" in refused.stdout
    manager.close()
    accepted = subprocess.run(command, capture_output=True, text=True, check=True)
    assert accepted.stdout == ""


def test_load_unusable_directory_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match="cannot make the log directory"):
        opened(tmp_path / "file")


@pytest.mark.parametrize(
    ("version", "reason"),
    [("1", r"version 1 is that of a broker in KRaft mode \(node\.id 7\)"), ("2", "version 2 is unknown")],
)
def test_load_directory_of_a_kraft_broker_is_refused_and_not_touched(
    tmp_path: Path, version: str, reason: str
) -> None:
    manager = opened(tmp_path)
    manager.create("a", 0, None)
    write(manager, "a", 0)
    manager.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()  # it would be recovered
    with (tmp_path / "a-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"torn")
    text = f"#\nnode.id=7\ndirectory.id=Ab_0\nversion={version}\ncluster.id=c\n"
    (tmp_path / "meta.properties").write_text(text)

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = files()
    with pytest.raises(LogDirError, match=rf"{tmp_path}/meta\.properties: {reason}"):
        opened(tmp_path)
    assert files() == before


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"broker.id=1\n"])
def test_identity_that_is_damaged_is_told_and_written_again_once_it_is_removed(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "meta.properties").write_bytes(data)
    with pytest.raises(LogDirError, match=rf"{tmp_path}/meta\.properties: .*; remove it if the directory is"):
        opened(tmp_path)
    (tmp_path / "meta.properties").unlink()
    opened(tmp_path).claim(broker_id=1, cluster_id="c1")
    assert (tmp_path / "meta.properties").read_text() == "version=0\nbroker.id=1\ncluster.id=c1\n"


def test_claim_writes_and_then_checks_the_identity(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    assert manager.stored_cluster_id() is None
    manager.claim(broker_id=1, cluster_id="c1")
    manager.claim(broker_id=1, cluster_id="c1")
    assert manager.stored_cluster_id() == "c1"
    assert (tmp_path / "meta.properties").read_text() == "version=0\nbroker.id=1\ncluster.id=c1\n"
    with pytest.raises(InconsistentIdentityError, match=r"broker\.id 1, but this broker has broker\.id 2"):
        manager.claim(broker_id=2, cluster_id="c1")
    with pytest.raises(InconsistentIdentityError, match=r"cluster\.id c1"):
        manager.claim(broker_id=1, cluster_id="c2")
    manager.close()


@pytest.mark.parametrize("stored", ["c1-of-many", "c", "c1-of-manz", "c1-of-manyJ", "c1\x01of"])
def test_claim_of_what_a_damaged_file_may_say_names_the_file(tmp_path: Path, stored: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(f"version=0\nbroker.id=1\ncluster.id={stored}\n")
    manager = opened(tmp_path)
    if stored == "c1-of-many":
        manager.claim(broker_id=1, cluster_id="c1-of-many")
    else:
        with pytest.raises(InconsistentIdentityError, match=f"if {path} is damaged, as it seems, remove it"):
            manager.claim(broker_id=1, cluster_id="c1-of-many")
    manager.close()


def test_claim_keeps_fields_that_kafka_wrote(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\nbroker.id=1\ndirectory.id=xyz\nversion=0\n")
    manager = opened(tmp_path)
    manager.claim(broker_id=1, cluster_id="c1")
    text = (tmp_path / "meta.properties").read_text()
    assert "directory.id=xyz\n" in text
    assert "cluster.id=c1\n" in text
    manager.close()


def test_flushes_due_are_those_that_the_settings_ask_for(tmp_path: Path) -> None:
    manager = LogManager(
        [str(tmp_path)], config_for=lambda topic: LogConfig(flush_messages=1 if topic == "a" else 9)
    )
    manager.load()
    for topic in ("a", "b"):
        manager.create(topic, 0, None)
        write(manager, topic, 0)
    flushes = manager.flushes_due(0)
    assert [flush.end_offset for flush in flushes] == [1]
    for flush in flushes:
        flush.run()
        assert flush.complete() == 1
    assert manager.flushes_due(0) == []
    manager.close()


def test_tick_forgets_idle_producers_as_often_as_it_is_told(tmp_path: Path) -> None:
    start_ms = 10**13
    manager = opened(tmp_path, producer_id_check_interval_ms=2000, producer_id_expiration_ms=1000)
    log = manager.create("a", 0, None)
    manager.tick(start_ms)

    def append(sequence: int) -> None:
        batch = build_batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.append(memoryview(batch), now_ms=start_ms)
        log.write_dirty()

    append(0)
    manager.tick(start_ms + 1999)
    with pytest.raises(OutOfOrderSequenceError):
        append(7)
    manager.tick(start_ms + 2000)
    append(7)
    manager.close()
