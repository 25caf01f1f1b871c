"""What is on the disk for certain, and the fsync that makes it so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from headwater_broker.log.config import LogConfig
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import Health
from headwater_broker.log.segment import Segment


class Flush:
    """One group commit of a partition: everything that was written when it was started.

    Attributes:
        end_offset: What the recovery point will be.
    """

    def __init__(
        self,
        fs: FileSystem,
        end_offset: int,
        logs: Sequence[OpenFile],
        index_paths: Sequence[str],
        directories: Sequence[str],
        completed: Callable[[Flush, OSError | None], int],
    ) -> None:
        """Is made by `PartitionLog.start_flush`.

        Args:
            fs: Files.
            end_offset: See the class.
            logs: Segment files to sync.
            index_paths: Indexes of sealed segments to sync.
            directories: Where files were made or removed since the last flush.
            completed: Told at `complete`, with what went wrong; returns the recovery point.
        """
        self.end_offset = end_offset
        self._fs = fs
        self._logs = logs
        self._index_paths = index_paths
        self._directories = directories
        self._completed = completed
        self._error: OSError | None = None
        self._is_unknown = True

    @property
    def is_unknown(self) -> bool:
        """Whether it failed in such a way that nobody knows what is on the disk."""
        return self._is_unknown

    def run(self) -> None:
        """Syncs the files; touches nothing else, so any thread may do it. Never raises: `complete` tells."""
        try:
            for log in self._logs:
                self._fs.sync(log.fd)
            for path in self._index_paths:
                self._sync_if_present(path)
            for directory in self._directories:
                self._fs.sync_dir(directory)
        except OSError as error:
            self._error = error.with_traceback(None)  # whose frames hold the files
            # Without a free descriptor the file was not opened, and the disk not asked to sync it.
            self._is_unknown = error.errno not in (errno.EMFILE, errno.ENFILE)

    def complete(self) -> int:
        """Moves the recovery point (and the high watermark where `expose=flushed`), in the log's own thread.

        Returns:
            The partition's recovery point.

        Raises:
            StorageError: The sync failed: the partition is offline, and nothing that waited may be
                acknowledged.
        """
        return self._completed(self, self._error)

    def _sync_if_present(self, path: str) -> None:
        try:
            index = OpenFile(self._fs, path, os.O_RDONLY)
        except FileNotFoundError:
            return  # retention removed the segment meanwhile
        self._fs.sync(index.fd)


class Flusher:
    """What of a log is not on the disk for certain.

    Attributes:
        recovery_point: Everything before it is.
        unflushed_since_ms: When the oldest batch that is not was appended; None if there is none.
    """

    def __init__(
        self,
        fs: FileSystem,
        health: Health,
        directories: Sequence[str],
        recovery_point: int,
        sealed: Sequence[Segment],
        unflushed_since_ms: int | None,
    ) -> None:
        """Begins with the state that a start has read.

        Args:
            fs: Files.
            health: The partition's.
            directories: The partition's directory and its parent.
            recovery_point: See the class.
            sealed: Segments, except for the newest, that are not flushed.
            unflushed_since_ms: See the class.
        """
        self._fs = fs
        self._health = health
        self._directory = directories[0]
        self._changed_directories = tuple(directories)
        self._sealed = list(sealed)
        self._under_way: Flush | None = None
        self.recovery_point = recovery_point
        self.unflushed_since_ms = unflushed_since_ms

    def note_sealed(self, segment: Segment) -> None:
        """A segment was rolled: its end and its indexes are to be flushed."""
        self._sealed.append(segment)
        self.note_directory_changed()

    def note_removed(self, segments: Sequence[Segment]) -> None:
        """Segments were deleted: nothing of them is to be flushed."""
        self._sealed = [segment for segment in self._sealed if segment not in segments]
        self.note_directory_changed()

    def note_directory_changed(self) -> None:
        """Files were made or removed."""
        self._changed_directories = self._changed_directories or (self._directory,)

    def is_due(self, config: LogConfig, written_offset: int, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a new segment ask for a flush, and none is under way."""
        since_ms = self.unflushed_since_ms
        if self._health.error is not None and not self._health.is_passing:
            return False
        return self._under_way is None and (
            bool(self._sealed)
            or written_offset - self.recovery_point >= config.flush_messages
            or (since_ms is not None and now_ms - since_ms >= config.flush_ms)
        )

    def take_back(self, written_offset: int) -> None:
        """What was appended after `written_offset` was not written: it need not be flushed."""
        if self.recovery_point >= written_offset:
            self.unflushed_since_ms = None

    def is_idle(self, written_offset: int) -> bool:
        """Whether there is nothing to flush, or a flush is under way."""
        return self._under_way is not None or (self.recovery_point >= written_offset and not self._sealed)

    def start(self, end_offset: int, newest: Segment, flushed: Callable[[int], None]) -> Flush:
        """Prepares a flush of everything before `end_offset`.

        Args:
            end_offset: What was written.
            newest: The segment where it ends.
            flushed: Told the end offset once it is on the disk, before the recovery point moves.
        """

        segments = [*self._sealed, newest]
        directories, since_ms = self._changed_directories, self.unflushed_since_ms

        def completed(flush: Flush, error: OSError | None) -> int:
            if flush is self._under_way:
                self._under_way = None
            self._health.check()
            if error is not None:
                if flush.is_unknown:
                    for segment in segments:
                        segment.distrust()
                else:
                    self._sealed[:0] = segments[:-1]
                    self._changed_directories = directories or self._changed_directories
                    self.unflushed_since_ms = since_ms
                raise self._health.refuse(
                    f"cannot flush {newest.log_path}", error, is_unknown=flush.is_unknown
                ) from error
            flushed(flush.end_offset)
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            return self.recovery_point

        logs = []
        for segment in segments:
            try:
                logs.append(segment.file)
            except FileNotFoundError:
                continue  # it is lost; whoever reads it gets an error
            except OSError as error:
                raise self._health.refuse(f"cannot flush {segment.log_path}", error) from error
        self._under_way = Flush(
            self._fs,
            end_offset,
            logs,
            [
                path
                for segment in self._sealed
                for path in (*segment.index_paths, segment.transaction_index_path)
            ],
            self._changed_directories,
            completed,
        )
        self._sealed = []
        self._changed_directories = ()
        self.unflushed_since_ms = None
        return self._under_way
