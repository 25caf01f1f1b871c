"""The compaction of one log: work in a helper thread, changes to the log in its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Protocol

from headwater_broker.log.cleaner.copy import CleanedSegment, Source, map_keys
from headwater_broker.log.cleaner.keys import KeyOffsets
from headwater_broker.log.cleaner.plan import Dirt, group_segments
from headwater_broker.log.cleaner.rewrite import Retention
from headwater_broker.log.cleaner.transactions import TransactionPass
from headwater_broker.log.config import LogConfig
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.segment import Segment

_LOGGER = logging.getLogger(__name__)

_BREATH_S = 0.001
"""Python code of two threads takes turns: the loop's thread may wait for so long before it gets its turn."""
_PAUSE_S = 0.0001


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """How much the compaction of one log may take.

    Attributes:
        memory_bytes: For the map of keys (Kafka's log.cleaner.dedupe.buffer.size and its load factor).
        max_bytes_per_second: Read and written (Kafka's log.cleaner.io.max.bytes.per.second).
    """

    memory_bytes: int = 134_217_728 * 9 // 10
    max_bytes_per_second: float = float("inf")


class CompactedLog(Protocol):
    """What the compaction asks of the log in its own thread."""

    def replace_segments(self, cleaned: CleanedSegment, base_offsets: Sequence[int], now_ms: int) -> None:
        """Puts a cleaned segment in the place of others."""


class AbandonedError(Exception):
    """The log was cut, moved or deleted meanwhile, or the broker stops."""


class Cleaning:
    """One compaction of one log: `run` in any thread, then `complete` in the log's, until that says it is done.

    Attributes:
        name: Of the partition.
        end_offset: Up to where the log is compacted, once done.
        is_done: Whether it got there.
    """

    def __init__(
        self,
        fs: FileSystem,
        name: str,
        directory: str,
        log: CompactedLog,
        segments: Sequence[Segment],
        dirt: Dirt,
        topic: LogConfig,
        config: CleanerConfig,
        retention: Callable[[KeyOffsets], Retention],
        completed: Callable[[Cleaning], None],
    ) -> None:
        """Is made by `PartitionLog.start_cleaning`, in the log's thread.

        Args:
            fs: Files.
            name: Of the partition.
            directory: Of the partition.
            log: What the cleaned segments are given to.
            segments: Of the log; those that may be compacted stay as they are until this has ended.
            dirt: Which those are.
            topic: The topic's settings.
            config: How much this may take.
            retention: What decides which records stay, given the map of keys.
            completed: Told at the end, however it ended.

        Raises:
            OSError: The disk refused.
            DamagedIndexError: A transaction index cannot be read.
        """
        end_offset = dirt.first_uncleanable_offset
        self.name = name
        self.end_offset = end_offset
        self.is_done = False
        self._fs = fs
        self._directory = directory
        self._log = log
        ends = {
            segment: following.base_offset
            for segment, following in pairwise(segments)
            if following.base_offset <= end_offset
        }
        self._groups = [
            [Source(each.base_offset, ends[each], each.size_bytes, each.log_path) for each in group]
            for group in group_segments(list(ends), end_offset, topic)
        ]
        self._dirty = [
            source
            for source in chain.from_iterable(self._groups)
            if source.end_offset > dirt.first_dirty_offset
        ]
        self._keys = KeyOffsets(config.memory_bytes, dirt.first_dirty_offset)
        self._retention_of = retention
        self._retention: Retention | None = None
        # Of all segments: a transaction's data may lie in older segments than its marker.
        self._aborted = [entry for segment in segments for entry in segment.aborted]
        self._transactions: TransactionPass | None = None
        self._max_bytes_per_second = config.max_bytes_per_second
        self._index_interval_bytes = topic.index_interval_bytes
        self._completed = completed
        self._cleaned: CleanedSegment | None = None
        self._abandoned = False
        self._error: Exception | None = None
        self._started = self._rested = time.monotonic()
        self._bytes_done = self._bytes_before = self._bytes_after = 0

    def abandon(self) -> None:
        """Gives it up; what was replaced already stays so."""
        self._abandoned = True

    def run(self) -> None:
        """Writes one cleaned segment. Never raises: `complete` tells."""
        try:
            self._run()
        except AbandonedError:
            pass
        except Exception as error:
            # The files are gone if the log was deleted meanwhile. Any other error must end only this compaction.
            self._error = None if self._abandoned else error.with_traceback(None)
        if (self._abandoned or self._error is not None) and self._cleaned is not None:
            try:
                self._cleaned.remove()
            except OSError as error:
                _LOGGER.warning("%s: what compaction had begun to write is left: %s", self.name, error)

    def _run(self) -> None:
        if self._transactions is None:
            start_offset = self._dirty[0].base_offset
            map_keys(
                self._fs,
                self._dirty,
                self.end_offset,
                self._keys,
                TransactionPass(self._aborted, start_offset),
                self._breathe,
            )
            self.end_offset = self._keys.end_offset
            self._retention = self._retention_of(self._keys)
            self._transactions = TransactionPass(self._aborted, self._groups[0][0].base_offset)
        assert self._retention is not None
        group = self._groups[0]
        self._cleaned = CleanedSegment(
            self._fs, self._directory, group[0].base_offset, self._index_interval_bytes
        )
        self._cleaned.copy(group, self._retention, self._transactions, self._breathe)
        self._bytes_before += sum(source.size_bytes for source in group)
        self._bytes_after += self._cleaned.size_bytes
        if self._abandoned:
            raise AbandonedError

    def _breathe(self, size_bytes: int) -> None:
        """Lets the loop's thread run, and keeps to the rate."""
        if self._abandoned:
            raise AbandonedError
        self._bytes_done += size_bytes
        now = time.monotonic()
        if now - self._rested < _BREATH_S:
            return
        due = self._started + self._bytes_done / self._max_bytes_per_second
        time.sleep(max(_PAUSE_S, min(due - now, 1.0)))
        self._rested = time.monotonic()

    def complete(self, now_ms: int) -> bool:
        """Puts the cleaned segment in its place.

        Returns:
            Whether `run` has more to do.

        Raises:
            StorageError: The disk refused; the partition is offline.
        """
        cleaned, self._cleaned = self._cleaned, None
        if self._abandoned or self._error is not None or cleaned is None:
            if self._error is not None:
                _LOGGER.error("%s cannot be compacted: %s", self.name, self._error)
            self._completed(self)
            return False
        try:
            self._log.replace_segments(
                cleaned, [source.base_offset for source in self._groups.pop(0)], now_ms
            )
        except BaseException as error:
            cause = error.__cause__
            self._error = cause if isinstance(cause, OSError) else self._error
            self._completed(self)
            raise
        # The map supersedes nothing in segments that begin behind its end.
        if self._groups and self._groups[0][0].base_offset < self.end_offset:
            return True
        self.is_done = True
        _LOGGER.info(
            "%s is compacted up to offset %d: %d keys, %d bytes became %d in %.1f s",
            self.name,
            self.end_offset,
            len(self._keys),
            self._bytes_before,
            self._bytes_after,
            time.monotonic() - self._started,
        )
        self._completed(self)
        return False

    @property
    def error(self) -> Exception | None:
        """Why it failed, if it did."""
        return self._error
