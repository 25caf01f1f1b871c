"""Descriptors that live as long as somebody refers to them."""

from __future__ import annotations

import contextlib

from headwater_broker.log.fs import FileSystem

_CHUNK_BYTES = 4 << 20


class OpenFile:
    """An open file, closed when the last reference to it goes.

    A fetch that is being sent holds a reference, so that deleting the segment never closes the descriptor under it.
    CPython frees at once what nothing refers to, so descriptors do not pile up.
    """

    __slots__ = ("_fs", "fd", "path")

    def __init__(self, fs: FileSystem, path: str, flags: int) -> None:
        self._fs = fs
        self.path = path
        self.fd = -1
        self.fd = fs.open(path, flags)

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self.fd)


def copy_bytes(fs: FileSystem, source_fd: int, position: int, end_position: int, target_fd: int) -> None:
    """Copies bytes of a file to the beginning of another.

    Raises:
        OSError: The disk refused.
    """
    written = 0
    while chunk := fs.pread(
        source_fd, min(_CHUNK_BYTES, end_position - position - written), position + written
    ):
        rest = memoryview(chunk)
        while rest:
            count = fs.pwritev(target_fd, [rest], written)
            rest = rest[count:]
            written += count
