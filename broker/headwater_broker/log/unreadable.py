"""Batches that were acknowledged and that nobody can read: versions before 0.2 took them (see `inspection`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    RECORD_COUNT,
    BadBatchError,
    HeaderTuple,
    last_offset_of,
    walk,
)
from headwater_broker.log.compression import UndecodableError, decompressed_slices
from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.inspection import LONG_MIN, SLICE_BYTES
from headwater_broker.log.walk import Walker, explain


class Unreadable(NamedTuple):
    """A batch whose checksum is right and whose records are not what its header says.

    Attributes:
        topic: The topic's name.
        partition: The partition.
        first_offset: Of the batch.
        last_offset: Of the batch.
        reason: What is wrong with it.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str


def find_unreadable(fs: FileSystem, directory: str) -> Iterator[Unreadable]:
    """Reads all that a log directory holds, and tells what cannot be read; changes nothing.

    A broker may run on it: where a file ends within a batch, or is gone meanwhile, that is passed over. What is wrong
    in other ways (a checksum, an index) is what a start of the broker tells.

    Args:
        fs: Files.
        directory: The log directory.
    """
    for name in sorted(fs.names(directory)):
        place = paths.parse_partition_directory(name)
        if place is None:
            continue
        topic, partition = place
        folder = f"{directory}/{name}"
        for base_offset in paths.numbered(fs.names(folder), paths.LOG_SUFFIX):
            path = paths.segment_path(folder, base_offset, paths.LOG_SUFFIX)
            try:
                for header, reason in _bad_batches(fs, path):
                    yield Unreadable(topic, partition, header[BASE_OFFSET], last_offset_of(header), reason)
            except (FileNotFoundError, BadBatchError):
                continue


def _bad_batches(fs: FileSystem, path: str) -> Iterator[tuple[HeaderTuple, str]]:
    file = OpenFile(fs, path, os.O_RDONLY)
    for position, size, header in walk(fs, file.fd, 0, fs.size_bytes(file.fd), check=True):
        if not header[ATTRIBUTES] & CONTROL:
            reason = why_unreadable(fs.pread(file.fd, size, position), header)
            if reason is not None:
                yield header, reason


def why_unreadable(batch: bytes | memoryview, header: HeaderTuple) -> str | None:
    """What is wrong with the records of a whole batch that is stored, compacted or not; None where nothing is."""
    count = header[RECORD_COUNT]
    walker = Walker(count, header[BASE_TIMESTAMP_MS], LONG_MIN, LONG_MAX, False, True)
    error = 0
    try:
        if count > 0 or len(batch) > HEADER.size:
            records = memoryview(batch)[HEADER.size :]
            for piece in decompressed_slices(records, header[ATTRIBUTES] & COMPRESSION_MASK, SLICE_BYTES):
                error = walker.feed(piece)
                if error:
                    break
    except UndecodableError as undecodable:
        return f"the records do not decompress: {undecodable}"
    return explain(walker, error, count)
