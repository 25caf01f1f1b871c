"""Message formats 0 and 1, which clients older than Kafka 0.11 speak, made into record batches.

Only record batches (magic 2) are stored; how they become messages again is `down_conversion`'s.

A message is offset (8 bytes), size of the rest (4), CRC-32 of what follows (4), magic (1), attributes (1: bits 0-2
codec, bit 3 append time), in format 1 a timestamp (8), key and value (each with 4 bytes of length, -1 for none).
Compressed messages are the value of one message around them, which has the last one's offset; those inside count from
0 in format 1, and have their own offsets in format 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c

from headwater_broker.log.batch import (
    ATTRIBUTES_POSITION,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    COMPRESSION_MASK,
    HEADER,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    SIZE_BEFORE_LENGTH_BYTES,
)
from headwater_broker.log.compression import (
    MAX_DECOMPRESSED_BYTES,
    NONE,
    ZSTD,
    UndecodableError,
    compress,
    with_lz4_checksum,
)
from headwater_broker.log.decompression import decompressed_slices
from headwater_broker.log.errors import CorruptBatchError, InvalidRecordError, UnsupportedCodecError
from headwater_broker.log.inspection import SLICE_BYTES, Allowance
from headwater_broker.log.records import (
    write_varint,
)

_START = Struct(">qi")
_CHECKED = Struct(">Ibb")
_LONG = Struct(">q")
_INT = Struct(">i")
_LEAST_SIZE_BYTES = (14, 22)
"""Of a message without key and value, behind its size."""
_MAGIC_POSITION = 16
_MESSAGE_COSTS = 5_000
"""What it costs to make a record of a message, in bytes that could be decompressed in that time."""
_NOT_ALONE = "a compressed message must be the only one of its partition"


class _Message(NamedTuple):
    """One message of a set; what it holds is not looked into."""

    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def batch_of_messages(messages: memoryview, allowance: Allowance | None = None) -> memoryview:
    """One record batch of what a Produce request below version 3 carried, as Kafka's LogValidator makes it.

    A message that is cut off by the end is left out, as Kafka does; record batches are returned as they are.

    Args:
        messages: A message set.
        allowance: How much of it may be looked at; None: everything.

    Raises:
        CorruptBatchError: A message's checksum or one of its lengths is wrong.
        InvalidRecordError: No message, a compressed one that is not alone, or one that does not decompress.
        TooMuchAtOnceError: There is more to be looked at than is allowed.
    """
    if len(messages) > _MAGIC_POSITION and messages[_MAGIC_POSITION] == MAGIC:
        return messages
    entries = _split(messages, allowance)
    first = next(entries, None)
    if first is None:
        raise InvalidRecordError("there is no message")
    codec = first.attributes & COMPRESSION_MASK
    if codec == NONE:
        return _batch(chain((first,), entries), NONE)
    if next(entries, None) is not None:
        raise InvalidRecordError(_NOT_ALONE)
    inside = _inside(first, codec, messages[_MAGIC_POSITION], allowance)
    return _batch(inside, codec, first.attributes & LOG_APPEND_TIME)


def without_zstd(batch: memoryview) -> memoryview:
    """A batch of a client that may not know zstd, which came with version 7 of Produce.

    Raises:
        UnsupportedCodecError: It is compressed by that.
    """
    if len(batch) >= HEADER.size and batch[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK == ZSTD:
        raise UnsupportedCodecError(
            "Produce requests below version 7 are not allowed to use ZStandard compression"
        )
    return batch


def _split(messages: memoryview, allowance: Allowance | None) -> Iterator[_Message]:
    at = 0
    while at + _START.size <= len(messages):
        if allowance is not None:
            allowance.spend(_MESSAGE_COSTS)
        _, size = _START.unpack_from(messages, at)
        if size < _LEAST_SIZE_BYTES[0]:
            raise CorruptBatchError(f"a message of {size} bytes is smaller than the least there is")
        body = at + _START.size
        at = body + size
        if at > len(messages):
            return
        checksum, magic, attributes = _CHECKED.unpack_from(messages, body)
        if crc32(messages[body + 4 : at]) != checksum:
            raise CorruptBatchError(f"the checksum of a message of {size} bytes does not match")
        if magic not in (0, 1) or size < _LEAST_SIZE_BYTES[magic]:
            raise CorruptBatchError(f"magic {magic} and {size} bytes are no message")
        timestamp_ms = NO_TIMESTAMP
        position = body + _CHECKED.size
        if magic == 1:
            (timestamp_ms,) = _LONG.unpack_from(messages, position)
            position += _LONG.size
        key, position = _bytes(messages, position, at)
        value, position = _bytes(messages, position, at)
        if position != at:
            raise CorruptBatchError(f"{at - position} bytes follow the value of a message")
        yield _Message(attributes, timestamp_ms, key, value)


def _bytes(messages: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    start = position + _INT.size
    if start > end:
        raise CorruptBatchError("a message ends within a length")
    (length,) = _INT.unpack_from(messages, position)
    if length < 0:
        return None, start
    if start + length > end:
        raise CorruptBatchError(f"{length} bytes pass the end of their message")
    return bytes(messages[start : start + length]), start + length


def _inside(around: _Message, codec: int, magic: int, allowance: Allowance | None) -> Iterator[_Message]:
    """The messages in a compressed one."""
    data = bytearray()
    try:
        if codec >= ZSTD or around.value is None:
            raise UndecodableError(f"codec {codec} is none of message formats 0 and 1")
        # Format 0 had LZ4 frames whose header's checksum is wrong (KAFKA-3160).
        packed = with_lz4_checksum(around.value) if magic == 0 else around.value
        for piece in decompressed_slices(packed, codec, SLICE_BYTES):
            if allowance is not None:
                allowance.spend_on_piece(len(piece))
            data += piece
            if len(data) > MAX_DECOMPRESSED_BYTES:
                raise UndecodableError(f"more than {MAX_DECOMPRESSED_BYTES} bytes come out of it")
    except UndecodableError as error:
        raise InvalidRecordError(str(error)) from error
    for message in _split(memoryview(data), allowance):
        if message.attributes & COMPRESSION_MASK:
            raise InvalidRecordError("messages within a compressed one may not be compressed themselves")
        yield message


def _batch(messages: Iterator[_Message], codec: int, append_time: int = 0) -> memoryview:
    first_ms = greatest_ms = NO_TIMESTAMP
    number = -1
    records = bytearray()
    for number, (attributes, timestamp_ms, key, value) in enumerate(messages):
        if attributes & COMPRESSION_MASK:
            raise InvalidRecordError(_NOT_ALONE)
        append_time |= attributes & LOG_APPEND_TIME
        if number == 0:
            first_ms = timestamp_ms
        greatest_ms = max(greatest_ms, timestamp_ms)
        body = b"".join(
            (
                b"\0",
                write_varint(timestamp_ms - first_ms),
                write_varint(number),
                _sized(key),
                _sized(value),
                b"\0",
            )
        )
        records += write_varint(len(body)) + body
    if number < 0:
        raise InvalidRecordError("there is no message")
    packed = compress(bytes(records), codec)
    header = HEADER.pack(
        0,
        HEADER.size - SIZE_BEFORE_LENGTH_BYTES + len(packed),
        -1,
        MAGIC,
        0,
        codec | append_time,
        number,
        first_ms,
        greatest_ms,
        NO_PRODUCER_ID,
        -1,
        -1,
        number + 1,
    )
    batch = memoryview(bytearray(header + packed))
    CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(batch[CHECKED_FROM:]))
    return batch


def _sized(data: bytes | None) -> bytes:
    return b"\1" if data is None else write_varint(len(data)) + data
