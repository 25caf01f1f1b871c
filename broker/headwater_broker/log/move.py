"""Moving a partition to another log directory while it is read and written."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from headwater_broker.log import checkpoints, paths
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.segment import Segment

_LOGGER = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_PAUSE_S = 0.0001
_LAST_BYTES = 256 << 10
"""The loop's thread copies the last so many bytes: copied and synced within some milliseconds."""

_NAME_BYTES = 255
_SMALL_SUFFIXES = (
    paths.INDEX_SUFFIX,
    paths.TIME_INDEX_SUFFIX,
    paths.TRANSACTION_INDEX_SUFFIX,
    paths.TRANSACTION_CHECKSUM_SUFFIX,
    paths.SNAPSHOT_SUFFIX,
)


class MovingLog(Protocol):
    """What a move asks of the log in its own thread."""

    directory: str
    log_end_offset: int

    def written_segments(self) -> Sequence[tuple[Segment, int]]:
        """Segments with how much of each is written; the newest is the last."""

    def pause_for_move(self) -> None:
        """Writes what is queued, the newest segment's indexes and a snapshot of the producers."""

    def reopen(self, directory: str) -> None:
        """Goes on with the files in another directory."""


class Move:
    """One move: `run` in any thread, then `complete` in the log's, until that says it is done.

    The copy grows in `<topic>-<partition>.<id>-future`. Once complete, it is renamed to `-moved`, then the old
    directory to `-delete`, then the copy to the partition's name. After a crash at any moment, a start finds one of
    them complete.

    Attributes:
        name: Of the partition.
        target: The log directory that it moves to.
        copied_bytes: How much of the log is there.
        is_done: Whether the log is there now.
        error: Why it failed, if it did.
    """

    def __init__(
        self, fs: FileSystem, name: str, log: MovingLog, target: str, completed: Callable[[Move, str], None]
    ) -> None:
        """Is made by `LogManager.start_move`.

        Args:
            fs: Files.
            name: Of the partition.
            log: The partition.
            target: The log directory to move it to.
            completed: Called at the end with the path of the old directory, renamed ("" if the move failed).
        """
        self.name = name
        self.target = target
        self.copied_bytes = 0
        self.is_done = False
        self.error: Exception | None = None
        self._fs = fs
        self._log = log
        self._completed = completed
        self._future = f"{target}/{_with_suffix(name, paths.FUTURE_DIRECTORY_SUFFIX)}"
        self._copied: dict[int, int] = {}
        self._abandoned = False
        self._sources = self._sizes()

    @property
    def copied_offset(self) -> int:
        """Everything before it is in the copy; by whole segments."""
        for segment, size in self._log.written_segments():
            if self._copied.get(segment.base_offset, 0) < size:
                return segment.base_offset
        return self._log.log_end_offset

    def abandon(self) -> None:
        """Gives it up."""
        self._abandoned = True

    def _sizes(self) -> list[tuple[int, str, int]]:
        return [
            (segment.base_offset, segment.log_path, size) for segment, size in self._log.written_segments()
        ]

    def run(self) -> None:
        """Copies what was written so far. Never raises: `complete` tells."""
        try:
            self._fs.make_dir(self._future)
            for base_offset, path, size in self._sources:
                self._copy_log(base_offset, path, size)
        except Exception as error:
            self.error = error.with_traceback(None)  # whose frames hold the files

    def _copy_log(self, base_offset: int, path: str, size_bytes: int) -> None:
        position = self._copied.get(base_offset, 0)
        if position >= size_bytes and base_offset in self._copied:
            return
        source = OpenFile(self._fs, path, os.O_RDONLY)
        target = OpenFile(
            self._fs,
            paths.segment_path(self._future, base_offset, paths.LOG_SUFFIX),
            os.O_RDWR | os.O_CREAT,
        )
        while position < size_bytes and not self._abandoned:
            chunk = memoryview(self._fs.pread(source.fd, min(_CHUNK_BYTES, size_bytes - position), position))
            if not chunk:
                raise OSError(f"{path} ends at byte {position} of {size_bytes}")
            while chunk:
                count = self._fs.pwritev(target.fd, [chunk], position)
                chunk = chunk[count:]
                position += count
                self.copied_bytes += count
            time.sleep(_PAUSE_S)
        self._fs.sync(target.fd)
        self._copied[base_offset] = position

    def complete(self) -> bool:
        """Finishes, if little is left to be copied.

        Returns:
            Whether `run` has more to do.
        """
        if self._abandoned or self.error is not None:
            self._give_up()
            return False
        self._sources = self._sizes()
        if (
            sum(size - self._copied.get(base_offset, 0) for base_offset, _, size in self._sources)
            > _LAST_BYTES
        ):
            return True
        try:
            old_path = self._finish()
        except Exception as error:
            self.error = error.with_traceback(None)  # whose frames hold the files
            self._give_up()
            return False
        self.is_done = True
        _LOGGER.info("%s is in %s now: %d bytes moved", self.name, self.target, self.copied_bytes)
        self._completed(self, old_path)
        return False

    def _finish(self) -> str:
        log, fs = self._log, self._fs
        log.pause_for_move()
        self._sources = self._sizes()
        for base_offset, path, size in self._sources:
            self._copy_log(base_offset, path, size)
        base_offsets = {base_offset for base_offset, _, _ in self._sources}
        for name in fs.names(log.directory):
            offset, suffix = name[:20], name[20:]
            is_small = suffix in _SMALL_SUFFIXES and offset.isdecimal()
            if is_small and (suffix == paths.SNAPSHOT_SUFFIX or int(offset) in base_offsets):
                self._copy_small(name)
        for name in (checkpoints.LEADER_EPOCHS, checkpoints.PARTITION_METADATA):
            if fs.exists(f"{log.directory}/{name}"):
                self._copy_small(name)
        parent = log.directory.rpartition("/")[0]
        moved = f"{self.target}/{_with_suffix(self.name, paths.MOVED_DIRECTORY_SUFFIX)}"
        old_path = f"{parent}/{_with_suffix(self.name, paths.DELETED_DIRECTORY_SUFFIX)}"
        final = f"{self.target}/{self.name}"
        fs.sync_dir(self._future)
        fs.rename(self._future, moved)
        fs.sync_dir(self.target)
        fs.rename(log.directory, old_path)
        fs.rename(moved, final)
        log.reopen(final)
        return old_path

    def _copy_small(self, name: str) -> None:
        data = self._fs.read_file(f"{self._log.directory}/{name}")
        self._fs.write_file(f"{self._future}/{name}", data, durable=False)

    def _give_up(self) -> None:
        if self.error is not None and not self._abandoned:
            _LOGGER.error("%s cannot be moved to %s: %s", self.name, self.target, self.error)
        try:
            for name in self._fs.names(self._future):
                self._fs.remove(f"{self._future}/{name}")
            self._fs.remove_dir(self._future)
        except OSError as error:
            _LOGGER.warning("what was copied to %s is left there: %s", self._future, error)
        self._completed(self, "")


def _with_suffix(name: str, suffix: str) -> str:
    ending = f".{uuid.uuid4().hex}{suffix}"
    return name[: _NAME_BYTES - len(ending)] + ending
