"""Timestamps of single records, for look-ups by time."""

from __future__ import annotations

from collections.abc import Iterator

import cramjam

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    COMPRESSION_MASK,
    HEADER,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    RECORD_COUNT,
)

MAX_DECOMPRESSED_BYTES = 64 << 20
"""Where a batch claims to be larger, it is not opened."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class UnreadableBatchError(Exception):
    """The records of a batch cannot be told apart; its header is all that is known."""


def record_timestamps(batch: bytes) -> Iterator[tuple[int, int]]:
    """Yields offset and timestamp of each record of a whole batch.

    Raises:
        UnreadableBatchError: The records do not decompress, or are not what the header says.
    """
    header = HEADER.unpack_from(batch)
    base_offset, attributes, base_timestamp_ms, count = (
        header[BASE_OFFSET],
        header[ATTRIBUTES],
        header[BASE_TIMESTAMP_MS],
        header[RECORD_COUNT],
    )
    records = _decompress(batch[HEADER.size :], attributes & COMPRESSION_MASK)
    at = 0
    try:
        for _ in range(count):
            length, at = _varint(records, at)
            end = at + length
            delta_ms, after = _varint(records, at + 1)
            offset_delta, _ = _varint(records, after)
            timestamp_ms = (
                header[MAX_TIMESTAMP_MS] if attributes & LOG_APPEND_TIME else base_timestamp_ms + delta_ms
            )
            yield base_offset + offset_delta, timestamp_ms
            at = end
    except IndexError:
        raise UnreadableBatchError(f"the batch at offset {base_offset} ends within a record") from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag variable-length integer and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise IndexError


def _decompress(data: bytes, codec: int) -> bytes:
    if codec == 0:
        return data
    try:
        if codec == 2:
            return _decompress_snappy(data)
        opener = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}[codec]
        size = max(len(data) * 8, 1 << 16)
        while True:
            target = bytearray(min(size, MAX_DECOMPRESSED_BYTES))
            try:
                count = opener.decompress_into(data, target)
            except cramjam.DecompressionError as error:
                if size >= MAX_DECOMPRESSED_BYTES or "whole buffer" not in str(error):
                    raise
                size *= 8
                continue
            return bytes(memoryview(target)[:count])
    except (KeyError, ValueError, cramjam.DecompressionError) as error:
        raise UnreadableBatchError(f"codec {codec}: {error}") from error


def _decompress_snappy(data: bytes) -> bytes:
    """Raw snappy, or the blocks that Java clients write."""
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_block(data)
    parts, total, at = [], 0, _XERIAL_HEADER_BYTES
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        part = _decompress_block(data[at + 4 : at + 4 + length])
        total += len(part)
        if total > MAX_DECOMPRESSED_BYTES:
            raise ValueError(f"more than {MAX_DECOMPRESSED_BYTES} bytes")
        parts.append(part)
        at += 4 + length
    return b"".join(parts)


def _decompress_block(data: bytes) -> bytes:
    size: int = cramjam.snappy.decompress_raw_len(data)
    if size > MAX_DECOMPRESSED_BYTES:
        raise ValueError(f"{size} bytes")
    return bytes(cramjam.snappy.decompress_raw(data))
