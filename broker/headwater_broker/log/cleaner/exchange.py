"""Putting a cleaned segment in the place of its sources, so that a crash after any rename leaves one or the other."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from headwater_broker.log import paths
from headwater_broker.log.batch import BASE_OFFSET, LAST_OFFSET_DELTA, BadBatchError, walk
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.segment import Segment

_LOGGER = logging.getLogger(__name__)


def exchange(
    fs: FileSystem, directory: str, base_offset: int, suffixes: Sequence[str], old: Sequence[Segment]
) -> list[str]:
    """Replaces segments by the one whose files lie under `.cleaned` names.

    Args:
        fs: Files.
        directory: The partition's.
        base_offset: Of the cleaned segment, and of the first old one.
        suffixes: Its files, the log being the last.
        old: What it replaces.

    Returns:
        The old files, renamed, which are still to be removed.
    """
    for suffix in suffixes:
        path = paths.segment_path(directory, base_offset, suffix)
        fs.rename(path + paths.CLEANED_SUFFIX, path + paths.SWAP_SUFFIX)
    renamed = []
    # From the oldest on: a superseded record is never there without the later one.
    for segment in old:
        # The producers' snapshot of the first offset stays right; those in between belong to segments that are gone.
        renamed += segment.delete(at_once=False, keep_snapshot=segment.base_offset == base_offset)
    for suffix in reversed(suffixes):
        path = paths.segment_path(directory, base_offset, suffix)
        fs.rename(path + paths.SWAP_SUFFIX, path)
    return renamed


def finish_exchanges(fs: FileSystem, directory: str, names: Sequence[str]) -> list[str]:
    """Brings to an end what a crash interrupted; returns the directory's names after that.

    Swap files at or after a `.cleaned` one were not all renamed yet: the sources are whole, so they are removed. Any
    other swap log is whole: what it replaces is removed, and it is put in its place. Where the log is there already,
    the files beside it follow.
    """
    cleaned = [int(name[:20]) for name in names if name.endswith(paths.CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(paths.SWAP_SUFFIX)]
    if not cleaned and not swaps:
        return list(names)
    for base_offset in sorted({int(name[:20]) for name in swaps}):
        mine = [name for name in swaps if int(name[:20]) == base_offset]
        log = paths.segment_path("", base_offset, paths.LOG_SUFFIX)[1:] + paths.SWAP_SUFFIX
        if cleaned and base_offset >= min(cleaned):
            _remove(fs, directory, mine)
            continue
        if log in mine:
            end_offset = _end_offset(fs, f"{directory}/{log}", base_offset)
            _LOGGER.info(
                "%s: finishing the compaction of offsets %d to %d", directory, base_offset, end_offset
            )
            _remove(fs, directory, [name for name in names if _is_replaced(name, base_offset, end_offset)])
        for name in sorted(mine, key=lambda name: name != log):
            fs.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(paths.SWAP_SUFFIX)}")
    _remove(fs, directory, [name for name in names if name.endswith(paths.CLEANED_SUFFIX)])
    return fs.names(directory)


def _end_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    """The offset after the last one of a log, as far as it can be read; after its first where it is empty."""
    file = OpenFile(fs, path, os.O_RDONLY)
    end_offset = base_offset + 1
    try:
        for _, _, header in walk(fs, file.fd, 0, fs.size_bytes(file.fd), check=False):
            end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    except BadBatchError as error:
        _LOGGER.warning("%s is damaged %s", path, error)
    return end_offset


def _is_replaced(name: str, base_offset: int, end_offset: int) -> bool:
    offset, suffix = name[:20], name[20:]
    if not offset.isdecimal() or suffix not in (*paths.SEGMENT_SUFFIXES, paths.SNAPSHOT_SUFFIX):
        return False
    return base_offset + (suffix == paths.SNAPSHOT_SUFFIX) <= int(offset) < end_offset


def _remove(fs: FileSystem, directory: str, names: Sequence[str]) -> None:
    for name in names:
        fs.remove(f"{directory}/{name}")
