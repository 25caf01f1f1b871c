"""A small log, cut at every byte and with every bit flipped: it opens, ends on a batch boundary, serves nothing bad.

Bits that are flipped are a random sample, unless HEADWATER_LONG is set: then each has its turn.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from kio.records.readers import read_batch

from amount import amount, drawn_seed
from headwater_broker.log import (
    LogConfig,
    LogManager,
    MissingOffsetsError,
    OsFileSystem,
    PartitionLog,
    PartitionOfflineError,
)
from headwater_broker.testing.batches import build_batch

pytestmark = pytest.mark.story

COUNT = 3
SAMPLE = amount(small=40, full=150)
CONFIG = LogConfig(index_interval_bytes=0, retention_ms=-1)
LOG_NAME = f"t-0/{0:020d}.log"


class _HastyFileSystem(OsFileSystem):
    """Never waits for the disk: these tests cut power to nothing."""

    def sync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass

    def write_file(self, path: str, data: bytes | bytearray | memoryview, *, durable: bool) -> None:
        super().write_file(path, data, durable=False)


def _open(directory: Path, config: LogConfig) -> tuple[LogManager, PartitionLog]:
    manager = LogManager([str(directory)], config_for=lambda _: config, fs=_HastyFileSystem())
    manager.load()
    log = manager.create("t", 0, bytes(16))
    if log.offline is None:
        log.become_leader(0)
    return manager, log


def _make(directory: Path, *, clean: bool, config: LogConfig = CONFIG) -> list[bytes]:
    """Writes `COUNT` batches of one to three records; returns them as they are stored."""
    manager, log = _open(directory, config)
    stored = []
    for number in range(COUNT):
        batch = build_batch(
            [b"%d" % number] * (number + 1),
            timestamps_ms=[1000 + number] * (number + 1),
            producer_id=5,
            producer_epoch=0,
            base_sequence=log.log_end_offset,
        )
        log.append(memoryview(batch), now_ms=0)
        log.write_dirty()
        stored.append(bytes(batch))
    if clean:
        manager.close()
    else:
        manager._release()
    return stored


def _bits(size_bytes: int) -> list[int]:
    """Which bits of so many bytes to flip."""
    every = range(size_bytes * 8)
    if "HEADWATER_LONG" in os.environ:
        return list(every)
    seed = drawn_seed()
    return sorted(random.Random(seed).sample(every, min(SAMPLE, len(every))))


def _serve(log: PartitionLog) -> list[bytes]:
    """Everything that can be read, batch by batch; goes on behind what is lost, ends where the partition is offline."""
    served: list[bytes] = []
    offset = log.log_start_offset
    try:
        while True:
            try:
                found = log.read(offset, 100)
            except MissingOffsetsError as error:
                offset = error.next_offset
                continue
            if not found.count:
                break
            assert found.file is not None
            with Path(found.file.path).open("rb") as file:
                file.seek(found.position)
                data = file.read(found.count)
            while data:
                size = struct.unpack_from(">i", data, 8)[0] + 12
                batch, _ = read_batch(data[:size], 0)
                served.append(data[:size])
                offset = batch.base_offset + batch.last_offset_delta + 1
                data = data[size:]
    except PartitionOfflineError:
        assert log.offline is not None
    return served


@pytest.mark.parametrize("clean", [False, True])
def test_log_cut_at_every_byte_of_its_last_two_batches_opens(tmp_path: Path, clean: bool) -> None:
    stored = _make(tmp_path / "made", clean=clean)
    whole = b"".join(stored)
    for size in range(len(whole) - len(stored[-1]) - len(stored[-2]), len(whole)):
        directory = tmp_path / "cut"
        shutil.copytree(tmp_path / "made", directory)
        (directory / LOG_NAME).write_bytes(whole[:size])
        manager, log = _open(directory, CONFIG)
        kept = 2 if size >= len(whole) - len(stored[-1]) else 1
        assert _serve(log) == stored[:kept]
        assert (directory / LOG_NAME).stat().st_size == sum(map(len, stored[:kept]))
        assert not list((directory / "t-0").glob("*.broken"))
        appended = log.append(memoryview(build_batch([b"after"])), now_ms=0)
        log.write_dirty()
        # What was safe on the disk had its offsets: they are not given out again.
        assert appended.base_offset == sum(range(1, (COUNT if clean else kept) + 1))
        assert len(_serve(log)) == kept + 1
        manager.close()
        shutil.rmtree(directory)


def test_log_with_any_bit_flipped_is_cut_before_it(tmp_path: Path) -> None:
    stored = _make(tmp_path / "made", clean=False)
    whole = b"".join(stored)
    ends = [sum(map(len, stored[: count + 1])) for count in range(COUNT)]
    directory = tmp_path / "flipped"
    shutil.copytree(tmp_path / "made", directory)
    for bit in _bits(len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (directory / LOG_NAME).write_bytes(damaged)
        manager, log = _open(directory, CONFIG)
        good = sum(end <= bit // 8 for end in ends)
        assert _serve(log) == stored[:good], f"bit {bit}"
        assert (directory / LOG_NAME).stat().st_size == sum(map(len, stored[:good]))
        manager._release()
        for broken in (directory / "t-0").glob("*.broken"):
            assert whole.startswith(bytes(damaged)[: -broken.stat().st_size])
            broken.unlink()


def test_log_with_any_bit_flipped_after_a_clean_stop_serves_nothing_bad(tmp_path: Path) -> None:
    stored = _make(tmp_path / "made", clean=True)
    whole = b"".join(stored)
    directory = tmp_path / "flipped"
    for bit in _bits(len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        shutil.copytree(tmp_path / "made", directory)
        (directory / LOG_NAME).write_bytes(damaged)
        manager, log = _open(directory, CONFIG)
        served = _serve(log)
        assert served == stored[: len(served)], f"bit {bit}"
        assert len(served) < COUNT, f"bit {bit}"
        manager.close()
        shutil.rmtree(directory)


def test_any_bit_flipped_beside_the_log_changes_nothing_that_is_served(tmp_path: Path) -> None:
    stored = _make(tmp_path / "made", clean=True)
    directory = tmp_path / "flipped"
    names = [path.name for path in (tmp_path / "made/t-0").iterdir() if path.suffix != ".log"]
    assert len(names) == 5
    for name in names:
        original = (tmp_path / "made/t-0" / name).read_bytes()
        for bit in _bits(len(original)):
            damaged = bytearray(original)
            damaged[bit // 8] ^= 1 << bit % 8
            shutil.copytree(tmp_path / "made", directory)
            (directory / "t-0" / name).write_bytes(damaged)
            if name == "partition.metadata":
                (directory / "t-0" / name).write_bytes(original if bit % 2 else damaged[:10])
            manager, log = _open(directory, CONFIG)
            served = _serve(log)
            if name == "leader-epoch-checkpoint":
                # It is believed: a wrong but well-formed one takes the partition offline rather than serve on.
                assert served == stored[: len(served)]
            else:
                assert served == stored, f"{name} bit {bit}"
            manager.close()
            shutil.rmtree(directory)


def _make_compacted(directory: Path) -> tuple[list[bytes], str]:
    """A log with a compacted segment, and one behind it; returns what is served, and the compacted file."""
    config = LogConfig(
        cleanup_policy=("compact",),
        index_interval_bytes=0,
        segment_bytes=400,
        min_cleanable_dirty_ratio=0.0,
        file_delete_delay_ms=0,
    )
    manager, log = _open(directory, config)
    for number in range(12):
        batch = build_batch(
            [b"%d" % number, b"x"],
            keys=[b"k%d" % (number % 3), b"only-%d" % number],
            timestamps_ms=[1000, 1000],
        )
        log.append(memoryview(batch), now_ms=0)
        log.write_dirty()
    log.flush()
    cleaning = manager.next_cleaning(0)
    assert cleaning is not None
    cleaning.run()
    while cleaning.complete(0):
        cleaning.run()
    assert cleaning.is_done
    served = _serve(log)
    assert len(served) == 12
    manager.close()
    return served, LOG_NAME


@pytest.mark.parametrize("clean", [False, True])
def test_compacted_log_with_any_bit_flipped_serves_nothing_bad(tmp_path: Path, clean: bool) -> None:
    stored, name = _make_compacted(tmp_path / "made")
    whole = (tmp_path / "made" / name).read_bytes()
    # No checksum covers a base offset, and in a gap another one may fit as well; Kafka cannot tell either.
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + 12 + struct.unpack_from(">i", whole, starts[-1] + 8)[0])
    base_offsets = {byte for start in starts[:-1] for byte in range(start, start + 8)}
    directory = tmp_path / "flipped"
    for bit in _bits(len(whole)):
        if bit // 8 in base_offsets:
            continue
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        shutil.copytree(tmp_path / "made", directory)
        (directory / name).write_bytes(damaged)
        if not clean:
            (directory / ".kafka_cleanshutdown").unlink()
            (directory / "recovery-point-offset-checkpoint").unlink()
        # A start does not know the topic's settings yet.
        manager, log = _open(directory, CONFIG)
        served = _serve(log)
        assert served == stored[: len(served)], f"bit {bit}"
        assert len(served) < len(stored), f"bit {bit}"
        manager.close()
        shutil.rmtree(directory)
