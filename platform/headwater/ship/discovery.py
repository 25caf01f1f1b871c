"""Which files the patterns name now."""

import errno
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headwater.errors import UsageError, reason
from headwater.ship.expansion import Refused, note, paths_under
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


class Matches(NamedTuple):
    """What patterns match now.

    Attributes:
        files: The files to read.
        compressed: Those whose names are those of compressed files.
        refused: What could not be looked at: files, and folders that may have some.
    """

    files: dict[FileKey, Match]
    compressed: dict[FileKey, Match]
    refused: Refused


def is_pattern(path: str) -> bool:
    """Whether a path does not name one file but what matches it."""
    return any(each in path for each in "*?[") and not os.path.lexists(path)


def absolute(path: str) -> str:
    """A path or pattern of the command line as an absolute pattern, in which a plain path is escaped."""
    if not is_pattern(path):
        return glob.escape(os.path.abspath(path))  # noqa: PTH100 - links are followed later
    return os.path.normpath(os.path.join(glob.escape(os.getcwd()), path))  # noqa: PTH109, PTH118


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
    return next(paths_under(pattern, {}), None) is None


def sizes_of(patterns: Iterable[str]) -> dict[FileKey, int]:
    """How large the files under paths and glob patterns are now."""
    sizes = {}
    for key, match in matching_files(patterns).files.items():
        with suppress(OSError):
            sizes[key] = Path(match.path).stat().st_size
    return sizes


def folders_named(patterns: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The folders in which absolute patterns name files, without links; and whether their subfolders count, too."""
    for pattern in patterns:
        before, stars, _ = pattern.partition("/**")
        for folder in glob.iglob(f"{before}/" if stars else f"{os.path.dirname(pattern)}/"):  # noqa: PTH120, PTH207
            yield os.path.realpath(folder), bool(stars)


def _missing(path: str, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return f"{path} leads into a loop of symbolic links"
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"cannot read {path}: {reason(error)}"
    if Path(path).is_symlink():
        return f"{path} is a symbolic link to {Path(path).readlink()}, which is not there"
    return f"there is no file {path}"


def matching_files(patterns: Iterable[str]) -> Matches:
    """The regular files under paths and glob patterns, each once whatever links lead to it.

    A symbolic link stands for the file that it points at.
    """
    matches = Matches({}, {}, {})
    folders: dict[str, str] = {}
    for pattern in patterns:
        # A pattern that matches nothing may be the literal name of a file that came later.
        for path in sorted(paths_under(pattern, matches.refused)) or [pattern]:
            try:
                real, info = _followed(path, folders)
            except (OSError, ValueError) as error:
                note(path, error, matches.refused)
                continue
            if stat.S_ISREG(info.st_mode):
                files = matches.compressed if real.endswith(COMPRESSED) else matches.files
                files.setdefault((info.st_dev, info.st_ino), Match(real, pattern))
    return matches


def _followed(path: str, folders: dict[str, str]) -> tuple[str, os.stat_result]:
    """A path without links, and its file's status; `folders` caches each folder's path without links, as a folder has
    many files."""
    info = os.lstat(path)
    if stat.S_ISLNK(info.st_mode):
        real = os.path.realpath(path)
        return real, os.stat(real)  # noqa: PTH116 - thousands of files are looked at each second
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name), info  # noqa: PTH118


def neighbours(path: str) -> Iterator[tuple[FileKey, str]]:
    """The regular, uncompressed files in the folder of a path, itself included."""
    folder = os.path.dirname(path)  # noqa: PTH120
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        place = os.path.join(folder, name)  # noqa: PTH118
        key = None if name.endswith(COMPRESSED) else file_key(place)
        if key is not None:
            yield key, place


def beside(path: str) -> list[Path]:
    """What is in the folder of a path, in order; nothing if that is gone."""
    try:
        return sorted(Path(path).parent.iterdir())
    except OSError:
        return []


def file_key(path: str) -> FileKey | None:
    """Device and inode of a regular file; None if there is none."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISREG(info.st_mode) else None
