"""Record batches made by hand, byte by byte, for tests of what stores and sends them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from headwater_broker.log.batch import COMPRESSION_MASK
from headwater_broker.log.compression import compress
from headwater_broker.log.records import write_varint

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21


def build_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    base_offset: int = 0,
    timestamps_ms: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """One uncompressed record batch (magic 2), as a producer sends it.

    Args:
        values: One record each; None is a tombstone.
        keys: One for each record; none where not given.
        headers: Of every record.
        base_offset: What the producer claims; a broker writes its own.
        timestamps_ms: One for each record; 0 for all where not given.
        producer_id: Of an idempotent producer.
        producer_epoch: Of an idempotent producer.
        base_sequence: Of an idempotent producer.
        attributes: The batch's flags, codec included.
        leader_epoch: What the producer claims; a broker writes its own.
    """
    stamps = list(timestamps_ms or [0] * len(values))
    records = bytearray()
    record_keys = keys or [None] * len(values)
    for delta, (key, value, stamp_ms) in enumerate(zip(record_keys, values, stamps, strict=True)):
        body = b"\0" + write_varint(stamp_ms - stamps[0]) + write_varint(delta)
        body += _bytes(key) + _bytes(value) + write_varint(len(headers))
        body += b"".join(_bytes(name) + _bytes(content) for name, content in headers)
        records += write_varint(len(body)) + body
    records = bytearray(compress(bytes(records), attributes & COMPRESSION_MASK))
    batch = bytearray(
        _HEADER.pack(
            base_offset,
            _HEADER.size - 12 + len(records),
            leader_epoch,
            2,
            0,
            attributes,
            len(values) - 1,
            stamps[0],
            max(stamps),
            producer_id,
            producer_epoch,
            base_sequence,
            len(values),
        )
    )
    batch += records
    reseal_batch(batch)
    return batch


def reseal_batch(batch: bytearray) -> None:
    """Makes the checksum right again after a change."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[_CHECKED_FROM:]))


def _bytes(value: bytes | None) -> bytes:
    return write_varint(-1) if value is None else write_varint(len(value)) + value
