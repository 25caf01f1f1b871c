"""Where received syslog messages wait on disk until the brokers have them: files of frames (`frames`)."""

import errno
import glob
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headwater.ship.frames import frame
from headwater.ship.syslog import SyslogMessage

SEGMENT_BYTES = 16 << 20
_SUFFIX = ".spool"


class Spool:
    """Files that grow by whole frames, one at a time.

    A new one is begun at each start, when the last has `segment_bytes`, when the spool has become full (only a file
    that grows no more can be removed, and nothing is appended until one is), and after an error of the disk.

    A message is accepted once `append` has returned: it is in the file then, and outlives the process. `sync`, which is
    called once a second, makes it outlive a crash of the machine. One thread appends, another reads and removes.

    Attributes:
        pattern: Names its files; saved progress has it as it is.
        segment_bytes: What a file has when the next is begun.
    """

    def __init__(self, folder: Path, limit_bytes: int, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """Prepare.

        Args:
            folder: Its files' folder.
            limit_bytes: The most that may wait.
            clock_ns: Tells the time, in nanoseconds since the epoch.
        """
        self._clock_ns = clock_ns
        folder.mkdir(parents=True, exist_ok=True)
        self.pattern = f"{glob.escape(str(folder.absolute()))}/*{_SUFFIX}"
        self.segment_bytes = min(SEGMENT_BYTES, max(limit_bytes // 4, 1))
        self._folder = folder.resolve()  # its reader has files' names without links
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._sizes = {str(each): each.stat().st_size for each in self._folder.glob(f"*{_SUFFIX}")}
        self._fd: int | None = None
        self._path = ""
        self._dirty = False

    @property
    def full(self) -> bool:
        """Whether no more may wait."""
        return sum(self._sizes.copy().values()) >= self._limit_bytes

    def append(self, peer: bytes, messages: list[SyslogMessage]) -> None:
        """Accepts messages of one sender.

        Raises:
            OSError: The disk is full, for example. The messages are not accepted then, and their sender may send them
                again; those that are whole in the file are shipped all the same.
        """
        received_ms = self._clock_ns() // 1_000_000
        data = b"".join(frame(peer, *message, received_ms=received_ms) for message in messages)
        with self._lock:
            if self._fd is None or self._sizes[self._path] >= self.segment_bytes:
                self._next()
            assert self._fd is not None
            try:
                if os.pwrite(self._fd, data, self._sizes[self._path]) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                self._leave_torn(len(data))
                raise
            self._sizes[self._path] += len(data)
            self._dirty = True
            if self.full:
                self._end()

    def sync(self) -> None:
        """Makes what was accepted outlive a crash of the machine; notices files that somebody deleted.

        Raises:
            OSError: The disk does not take it. What was accepted is in the file still, as far as the system has it.
        """
        with self._lock:
            if self._fd is not None and self._dirty:
                self._dirty = False
                try:
                    os.fdatasync(self._fd)
                    deleted = os.fstat(self._fd).st_nlink == 0
                except OSError:
                    self._end()  # Linux reports a failed write once, and takes the page for written from then on
                    raise
                if deleted:
                    self._end()
            if self.full:
                for path in [each for each in self._sizes if not Path(each).exists()]:
                    del self._sizes[path]

    def writes(self, path: str) -> bool:
        """Whether a file is the one that grows."""
        with self._lock:
            return path == self._path

    def remove(self, path: str) -> None:
        """Removes a file whose messages are acknowledged; the file that grows stays.

        Raises:
            OSError: It cannot be removed.
        """
        if self.writes(path):
            return
        Path(path).unlink(missing_ok=True)  # no file is written again once it has ended
        with self._lock:
            self._sizes.pop(path, None)

    def close(self) -> None:
        """Writes no more.

        Raises:
            OSError: The disk does not take what was not synced yet.
        """
        with self._lock:
            self._end()

    def _next(self) -> None:
        self._end()
        # Its parents are not made: the disk may not be mounted.
        self._folder.mkdir(exist_ok=True)
        path = str(self._folder / f"{time.time_ns()}{_SUFFIX}")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._path = path
        self._sizes[path] = 0

    def _end(self) -> None:
        """Ends the file that grows, even if closing it fails."""
        if self._fd is None:
            return
        fd, dirty = self._fd, self._dirty
        self._fd, self._path, self._dirty = None, "", False
        try:
            if dirty:
                os.fdatasync(fd)
        finally:
            os.close(fd)

    def _leave_torn(self, requested_bytes: int) -> None:
        """Ends a file in which a write failed: not truncated, as its reader may have got whole frames of it.

        One that is still empty is kept for the next try, or a full disk would get an empty file each time.
        """
        assert self._fd is not None
        size = self._sizes[self._path] + requested_bytes
        with suppress(OSError):
            size = os.fstat(self._fd).st_size
        self._sizes[self._path] = size
        if size:
            self._dirty = True
            self._end()
