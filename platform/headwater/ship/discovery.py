"""Which files the patterns name now."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.ship.tail import FileKey

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4", ".Z", ".tgz", ".br")
"""What log rotation leaves behind: its lines were sent before it was compressed."""


class Match(NamedTuple):
    """A file under a pattern.

    Attributes:
        path: Where it is, without links.
        pattern: The first pattern that names it.
    """

    path: str
    pattern: str


def matching_files(patterns: Iterable[str]) -> dict[FileKey, Match]:
    """The regular files under paths and glob patterns, each once whatever links lead to it.

    A symbolic link stands for the file that it points at. Compressed files are left out, and so is what may not be
    looked at.
    """
    found: dict[FileKey, Match] = {}
    for pattern in patterns:
        paths = sorted(glob.glob(pattern, recursive=True)) or [pattern]  # noqa: PTH207 - absolute patterns
        for path in paths:
            real = os.path.realpath(path)
            key = file_key(real)
            if key is not None and not real.endswith(COMPRESSED):
                found.setdefault(key, Match(real, pattern))
    return found


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
