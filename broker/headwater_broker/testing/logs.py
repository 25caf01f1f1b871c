"""A log manager with one partition, on a clock that the test sets and a file system that it breaks."""

from __future__ import annotations

from pathlib import Path

from headwater_broker.log import CleanerConfig, LogConfig, LogManager, PartitionLog
from headwater_broker.testing.faults import FaultyFileSystem


class OneLog:
    """Partition 0 of one topic in a log directory; `open` is a start of the broker that has it.

    Attributes:
        directory: The log directory.
        topic: The topic's name.
        settings: The topic's, as the next `open` and every change of settings reads them.
        time_ms: What both clocks say.
        fs: Give it a `fault`.
        cleaner: What compactions may take, from the next `open` on.
        manager: Of the last `open`.
        log: Of the last `open`; leader epoch 0.
    """

    manager: LogManager
    log: PartitionLog

    def __init__(
        self,
        directory: Path,
        topic: str,
        settings: dict[str, str],
        *,
        time_ms: int = 0,
        retention_check_interval_ms: int = 0,
    ) -> None:
        """Opens it."""
        self.directory = directory
        self.topic = topic
        self.settings = settings
        self.time_ms = time_ms
        self.fs = FaultyFileSystem()
        self.cleaner = CleanerConfig(1 << 20)
        self._retention_check_interval_ms = retention_check_interval_ms
        self.open()

    def now_ms(self) -> int:
        """The wall clock."""
        return self.time_ms

    def monotonic(self) -> float:
        """The other one."""
        return self.time_ms / 1000

    def open(self) -> PartitionLog:
        """Starts a manager on the directory, which must have been closed or its lock released."""
        self.manager = LogManager(
            [str(self.directory)],
            config_for=lambda _: LogConfig.parse(self.settings),
            clock=self,
            fs=self.fs,
            cleaner=self.cleaner,
            retention_check_interval_ms=self._retention_check_interval_ms,
        )
        self.manager.load()
        self.log = self.manager.create(self.topic, 0, bytes(16))
        self.log.become_leader(0)
        return self.log
