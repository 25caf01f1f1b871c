"""The operating system's files, as an argument: tests put a faulty disk in its place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class FileSystem(Protocol):
    """What the log asks of the operating system; every method may raise `OSError`."""

    def open(self, path: str, flags: int) -> int:
        """Opens `path` (created with mode 0644 where `flags` say so) and returns its descriptor."""
        ...

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes the buffers one after the other at `position`; returns how many bytes were taken."""
        ...

    def pread(self, fd: int, count: int, position: int) -> bytes:
        """Returns up to `count` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Fills `buffer` from `position`; returns how many bytes there were."""
        ...

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cuts or extends the file to `size_bytes`."""
        ...

    def sync(self, fd: int) -> None:
        """Returns once the file's bytes and size are on the disk."""
        ...

    def sync_dir(self, path: str) -> None:
        """Returns once the names in a directory are on the disk."""
        ...

    def size_bytes(self, fd: int) -> int:
        """The file's size."""
        ...

    def identity(self, file: int | str) -> tuple[int, int, int]:
        """Device and inode of a file, open or by its path, which no other file has, and when it was last written.

        Raises:
            FileNotFoundError: There is none of that path.
        """
        ...

    def written_bytes(self, fd: int) -> int:
        """How much of the file was written from its beginning on: up to the first hole, or to its end."""
        ...

    def modified_ms(self, fd: int) -> int:
        """When the file was last written, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, fd: int, modified_ms: int) -> None:
        """Says when the file was last written."""
        ...

    def disk_bytes(self, path: str) -> tuple[int, int]:
        """How much the disk under a directory holds in all, and how much more may be written to it."""
        ...

    def read_file(self, path: str) -> bytes:
        """The whole of a small file.

        Raises:
            FileNotFoundError: There is none.
        """
        ...

    def write_file(self, path: str, data: Buffer, *, durable: bool) -> None:
        """Replaces a small file in one step: beside it, then renamed over it; `durable` syncs both."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames, replacing `target`."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file; a missing one is no error."""
        ...

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory; a missing one is no error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Removes a directory and all that is in it; a missing one is no error."""
        ...

    def make_dir(self, path: str) -> None:
        """Makes a directory and its parents; an existing one is no error."""
        ...

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether there is such a directory."""
        ...


class OsFileSystem:
    """The operating system's own files."""

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, buffers, position)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        return os.pread(fd, count, position)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        filled = 0
        while filled < len(buffer):
            count = os.preadv(fd, [buffer[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size_bytes(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def identity(self, file: int | str) -> tuple[int, int, int]:
        status = os.stat(file)  # noqa: PTH116 - of a descriptor, too
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def written_bytes(self, fd: int) -> int:
        try:
            return os.lseek(fd, 0, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # an empty file
                raise
            return 0

    def modified_ms(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, fd: int, modified_ms: int) -> None:
        os.utime(fd, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def disk_bytes(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def read_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write_file(self, path: str, data: Buffer, *, durable: bool) -> None:
        temporary = path + ".tmp"
        try:
            with Path(temporary).open("wb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fdatasync(file.fileno())
            self.rename(temporary, path)
        except OSError:
            # A full disk must not be filled further by what is of no use.
            with contextlib.suppress(OSError):
                self.remove(temporary)
            raise
        if durable:
            self.sync_dir(str(Path(path).parent))

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()

    def remove_dir(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            Path(path).rmdir()

    def remove_tree(self, path: str) -> None:
        if Path(path).exists():
            shutil.rmtree(path)

    def make_dir(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def names(self, path: str) -> list[str]:
        with os.scandir(path) as entries:  # a start lists every partition: pathlib takes three times as long
            return sorted(entry.name for entry in entries)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def is_dir(self, path: str) -> bool:
        return Path(path).is_dir()
