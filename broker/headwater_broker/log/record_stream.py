"""The records of a batch one after the other, decompressed as far as they are wanted.

46 kB of compressed zeros hold millions of records: whoever looks into a client's batch may neither hold all of them at
once nor go through them in one go.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    COMPRESSION_MASK,
    HEADER,
    RECORD_COUNT,
    HeaderTuple,
)
from headwater_broker.log.compression import MAX_DECOMPRESSED_BYTES, UndecodableError
from headwater_broker.log.decompression import decompressed_slices
from headwater_broker.log.records import UnreadableBatchError, read_varint

_PIECE_BYTES = 64 << 10
_LONGEST_VARINT_BYTES = 10

Streamed = tuple[bytes, int, int, int, int]
"""A record: bytes that hold it, where its key's length is in them and where it ends, its offset and timestamp delta."""

_Result = TypeVar("_Result")

Slices = Generator[None, None, _Result]
"""Work that can be put aside wherever it yields."""


def finished(slices: Slices[_Result]) -> _Result:
    """Does all of the work at once."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: _Result = end.value
            return result


def stream_records(batch: bytes | memoryview, header: HeaderTuple) -> Iterator[Streamed]:
    """Yields the records of a whole batch, decompressing as far as the caller reads.

    Raises:
        UnreadableBatchError: They do not decompress, or are not what the header says.
    """
    pieces = _pieces(memoryview(batch)[HEADER.size :], header[ATTRIBUTES] & COMPRESSION_MASK)
    try:
        yield from _split(pieces, header[RECORD_COUNT])
    except UndecodableError as error:
        raise UnreadableBatchError(f"the batch at offset {header[BASE_OFFSET]}: {error}") from error
    except IndexError:
        raise UnreadableBatchError(
            f"the batch at offset {header[BASE_OFFSET]} ends within a record"
        ) from None


def value_of(record: Streamed) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record.

    Raises:
        UnreadableBatchError: They pass its end.
    """
    key, value, _ = parts_of(record)
    return key, value


def parts_of(record: Streamed) -> tuple[bytes | None, bytes | None, int]:
    """Key and value of a record, and where the count of its headers is.

    Raises:
        UnreadableBatchError: They pass its end.
    """
    data, at, end, _, _ = record
    try:
        length, at = read_varint(data, at)
        key = None
        if length >= 0:
            key = data[at : at + length]
            at += length
        length, at = read_varint(data, at)
    except IndexError:
        length = end
    if length < 0:
        return key, None, at
    if at + length > end:
        raise UnreadableBatchError("a key or a value passes the end of its record")
    return key, data[at : at + length], at + length


def headers_of(record: Streamed, at: int) -> Iterator[tuple[bytes, bytes | None]]:
    """The names and values of a record's headers, whose count is at `at`.

    Raises:
        UnreadableBatchError: They pass its end.
    """
    data, _, end, _, _ = record
    try:
        count, at = read_varint(data, at)
        for _ in range(count):
            length, at = read_varint(data, at)
            name, at = data[at : at + length], at + length
            length, at = read_varint(data, at)
            value = data[at : at + length] if length >= 0 else None
            at += max(length, 0)
            if at > end:
                raise IndexError
            yield name, value
    except IndexError:
        raise UnreadableBatchError("a header passes the end of its record") from None


def _split(pieces: Iterator[bytes], count: int) -> Iterator[Streamed]:
    data, at = b"", 0
    for _ in range(count):
        if len(data) - at < _LONGEST_VARINT_BYTES:
            data, at = _gathered(data[at:], pieces, _LONGEST_VARINT_BYTES), 0
        length, body = read_varint(data, at)
        end = body + length
        if not 0 < length <= MAX_DECOMPRESSED_BYTES:
            raise IndexError
        if end > len(data):
            data, body, end = _gathered(data[body:], pieces, length), 0, length
            if end > len(data):
                raise IndexError
        timestamp_delta_ms, at = read_varint(data, body + 1)
        offset_delta, at = read_varint(data, at)
        yield data, at, end, offset_delta, timestamp_delta_ms
        at = end
    if at < len(data) or next(pieces, b""):
        raise UnreadableBatchError(f"more bytes follow the last of {count} records")


def _gathered(first: bytes, pieces: Iterator[bytes], least_bytes: int) -> bytes:
    """`first` with pieces behind it, until `least_bytes` are reached or no piece is left."""
    gathered, size = [first], len(first)
    while size < least_bytes:
        piece = next(pieces, None)
        if piece is None:
            break
        gathered.append(piece)
        size += len(piece)
    return b"".join(gathered)


def _pieces(data: memoryview, codec: int) -> Iterator[bytes]:
    return map(bytes, decompressed_slices(data, codec, _PIECE_BYTES))
