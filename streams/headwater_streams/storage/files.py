"""The door to files: what the library asks of a home's folders, and does to them.

Paths go through the library as values; only this package opens, lists, makes or removes anything. Writes that a crash
must not cut are in `atomic_file` and `stored_files`.
"""

import fcntl
import filecmp
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


def exists(path: Path) -> bool:
    """Whether there is a file or a folder."""
    return path.exists()


def is_file(path: Path) -> bool:
    """Whether there is a file."""
    return path.is_file()


def is_folder(path: Path) -> bool:
    """Whether there is a folder."""
    return path.is_dir()


def matching(folder: Path, pattern: str = "*") -> list[Path]:
    """The paths in a folder whose names match a pattern, sorted; none where the folder does not exist."""
    return sorted(folder.glob(pattern))


def files_below(folder: Path, pattern: str = "*") -> list[Path]:
    """The files in a folder and the folders below it whose names match a pattern, sorted."""
    return [path for path in sorted(folder.rglob(pattern)) if path.is_file()]


def size_of(path: Path) -> int:
    """A file's bytes.

    Raises:
        OSError: It is not there.
    """
    return path.stat().st_size


def changed_ns(path: Path) -> int:
    """When a file was changed last, nanoseconds since 1970.

    Raises:
        OSError: It is not there.
    """
    return path.stat().st_mtime_ns


def identity_of(path: Path) -> tuple[int, int]:
    """What distinguishes a file from another one of its name: its inode, and when it was changed last.

    Raises:
        OSError: It is not there.
    """
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two existing files are one, by a link, or have the same bytes."""
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


def read_text(path: Path) -> str:
    """A file's text, UTF-8, without a byte order mark.

    Raises:
        OSError: It cannot be read.
        UnicodeDecodeError: It is no UTF-8.
    """
    return path.read_text(encoding="utf-8-sig")


def file_bytes(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        OSError: It cannot be read.
    """
    return path.read_bytes()


def write_text(path: Path, text: str) -> None:
    """Writes a file, UTF-8, and makes its folder. Only for files that nothing reads before they are complete."""
    make_folder(path.parent)
    path.write_text(text, encoding="utf-8")


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, as far as they do not exist."""
    path.mkdir(parents=True, exist_ok=True)


def touch(path: Path) -> None:
    """Makes an empty file, unless the file exists."""
    path.touch()


def remove(path: Path) -> None:
    """Removes a file, if it exists."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path, *, wholly: bool = False) -> None:
    """Removes a folder with all that it holds, as far as it can be.

    Args:
        path: The folder.
        wholly: Whether to raise where something cannot be removed; else that stays.

    Raises:
        OSError: Something cannot be removed, and `wholly` is true.
    """
    shutil.rmtree(path, ignore_errors=not wholly)


def move(source: Path, target: Path) -> None:
    """Gives a file or a folder another name on the same file system; a file that has that name is replaced."""
    source.rename(target)


def link(source: Path, target: Path) -> None:
    """Puts a data file, which never changes, into another folder, too: by a hard link, or a copy where links fail.

    Does nothing where the target exists: an earlier try was killed after it had made the link.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)  # a partition has a folder of its own
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        scratch = target.with_name(f".{target.name}.copying")
        shutil.copyfile(source, scratch)
        scratch.replace(target)


def link_tree(source: Path, target: Path) -> None:
    """Makes a copy of a folder out of links to its files, or of copies where links fail.

    A file that is removed meanwhile is left out: Spark removes old batches and its scratch files at any time.
    """
    shutil.copytree(source, target, copy_function=_link_or_skip)


def _link_or_skip(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        return
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder that is removed when the block ends."""
    with TemporaryDirectory(dir=parent, prefix=prefix) as name:
        yield Path(name)


@contextmanager
def locked(path: Path, *, shared: bool = False, waits: bool = True) -> Iterator[None]:
    """Holds a lock while the block runs; it is released when the process dies, too.

    Args:
        path: The file that stands for the lock; it is made where there is none.
        shared: Whether others that share the lock may hold it, too.
        waits: Whether to wait for the holder.

    Raises:
        BlockingIOError: Another one holds it, and `waits` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
        yield
