"""The header of a record batch (magic 2), and a walk over the batches of a file.

The layout is in the package's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crc32c import crc32c

from headwater_broker.log.fs import FileSystem

HEADER = struct.Struct(">qiibIhiqqqhii")
"""The 61 bytes before the records, in the order of the indexes below."""

STAMP = struct.Struct(">qii")
"""Base offset, batch length and leader epoch: what the broker writes, outside the checksum."""

CHECKSUM = struct.Struct(">I")
STAMPED_TIME = struct.Struct(">q")
MAGIC = 2
SIZE_BEFORE_LENGTH_BYTES = 12
"""Base offset and batch length, which the batch length does not count."""

CHECKSUM_POSITION = 17
CHECKED_FROM = 21
"""The checksum covers everything from the attributes on."""

ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

MAX_SEQUENCE = 2**31 - 1
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
GREATEST_TIMESTAMP_MS = (2**63 - 1) // 1000
"""The last time that a reader in microseconds, as Spark is, can hold; one in nanoseconds is beyond it."""

SCAN_CHUNK_BYTES = 1 << 20
"""Small enough that the checksum finds the bytes still in the processor's cache."""

SEEK_CHUNK_BYTES = 16 << 10
"""Enough for the batches between two index entries, unless they are large."""

BASE_OFFSET = 0
BATCH_LENGTH = 1
LEADER_EPOCH = 2
MAGIC_BYTE = 3
CHECKSUM_VALUE = 4
ATTRIBUTES = 5
LAST_OFFSET_DELTA = 6
BASE_TIMESTAMP_MS = 7
MAX_TIMESTAMP_MS = 8
PRODUCER_ID = 9
PRODUCER_EPOCH = 10
BASE_SEQUENCE = 11
RECORD_COUNT = 12
"""Where an unpacked header has which field; a plain tuple costs the hot path least."""

HeaderTuple = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def last_offset_of(header: HeaderTuple) -> int:
    """The offset of a batch's last record."""
    return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]


def size_of(header: HeaderTuple) -> int:
    """How many bytes a batch takes, with its header."""
    return header[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES


class BadBatchError(Exception):
    """The walk met bytes that are no batch.

    Attributes:
        position: Where the bad batch begins: everything before it was whole.
        torn: The file ends within the batch, as a write that was cut off leaves it.
        disordered: It is whole, but its offsets do not follow those of the batch before.
    """

    def __init__(self, position: int, reason: str, *, torn: bool = False, disordered: bool = False) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.torn = torn
        self.disordered = disordered


class BatchReader:
    """Reads a file's batches, one after another, through one buffer.

    Offsets must grow; with `check`, checksums must match.

    Attributes:
        buffer: A piece of the file.
        buffer_position: Where in the file it begins.
        at: Where in the buffer the next batch begins.
        filled: Where in the buffer the piece ends.
        last_offset: Of the batch before; -1 if there was none.
    """

    __slots__ = (
        "_check",
        "_chunk_bytes",
        "_end_position",
        "_fd",
        "_fs",
        "at",
        "buffer",
        "buffer_position",
        "filled",
        "last_offset",
    )

    def __init__(
        self,
        fs: FileSystem,
        fd: int,
        position: int,
        end_position: int,
        *,
        check: bool,
        chunk_bytes: int = SCAN_CHUNK_BYTES,
    ) -> None:
        """Begins at `position`, which must be where a batch does."""
        self._fs = fs
        self._fd = fd
        self._end_position = end_position
        self._check = check
        self._chunk_bytes = chunk_bytes
        self.buffer = memoryview(bytearray(min(chunk_bytes, max(end_position - position, 0))))
        self.buffer_position = position
        self.at = self.filled = 0
        self.last_offset = -1

    def next(self) -> tuple[int, int, HeaderTuple] | None:
        """Position, size in bytes and header of the next batch; None at the end.

        Raises:
            BadBatchError: It is not whole.
            OSError: The disk refused.
        """
        if self.filled - self.at < HEADER.size and not self._fill(HEADER.size):
            return None
        buffer, at = self.buffer, self.at
        header = HEADER.unpack_from(buffer, at)
        size = header[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES
        if header[MAGIC_BYTE] != MAGIC or size < HEADER.size:
            raise BadBatchError(
                self.buffer_position + at,
                f"magic {header[MAGIC_BYTE]} and length {header[BATCH_LENGTH]} are no batch",
            )
        if self._check:
            if self.filled - at < size:
                self._fill(size)
                buffer, at = self.buffer, self.at
            if crc32c(buffer[at + CHECKED_FROM : at + size]) != header[CHECKSUM_VALUE]:
                raise BadBatchError(self.buffer_position + at, "the checksum does not match")
        elif self.buffer_position + at + size > self._end_position:
            short = self.buffer_position + at + size - self._end_position
            raise BadBatchError(self.buffer_position + at, f"the file ends {short} bytes early", torn=True)
        base_offset, delta = header[BASE_OFFSET], header[LAST_OFFSET_DELTA]
        if base_offset <= self.last_offset or delta < 0:
            raise BadBatchError(
                self.buffer_position + at,
                f"base offset {base_offset} and last offset delta {delta} do not follow offset {self.last_offset}",
                disordered=True,
            )
        self.last_offset = base_offset + delta
        self.at = at + size
        return self.buffer_position + at, size, header

    def _fill(self, needed: int) -> bool:
        """Has at least so many bytes of the next batch in the buffer; False at the end."""
        self.buffer_position += self.at
        self.at = self.filled = 0
        remaining_bytes = self._end_position - self.buffer_position
        if remaining_bytes < needed:
            if remaining_bytes == 0:
                return False
            raise BadBatchError(
                self.buffer_position, f"the file ends {needed - remaining_bytes} bytes early", torn=True
            )
        read_bytes = min(remaining_bytes, max(self._chunk_bytes, needed))
        if read_bytes > len(self.buffer):
            self.buffer = memoryview(bytearray(read_bytes))
        self.filled = self._fs.pread_into(self._fd, self.buffer[:read_bytes], self.buffer_position)
        if self.filled < needed:
            short = needed - self.filled
            raise BadBatchError(self.buffer_position, f"the file ends {short} bytes early", torn=True)
        return True


def walk(
    fs: FileSystem,
    fd: int,
    position: int,
    end_position: int,
    *,
    check: bool,
    chunk_bytes: int = SCAN_CHUNK_BYTES,
) -> Iterator[tuple[int, int, HeaderTuple]]:
    """Yields position, size in bytes and header of each batch from `position`, which must be where one
    begins.

    Raises:
        BadBatchError: From the first batch on that is not whole.
        OSError: The disk refused.
    """
    reader = BatchReader(fs, fd, position, end_position, check=check, chunk_bytes=chunk_bytes)
    while (batch := reader.next()) is not None:
        yield batch
