"""Batches appended in a row leave the same log as batches appended one by one; the seed is printed."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from amount import amount, drawn_seed
from headwater_broker.log import (
    InvalidBatchError,
    LogConfig,
    LogError,
    LogManager,
    PartitionLog,
    StorageError,
)
from headwater_broker.testing.batches import build_batch, reseal_batch

SEED = drawn_seed()
ROUNDS = amount("HEADWATER_ROUNDS", small=30, full=60)
START_MS = 1_600_000_000_000
CONFIGS = {
    "small": LogConfig(segment_bytes=3000, index_interval_bytes=150, max_message_bytes=900),
    "aged": LogConfig(segment_ms=500, index_interval_bytes=300),
    "full_index": LogConfig(index_interval_bytes=100, segment_index_bytes=60),
    "stamped": LogConfig(message_timestamp_type="LogAppendTime", index_interval_bytes=150),
    "bounded": LogConfig(message_timestamp_after_max_ms=100, index_interval_bytes=150),
    "compacted": LogConfig(cleanup_policy="compact", index_interval_bytes=150),
}


class Source:
    """Batches that clients may send, most of them plain."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = {0: (0, 0), 1: (5, 2**31 - 9), 2: (0, 0)}
        self.now_ms = START_MS

    def batch(self) -> bytearray:
        rng = self._rng
        self.now_ms += rng.choice((0, 0, 1, 50))
        values = [rng.randbytes(rng.choice((1, 40, 200))) for _ in range(rng.randrange(1, 4))]
        stamps = [self.now_ms - rng.randrange(-150, 200) for _ in values]
        kind = rng.choices(("plain", "codec", "producer", "bad"), (30, 2, 12, 3))[0]
        if kind == "producer":
            return self._of_a_producer(values, stamps)
        if kind == "codec":
            return build_batch(values, timestamps_ms=stamps, attributes=rng.choice((1, 2, 3, 4)))
        keys = [b"k"] * len(values) if rng.random() < 0.8 else None
        batch = build_batch(values, keys=keys, timestamps_ms=stamps)
        return self._spoilt(batch) if kind == "bad" else batch

    def _of_a_producer(self, values: list[bytes], stamps: list[int]) -> bytearray:
        """The next batch of a producer, or one that came before, or one too early, or one of another epoch."""
        rng = self._rng
        number = rng.randrange(3)
        epoch, sequence = self._next[number]
        how = rng.choices(("next", "again", "early", "newer", "older"), (20, 2, 2, 1, 1))[0]
        if how == "newer":
            epoch, sequence = epoch + 1, 0
        elif how != "next":
            epoch -= how == "older"
            sequence = (sequence + {"again": -2, "early": 1, "older": 0}[how]) % 2**31
        if how in ("next", "newer"):
            self._next[number] = epoch, (sequence + len(values)) % 2**31
        return build_batch(
            values,
            timestamps_ms=stamps,
            producer_id=number,
            producer_epoch=max(epoch, 0),
            base_sequence=sequence,
        )

    def _spoilt(self, batch: bytearray) -> bytearray:
        rng = self._rng
        how = rng.randrange(6)
        if how == 0:
            batch[rng.randrange(16, len(batch))] ^= 1 << rng.randrange(8)
        elif how == 1:
            del batch[rng.randrange(len(batch)) :]
        elif how == 2:
            return batch + batch
        else:
            position, layout, value = rng.choice(
                (
                    (21, ">h", 0x20),
                    (21, ">h", 0x08),
                    (21, ">h", 0x10),
                    (23, ">i", 7),
                    (57, ">i", 0),
                    (23, ">i", -1),
                )
            )
            struct.pack_into(layout, batch, position, value)
            reseal_batch(batch)
        return batch


def open_log(directory: Path, config: LogConfig) -> tuple[LogManager, PartitionLog]:
    directory.mkdir()
    manager = LogManager([str(directory)], config_for=lambda _: config)
    manager.load()
    log = manager.create("t", 0, bytes(16))
    log.become_leader(3)
    return manager, log


def append_one(log: PartitionLog, batch: bytearray, now_ms: int) -> tuple[object, ...]:
    try:
        return tuple(log.append(memoryview(batch), now_ms=now_ms))
    except (LogError, InvalidBatchError) as error:
        return type(error), str(error)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "t-0").iterdir()) if path.is_file()}


def check_recovered(directory: Path, config: LogConfig, before: PartitionLog) -> None:
    """What a start without a clean stop finds is what was known."""
    manager = LogManager([str(directory)], config_for=lambda _: config)
    manager.load()
    log = manager.get("t", 0)
    assert log is not None
    assert log.log_end_offset == before.log_end_offset
    known, found = (
        {number: (entry.producer_epoch, entry.batches, entry.last_timestamp_ms) for number, entry in each}
        for each in (before._producers.items(), log._producers.items())
    )
    assert found == known
    for segment, other in zip(log._reader.segments, before._reader.segments, strict=True):
        assert bytes(segment.offset_index.data) == bytes(other.offset_index.data)
        assert (segment.max_timestamp_ms, segment.size_bytes) == (other.max_timestamp_ms, other.size_bytes)
    assert (log._active.first_timestamp_ms, log._active.entry_due_after, log._active.is_full) == (
        before._active.first_timestamp_ms,
        before._active.entry_due_after,
        before._active.is_full,
    )
    manager.close()


@pytest.mark.parametrize("name", CONFIGS)
def test_append_plain_leaves_the_log_that_append_leaves(name: str, tmp_path: Path) -> None:
    print(f"HEADWATER_SEED={SEED}")
    rng = random.Random(f"{SEED}{name}")
    config = CONFIGS[name]
    (one_manager, one), (row_manager, row) = (open_log(tmp_path / each, config) for each in ("one", "row"))
    source = Source(rng)
    seen_plain = 0
    for _ in range(ROUNDS):
        batches = [source.batch() for _ in range(rng.randrange(1, 20))]
        now_ms = source.now_ms
        expected = [append_one(one, bytearray(batch), now_ms) for batch in batches]
        views = [memoryview(batch) for batch in batches]
        at = 0
        while at < len(views):
            end_before = row.log_end_offset
            base_offsets = row.append_plain(views, at, now_ms=now_ms)
            for base_offset in base_offsets:
                assert expected[at][:4] == (base_offset, expected[at][1], -1, row.log_start_offset)
                assert base_offset == end_before
                end_before = int(str(expected[at][1])) + 1
                at += 1
            seen_plain += len(base_offsets)
            assert row.log_end_offset == end_before
            if at < len(views):
                assert append_one(row, batches[at], now_ms) == expected[at]
                at += 1
        assert row.log_end_offset == one.log_end_offset
        assert (row.flush_due(now_ms), row.size_bytes) == (one.flush_due(now_ms), one.size_bytes)
        if rng.random() < 0.7:
            one.write_dirty()
            row.write_dirty()
            assert row.high_watermark == one.high_watermark
    assert (seen_plain > ROUNDS) == (name in ("small", "aged", "full_index"))
    one.write_dirty()
    row.write_dirty()
    shutil.copytree(tmp_path / "row", tmp_path / "killed")
    check_recovered(tmp_path / "killed", config, row)
    one_manager.close()
    row_manager.close()
    assert files(tmp_path / "row") == files(tmp_path / "one")


def test_append_plain_of_an_offline_log_appends_nothing(tmp_path: Path) -> None:
    manager, log = open_log(tmp_path / "log", LogConfig())
    log.append(memoryview(build_batch([b"v"])), now_ms=1)
    manager.close()
    end_offset = log.log_end_offset
    log._health.take_offline(StorageError("gone"))
    assert log.append_plain([memoryview(build_batch([b"v"]))], 0, now_ms=2) == []
    assert log.log_end_offset == end_offset
