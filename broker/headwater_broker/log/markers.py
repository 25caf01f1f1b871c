"""Transaction markers: control batches of one record that say how a producer's transaction ended."""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from headwater_broker.log.batch import (
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    CONTROL,
    HEADER,
    MAGIC,
    SIZE_BEFORE_LENGTH_BYTES,
    TRANSACTIONAL,
)

_ABORT = 0
_COMMIT = 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0

# Kafka's `EndTransactionMarker`: a key of version and type, a value of version and coordinator epoch. All lengths are
# below 64, so each of the record's variable-length integers is one byte: twice the number.
_RECORD = struct.Struct(">bbbbb4sb6sb")
_RECORD_LENGTH = _RECORD.size - 1
# What follows the timestamp delta, which is longer behind compaction: it counts from a delete horizon then.
_REST = struct.Struct(">bb4sb6sb")


class Marker(NamedTuple):
    """How a transaction ended.

    Attributes:
        committed: Committed, or aborted.
        coordinator_epoch: Leader epoch of the partition of `__transaction_state` that decided it.
    """

    committed: bool
    coordinator_epoch: int


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int) -> bytearray:
    """The batch, as a leader appends it."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    record = _RECORD.pack(_RECORD_LENGTH * 2, 0, 0, 0, _KEY.size * 2, key, _VALUE.size * 2, value, 0)
    batch = bytearray(
        HEADER.pack(
            0,
            HEADER.size - SIZE_BEFORE_LENGTH_BYTES + len(record),
            -1,
            MAGIC,
            0,
            TRANSACTIONAL | CONTROL,
            0,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            -1,
            1,
        )
    )
    batch += record
    CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def decode_marker(batch: bytes) -> Marker | None:
    """Reads a control batch; None where it is no transaction's (KRaft has others), or compaction emptied it."""
    if len(batch) <= HEADER.size + _REST.size:
        return None
    _, key_length, key, value_length, value, _ = _REST.unpack(batch[-_REST.size :])
    if key_length != _KEY.size * 2 or value_length != _VALUE.size * 2:
        return None
    _, kind = _KEY.unpack(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack(value)
    return Marker(kind == _COMMIT, coordinator_epoch)
