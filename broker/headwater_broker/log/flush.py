"""An fsync that another thread may wait for."""

from __future__ import annotations

import os
from collections.abc import Callable

from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem


class Flush:
    """One group commit of a partition: everything that was written when it was started.

    Attributes:
        end_offset: What the recovery point will be.
    """

    def __init__(
        self,
        fs: FileSystem,
        end_offset: int,
        logs: list[OpenFile],
        index_paths: list[str],
        directory: str | None,
        completed: Callable[[Flush, OSError | None], int],
    ) -> None:
        """Is made by `PartitionLog.start_flush`.

        Args:
            fs: Files.
            end_offset: See the class.
            logs: Segment files to sync.
            index_paths: Indexes of sealed segments to sync.
            directory: Where files were made or removed since the last flush, or None.
            completed: Told at `complete`, with what went wrong; returns the recovery point.
        """
        self.end_offset = end_offset
        self._fs = fs
        self._logs = logs
        self._index_paths = index_paths
        self._directory = directory
        self._completed = completed
        self._error: OSError | None = None

    def run(self) -> None:
        """Syncs the files; touches nothing else, so any thread may do it. Never raises: `complete` tells."""
        try:
            for log in self._logs:
                self._fs.sync(log.fd)
            for path in self._index_paths:
                self._sync_if_there(path)
            if self._directory is not None:
                self._fs.sync_dir(self._directory)
        except OSError as error:
            self._error = error

    def complete(self) -> int:
        """Moves the recovery point (and the high watermark where `expose=flushed`), in the log's own thread.

        Returns:
            The partition's recovery point.

        Raises:
            StorageError: The sync failed: the partition is offline, and nothing that waited may be
                acknowledged.
        """
        return self._completed(self, self._error)

    def _sync_if_there(self, path: str) -> None:
        try:
            index = OpenFile(self._fs, path, os.O_RDONLY)
        except FileNotFoundError:
            return  # retention removed the segment meanwhile
        self._fs.sync(index.fd)
