"""Every file of a log directory, gone, empty, overwritten, cut or with a bit flipped: what is served is what was
written, what is not is told, no other partition is touched, and no record's bytes are removed."""

from __future__ import annotations

import logging
import os
import random
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amount import drawn_seed
from damaged_files import DAMAGES
from headwater_broker.log import (
    Isolation,
    LogConfig,
    LogDirError,
    LogManager,
    Marker,
    MissingOffsetsError,
    OsFileSystem,
    PartitionLog,
    PartitionOfflineError,
    lost_folders,
)
from headwater_broker.testing.batches import build_batch

TOPICS = ("t", "u")
IDS = {"t": bytes(range(16)), "u": bytes(range(1, 17))}
CONFIG = LogConfig(index_interval_bytes=0, segment_bytes=400, retention_ms=-1, file_delete_delay_ms=0)
BITS = 6
OF_A_PARTITION = {
    ".index",
    ".log",
    ".snapshot",
    ".timeindex",
    ".txnindex",
    "leader-epoch-checkpoint",
    "partition.metadata",
}
OF_THE_DIRECTORY = {
    ".headwater-checked-timestamps",
    ".kafka_cleanshutdown",
    "log-start-offset-checkpoint",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
}


class _HastyFileSystem(OsFileSystem):
    """Never waits for the disk: these tests cut power to nothing."""

    def sync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass

    def write_file(self, path: str, data: bytes | bytearray | memoryview, *, durable: bool) -> None:
        super().write_file(path, data, durable=False)


@dataclass
class Served:
    """What a partition gives to its readers."""

    batches: dict[int, bytes] = field(default_factory=dict)
    aborted: set[tuple[int, int]] = field(default_factory=set)
    times: dict[int, int | None] = field(default_factory=dict)
    start: int = -1
    end: int = -1
    problem: str = ""


def opened(directory: Path) -> LogManager:
    manager = LogManager(
        [str(directory)],
        config_for=lambda _: CONFIG,
        fs=_HastyFileSystem(),
        retention_check_interval_ms=0,
    )
    manager.load()
    try:
        manager.claim(broker_id=1, cluster_id="abcdefgh")
    except BaseException:
        manager.close()
        raise
    for topic in TOPICS:
        log = manager.create(topic, 0, IDS[topic], is_new=False)
        if log.offline is None:
            log.become_leader(0)
    manager.note_topics(TOPICS)
    return manager


def release(manager: LogManager) -> None:
    for directory in manager.directories:
        directory.release()


def partition(manager: LogManager, topic: str) -> PartitionLog:
    log = manager.get(topic, 0)
    assert log is not None
    return log


def send(log: PartitionLog, producer_id: int, sequence: int, time_ms: int, *, in_transaction: bool) -> None:
    batch = build_batch(
        [b"%d" % time_ms],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        timestamps_ms=[time_ms],
        attributes=0x10 if in_transaction else 0,
    )
    log.append(memoryview(batch), now_ms=0, may_begin=lambda *_: None)
    log.write_dirty()


def make(directory: Path, *, clean: bool) -> None:
    """Two partitions of some segments each, with transactions, of which the first records were deleted."""
    manager = opened(directory)
    for topic in TOPICS:
        log = partition(manager, topic)
        for number in range(4):
            send(log, 1, number, 1000 + 10 * number, in_transaction=False)
        for sequence, is_committed in ((0, False), (2, True), (4, False)):
            for number in range(2):
                send(log, 7, sequence + number, 1100 + 10 * (sequence + number), in_transaction=True)
            log.append_marker(7, 0, Marker(is_committed, 0), now_ms=5)
            log.write_dirty()
            send(log, 1, 4 + sequence // 2, 1105 + 20 * sequence, in_transaction=False)
        log.flush()
        log.delete_records(2)
    manager.checkpoint()
    if clean:
        manager.close()
    else:
        release(manager)


def served(log: PartitionLog) -> Served:
    found = Served(start=log.log_start_offset, end=log.log_end_offset)
    offset = log.log_start_offset
    try:
        while True:
            try:
                span = log.read(offset, 150, isolation=Isolation.READ_COMMITTED)
            except MissingOffsetsError as error:
                offset = error.next_offset
                continue
            if not span.count:
                break
            found.aborted.update(span.aborted)
            assert span.file is not None
            data = os.pread(span.fd, span.count, span.position)
            while data:
                base_offset, length = struct.unpack_from(">qi", data)
                found.batches[base_offset] = data[: length + 12]
                offset = base_offset + struct.unpack_from(">i", data, 23)[0] + 1
                data = data[length + 12 :]
        for time_ms in range(1000, 1200, 5):
            stamp = log.offset_for_timestamp(time_ms)
            found.times[time_ms] = None if stamp is None else stamp.offset
    except PartitionOfflineError as error:
        found.problem = str(error)
    if log.missing:
        found.problem = "; ".join(map(str, log.missing))
    return found


def look(directory: Path) -> dict[str, Served]:
    manager = opened(directory)
    try:
        return {topic: served(partition(manager, topic)) for topic in TOPICS}
    finally:
        manager.close()


def why_refused(directory: Path) -> str:
    """Why a broker does not start on it; empty if it does."""
    try:
        opened(directory).close()
    except LogDirError as error:
        return str(error)
    return ""


def contents(directory: Path) -> set[bytes]:
    """Every file that holds records, or did."""
    found = [each for suffix in ("log", "broken") for each in directory.glob(f"[tu]-0/*.{suffix}")]
    return {each.read_bytes() for each in found}


def damaged(path: Path, damage: str, bit: int) -> None:
    if damage == "one bit":
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    else:
        DAMAGES[damage](path)


def bits(path: Path, damage: str, random_: random.Random) -> list[int]:
    size = path.stat().st_size * 8
    return random_.sample(range(size), min(BITS, size)) if damage == "one bit" else [0]


@pytest.fixture(scope="module", params=[True, False], ids=["clean", "killed"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made")
    make(directory, clean=request.param)
    return directory


@pytest.fixture
def original(made: Path, tmp_path: Path) -> dict[str, Served]:
    shutil.copytree(made, tmp_path / "original")
    return look(tmp_path / "original")


def test_directory_that_is_damaged_below_has_every_kind_of_file(made: Path) -> None:
    there = {each.suffix or each.name for each in (made / "t-0").iterdir()}
    assert there - {".metadata"} >= OF_A_PARTITION - {"partition.metadata"}
    assert {each.name for each in made.iterdir() if each.is_file()} - {".lock"} >= OF_THE_DIRECTORY - {
        ".kafka_cleanshutdown"
    }


def test_original_is_served_whole(original: dict[str, Served]) -> None:
    for each in original.values():
        assert each.problem == ""
        assert (each.start, each.end, len(each.batches)) == (2, 16, 14)
        assert len(each.aborted) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_of_a_partition_is_told_or_made_again(
    made: Path, original: dict[str, Served], tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    random_ = random.Random(drawn_seed())
    names = sorted(path.name for path in (made / "t-0").iterdir())
    directory = tmp_path / "damaged"
    for name in names:
        for bit in bits(made / "t-0" / name, damage, random_):
            shutil.copytree(made, directory)
            damaged(directory / "t-0" / name, damage, bit)
            of_it = {path.read_bytes() for path in [directory / "t-0" / name] if path.exists()}
            before = contents(directory) - of_it
            caplog.clear()
            found = look(directory)
            where = f"{name}: {damage} {bit}"
            assert found["u"] == original["u"], where
            mine, whole = found["t"], original["t"]
            assert mine.batches.items() <= whole.batches.items(), where
            if not name.endswith(".log"):
                assert (mine.start, mine.end, mine.problem) == (whole.start, whole.end, ""), where
                assert mine.batches == whole.batches, where
                assert mine.times == whole.times, where
                assert mine.aborted == whole.aborted, where
            elif mine.batches != whole.batches:
                told = [each.getMessage() for each in caplog.records if each.levelno >= logging.INFO]
                assert any("t-0" in each for each in told), where
                assert (
                    mine.problem or [*directory.glob("t-0/*.broken")] or "the log ends before" in caplog.text
                )
            # Of what was cut off a part may be kept.
            kept = contents(directory)
            assert all(any(each in other for other in kept) for each in before), where
            shutil.rmtree(directory)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_of_the_directory_costs_no_record(
    made: Path, original: dict[str, Served], tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    random_ = random.Random(drawn_seed())
    directory = tmp_path / "damaged"
    for name in sorted(path.name for path in made.iterdir() if path.is_file()):
        for bit in bits(made / name, damage, random_):
            shutil.copytree(made, directory)
            damaged(directory / name, damage, bit)
            before = contents(directory)
            caplog.clear()
            where = f"{name}: {damage} {bit}"
            refusal = why_refused(directory)
            if refusal:
                assert name == "meta.properties", where
                assert str(directory / name) in refusal, where
                assert "remove it" in refusal, where
                (directory / name).unlink()
            found = look(directory)
            for topic, whole in original.items():
                mine = found[topic]
                assert mine.problem == "", where
                assert mine.end == whole.end, where
                if mine.start != whole.start:
                    # Deleted records are back, which is told, unless nobody knew of them any more.
                    assert (name, mine.start) == ("log-start-offset-checkpoint", 0), where
                    assert damage in ("gone", "empty") or "starting without it" in caplog.text, where
                assert whole.batches.items() <= mine.batches.items(), where
                assert mine.aborted >= whole.aborted, where
            assert contents(directory) >= before, where
            shutil.rmtree(directory)


def test_every_bit_of_the_checkpoints_and_ids_is_watched(made: Path, tmp_path: Path) -> None:
    """What a single bit of these may do is the worst: all records before a wrong start, or of a wrong id, removed."""
    directory = tmp_path / "damaged"
    shutil.copytree(made, directory)
    before = contents(directory)
    files = [directory / "log-start-offset-checkpoint", directory / "t-0/partition.metadata"]
    for path in files:
        whole = path.read_bytes()
        for bit in range(len(whole) * 8):
            path.write_bytes(whole)
            damaged(path, "one bit", bit)
            manager = opened(directory)
            assert partition(manager, "t").log_start_offset in (0, 2), (path.name, bit)
            assert partition(manager, "t").log_end_offset == 16
            assert partition(manager, "t").topic_id == IDS["t"]
            release(manager)
            assert contents(directory) == before, (path.name, bit)
            (directory / "log-start-offset-checkpoint").write_bytes(
                (made / "log-start-offset-checkpoint").read_bytes()
            )


def test_partition_whose_folder_is_gone_goes_on_behind_what_it_had(
    made: Path, original: dict[str, Served], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "damaged"
    shutil.copytree(made, directory)
    shutil.rmtree(directory / "t-0")
    assert [each[1:] for each in lost_folders(OsFileSystem(), str(directory))] == [(("t", 0), 2, 16)]
    manager = opened(directory)
    log = partition(manager, "t")
    assert "t-0 has lost offsets 2 to 15" in caplog.text
    assert (log.log_start_offset, log.log_end_offset) == (16, 16)
    send(log, 9, 0, 2000, in_transaction=False)
    assert list(served(log).batches) == [16]
    assert served(partition(manager, "u")) == original["u"]
    manager.close()
    assert (directory / ".headwater-missing-offsets").read_text().startswith("t 0 2 16 ")
    # A start, and another, that say the same.
    for _ in range(2):
        caplog.clear()
        assert look(directory)["t"].problem
        assert "t-0 has lost offsets 2 to 15" in caplog.text
    for each in (made / "t-0").iterdir():
        shutil.copy(each, directory / "t-0")
    found = look(directory)["t"]
    assert found.problem == ""
    assert found.start == 2
    assert found.batches.items() > original["t"].batches.items()
    assert list(found.batches)[-1] == 16
    assert not (directory / ".headwater-missing-offsets").exists()


def test_start_that_fails_keeps_what_it_knows_of_a_folder_that_is_gone(made: Path, tmp_path: Path) -> None:
    directory = tmp_path / "damaged"
    shutil.copytree(made, directory)
    shutil.rmtree(directory / "t-0")
    manager = LogManager([str(directory)], config_for=lambda _: CONFIG, fs=_HastyFileSystem())
    manager.load()
    manager.close()  # as where shared state does not answer
    manager = opened(directory)
    assert partition(manager, "t").log_end_offset == 16
    manager.close()


def test_partition_that_cannot_be_read_is_told_beside_the_log(made: Path, tmp_path: Path) -> None:
    directory = tmp_path / "damaged"
    shutil.copytree(made, directory)
    path = min((directory / "t-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    (directory / "recovery-point-offset-checkpoint").write_bytes(
        (made / "recovery-point-offset-checkpoint").read_bytes()
    )
    assert look(directory)["t"].problem
    text = (directory / ".headwater-offline").read_text()
    assert text.startswith("t 0 ")
    assert str(path) in text
    assert "from a copy" in text
    path.write_bytes(min((made / "t-0").glob("*.log")).read_bytes())
    assert look(directory)["t"].problem == ""
    assert not (directory / ".headwater-offline").exists()


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
