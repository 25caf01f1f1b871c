"""What compaction leaves of one batch. No I/O, no clock."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from crc32c import crc32c

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
    DELETE_HORIZON,
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
    HeaderTuple,
    last_offset_of,
)
from headwater_broker.log.cleaner.keys import KeyOffsets
from headwater_broker.log.cleaner.transactions import TransactionPass
from headwater_broker.log.compression import compress
from headwater_broker.log.records import (
    Record,
    UnreadableBatchError,
    split_records,
    uncompressed_records,
    write_varint,
)

_CONTROL_KEY = struct.Struct(">hh")


@dataclass(frozen=True, slots=True)
class Retention:
    """What decides which records stay.

    Attributes:
        keys: The last offset of every key.
        now_ms: The wall clock at the start of the pass.
        delete_retention_ms: The topic's `delete.retention.ms`.
        last_of_producers: Of each producer that is still remembered, the last offset that it wrote (None: only
            markers are left of it) and its epoch. Its last batch stays, if need be without records, since its sequence
            numbers go on from there.
    """

    keys: KeyOffsets
    now_ms: int
    delete_retention_ms: int
    last_of_producers: Mapping[int, tuple[int | None, int]]


Pace = Callable[[Iterator[Record]], Iterator[Record]]
"""Passes records on, and rests now and then."""


def compact_batch(
    batch: bytes,
    header: HeaderTuple,
    retention: Retention,
    transactions: TransactionPass,
    pace: Pace = iter,
) -> bytes | None:
    """What is left of a batch: itself, fewer of its records, only its header, or None.

    One whose records cannot be told apart is left as it is. Older versions took such batches.

    A batch with a tombstone, or a marker of a transaction whose data are gone, is given a delete horizon (KIP-534) the
    first time that it is met so: its base timestamp becomes the time from which it may go.
    """
    try:
        return _compacted(batch, header, retention, transactions, pace)
    except UnreadableBatchError:
        return batch


def _compacted(
    batch: bytes, header: HeaderTuple, retention: Retention, transactions: TransactionPass, pace: Pace
) -> bytes | None:
    attributes = header[ATTRIBUTES]
    horizon_ms = header[BASE_TIMESTAMP_MS] if attributes & DELETE_HORIZON else None
    horizon_passed = horizon_ms is not None and horizon_ms <= retention.now_ms
    records = b""
    retained: list[Record] = []
    if attributes & CONTROL:
        records = uncompressed_records(batch, header)
        retained = list(split_records(records, header[RECORD_COUNT]))
        needs_horizon = transactions.is_empty(header, control_type(retained))
        if needs_horizon and horizon_passed:
            retained = []
    else:
        if not attributes & TRANSACTIONAL or not transactions.is_aborted(header):
            records = uncompressed_records(batch, header)
            base_offset = header[BASE_OFFSET]
            retained = [
                record
                for record in pace(split_records(records, header[RECORD_COUNT]))
                if _stays(record, base_offset + record.offset_delta, retention.keys, horizon_passed)
            ]
        needs_horizon = any(not record.has_value for record in retained)
    if not retained:
        return _empty(header) if _is_last_of_producer(header, retention) else None
    if needs_horizon and horizon_ms is None:
        return _rebuilt(header, records, retained, retention.now_ms + retention.delete_retention_ms)
    if len(retained) == header[RECORD_COUNT]:
        return batch
    return _rebuilt(header, records, retained, horizon_ms)


def control_type(records: list[Record]) -> int | None:
    """The type of a control batch's record; None where it has none."""
    for record in records:
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            kind: int = _CONTROL_KEY.unpack_from(record.key)[1]
            return kind
    return None


def _stays(record: Record, offset: int, keys: KeyOffsets, horizon_passed: bool) -> bool:
    if offset >= keys.end_offset:
        return True
    if record.key is None or keys.supersedes(record.key, offset):
        return False
    return record.has_value or not horizon_passed


def _is_last_of_producer(header: HeaderTuple, retention: Retention) -> bool:
    if header[PRODUCER_ID] < 0:
        return False
    last = retention.last_of_producers.get(header[PRODUCER_ID])
    if last is None:
        return False
    last_offset, epoch = last
    if last_offset is None:
        return bool(header[ATTRIBUTES] & CONTROL) and header[PRODUCER_EPOCH] == epoch
    return last_offset_of(header) == last_offset


def _empty(header: HeaderTuple) -> bytes:
    """The header alone; uncompressed, since there is nothing to compress."""
    attributes = header[ATTRIBUTES] & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _sealed(header, attributes, NO_TIMESTAMP, header[MAX_TIMESTAMP_MS], 0, b"")


def _rebuilt(header: HeaderTuple, records: bytes, retained: list[Record], horizon_ms: int | None) -> bytes:
    attributes, base_ms = header[ATTRIBUTES], header[BASE_TIMESTAMP_MS]
    if horizon_ms is None or attributes & DELETE_HORIZON:
        parts = [records[record.start : record.end] for record in retained]
        new_base_ms = base_ms
    else:
        # The deltas count from the base timestamp, which is now the horizon.
        parts = [_moved(records, record, base_ms - horizon_ms) for record in retained]
        new_base_ms = horizon_ms
        attributes |= DELETE_HORIZON
    max_ms = header[MAX_TIMESTAMP_MS]
    if not attributes & LOG_APPEND_TIME:
        max_ms = max(base_ms + record.timestamp_delta_ms for record in retained)
    data = compress(b"".join(parts), attributes & COMPRESSION_MASK)
    return _sealed(header, attributes, new_base_ms, max_ms, len(retained), data)


def _moved(records: bytes, record: Record, by_ms: int) -> bytes:
    """The record, counting from a base timestamp that lies `by_ms` before the old one."""
    body = records[record.body : record.body + 1]
    body += write_varint(record.timestamp_delta_ms + by_ms) + records[record.rest : record.end]
    return write_varint(len(body)) + body


def _sealed(
    header: HeaderTuple, attributes: int, base_ms: int, max_ms: int, count: int, records: bytes
) -> bytes:
    data = bytearray(
        HEADER.pack(
            header[BASE_OFFSET],
            HEADER.size - SIZE_BEFORE_LENGTH_BYTES + len(records),
            header[LEADER_EPOCH],
            MAGIC,
            0,
            attributes,
            header[LAST_OFFSET_DELTA],
            base_ms,
            max_ms,
            header[PRODUCER_ID],
            header[PRODUCER_EPOCH],
            header[BASE_SEQUENCE],
            count,
        )
    )
    data += records
    CHECKSUM.pack_into(data, CHECKSUM_POSITION, crc32c(memoryview(data)[CHECKED_FROM:]))
    return bytes(data)
