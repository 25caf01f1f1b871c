"""The door to files: what the library asks of a home's folders, and does to them.

Paths go through the library as values; only here and beside here is anything opened, listed, made or removed. Writes
that a crash must not cut are `atomic_file` and `stored_files`.
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
    """What a folder has of a pattern's names, sorted; of one that is not there nothing."""
    return sorted(folder.glob(pattern))


def files_below(folder: Path, pattern: str = "*") -> list[Path]:
    """The files of a pattern's names in a folder and its folders, sorted."""
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
    """What tells a file from another of its name: its inode, and when it was changed last.

    Raises:
        OSError: It is not there.
    """
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two files that are there are one, by a link, or have the same bytes."""
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


def read_text(path: Path) -> str:
    """A file's text, UTF-8; a byte order mark is none of it.

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
    """Writes a file, UTF-8, and the folder that it is in, where nothing reads it before all of it is there."""
    make_folder(path.parent)
    path.write_text(text, encoding="utf-8")


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, as far as they are not there."""
    path.mkdir(parents=True, exist_ok=True)


def touch(path: Path) -> None:
    """Makes an empty file, where there is none."""
    path.touch()


def remove(path: Path) -> None:
    """Removes a file, where there is one."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path, *, wholly: bool = False) -> None:
    """Removes a folder with all that it holds, as far as it can be.

    Args:
        path: The folder.
        wholly: Whether an error is one; else what cannot be removed stays.

    Raises:
        OSError: Something of it cannot be removed, and it is to go wholly.
    """
    shutil.rmtree(path, ignore_errors=not wholly)


def move(source: Path, target: Path) -> None:
    """Gives a file or a folder another name on the same file system; of files one that has it goes."""
    source.rename(target)


def link(source: Path, target: Path) -> None:
    """Makes a data file, which never changes, one of another folder, too: a hard link, or a copy where there is none.

    Nothing is done where the target is there: an earlier try of the same died after it.
    """
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        scratch = target.with_name(f".{target.name}.copying")
        shutil.copyfile(source, scratch)
        scratch.replace(target)


def link_tree(source: Path, target: Path) -> None:
    """Makes a folder like another, of links to its files, or of copies where there are none.

    What goes while it is made is left out: Spark lets go of old batches, and of its scratch files, at any time.
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
    """A folder of its own that goes when the block ends."""
    with TemporaryDirectory(dir=parent, prefix=prefix) as name:
        yield Path(name)


@contextmanager
def locked(path: Path, *, shared: bool = False, waits: bool = True) -> Iterator[None]:
    """Holds a lock, which is free again when the process dies, while the block runs.

    Args:
        path: The file that stands for it; it is made where there is none.
        shared: Whether others that share it may hold it, too.
        waits: Whether it waits for who holds it.

    Raises:
        BlockingIOError: Another one holds it, and it does not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
        yield
