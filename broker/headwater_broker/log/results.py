"""What the log hands to its callers."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater_broker.log.files import OpenFile
from headwater_broker.log.unreadable import LookedAt


class Isolation(enum.IntEnum):
    """What a reader may see; the values are the wire's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Appended(NamedTuple):
    """The answer to one batch.

    Attributes:
        base_offset: Offset of its first record (of the first copy, where this one is a duplicate).
        last_offset: Offset of its last record.
        log_append_time_ms: The broker's time where the topic stamps it, else -1 (as on the wire).
        log_start_offset: The log's first offset at that moment.
        duplicate: Whether the same batch was there already, and nothing was appended.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


@dataclass(slots=True)
class FileRange:
    """Whole batches in one file, ready for `os.sendfile`; `count` is 0 where there is nothing to send yet.

    Holding it keeps `fd` open, also when its segment is deleted meanwhile: drop it once sent.

    Attributes:
        fd: Descriptor of the segment's file; -1 where `count` is 0.
        position: Of the first byte in the file. Its batch may begin before the offset that was asked for.
        count: Bytes; ends on a batch boundary.
        high_watermark: Of the partition.
        last_stable_offset: Of the partition.
        log_start_offset: Of the partition.
        file: What keeps `fd` open.
        aborted: Producer id and first offset of each aborted transaction that these batches, or the ones
            between them, belong to; asked for with `Isolation.READ_COMMITTED`.
        looked_at: Where to note that the records were checked, if they were not yet; `LogView.look_at` checks them.
    """

    fd: int
    position: int
    count: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    file: OpenFile | None
    aborted: Sequence[tuple[int, int]] = ()
    looked_at: LookedAt | None = None


class TimestampAndOffset(NamedTuple):
    """A record found by its time.

    Attributes:
        timestamp_ms: The record's timestamp.
        offset: The record's offset.
        leader_epoch: Of the leader that wrote it; -1 if not known.
    """

    timestamp_ms: int
    offset: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where a leader epoch ends, for OffsetForLeaderEpoch.

    Attributes:
        leader_epoch: The greatest epoch known that is not after the one asked for; -1 if there is none.
        end_offset: The first offset after that epoch; -1 if there is none.
    """

    leader_epoch: int
    end_offset: int
