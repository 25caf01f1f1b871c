"""Which bucket of time each record of a log is of, as stretches of offsets: what the broker itself counts.

A header's timestamps do not tell: the base is that of the first record, and records before it in time may follow. So
the records are looked through; where all of a batch are of one bucket, as most are, none of them is told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    CONTROL,
    HEADER,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
    HeaderTuple,
    last_offset_of,
    size_of,
)
from headwater_broker.log.records import UnreadableBatchError, record_timestamps, uncompressed_records
from headwater_broker.log.walk import Walker
from headwater_client.events import EARLIEST_MS, LATEST_MS, bucket_of

_LONG_MAX = 2**63 - 1

Run = tuple[int, int, int]
"""Half-open offsets of records without a gap, and when their bucket begins, in milliseconds since the epoch."""


def bucket_runs(
    data: bytes | memoryview, bucket_ms: int, start: int = 0, aborted: Sequence[tuple[int, int]] = ()
) -> tuple[list[Run], int]:
    """The runs of some whole batches, and the offset that follows the last of them.

    Args:
        data: The batches, one after another; one that is cut at the end is left out. So are records of batches that
            cannot be read.
        bucket_ms: How wide a bucket is.
        start: Records before this offset are left out.
        aborted: Producer id and first offset of each aborted transaction, as `FileRange` has them; what they wrote is
            left out, as readers of committed records do not see it.
    """
    runs: list[Run] = []
    next_offset, at = start, 0
    to_come = sorted(aborted, key=lambda each: each[1])
    are_aborted: set[int] = set()
    while at + HEADER.size <= len(data):
        header: HeaderTuple = HEADER.unpack_from(data, at)
        size = size_of(header)
        if at + size > len(data):
            break
        last = last_offset_of(header)
        while to_come and to_come[0][1] <= last:
            are_aborted.add(to_come.pop(0)[0])
        is_aborted = header[ATTRIBUTES] & TRANSACTIONAL and header[PRODUCER_ID] in are_aborted
        if header[ATTRIBUTES] & CONTROL:
            are_aborted.discard(header[PRODUCER_ID])
        elif last >= start and not is_aborted:
            for first, end, bucket in _runs_of(bytes(data[at : at + size]), header, bucket_ms):
                if end > start:
                    runs.append((max(first, start), end, bucket))
        next_offset = last + 1
        at += size
    return joined(runs), max(next_offset, start)


def _runs_of(batch: bytes, header: HeaderTuple, bucket_ms: int) -> Iterator[Run]:
    bucket = bucket_of(header[MAX_TIMESTAMP_MS], bucket_ms)
    has_all = header[RECORD_COUNT] == header[LAST_OFFSET_DELTA] + 1  # no compaction took some out
    try:
        if has_all and (header[ATTRIBUTES] & LOG_APPEND_TIME or _is_all_of(batch, header, bucket, bucket_ms)):
            yield header[BASE_OFFSET], last_offset_of(header) + 1, bucket
            return
        for offset, timestamp_ms in record_timestamps(batch):
            yield offset, offset + 1, bucket_of(timestamp_ms, bucket_ms)
    except UnreadableBatchError:
        return


def _is_all_of(batch: bytes, header: HeaderTuple, bucket: int, bucket_ms: int) -> bool:
    """Whether all records of a batch are of one bucket."""
    count = header[RECORD_COUNT]
    # A walker lets records pass that have no timestamp, -1: times are moved so that this is one of the bucket.
    moved_ms = -1 - bucket
    first_ms = header[BASE_TIMESTAMP_MS] + moved_ms
    if bucket <= EARLIEST_MS or not -_LONG_MAX <= first_ms <= _LONG_MAX:
        return False
    latest_ms = _LONG_MAX if bucket + bucket_ms > LATEST_MS else bucket_ms - 2
    walker = Walker(count, first_ms, -1, latest_ms, False, False)
    is_wrong = walker.feed(uncompressed_records(batch, header))
    seen, is_whole, _, _, outside = walker.state()
    return not is_wrong and is_whole and seen == count and not outside


def joined(runs: Iterable[Run]) -> list[Run]:
    """The runs, of which those that follow each other in one bucket are one.

    Example:
        >>> joined([(0, 1, 0), (1, 2, 0), (2, 3, 60000), (5, 6, 60000)])
        [(0, 2, 0), (2, 3, 60000), (5, 6, 60000)]
    """
    result: list[Run] = []
    for start, end, bucket in runs:
        if result and result[-1][1] == start and result[-1][2] == bucket:
            result[-1] = (result[-1][0], end, bucket)
        else:
            result.append((start, end, bucket))
    return result
