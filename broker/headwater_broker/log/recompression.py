"""Batches compressed anew, where a topic's `compression.type` names another codec than their producer used."""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from headwater_broker.log.batch import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    COMPRESSION_MASK,
    HEADER,
    SIZE_BEFORE_LENGTH_BYTES,
    HeaderTuple,
)
from headwater_broker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from headwater_broker.log.config import LogConfig
from headwater_broker.log.errors import InvalidRecordError
from headwater_broker.log.records import UnreadableBatchError, uncompressed_records

_LENGTH_POSITION = 8
_AS_SENT = "producer"
_CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


class Target(NamedTuple):
    """What batches are to be compressed by.

    Attributes:
        codec: The number in a batch's attributes.
        level: Of the codec; None: it has none.
    """

    codec: int
    level: int | None


def target_of(config: LogConfig) -> Target | None:
    """What a topic's batches are compressed by; None: each by what its producer chose."""
    if config.compression_type == _AS_SENT:
        return None
    codec = _CODECS[config.compression_type]
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    return Target(codec, levels.get(codec))


def recompressed(batch: memoryview, header: HeaderTuple, target: Target) -> memoryview:
    """The batch with its records compressed by `target`; the same batch where they are already.

    The records must have been checked before. Only the codec is compared, as in Kafka's LogValidator: a batch of
    another level stays.

    Raises:
        InvalidRecordError: It decompresses to more than is compressed anew.
    """
    attributes = header[ATTRIBUTES]
    if attributes & COMPRESSION_MASK == target.codec:
        return batch
    try:
        records = uncompressed_records(batch, header)
    except UnreadableBatchError as error:
        raise InvalidRecordError(str(error)) from error
    data = compress(records, target.codec, target.level)
    result = memoryview(bytearray(HEADER.size + len(data)))
    result[: HEADER.size] = batch[: HEADER.size]
    result[HEADER.size :] = data
    result[_LENGTH_POSITION : _LENGTH_POSITION + 4] = (len(result) - SIZE_BEFORE_LENGTH_BYTES).to_bytes(4)
    result[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2] = (
        attributes & ~COMPRESSION_MASK | target.codec
    ).to_bytes(2)
    CHECKSUM.pack_into(result, CHECKSUM_POSITION, crc32c(result[CHECKED_FROM:]))
    return result
