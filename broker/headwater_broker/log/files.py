"""Descriptors that live as long as somebody refers to them."""

from __future__ import annotations

import contextlib

from headwater_broker.log.fs import FileSystem


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
