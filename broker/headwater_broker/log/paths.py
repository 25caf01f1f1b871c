"""The names of files in a partition's directory."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
TRANSACTION_CHECKSUM_SUFFIX = ".txnsum"
SNAPSHOT_SUFFIX = ".snapshot"
BROKEN_SUFFIX = ".broken"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIXES = (DELETED_SUFFIX, ".tmp", CLEANED_SUFFIX)
SEGMENT_SUFFIXES = (
    *(INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_CHECKSUM_SUFFIX, TRANSACTION_INDEX_SUFFIX),
    LOG_SUFFIX,
)
DELETED_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
MOVED_DIRECTORY_SUFFIX = "-moved"
STRAY_DIRECTORY_SUFFIX = "-stray"

_NUMBERED = re.compile(r"([0-9]{20})(\.[a-z]+)")


def segment_path(directory: str, offset: int, suffix: str) -> str:
    """The file of that kind that starts at `offset`."""
    return f"{directory}/{offset:020d}{suffix}"


def numbered(names: list[str], suffix: str) -> list[int]:
    """The offsets of all files of one kind, in order."""
    matches = (_NUMBERED.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match and match[2] == suffix)


def partition_directory(log_directory: str, topic: str, partition: int) -> str:
    """Where a partition's files are."""
    return f"{log_directory}/{topic}-{partition}"


def moved_name(name: str) -> str | None:
    """The name that a directory with a whole copy is to have; None where it is no such directory."""
    match = re.fullmatch(r"(.+-[0-9]+)\.[0-9a-f]{32}" + MOVED_DIRECTORY_SUFFIX, name)
    return match[1] if match else None


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Topic and partition of a directory's name; None where it is not a partition's."""
    topic, dash, number = PurePosixPath(name).name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdecimal():
        return None
    return topic, int(number)
