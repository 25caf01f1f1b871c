"""Finding records by their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crc32c import crc32c

from headwater_broker.log.batch import (
    BASE_OFFSET,
    CHECKED_FROM,
    CHECKSUM_VALUE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    SEEK_CHUNK_BYTES,
    BadBatchError,
    HeaderTuple,
    walk,
)
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.records import UnreadableBatchError, record_timestamps
from headwater_broker.log.segment import Segment


def find_timestamp(
    fs: FileSystem, segment: Segment, end_position: int, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """Timestamp and offset of a segment's first record at or after both `timestamp_ms` and `start_offset`,
    if any.

    Raises:
        BadBatchError: A batch on the way is damaged, or an index leads astray.
        DamagedIndexError: An index cannot be used.
    """
    from_offset = max(segment.time_index.offset_for(timestamp_ms), start_offset)
    indexed = min(segment.offset_index.position_for(from_offset)[0], end_position)
    for position, size, header in _walk(fs, segment, indexed, end_position):
        if (
            header[MAX_TIMESTAMP_MS] < timestamp_ms
            or header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] < start_offset
        ):
            continue
        found = _first_record(
            fs,
            segment,
            (position, size, header),
            lambda offset, stamp_ms: stamp_ms >= timestamp_ms and offset >= start_offset,
        )
        if found is not None:
            return found
    return None


def find_greatest(fs: FileSystem, segment: Segment, end_position: int) -> tuple[int, int] | None:
    """Timestamp and offset of a segment's first record with the greatest timestamp, if any has one.

    Raises:
        BadBatchError: A batch on the way is damaged, or an index leads astray.
        DamagedIndexError: An index cannot be used.
    """
    indexed = segment.offset_index.position_for(segment.max_timestamp_offset)[0]
    greatest: tuple[int, int, HeaderTuple] | None = None
    greatest_ms = NO_TIMESTAMP
    # The second time from the start, where what the segment knows as its greatest may not be seen yet.
    for start_position in (min(indexed, end_position), 0):
        for batch in _walk(fs, segment, start_position, end_position):
            if batch[2][MAX_TIMESTAMP_MS] > greatest_ms:
                greatest, greatest_ms = batch, batch[2][MAX_TIMESTAMP_MS]
                if greatest_ms == segment.max_timestamp_ms:
                    break
        if greatest_ms == segment.max_timestamp_ms:
            break
    if greatest is None:
        return None
    return _first_record(fs, segment, greatest, lambda _, stamp_ms: stamp_ms >= greatest_ms)


def _walk(
    fs: FileSystem, segment: Segment, position: int, end_position: int
) -> Iterator[tuple[int, int, HeaderTuple]]:
    return walk(fs, segment.file.fd, position, end_position, check=False, chunk_bytes=SEEK_CHUNK_BYTES)


def _first_record(
    fs: FileSystem, segment: Segment, batch: tuple[int, int, HeaderTuple], wanted: Callable[[int, int], bool]
) -> tuple[int, int] | None:
    position, size, header = batch
    data = fs.pread(segment.file.fd, size, position)
    if crc32c(memoryview(data)[CHECKED_FROM:]) != header[CHECKSUM_VALUE]:
        raise BadBatchError(position, "the checksum does not match")
    try:
        for offset, timestamp_ms in record_timestamps(data):
            if wanted(offset, timestamp_ms):
                return timestamp_ms, offset
    except UnreadableBatchError:
        return header[MAX_TIMESTAMP_MS], header[BASE_OFFSET]
    return None
