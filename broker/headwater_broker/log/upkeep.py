"""Changes to a log's older segments: the oldest are deleted, compacted ones exchanged, the newest cut.

`partition` decides when, and what follows for the log's own offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headwater_broker.log import paths
from headwater_broker.log.cleaner.copy import CleanedSegment
from headwater_broker.log.cleaner.exchange import exchange
from headwater_broker.log.config import LogConfig
from headwater_broker.log.errors import StorageError
from headwater_broker.log.flush import Flusher
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import Health, is_passing
from headwater_broker.log.reader import LogReader
from headwater_broker.log.recovery import LoadedLog, LogLoader
from headwater_broker.log.retention import DeletedFiles
from headwater_broker.log.segment import Segment

_LOGGER = logging.getLogger(__name__)


class Upkeep:
    """Changes the files in one directory, and tells reader and flusher of it.

    What the disk refuses halfway takes the partition offline: `StorageError`.
    """

    def __init__(
        self,
        fs: FileSystem,
        health: Health,
        directory: str,
        deleted: DeletedFiles,
        reader: LogReader,
        flusher: Flusher,
    ) -> None:
        """Works on the log as it was opened; one that is opened again needs another.

        Args:
            fs: Files.
            health: The partition's.
            directory: The partition's.
            deleted: Takes files that wait for `file.delete.delay.ms`.
            reader: The log's.
            flusher: The log's.
        """
        self._fs = fs
        self._health = health
        self._directory = directory
        self._deleted = deleted
        self._reader = reader
        self._flusher = flusher

    def delete_oldest(self, count: int, config: LogConfig, now_ms: int) -> int:
        """Deletes the oldest segments, which may not be all, and returns where the next one begins."""
        removed = self._reader.remove_oldest(count)
        delay_ms = config.file_delete_delay_ms
        for segment in removed:
            try:
                self._deleted.add(now_ms + delay_ms, segment.delete(at_once=delay_ms == 0))
            except OSError as error:
                # Nobody reads them any more, so that it matters little when they go.
                _LOGGER.warning("%s: its files are removed later: %s", segment.log_path, error)
                for path in segment.paths:
                    self._deleted.add(now_ms, [path, path + paths.DELETED_SUFFIX])
        self._flusher.note_removed(removed)
        return self._reader.segments[0].base_offset

    def exchange(
        self, cleaned: CleanedSegment, base_offsets: Sequence[int], config: LogConfig, now_ms: int
    ) -> None:
        """Puts a cleaned segment in the place of those that it was made from."""
        old = [segment for segment in self._reader.segments if segment.base_offset in base_offsets]
        try:
            renamed = exchange(self._fs, self._directory, cleaned.base_offset, cleaned.suffixes(), old)
            segment = Segment.open(self._fs, self._directory, cleaned.base_offset, config, now_ms)
            segment.load_sealed()
        except OSError as error:
            if is_passing(error) and all(self._fs.exists(segment.log_path) for segment in old):
                # No log has another name yet: what was begun is for the next start to remove.
                raise StorageError(f"cannot replace segments in {self._directory}: {error}") from error
            self._health.fail(f"cannot replace segments in {self._directory}", error)
        segment.trusted_from = 0
        self._reader.replace(old, segment)
        self._deleted.add(now_ms + config.file_delete_delay_ms, renamed)
        self._flusher.note_removed(old)

    def cut(self, offset: int, config: LogConfig, log_start_offset: int, now_ms: int) -> LoadedLog:
        """Removes every batch that holds `offset` or more, and opens again what is left."""
        keep = self._reader.segment_at(offset)
        newer = self._reader.segments[self._reader.segments.index(keep) + 1 :]
        try:
            for segment in newer:
                segment.delete(at_once=True)
            end_offset = self._reader.mending(keep, lambda: keep.truncate_to(offset))
            keep.seal()
            return LogLoader(
                self._fs,
                self._directory,
                config,
                clean=True,
                recovery_point=min(self._flusher.recovery_point, end_offset),
                log_start_offset=min(log_start_offset, end_offset),
                now_ms=now_ms,
            ).load()
        except OSError as error:
            self._health.fail(f"cannot truncate {keep.log_path}", error)
