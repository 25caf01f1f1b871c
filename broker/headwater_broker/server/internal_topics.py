"""Topics that the broker itself writes to: their names, their settings, and records for and from them."""

import os
from collections.abc import Iterable, Iterator, Mapping

from crc32c import crc32c

from headwater_broker.log import PartitionLog, StorageError
from headwater_broker.log.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    LAST_OFFSET_DELTA,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
)
from headwater_broker.log.records import read_varint, split_records, uncompressed_records, write_varint
from headwater_broker.server.settings import BrokerSettings
from headwater_client import COUNTS_TOPIC

TRANSACTION_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TRANSACTION_TOPIC, OFFSETS_TOPIC})
"""Kafka's `Topic.isInternal`: nobody but the broker writes to them."""

_READ_BYTES = 1 << 20
_MAGIC = 2
_CHECKSUM_POSITION = 17
_CHECKED_FROM = 21
_CHECKSUM_BYTES = 4
_NULL = write_varint(-1)
_NO_HEADERS = b"\0"
_ATTRIBUTES_AND_TIME = b"\0\0"

Record = tuple[bytes, bytes | None]
"""Key and value; None says that there is no longer one."""


COUNTS_CONFIGS: Mapping[str, str] = {
    "acks.fsync": "true",
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    # As of offsets of groups: a start reads the segment that is written to with all that was replaced in it.
    "segment.bytes": "104857600",
}
"""How the topic of counts is made: the newest count of a key is kept, a power failure that takes records leaves what
was counted of them, and the broker's clock shows whose own is wrong."""


def partitions_and_configs(
    name: str, settings: BrokerSettings, brokers: int = 1
) -> tuple[int, Mapping[str, str]]:
    """How a topic that brokers write to is made.

    Args:
        name: Its name.
        settings: The broker's settings.
        brokers: How many brokers live; each counts into a partition of its own.
    """
    if name == COUNTS_TOPIC:
        return max(brokers, 1), COUNTS_CONFIGS
    if name == TRANSACTION_TOPIC:
        count, segment_bytes = (
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_segment_bytes,
        )
        return count, {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    return settings.offsets_topic_num_partitions, configs


def batch_of(records: Iterable[Record], timestamp_ms: int) -> bytearray:
    """A batch of records, all of that time."""
    batch = bytearray(HEADER.size)
    count = 0
    for key, value in records:
        body = b"".join(
            (
                _ATTRIBUTES_AND_TIME,
                write_varint(count),
                write_varint(len(key)),
                key,
                *((_NULL,) if value is None else (write_varint(len(value)), value)),
                _NO_HEADERS,
            )
        )
        batch += write_varint(len(body))
        batch += body
        count += 1
    length = len(batch) - SIZE_BEFORE_LENGTH_BYTES
    HEADER.pack_into(
        batch, 0, 0, length, -1, _MAGIC, 0, 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count
    )
    checksum = crc32c(memoryview(batch)[_CHECKED_FROM:])
    batch[_CHECKSUM_POSITION : _CHECKSUM_POSITION + _CHECKSUM_BYTES] = checksum.to_bytes(_CHECKSUM_BYTES)
    return batch


def records_of(log: PartitionLog) -> Iterator[Record]:
    """The records that are in a log; what is appended meanwhile may be among them.

    Raises:
        LogError: The disk refused, or the log is damaged.
        UnreadableBatchError: A batch is no records.
    """
    offset = log.log_start_offset
    while offset < log.high_watermark:
        file_range = log.read(offset, _READ_BYTES)
        if not file_range.count:
            return
        try:
            data = os.pread(file_range.fd, file_range.count, file_range.position)
        except OSError as error:
            raise StorageError(f"cannot read {log.topic}-{log.partition}: {error.strerror}") from error
        if len(data) < file_range.count:
            raise StorageError(f"{log.topic}-{log.partition} became shorter while it was read")
        at = 0
        while at < len(data):
            header = HEADER.unpack_from(data, at)
            size = header[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES
            records = uncompressed_records(memoryview(data)[at : at + size], header)
            for record in split_records(records, header[RECORD_COUNT]):
                if record.key is not None and header[BASE_OFFSET] + record.offset_delta >= offset:
                    yield record.key, _value(records, record.rest) if record.has_value else None
            at += size
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        offset = next_offset


def _value(records: bytes, at: int) -> bytes:
    """The value of the record whose offset delta is at `at`."""
    _, at = read_varint(records, at)
    key_length, at = read_varint(records, at)
    length, at = read_varint(records, at + max(key_length, 0))
    return records[at : at + length]
