"""The files of a table's Delta log, read without Delta: which exist, what a commit says, which one is damaged.

    _delta_log/00000000000000000003.json                 a commit: a line of JSON for each action
    _delta_log/00000000000000000003.crc                  Delta's summary of the version; made anew where it is wrong
    _delta_log/00000000000000000010.checkpoint.parquet   the state at a version; commits before it may be cut away
    _delta_log/_last_checkpoint                          which of these is the newest

Numbers follow each other without a gap. deltalake reads an empty file as a commit that does nothing, as if its rows
had never been written; here such a file is damaged.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.stored_files import read_bytes

_DIGITS = 20
_OF_VERSIONS = ("json", "json.crc", "crc", "checkpoint.parquet")
"""Files of a version whose commit exists or was cut away: none is written before the commit."""


def log_files(table: Path) -> list[tuple[int, Path]]:
    """The commits whose files are there, oldest first; none where there is no table.

    Raises:
        DamagedFileError: One between them is gone, or the newest.
    """
    return [(version, _commit(table, version)) for version in _versions(table)]


def has_versions(table: Path) -> bool:
    """Whether there is a table: some file of its log belongs to a version.

    A job that is killed while it creates a table, or a power cut, leaves an empty folder for the log.
    """
    try:
        with os.scandir(table / "_delta_log") as entries:
            return any(_version_of(entry.name) is not None for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _versions(table: Path, since: int = 0) -> list[int]:
    """The versions of the commits since one."""
    listed = _listed(table, since)
    if _gone(*listed) is not None:  # a listing during a write may have a later file and lack the one before
        listed = _listed(table, since)
    gone = _gone(*listed)
    if gone is not None:
        raise DamagedFileError(_commit(table, gone), "is gone, a commit of its log")
    return listed[0]


def _listed(table: Path, since: int) -> tuple[list[int], int]:
    """The versions of the commits, sorted, and the newest version that any file belongs to."""
    versions, newest = [], -1
    try:
        names = os.listdir(table / "_delta_log")  # noqa: PTH208 - asked for in each batch, where a path each would cost
    except (FileNotFoundError, NotADirectoryError):
        return [], -1
    for name in names:
        version = _version_of(name)
        if version is not None and version >= since:
            newest = max(newest, version)
            if name.endswith(".json"):
                versions.append(version)
    return sorted(versions), newest


def _version_of(name: str) -> int | None:
    # Hadoop's checksum of a commit, `.N.json.crc`, comes after it.
    number, _, kind = name.removeprefix(".").partition(".")
    return int(number) if number.isdecimal() and kind in _OF_VERSIONS else None


def _gone(versions: list[int], newest: int) -> int | None:
    last = versions[-1] if versions else -1
    if newest > last:
        return newest
    if not versions or last - versions[0] + 1 == len(versions):
        return None
    existing = set(versions)
    return next(version for version in range(versions[0], last) if version not in existing)


def _commit(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:0{_DIGITS}d}.json"


def actions_of(path: Path) -> Iterator[dict[str, Any]]:
    """The actions of a commit.

    Raises:
        DamagedFileError: The file is gone, has no action, or has a line that is no action.
    """
    is_empty = True
    try:
        with path.open("rb") as lines:
            for line in lines:
                action = json.loads(line)
                if not isinstance(action, dict):
                    raise ValueError("a line is no object")
                is_empty = False
                yield action
    except FileNotFoundError:
        raise DamagedFileError(path, "is gone, a commit of its log") from None
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read ({error.strerror}), a commit of its log") from error
    except ValueError as error:
        raise DamagedFileError(path, f"is no commit of a Delta log ({error})") from error
    if is_empty:
        raise DamagedFileError(path, "is empty, and no commit of a Delta log")


def require_readable(table: Path) -> None:
    """Checks that deltalake will miss no commit of a table: see above.

    Raises:
        DamagedFileError: A commit that it reads, after the newest checkpoint, is gone, empty, or does not match
            Hadoop's checksum.
    """
    since = max((int(path.name.partition(".")[0]) for path in _checkpoints(table)), default=-1)
    for version in _versions(table, since + 1):
        read_bytes(_commit(table, version))


def log_damage(table: Path) -> DamagedFileError | None:
    """The first damaged file of a table's log, or None. Readers need the files from the newest checkpoint on; the
    ledger is read from the commits before it, too."""
    try:
        files = log_files(table)
        for _, path in files:
            read_bytes(path)
            for _ in actions_of(path):
                pass
        checkpoints = _checkpoints(table)
        for path in checkpoints:
            if path.suffix == ".parquet":
                _require_checkpoint(path, is_needed=files[0][0] > 0 if files else True)
        if files and files[0][0] > 0 and not checkpoints:
            what = "is gone, a commit of its log, and no checkpoint stands for it"
            raise DamagedFileError(_commit(table, files[0][0] - 1), what)
    except DamagedFileError as error:
        return error
    return _of_last_checkpoint(table, checkpoints)


def _checkpoints(table: Path) -> list[Path]:
    """The checkpoints, also those in several parts, or of other names, that other tools write."""
    paths = (table / "_delta_log").glob("*.checkpoint.*")
    return sorted(path for path in paths if path.name.partition(".")[0].isdigit())


def _require_checkpoint(path: Path, *, is_needed: bool) -> None:
    import pyarrow.parquet as pq

    remedy = None if is_needed else "remove it and _last_checkpoint: all commits that it stands for are there"
    try:
        read_bytes(path)
        pq.read_table(path)
    except DamagedFileError as error:
        raise DamagedFileError(path, error.what, remedy) from error
    except Exception as error:  # Arrow has many for what is no Parquet
        what = f"is no checkpoint of a Delta log ({_first_line(error)})"
        raise DamagedFileError(path, what, remedy) from error


def _of_last_checkpoint(table: Path, checkpoints: list[Path]) -> DamagedFileError | None:
    path = table / "_delta_log" / "_last_checkpoint"
    if not path.exists():
        return None
    remedy = "remove it: Delta finds the newest checkpoint without it"
    try:
        version = json.loads(read_bytes(path))["version"]
    except DamagedFileError as error:
        return error.with_remedy(remedy)
    except (ValueError, TypeError, KeyError) as error:
        return DamagedFileError(path, f"is not the name of a checkpoint ({error})", remedy)
    if not any(int(each.name.partition(".")[0]) == version for each in checkpoints):
        return DamagedFileError(path, f"names a checkpoint of version {version}, which is not there", remedy)
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
