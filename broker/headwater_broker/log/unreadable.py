"""Batches that were acknowledged and that nobody can read: versions before 0.2 took them (see `inspection`).

Another program may have written them, too. So batches that this process did not write are checked when they are read
for the first time. A reader gets an error in the place of an unreadable batch. One that asks to go past it gets a batch
of one record instead, which holds the unreadable one (`stand_in`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP_MS,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    COMPRESSION_MASK,
    CONTROL,
    GREATEST_TIMESTAMP_MS,
    HEADER,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
    TRANSACTIONAL,
    BadBatchError,
    HeaderTuple,
    last_offset_of,
    size_of,
    walk,
)
from headwater_broker.log.compression import UndecodableError
from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.decompression import decompressed_slices
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.inspection import SLICE_BYTES
from headwater_broker.log.ranges import RangeSet
from headwater_broker.log.record_stream import Slices, finished
from headwater_broker.log.records import write_varint
from headwater_broker.log.walk import Walker, are_plain, explain

UNREADABLE_HEADER = b"headwater-unreadable"
"""The header of the record that stands for an unreadable batch; it says what is wrong with that."""

_LOOKED_AT_ONCE = 256
"""So many good batches are checked before the work may be put aside."""


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
    """Reads all that a log directory holds, and yields what cannot be read; changes nothing.

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
            reason = finished(why_unreadable(fs.pread(file.fd, size, position), header))
            if reason is not None:
                yield header, reason


class LookedAt:
    """Which bytes of a segment hold records that were checked, and are what their batches' headers say.

    Attributes:
        own_from: From this position on, all of them.
    """

    def __init__(self, own_from: int) -> None:
        """Begins with the position from which on this process writes, and so checks."""
        self.own_from = own_from
        self._ranges = RangeSet()
        self._reported: set[int] = set()

    def covers(self, position: int, end_position: int) -> bool:
        """Whether all records between two positions were checked."""
        own_from = self.own_from
        return position >= own_from or self._ranges.covers(position, min(end_position, own_from))

    def add(self, position: int, end_position: int) -> None:
        """Notes that all records between two positions were checked."""
        self._ranges.add(position, end_position)

    def is_news(self, position: int) -> bool:
        """Whether a batch that cannot be read is met for the first time."""
        if position in self._reported:
            return False
        self._reported.add(position)
        return True

    def cut(self, end_position: int) -> None:
        """Forgets everything from a position on, where the file ends now."""
        self.own_from = min(self.own_from, end_position)
        self._ranges.cut(end_position)


def readable_until(batches: bytes, *, must_fit: bool) -> Slices[tuple[int, str | None]]:
    """Where the batches end that can be read, from the first on, and what is wrong with the next one.

    Markers of transactions are passed over: a consumer does so, too.

    Args:
        batches: Whole batches; the last one may be cut off, and does not count then.
        must_fit: Whether timestamps must fit into microseconds, too, as for Spark.
    """
    at, number = 0, 0
    view = memoryview(batches)
    while len(batches) - at >= HEADER.size:
        header = HEADER.unpack_from(batches, at)
        end = at + size_of(header)
        if end > len(batches):
            break
        if not header[ATTRIBUTES] & CONTROL:
            reason = yield from why_unreadable(view[at:end], header, must_fit=must_fit)
            if reason is not None:
                return at, reason
        at = end
        number += 1
        if number % _LOOKED_AT_ONCE == 0:
            yield
    return at, None


def why_unreadable(
    batch: bytes | memoryview, header: HeaderTuple, *, must_fit: bool = False
) -> Slices[str | None]:
    """What is wrong with the records of a whole batch that is stored, compacted or not; None where nothing is."""
    count, first_ms, greatest_ms = header[RECORD_COUNT], header[BASE_TIMESTAMP_MS], header[MAX_TIMESTAMP_MS]
    codec = header[ATTRIBUTES] & COMPRESSION_MASK
    if not 0 <= count <= header[LAST_OFFSET_DELTA] + 1:
        return f"{count} records cannot have {header[LAST_OFFSET_DELTA] + 1} offsets"
    is_near = 0 <= first_ms <= greatest_ms <= GREATEST_TIMESTAMP_MS
    if is_near and not codec and are_plain(batch, HEADER.size, count, greatest_ms - first_ms):
        return None  # nearly every batch, and at once
    stamps_count = must_fit and not header[ATTRIBUTES] & LOG_APPEND_TIME
    bound_ms = GREATEST_TIMESTAMP_MS if stamps_count else LONG_MAX
    walker = Walker(count, first_ms, -bound_ms, bound_ms, False, True)
    error = 0
    try:
        if count > 0 or len(batch) > HEADER.size:
            records = memoryview(batch)[HEADER.size :]
            for piece in decompressed_slices(records, codec, SLICE_BYTES):
                error = walker.feed(piece)
                if error:
                    break
                yield
    except UndecodableError as undecodable:
        return f"the records do not decompress: {undecodable}"
    wrong = walker.wrong() if stamps_count else [(0, greatest_ms)]
    far = [(number, ms) for number, ms in wrong if ms is not None and abs(ms) > GREATEST_TIMESTAMP_MS]
    if must_fit and far and not error:
        return f"record {far[0][0]} has the timestamp {far[0][1]} ms, beyond what microseconds can tell"
    return explain(walker, error, count)


def unreadable_text(header: HeaderTuple, reason: str) -> str:
    """Which batch cannot be read, and why, for a person."""
    return f"the batch of offsets {header[BASE_OFFSET]} to {last_offset_of(header)} cannot be read: {reason}"


def stand_in(batch: bytes, header: HeaderTuple, text: str) -> bytes:
    """A batch of one record that takes all offsets of one that cannot be read.

    The record's offset is the first of these, its value the batch as it is stored, its only header
    `headwater-unreadable` with the text. It is part of the same transaction.

    Args:
        batch: The whole batch.
        header: Its header.
        text: What is wrong with it.
    """
    reason = text.encode()
    first_ms = header[BASE_TIMESTAMP_MS]
    stamp_ms = first_ms if 0 <= first_ms <= GREATEST_TIMESTAMP_MS else NO_TIMESTAMP
    body = b"".join(
        (
            b"\0\0\0\x01",  # attributes, timestamp delta, offset delta; no key
            *(write_varint(len(batch)), batch, write_varint(1)),
            *(write_varint(len(UNREADABLE_HEADER)), UNREADABLE_HEADER, write_varint(len(reason)), reason),
        )
    )
    record = write_varint(len(body)) + body
    stand_in = bytearray(
        HEADER.pack(
            *(header[BASE_OFFSET], HEADER.size - SIZE_BEFORE_LENGTH_BYTES + len(record)),
            *(header[LEADER_EPOCH], MAGIC, 0, header[ATTRIBUTES] & TRANSACTIONAL, header[LAST_OFFSET_DELTA]),
            *(stamp_ms, stamp_ms, header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE], 1),
        )
    )
    stand_in += record
    CHECKSUM.pack_into(stand_in, CHECKSUM_POSITION, crc32c(memoryview(stand_in)[CHECKED_FROM:]))
    return bytes(stand_in)
