"""The state that coordinators in memory share: what would be in ZooKeeper."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from headwater_broker.coordination.errors import CoordinatorUnavailable, CorruptState
from headwater_broker.coordination.memory_file import Durable, MemoryFile, encode_durable
from headwater_broker.coordination.model import (
    BrokerInfo,
    Change,
    ChangeKind,
    Controller,
    TopicPartition,
)

_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class MemoryCluster:
    """The state that coordinators share.

    Attributes:
        file: where the durable part is kept, None to keep it in memory only.
        durable: what outlives the process: topics, configuration, offsets, the numbers given out.
        brokers: live brokers with the coordinator that registered each.
        members: live members by group and name, with the coordinator that registered each.
        owners: owners by group and partition, with the coordinator that claimed each.
        plans: what the members of each group agreed on last, with its number.
        callbacks: watches by coordinator.
    """

    file: MemoryFile | None = None
    durable: Durable = field(default_factory=Durable)
    brokers: dict[int, tuple[object, BrokerInfo, int]] = field(default_factory=dict)
    controller: tuple[object, Controller] | None = None
    members: dict[str, dict[str, tuple[object, dict[str, Any]]]] = field(default_factory=dict)
    owners: dict[str, dict[TopicPartition, tuple[object, str]]] = field(default_factory=dict)
    plans: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    callbacks: list[tuple[object, Callable[[Change], None]]] = field(default_factory=list)
    member_callbacks: list[tuple[object, str, Callable[[], None]]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _writing: threading.Lock = field(default_factory=threading.Lock)
    _changes: int = 0
    _written: int = 0
    _refused: int = 0

    @contextmanager
    def changing(self, *, may_wait: bool = False) -> Iterator[None]:
        """Holds the lock while the durable part is changed, and returns once that is written.

        A writer also writes what others have changed by then, so that changes side by side share a write.

        Args:
            may_wait: If the disk refuses, the change is written with the next write that succeeds.

        Raises:
            CoordinatorUnavailable: The disk refused, and the change is taken back.
        """
        with self.lock:
            yield
            self._changes += 1
            mine = self._changes
        if self.file is None:
            return
        with self._writing:
            if self._refused >= mine:
                raise CoordinatorUnavailable(f"{self.file.path} could not be written a moment ago: try again")
            if self._written >= mine:
                return
            with self.lock:
                changes, data = self._changes, encode_durable(self.durable)
            try:
                self.file.write(data)
            except CoordinatorUnavailable as error:
                if not may_wait:
                    self._take_back()
                    raise
                _LOG.warning("%s; it is written once that works again", error)
                return
            self._written = changes

    def _take_back(self) -> None:
        """Goes back to the state that the disk has; whoever made a change since gets an error."""
        assert self.file is not None
        with self.lock, suppress(CorruptState):
            if self.file.exists:
                self.durable.go_back_to(self.file.read())
                self._refused = self._changes

    def report(self, kind: ChangeKind, name: str | None = None) -> None:
        """Tells every watch, outside the lock."""
        with self.lock:
            callbacks = [callback for _, callback in self.callbacks]
        for callback in callbacks:
            callback(Change(kind, name))

    def report_members(self, group: str) -> None:
        """Tells who watches a group's members, outside the lock."""
        with self.lock:
            callbacks = [callback for _, watched, callback in self.member_callbacks if watched == group]
        for callback in callbacks:
            callback()
