"""Looks into a client's batch before it is stored: every record, compressed or not, as Kafka's LogValidator does."""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_TIMESTAMP_MS,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    COMPRESSION_MASK,
    HEADER,
    MAX_TIMESTAMP_MS,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT,
    STAMPED_TIME,
    HeaderTuple,
)
from headwater_broker.log.compression import NONE, UndecodableError
from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.decompression import decompressed_slices
from headwater_broker.log.errors import InvalidRecordError, InvalidTimestampError, LogError
from headwater_broker.log.walk import IS_COMPILED, RecordWalker, Walker, are_plain, explain

SLICE_BYTES = 256 << 10
_RECORD_COSTS = 8 if IS_COMPILED else 2_000
"""What a look at one record costs, in bytes that could be decompressed in that time."""
_LEAST_PIECE_COSTS = 16 << 10
"""What a piece costs that is smaller, or empty: a frame was begun for it, or much was read."""

_LISTED_ERRORS = 3

LONG_MIN = -LONG_MAX - 1


class TooMuchAtOnceError(LogError):
    """To look at all of it now would keep others waiting: it is to be done elsewhere. Nothing was changed."""


class Allowance:
    """How much work may be done before others get their turn: in decompressed bytes, or what costs as much."""

    __slots__ = ("remaining",)

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def spend(self, cost: int) -> None:
        """Pays for work that is about to be done.

        Raises:
            TooMuchAtOnceError: It costs more than remains.
        """
        self.remaining -= cost
        if self.remaining < 0:
            raise TooMuchAtOnceError("more than may be looked at in one go")

    def spend_on_piece(self, size: int) -> None:
        """Pays for a piece of so many bytes that was decompressed.

        Raises:
            TooMuchAtOnceError: It costs more than remains.
        """
        self.spend(max(size, _LEAST_PIECE_COSTS))


class Demands(NamedTuple):
    """What a topic asks of each record.

    Attributes:
        needs_keys: It has a key, as it must where the topic is compacted.
        earliest_ms: Its timestamp, if it has one, is not earlier.
        latest_ms: Its timestamp is not later.
    """

    needs_keys: bool = False
    earliest_ms: int = LONG_MIN
    latest_ms: int = LONG_MAX


def inspect(
    batch: memoryview, header: HeaderTuple, demands: Demands, name: str, allowance: Allowance | None = None
) -> int:
    """Looks at each record, and makes the header's greatest timestamp right, which some clients do not.

    Args:
        batch: A whole batch, writable, whose header is in order.
        header: That.
        demands: Of the topic.
        name: Of the partition, for messages.
        allowance: How much may be looked at; None: everything.

    Returns:
        The greatest timestamp; -1 if no record has one.

    Raises:
        InvalidRecordError: The records do not decompress, are not what the header says, or one lacks a key.
        InvalidTimestampError: One is outside of what the topic allows.
        TooMuchAtOnceError: There is more to be looked at than is allowed.
    """
    codec, count = header[ATTRIBUTES] & COMPRESSION_MASK, header[RECORD_COUNT]
    first_ms, claimed_ms = header[BASE_TIMESTAMP_MS], header[MAX_TIMESTAMP_MS]
    if allowance is not None:
        allowance.spend(count * _RECORD_COSTS)
    if (
        codec == NONE
        and demands == _NO_DEMANDS
        and are_plain(batch, HEADER.size, count, claimed_ms - first_ms)
    ):
        greatest_ms = max(claimed_ms, -1)
    else:
        walker = Walker(count, first_ms, demands.earliest_ms, demands.latest_ms, demands.needs_keys, False)
        _walk(batch, codec, count, walker, name, allowance)
        _, _, greatest_ms, _, wrong = walker.state()
        if wrong:
            raise _refusal(walker, wrong, demands, name)
    if greatest_ms != claimed_ms:
        STAMPED_TIME.pack_into(batch, MAX_TIMESTAMP_POSITION, greatest_ms)
        CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(batch[CHECKED_FROM:]))
    return greatest_ms


_NO_DEMANDS = Demands()


def _walk(
    batch: memoryview, codec: int, count: int, walker: RecordWalker, name: str, allowance: Allowance | None
) -> None:
    """Has the walker see all records."""
    error = 0
    try:
        for piece in decompressed_slices(batch[HEADER.size :], codec, SLICE_BYTES):
            if allowance is not None:
                allowance.spend_on_piece(len(piece))
            error = walker.feed(piece)
            if error:
                break
    except UndecodableError as undecodable:
        raise InvalidRecordError(f"{name}: the records do not decompress: {undecodable}") from undecodable
    reason = explain(walker, error, count)
    if reason is not None:
        raise InvalidRecordError(f"{name}: {reason}")


def _refusal(
    walker: RecordWalker, wrong: int, demands: Demands, name: str
) -> InvalidRecordError | InvalidTimestampError:
    """The error that names the records that the topic does not take."""
    bounds = f"is out of range. The timestamp should be within [{demands.earliest_ms}, {demands.latest_ms}]"
    keyless = f"Compacted topic cannot accept message without key in topic partition {name}."
    wrong_records = walker.wrong()
    errors = [
        (
            number,
            keyless if stamp_ms is None else f"Timestamp {stamp_ms} of message with offset {number} {bounds}",
        )
        for number, stamp_ms in wrong_records
    ]
    if any(stamp_ms is not None for _, stamp_ms in wrong_records):
        message = "One or more records have been rejected due to invalid timestamp"
        return InvalidTimestampError(message, errors)
    listed = ", ".join(
        f"RecordError(batchIndex={number}, message='{text}')" for number, text in errors[:_LISTED_ERRORS]
    )
    message = (
        f"One or more records have been rejected due to {wrong} record errors in total, and only showing the first "
        f"three errors at most: [{listed}]"
    )
    return InvalidRecordError(message, errors)
