"""Which bucket of time each record of a log is of, as stretches of offsets: what the broker itself counts.

A header's timestamps do not tell: the base is that of the first record, and records before it in time may follow. So
the records are walked through, but for batches that the broker stamped. Records of transactions are left out: whether
they were aborted is known only at their marker, and a reader of committed records does not see those that were.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    HEADER,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    RECORD_COUNT,
    TRANSACTIONAL,
    last_offset_of,
    size_of,
)
from headwater_broker.log.records import record_timestamps

Run = tuple[int, int, int]
"""Half-open offsets of records without a gap, and when their bucket begins, in milliseconds since the epoch."""


def bucket_runs(data: bytes | memoryview, bucket_ms: int, start: int = 0) -> tuple[list[Run], int]:
    """The runs of some whole batches, and the offset that follows the last of them.

    Args:
        data: The batches, one after another; one that is cut at the end is left out.
        bucket_ms: How wide a bucket is.
        start: Records before this offset are left out.

    Raises:
        UnreadableBatchError: A batch's records do not decompress, or are not what its header says.
    """
    runs: list[Run] = []
    next_offset, at = start, 0
    while at + HEADER.size <= len(data):
        header = HEADER.unpack_from(data, at)
        size = size_of(header)
        if at + size > len(data):
            break
        if not header[ATTRIBUTES] & (CONTROL | TRANSACTIONAL):
            for offset, timestamp_ms in _timestamps(bytes(data[at : at + size])):
                if offset >= start:
                    _add(runs, offset, timestamp_ms - timestamp_ms % bucket_ms)
        next_offset = last_offset_of(header) + 1
        at += size
    return runs, max(next_offset, start)


def _timestamps(batch: bytes) -> Iterator[tuple[int, int]]:
    header = HEADER.unpack_from(batch)
    is_dense = header[RECORD_COUNT] == header[LAST_OFFSET_DELTA] + 1
    if header[ATTRIBUTES] & LOG_APPEND_TIME and is_dense:  # no compaction took some out
        for offset in range(header[BASE_OFFSET], last_offset_of(header) + 1):
            yield offset, header[MAX_TIMESTAMP_MS]
    else:
        yield from record_timestamps(batch)


def _add(runs: list[Run], offset: int, bucket_start_ms: int) -> None:
    if runs and runs[-1][1] == offset and runs[-1][2] == bucket_start_ms:
        runs[-1] = (runs[-1][0], offset + 1, bucket_start_ms)
    else:
        runs.append((offset, offset + 1, bucket_start_ms))
