"""What the header of a client's batch must be before it is stored; see `inspection` for the records."""

from __future__ import annotations

from crc32c import crc32c

from headwater_broker.log.batch import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    CHECKSUM_VALUE,
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_BYTE,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
    STAMPED_TIME,
    TRANSACTIONAL,
    HeaderTuple,
)
from headwater_broker.log.compression import LONGEST_MAGIC_BYTES, is_likely
from headwater_broker.log.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedMagicError,
)

_MAGIC_POSITION = 16
UNUSUAL = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | COMPRESSION_MASK
"""Attributes of batches that need more checks than others."""

_unpack_header = HEADER.unpack_from


def check_batch(records: memoryview, max_bytes: int) -> HeaderTuple:
    """Checks that `records` is exactly one batch that a client may send; returns its header.

    Raises:
        InvalidBatchError: One of its subclasses.
    """
    size = len(records)
    if size < HEADER.size:
        raise _malformed(records)
    header = _unpack_header(records)
    if header[MAGIC_BYTE] != MAGIC or header[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES != size:
        raise _malformed(records)
    if size > max_bytes:
        raise too_large(size, max_bytes)
    if crc32c(records[CHECKED_FROM:]) != header[CHECKSUM_VALUE]:
        raise CorruptBatchError(f"the checksum of a batch of {size} bytes does not match")
    if header[BASE_OFFSET] != 0:
        raise InvalidRecordError(f"a batch has base offset {header[BASE_OFFSET]}: a producer's begins at 0")
    if header[LAST_OFFSET_DELTA] + 1 != header[RECORD_COUNT] or header[RECORD_COUNT] <= 0:
        raise InvalidRecordError(
            f"a batch of {header[RECORD_COUNT]} records has last offset delta {header[LAST_OFFSET_DELTA]}"
        )
    if header[ATTRIBUTES] & UNUSUAL:
        _check_unusual(records, header)
    if header[PRODUCER_ID] >= 0 and (header[BASE_SEQUENCE] < 0 or header[PRODUCER_EPOCH] < 0):
        raise InvalidRecordError(
            f"producer {header[PRODUCER_ID]} sent sequence {header[BASE_SEQUENCE]} of epoch {header[PRODUCER_EPOCH]}"
        )
    return header


def too_large(size: int, max_bytes: int) -> RecordTooLargeError:
    """The error for a batch that is larger than the topic takes."""
    return RecordTooLargeError(f"a batch of {size} bytes is larger than the topic's limit of {max_bytes}")


def _malformed(records: memoryview) -> CorruptBatchError | UnsupportedMagicError | InvalidRecordError:
    size = len(records)
    if size > _MAGIC_POSITION and records[_MAGIC_POSITION] in (0, 1):
        return UnsupportedMagicError(
            f"message format {records[_MAGIC_POSITION]} is not stored: use a client that speaks format 2"
        )
    if size < HEADER.size:
        return CorruptBatchError(f"{size} bytes are no batch, whose header alone has {HEADER.size}")
    magic, length = records[_MAGIC_POSITION], HEADER.unpack_from(records)[1]
    if magic != MAGIC:
        return CorruptBatchError(f"magic {magic} is not known")
    if HEADER.size <= length + SIZE_BEFORE_LENGTH_BYTES < size:
        return InvalidRecordError(f"{size} bytes hold more than one batch")
    return CorruptBatchError(f"a batch that says it has {length} bytes has {size - SIZE_BEFORE_LENGTH_BYTES}")


def _check_unusual(records: memoryview, header: HeaderTuple) -> None:
    codec = header[ATTRIBUTES] & COMPRESSION_MASK
    if codec and not is_likely(records[HEADER.size : HEADER.size + LONGEST_MAGIC_BYTES], codec):
        raise InvalidRecordError(f"the records of a batch are not what its codec {codec} writes")
    if header[ATTRIBUTES] & CONTROL:
        raise InvalidRecordError("clients may not write control records")
    if header[ATTRIBUTES] & LOG_APPEND_TIME:
        raise InvalidTimestampError("producers may not set the timestamp type to LogAppendTime")
    if header[ATTRIBUTES] & TRANSACTIONAL and header[PRODUCER_ID] < 0:
        raise InvalidRecordError("transactional records without a producer id belong to no transaction")


def stamp_append_time(records: memoryview, now_ms: int) -> None:
    """Makes the broker's time the timestamp of every record in a batch, in place."""
    STAMPED_TIME.pack_into(records, MAX_TIMESTAMP_POSITION, now_ms)
    records[ATTRIBUTES_POSITION + 1] |= LOG_APPEND_TIME
    CHECKSUM.pack_into(records, CHECKSUM_POSITION, crc32c(records[CHECKED_FROM:]))
