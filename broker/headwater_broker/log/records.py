"""The records inside a batch, for what needs more than its header: look-ups by time, keys, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    COMPRESSION_MASK,
    HEADER,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    RECORD_COUNT,
    HeaderTuple,
)
from headwater_broker.log.compression import UndecodableError, decompress


class UnreadableBatchError(Exception):
    """The records of a batch cannot be told apart; its header is all that is known."""


class Record(NamedTuple):
    """One record, as a place in the batch's uncompressed records.

    Attributes:
        start: Position of its length.
        body: Position behind its length.
        rest: Position behind its timestamp delta: from there to `end` it does not depend on the batch's base timestamp.
        end: Position behind it.
        offset_delta: Added to the batch's base offset.
        timestamp_delta_ms: Added to the batch's base timestamp.
        key: Its key; None: it has none.
        has_value: Whether it has a value; if not, it is a tombstone.
    """

    start: int
    body: int
    rest: int
    end: int
    offset_delta: int
    timestamp_delta_ms: int
    key: bytes | None
    has_value: bool


def uncompressed_records(batch: bytes | memoryview, header: HeaderTuple) -> bytes:
    """The records of a whole batch, one after the other.

    Raises:
        UnreadableBatchError: They do not decompress.
    """
    try:
        return decompress(memoryview(batch)[HEADER.size :], header[ATTRIBUTES] & COMPRESSION_MASK)
    except UndecodableError as error:
        raise UnreadableBatchError(f"the batch at offset {header[BASE_OFFSET]}: {error}") from error


def split_records(records: bytes, count: int) -> Iterator[Record]:
    """Tells apart the `count` records that `uncompressed_records` returned.

    Raises:
        UnreadableBatchError: They are not what the count says.
    """
    at = 0
    try:
        for _ in range(count):
            start = at
            length, body = read_varint(records, at)
            end = body + length
            timestamp_delta_ms, rest = read_varint(records, body + 1)
            offset_delta, at = read_varint(records, rest)
            key_length, at = read_varint(records, at)
            key = None
            if key_length >= 0:
                key = records[at : at + key_length]
                at += key_length
            value_length, at = read_varint(records, at)
            if length <= 0 or at + max(value_length, 0) > end or end > len(records):
                raise IndexError
            yield Record(start, body, rest, end, offset_delta, timestamp_delta_ms, key, value_length >= 0)
            at = end
    except IndexError:
        raise UnreadableBatchError(
            f"the batch ends within a record, at byte {at} of {len(records)}"
        ) from None
    if at != len(records):
        raise UnreadableBatchError(f"{len(records) - at} bytes follow the last of {count} records")


def record_timestamps(batch: bytes) -> Iterator[tuple[int, int]]:
    """Yields offset and timestamp of each record of a whole batch.

    Raises:
        UnreadableBatchError: The records do not decompress, or are not what the header says.
    """
    header = HEADER.unpack_from(batch)
    base_offset, base_timestamp_ms = header[BASE_OFFSET], header[BASE_TIMESTAMP_MS]
    stamped_ms = header[MAX_TIMESTAMP_MS] if header[ATTRIBUTES] & LOG_APPEND_TIME else None
    for record in split_records(uncompressed_records(batch, header), header[RECORD_COUNT]):
        timestamp_ms = base_timestamp_ms + record.timestamp_delta_ms if stamped_ms is None else stamped_ms
        yield base_offset + record.offset_delta, timestamp_ms


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag variable-length integer and where it ends.

    Raises:
        IndexError: The data end within it, or it has more than 64 bits.
    """
    value = data[at]
    at += 1
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise IndexError


def write_varint(number: int) -> bytes:
    """The bytes that `read_varint` reads."""
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
