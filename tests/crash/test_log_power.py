"""The power goes: what was never synced is lost or half there; what was flushed stays, nothing bad is served."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from kio.records.readers import read_batch

from amount import amount, drawn_seed
from headwater_broker.log import LogConfig, LogManager, OsFileSystem
from headwater_broker.testing.batches import build_batch

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=100, retention_ms=-1)


class FragileFileSystem(OsFileSystem):
    """Remembers what a disk would still hold after the power went.

    Names are taken to be safe at once; `sync_dir` is the file system's own business, and ext4's.
    """

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._safe: dict[str, bytes] = {}
        self._touched: set[str] = set()

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        if flags & os.O_CREAT:
            self._touched.add(path)
        return fd

    def sync(self, fd: int) -> None:
        path = self._paths[fd]
        self._safe[path] = Path(path).read_bytes()
        self._touched.add(path)

    def sync_dir(self, path: str) -> None:
        """Nothing to remember."""

    def write_file(self, path: str, data: bytes | bytearray | memoryview, *, durable: bool) -> None:
        super().write_file(path, data, durable=False)
        self._touched.add(path)
        if durable:
            self._safe[path] = bytes(data)

    def lose_power(self, rng: random.Random) -> None:
        """Leaves on the disk what was synced, and of the rest what chance leaves."""
        for path in sorted(self._touched):
            if not Path(path).exists():
                continue
            safe, now = self._safe.get(path, b""), Path(path).read_bytes()
            tail = len(now) - len(safe)
            if tail <= 0 or not now.startswith(safe):
                Path(path).write_bytes(rng.choice((safe, now)))
                continue
            kept = now[: len(safe) + rng.randrange(tail + 1)]
            Path(path).write_bytes(rng.choice((safe, kept, kept + bytes(len(now) - len(kept)))))


@pytest.mark.story
@pytest.mark.parametrize("round_number", range(amount(small=2, full=5)))
def test_log_after_power_loss_holds_what_was_flushed(tmp_path: Path, round_number: int) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    stored: list[bytes] = []
    for _ in range(6):
        fs = FragileFileSystem()
        manager = LogManager([str(tmp_path)], config_for=lambda _: CONFIG, fs=fs, checkpoint_interval_ms=0)
        manager.load()
        log = manager.create("t", 0, bytes(16))
        log.become_leader(log.leader_epoch + 1)
        flushed = log.recovery_point
        for _ in range(rng.randrange(120)):
            batch = build_batch(
                [rng.randbytes(rng.randrange(80))],
                producer_id=1,
                producer_epoch=0,
                base_sequence=log.log_end_offset,
                timestamps_ms=[rng.randrange(1000)],
            )
            log.append(memoryview(batch), now_ms=0)
            stored.append(bytes(batch))
            if rng.random() < 0.5:
                log.write_dirty()
            if rng.random() < 0.05:
                flushed = log.flush()
            if rng.random() < 0.1:
                manager.tick(10**14 + len(stored))
        manager._release()
        fs.lose_power(rng)

        manager = LogManager([str(tmp_path)], config_for=lambda _: CONFIG, fs=OsFileSystem())
        manager.load()
        log = manager.create("t", 0, bytes(16))
        assert log.offline is None
        assert flushed <= log.log_end_offset <= len(stored)
        stored = stored[: log.log_end_offset]
        offset = 0
        while (found := log.read(offset, 1000)).count:
            data = os.pread(found.fd, found.count, found.position)
            while data:
                _, size = read_batch(data, 0)
                assert data[:size] == stored[offset]
                offset, data = offset + 1, data[size:]
        assert offset == len(stored)
        if stored:
            again = bytearray(stored[-1])
            again[:8] = bytes(8)  # as its producer sends it
            assert log.append(memoryview(again), now_ms=0).duplicate
        log.flush()
        manager.checkpoint()
        manager._release()
