"""Finding records by their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crc32c import crc32c

from headwater_broker.log.batch import CHECKED_FROM, SEEK_CHUNK_BYTES, BadBatchError, HeaderTuple, walk
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
        if header[8] < timestamp_ms or header[0] + header[6] < start_offset:
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
    # The second time from the start, where what the segment knows as its greatest may not be seen yet.
    for start_position in (min(indexed, end_position), 0):
        for batch in _walk(fs, segment, start_position, end_position):
            if batch[2][8] >= 0 and (greatest is None or batch[2][8] > greatest[2][8]):
                greatest = batch
                if batch[2][8] == segment.max_timestamp_ms:
                    break
        if greatest is not None and greatest[2][8] == segment.max_timestamp_ms:
            break
    if greatest is None:
        return None
    greatest_ms = greatest[2][8]
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
    if crc32c(memoryview(data)[CHECKED_FROM:]) != header[4]:
        raise BadBatchError(position, "the checksum does not match")
    try:
        for offset, timestamp_ms in record_timestamps(data):
            if wanted(offset, timestamp_ms):
                return timestamp_ms, offset
    except UnreadableBatchError:
        return header[8], header[0]
    return None
