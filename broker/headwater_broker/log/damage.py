"""Telling a torn tail from corruption, and keeping what is cut off."""

from __future__ import annotations

import os
import re

from crc32c import crc32c

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    BATCH_LENGTH,
    CHECKED_FROM,
    CHECKSUM_VALUE,
    HEADER,
    SIZE_BEFORE_LENGTH_BYTES,
    BadBatchError,
)
from headwater_broker.log.files import OpenFile, copy_bytes
from headwater_broker.log.fs import FileSystem

_CHUNK_BYTES = 4 << 20

_SEARCHED_BYTES = 64 << 20
"""A batch is hardly larger: where more bytes remain, the file was not merely cut off within its last batch."""

_MAYBE_HEADER = re.compile(rb"(?=\x00\x00.{6}[\x00-\x07].{7}\x02)", re.DOTALL)
"""Base offset and length of a likely size, then the magic."""


def is_torn(fs: FileSystem, fd: int, error: BadBatchError, size_bytes: int) -> bool:
    """Whether the file merely ends within its last batch, as a write that was cut off leaves it.

    A file that ends in zeros was extended, but its bytes never arrived. Where a whole batch follows the bad one, the
    bad one's length is wrong: that is corruption.
    """
    if _is_zero(fs, fd, error.position, size_bytes):
        return True
    remaining_bytes = size_bytes - error.position
    return (
        error.torn
        and remaining_bytes <= _SEARCHED_BYTES
        and not _holds_batch(fs.pread(fd, remaining_bytes, error.position))
    )


def save_broken(
    fs: FileSystem, directory: str, offset: int, fd: int, position: int, end_position: int
) -> str:
    """Copies a file's bytes, which began with `offset`, to a `.broken` file; returns its path."""
    path = unused_broken_path(fs, directory, offset)
    target = OpenFile(fs, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    copy_bytes(fs, fd, position, end_position, target.fd)
    fs.sync(target.fd)
    fs.sync_dir(directory)
    return path


def unused_broken_path(fs: FileSystem, directory: str, offset: int) -> str:
    """A path that is free for damaged bytes that begin with `offset`."""
    number = 0
    path = paths.segment_path(directory, offset, paths.BROKEN_SUFFIX)
    while fs.exists(path):
        number += 1
        path = paths.segment_path(directory, offset, f"-{number}{paths.BROKEN_SUFFIX}")
    return path


def _is_zero(fs: FileSystem, fd: int, position: int, end_position: int) -> bool:
    while position < end_position:
        chunk = fs.pread(fd, min(_CHUNK_BYTES, end_position - position), position)
        if chunk.count(0) != len(chunk):
            return False
        position += len(chunk) or end_position
    return True


def _holds_batch(data: bytes) -> bool:
    view = memoryview(data)
    for match in _MAYBE_HEADER.finditer(data, 1):
        start = match.start()
        if len(data) - start < HEADER.size:
            break
        header = HEADER.unpack_from(data, start)
        end = start + header[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES
        if end <= len(data) and crc32c(view[start + CHECKED_FROM : end]) == header[CHECKSUM_VALUE]:
            return True
    return False
