"""The `.snapshot` file: producers as of one offset, in Kafka's format (see the package's documentation)."""

from __future__ import annotations

import struct

from crc32c import crc32c

from headwater_broker.log.batch import MAX_SEQUENCE
from headwater_broker.log.producers import KeptBatch, ProducerEntry, ProducerStates

_PREFIX = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CHECKED_FROM = 6


class DamagedSnapshotError(Exception):
    """The file is not a whole snapshot; an older one is used, so nobody outside sees this."""


def encode_snapshot(states: ProducerStates) -> bytes:
    """The bytes of a snapshot file."""
    data = bytearray(_PREFIX.pack(_VERSION, 0, len(states)))
    for producer_id, entry in states.items():
        last = entry.batches[-1] if entry.batches else KeptBatch(-1, -1, -1, -1, -1)
        data += _ENTRY.pack(
            producer_id,
            entry.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.last_offset - last.base_offset,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CHECKED_FROM:]))
    return bytes(data)


def decode_snapshot(data: bytes, now_ms: int) -> ProducerStates:
    """Reads a snapshot file.

    Args:
        data: The file.
        now_ms: From when idle producers expire.

    Raises:
        DamagedSnapshotError: Another version, a wrong checksum, or not the bytes that its count says.
    """
    if len(data) < _PREFIX.size:
        raise DamagedSnapshotError(f"{len(data)} bytes")
    version, checksum, count = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise DamagedSnapshotError(f"version {version}, known is {_VERSION}")
    if (
        checksum != crc32c(memoryview(data)[_CHECKED_FROM:])
        or len(data) != _PREFIX.size + count * _ENTRY.size
    ):
        raise DamagedSnapshotError("the checksum does not match")
    states = ProducerStates()
    for fields in _ENTRY.iter_unpack(data[_PREFIX.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, first = fields
        entry = ProducerEntry(epoch, now_ms)
        if last_offset >= 0:
            entry.batches.append(
                KeptBatch(
                    (last_sequence - delta) & MAX_SEQUENCE,
                    last_sequence,
                    last_offset - delta,
                    last_offset,
                    timestamp_ms,
                )
            )
        entry.last_timestamp_ms = timestamp_ms
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = first
        states.put(producer_id, entry)
    return states
