"""The part of a scan that most batches need, in one loop: recovery's time is this loop's."""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from headwater_broker.log.batch import (
    BASE_OFFSET,
    BASE_SEQUENCE,
    CHECKED_FROM,
    CONTROL,
    HEADER,
    MAGIC,
    MAX_TIMESTAMP_MS,
    SIZE_BEFORE_LENGTH_BYTES,
    TRANSACTIONAL,
    BatchReader,
)
from headwater_broker.log.producers import BATCHES_KEPT, ProducerStates
from headwater_broker.log.segment import Segment

_PLAIN = Struct(">qi5sIhiqqq")
"""Of `HEADER`: base offset, length, leader epoch with magic, checksum, attributes, last offset delta, first timestamp,
greatest timestamp, producer id."""
_EPOCH_AND_MAGIC = Struct(">ib")

OF_TRANSACTIONS = TRANSACTIONAL | CONTROL


def note_plain(
    reader: BatchReader,
    segment: Segment,
    producers: ProducerStates,
    expected: int,
    leader_epoch: int,
    epoch_until: int,
    now_ms: int,
) -> int:
    """Checks the batches that are in the reader's buffer and notes them, up to one that is not plain.

    Plain is a whole batch with a good checksum, of no transaction, with the offset and the leader epoch that follow.
    Anything else, and all that is wrong, ends the row without an error: `BatchReader.next` reads it again.

    Args:
        reader: Behind the segment's first batch.
        segment: What it reads.
        producers: What is known of producers.
        expected: The offset that follows.
        leader_epoch: That of the batch before.
        epoch_until: The first offset that must have another.
        now_ms: The wall clock.

    Returns:
        The offset after the last plain batch.
    """
    unpack, note, buffer, filled = _PLAIN.unpack_from, segment.note, reader.buffer, reader.filled
    at, begin = reader.at, reader.buffer_position
    usual = _EPOCH_AND_MAGIC.pack(leader_epoch, MAGIC)
    entry_due_after = segment.entry_due_after - begin
    greatest_ms, greatest_offset = segment.max_timestamp_ms, segment.max_timestamp_offset
    last_header = filled - HEADER.size
    of_producers: dict[int, list[int]] = {}
    producer, batches = -1, [0]
    try:
        while at <= last_header and expected < epoch_until:
            # fmt: off
            (base_offset, length, epoch_and_magic, checksum, attributes, delta, first_ms, timestamp_ms,
             producer_id) = unpack(buffer, at)
            # fmt: on
            end = at + length + SIZE_BEFORE_LENGTH_BYTES
            if (
                base_offset != expected
                or epoch_and_magic != usual
                or attributes & OF_TRANSACTIONS
                or delta < 0
                or timestamp_ms < first_ms
                or not at + HEADER.size <= end <= filled
                or crc32c(buffer[at + CHECKED_FROM : end]) != checksum
            ):
                break
            if producer_id >= 0:
                if producer_id != producer:
                    producer, batches = producer_id, of_producers.setdefault(producer_id, [])
                batches.append(at)
            if timestamp_ms > greatest_ms:
                greatest_ms, greatest_offset = timestamp_ms, expected + delta
            if at > entry_due_after:
                segment.max_timestamp_ms, segment.max_timestamp_offset = greatest_ms, greatest_offset
                note(begin + at, end - at, expected + delta, timestamp_ms)
                entry_due_after = segment.entry_due_after - begin
            expected += delta + 1
            at = end
    finally:
        if at != reader.at:
            reader.at, reader.last_offset = at, expected - 1
            segment.size_bytes = begin + at
            segment.max_timestamp_ms, segment.max_timestamp_offset = greatest_ms, greatest_offset
        # Only the last batches of each producer are remembered: earlier ones would be forgotten again.
        for batches in of_producers.values():
            for position in batches[-BATCHES_KEPT:]:
                header = HEADER.unpack_from(buffer, position)
                if header[BASE_SEQUENCE] >= 0:
                    producers.record(header, header[BASE_OFFSET], header[MAX_TIMESTAMP_MS], now_ms)
    return expected
