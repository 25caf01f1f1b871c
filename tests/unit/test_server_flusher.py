"""Group commit: nobody is answered before an fsync that began after their write, and one serves all who wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater_broker.log import LogConfig, LogManager, PartitionLog
from headwater_broker.server.flusher import Flusher
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.faults import FaultyFileSystem, broken_disk
from open_files import open_files, without_collector


class SlowDisk(FaultyFileSystem):
    """Counts what is synced of logs, and takes its time while `gate` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.synced = 0

    def sync(self, fd: int) -> None:
        if self._paths[fd].endswith(".log"):
            assert self.gate.wait(10)
            self.synced += 1
        super().sync(fd)


class Durable:
    """A log whose producers wait for the disk."""

    def __init__(self, directory: Path, executor: ThreadPoolExecutor) -> None:
        self.disk = SlowDisk()
        self.manager = LogManager(
            [str(directory)], config_for=lambda _: LogConfig(acks_fsync=True), fs=self.disk
        )
        self.manager.load()
        self.log = self.manager.create("t", 0, None)
        self.exposed = 0
        self.flusher = Flusher(asyncio.get_running_loop(), executor, self._exposed)
        self.answers: list[tuple[int, bool]] = []

    def _exposed(self, _: PartitionLog) -> None:
        self.exposed += 1

    def produce(self) -> None:
        """One batch, written at the end of its tick."""
        appended = self.log.append(memoryview(build_batch([b"x"])), now_ms=0)

        def answered(_: PartitionLog, error: Exception | None) -> None:
            self.answers.append((appended.base_offset, error is None))

        self.flusher.when_flushed(self.log, appended.last_offset + 1, answered)
        self.log.write_dirty()
        self.flusher.written(self.log, 0)

    async def until(self, count: int) -> None:
        """Returns once so many were answered."""
        async with asyncio.timeout(60):
            while len(self.answers) < count:
                await asyncio.sleep(0.005)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def test_flusher_one_fsync_serves_everybody_who_waits(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def story() -> None:
        durable = Durable(tmp_path, executor)
        durable.disk.gate.clear()
        for _ in range(50):
            durable.produce()
        await asyncio.sleep(0.05)
        assert durable.answers == []
        durable.disk.gate.set()
        await durable.until(50)
        # The first began before the others had written; the second serves all of them.
        assert durable.disk.synced == 2
        assert durable.answers == [(offset, True) for offset in range(50)]
        assert durable.log.recovery_point == 50
        durable.manager.close()

    asyncio.run(story())


def test_flusher_answers_no_write_that_came_after_its_fsync_began(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def story() -> None:
        durable = Durable(tmp_path, executor)
        durable.disk.gate.clear()
        durable.produce()
        await asyncio.sleep(0.02)
        durable.produce()
        seen: list[int] = []
        sync = durable.disk.sync

        def watching(fd: int) -> None:
            seen.append(len(durable.answers))
            sync(fd)

        durable.disk.sync = watching  # type: ignore[method-assign]
        durable.disk.gate.set()
        await durable.until(2)
        assert seen == [1]
        durable.manager.close()

    asyncio.run(story())


def test_flusher_tells_everybody_when_the_disk_fails(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def story() -> None:
        durable = Durable(tmp_path, executor)
        durable.disk.gate.clear()
        for _ in range(5):
            durable.produce()
        durable.disk.fault = lambda operation, path: (
            broken_disk(operation, path) if operation == "sync" else None
        )
        durable.disk.gate.set()
        await durable.until(5)
        assert sorted(durable.answers) == [(offset, False) for offset in range(5)]
        assert durable.log.refusal is not None
        assert durable.log.offline is None
        durable.disk.fault = None
        durable.manager.close()

    asyncio.run(story())


def test_flush_that_outlives_its_partition_lets_go_of_the_files(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    """Without the collector, which an idle broker does not run."""

    async def story() -> None:
        durable = Durable(tmp_path, executor)
        durable.produce()
        await durable.until(1)
        durable.disk.gate.clear()
        durable.produce()
        await asyncio.sleep(0.02)
        durable.manager.delete("t", 0)
        durable.manager.tick(10**15)
        durable.disk.gate.set()
        await durable.until(2)
        assert durable.answers == [(0, True), (1, False)]
        log, durable.log = durable.log, None  # type: ignore[assignment]
        del log
        await asyncio.sleep(0.02)
        assert [link for link in open_files(str(tmp_path)) if link.endswith("(deleted)")] == []
        durable.manager.close()

    with without_collector():
        asyncio.run(story())
