"""`__transaction_state`: the internal topic in which this broker's transaction coordinator keeps its state."""

import os
import struct
from collections.abc import Iterator

from crc32c import crc32c

from headwater_broker.log import PartitionLog
from headwater_broker.log.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    LAST_OFFSET_DELTA,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
)
from headwater_broker.log.records import read_varint, split_records, uncompressed_records, write_varint
from headwater_broker.server.durable import DurableWrites
from headwater_broker.transactions import (
    Transaction,
    Transition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

TRANSACTION_TOPIC = "__transaction_state"

_READ_BYTES = 1 << 20
_MAGIC = 2
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_POSITION = 17
_CHECKED_FROM = 21


class TransactionLog:
    """One partition of the topic."""

    def __init__(self, log: PartitionLog, writes: DurableWrites) -> None:
        self.log = log
        self._writes = writes

    async def append(self, transition: Transition, now_ms: int) -> None:
        """Stores a transition; returns once it is decided by that.

        Raises:
            LogError: The disk refused, or the state is larger than a record may be.
        """
        value = None if transition.after is None else encode_value(transition.after)
        batch = _batch(encode_key(transition.transactional_id), value, now_ms)
        appended = self.log.append(memoryview(batch), now_ms=now_ms)
        await self._writes.wait(self.log, appended.last_offset + 1)

    def read(self) -> list[Transaction]:
        """The last state of each id.

        Raises:
            LogError: The disk refused, or the log is damaged.
            UnreadableTransactionError: A record is no transaction's.
            UnreadableBatchError: A batch is no records.
        """
        found: dict[str, Transaction] = {}
        for key, value in _records(self.log):
            transactional_id = decode_key(key)
            if value is None:
                found.pop(transactional_id, None)
            else:
                found[transactional_id] = decode_value(transactional_id, value)
        return list(found.values())


def _records(log: PartitionLog) -> Iterator[tuple[bytes, bytes | None]]:
    offset = log.log_start_offset
    while offset < log.high_watermark:
        found = log.read(offset, _READ_BYTES)
        if not found.count:
            return
        data = os.pread(found.fd, found.count, found.position)
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


def _batch(key: bytes, value: bytes | None, timestamp_ms: int) -> bytearray:
    """A batch of one record."""
    body = b"\0\0\0" + write_varint(len(key)) + key
    body += write_varint(-1) if value is None else write_varint(len(value)) + value
    record = write_varint(len(body) + 1) + body + b"\0"
    length = HEADER.size - SIZE_BEFORE_LENGTH_BYTES + len(record)
    batch = bytearray(HEADER.pack(0, length, -1, _MAGIC, 0, 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1))
    batch += record
    _CHECKSUM.pack_into(batch, _CHECKSUM_POSITION, crc32c(memoryview(batch)[_CHECKED_FROM:]))
    return batch
