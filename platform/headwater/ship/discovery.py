"""Which files the patterns name now."""

import errno
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.errors import UsageError
from headwater.ship.tail import FileKey

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4", ".Z", ".tgz", ".br")
"""What log rotation leaves behind: its lines were sent before it was compressed."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Match(NamedTuple):
    """A file under a pattern.

    Attributes:
        path: Where it is, without links.
        pattern: The first pattern that names it.
    """

    path: str
    pattern: str


def is_pattern(path: str) -> bool:
    """Whether a path does not name one file but what matches it."""
    return any(each in path for each in "*?[") and not os.path.lexists(path)


def missing_file(path: str) -> str | None:
    """Looks at a file that is named, and not matched by a pattern.

    Returns:
        A sentence if there is none yet, or it may not be read; None if it can be.

    Raises:
        UsageError: It is no regular file, or compressed.
    """
    kind, problem = None, None
    try:
        kind = stat.S_IFMT(Path(path).stat().st_mode)
    except OSError as error:
        problem = _missing(path, error)
    if kind in _KINDS:
        raise UsageError(f"{path} is {_KINDS[kind]}, and lines are read of plain files; name those")
    if os.path.realpath(path).endswith(COMPRESSED):
        raise UsageError(f"{path} is compressed, and lines are read of plain files; unpack it and ship that")
    if problem is None and not os.access(path, os.R_OK):
        return f"cannot read {path}: permission denied"
    return problem


def matches_nothing(pattern: str) -> bool:
    """Whether there is no file under a pattern now."""
    return next(glob.iglob(pattern, recursive=True), None) is None  # noqa: PTH207 - absolute ones, too


def _missing(path: str, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return f"{path} leads into a loop of symbolic links"
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"cannot read {path}: {(error.strerror or str(error)).lower()}"
    if Path(path).is_symlink():
        return f"{path} is a symbolic link to {Path(path).readlink()}, which is not there"
    return f"there is no file {path}"


def matching_files(patterns: Iterable[str]) -> tuple[dict[FileKey, Match], list[str]]:
    """The regular files under paths and glob patterns, each once whatever links lead to it.

    A symbolic link stands for the file that it points at. What may not be looked at is left out.

    Returns:
        The files to read, and the places of the compressed ones, which are left out.
    """
    found: dict[FileKey, Match] = {}
    compressed: dict[FileKey, str] = {}
    for pattern in patterns:
        paths = sorted(glob.glob(pattern, recursive=True)) or [pattern]  # noqa: PTH207 - absolute patterns
        for path in paths:
            real = os.path.realpath(path)
            key = file_key(real)
            if key is None:
                continue
            if real.endswith(COMPRESSED):
                compressed.setdefault(key, real)
            else:
                found.setdefault(key, Match(real, pattern))
    return found, list(compressed.values())


def neighbours(path: str) -> Iterator[tuple[FileKey, str]]:
    """The regular, uncompressed files in the folder of a path, itself included."""
    try:
        places = sorted(map(str, Path(path).parent.iterdir()))
    except OSError:
        return
    for place in places:
        key = file_key(place)
        if key is not None and not place.endswith(COMPRESSED):
            yield key, place


def file_key(path: str) -> FileKey | None:
    """Device and inode of a regular file; None if there is none."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
