"""A disk that fails on request."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from headwater_broker.log.fs import Buffer, OsFileSystem

Fault = Callable[[str, str], OSError | None]
"""Given an operation and a path, the error to raise, if any.

Operations: `write`, `read` (of a small file as a whole, too), `list` (a directory), `sync`, `open`, `open_to_write`
(after `open`), `replace` (of a small file), `truncate`, `rename`, `remove` and `make_dir`.
"""

_CHANGES = ("write", "open_to_write", "replace", "truncate", "rename", "remove", "make_dir")


def no_space(operation: str, path: str) -> OSError | None:
    """Every write finds the disk full."""
    return (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) if operation in ("write", "replace") else None
    )


def read_only(operation: str, path: str) -> OSError | None:
    """The disk can be read, and nothing on it changed."""
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path) if operation in _CHANGES else None


def broken_writes(operation: str, path: str) -> OSError | None:
    """Every write fails, and nobody knows what it did; reads do not."""
    return (
        OSError(errno.EIO, os.strerror(errno.EIO), path)
        if operation in ("write", "replace", "sync")
        else None
    )


def not_allowed(folder: str) -> Fault:
    """A folder, and all that is in it, is somebody else's."""

    def fault(operation: str, path: str) -> OSError | None:
        is_within = path == folder or path.startswith(f"{folder}/")
        return OSError(errno.EACCES, os.strerror(errno.EACCES), path) if is_within else None

    return fault


def broken_disk(operation: str, path: str) -> OSError | None:
    """Nothing works any more."""
    return OSError(errno.EIO, os.strerror(errno.EIO), path)


class FaultyFileSystem(OsFileSystem):
    """The real file system, until `fault` says otherwise.

    Attributes:
        fault: Asked before each operation; None: all is well.
        short_writes: Whether a write takes only half of what it is given, as it may.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.short_writes = False
        self._paths: dict[int, str] = {}

    def _ask(self, operation: str, path: str) -> None:
        error = self.fault(operation, path) if self.fault is not None else None
        if error is not None:
            try:
                raise error
            finally:
                del error  # an error that its own frame refers to goes only with the collector

    def open(self, path: str, flags: int) -> int:
        self._ask("open", path)
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._ask("open_to_write", path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._ask("write", self._paths[fd])
        if self.short_writes:
            data = b"".join(buffers)
            buffers = [data[: (len(data) + 1) // 2]]
        return super().pwritev(fd, buffers, position)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        self._ask("read", self._paths[fd])
        return super().pread(fd, count, position)

    def read_file(self, path: str) -> bytes:
        self._ask("read", path)
        return super().read_file(path)

    def names(self, path: str) -> list[str]:
        self._ask("list", path)
        return super().names(path)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        self._ask("read", self._paths[fd])
        return super().pread_into(fd, buffer, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._ask("truncate", self._paths[fd])
        super().truncate(fd, size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._ask("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._ask("remove", path)
        super().remove(path)

    def make_dir(self, path: str) -> None:
        self._ask("make_dir", path)
        super().make_dir(path)

    def sync(self, fd: int) -> None:
        self._ask("sync", self._paths[fd])
        super().sync(fd)

    def write_file(self, path: str, data: Buffer, *, durable: bool) -> None:
        self._ask("replace", path)
        super().write_file(path, data, durable=durable)
