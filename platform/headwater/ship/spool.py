"""Where received syslog messages wait on disk until the brokers have them: files of frames (`framing`)."""

import os
import threading
import time
from pathlib import Path

from headwater.ship.framing import frame
from headwater.ship.syslog import SyslogMessage

SEGMENT_BYTES = 16 << 20
_SUFFIX = ".spool"


class Spool:
    """Files that grow by whole frames, a new one at each start and at SEGMENT_BYTES.

    A message is accepted once `append` has returned: it is in the file then, and outlives the process; `sync`, which
    is called once a second, has it outlive the machine. One thread appends, another reads and removes.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Prepare.

        Args:
            folder: Its files' folder.
            limit_bytes: The most that may wait.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.pattern = f"{folder.absolute()}/*{_SUFFIX}"
        self._folder = folder.absolute()
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
            OSError: The disk is full, say; none of them is accepted then.
        """
        data = b"".join(frame(peer, *message) for message in messages)
        with self._lock:
            if self._fd is None or self._sizes[self._path] >= SEGMENT_BYTES:
                self._next()
            assert self._fd is not None
            at = self._sizes[self._path]
            try:
                if os.pwrite(self._fd, data, at) < len(data):
                    raise OSError(28, "no space left on device")
            except OSError:
                os.ftruncate(self._fd, at)
                raise
            self._sizes[self._path] = at + len(data)
            self._dirty = True

    def sync(self) -> None:
        """Has what was accepted outlive the machine."""
        with self._lock:
            if self._fd is not None and self._dirty:
                self._dirty = False
                os.fdatasync(self._fd)

    def writes(self, path: str) -> bool:
        """Whether a file is the one that grows."""
        with self._lock:
            return path == self._path

    def remove(self, path: str) -> None:
        """Its messages are acknowledged."""
        Path(path).unlink(missing_ok=True)
        with self._lock:
            self._sizes.pop(path, None)

    def close(self) -> None:
        """Writes no more."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
            self._path = ""

    def _next(self) -> None:
        if self._fd is not None:
            os.fdatasync(self._fd)
            os.close(self._fd)
        self._path = str(self._folder / f"{time.time_ns()}{_SUFFIX}")
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._sizes[self._path] = 0
