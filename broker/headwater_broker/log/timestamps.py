"""Finding records by their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crc32c import crc32c

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    CHECKED_FROM,
    CHECKSUM_VALUE,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    SEEK_CHUNK_BYTES,
    BadBatchError,
    HeaderTuple,
    walk,
)
from headwater_broker.log.claims import greatest_ms as greatest_ms_of
from headwater_broker.log.claims import is_wrong
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.record_stream import Slices, stream_records
from headwater_broker.log.records import UnreadableBatchError
from headwater_broker.log.segment import Segment

_RECORDS_AT_ONCE = 512
"""So many are looked at before the work may be put aside."""


def find_timestamp(
    fs: FileSystem, segment: Segment, end_position: int, timestamp_ms: int, start_offset: int
) -> Slices[tuple[int, int] | None]:
    """Timestamp and offset of a segment's first record at or after both `timestamp_ms` and `start_offset`,
    if any.

    Raises:
        BadBatchError: A batch on the way is damaged, or an index leads astray.
        DamagedIndexError: An index cannot be used.
    """
    file = segment.file  # which stays open meanwhile
    claim = segment.time_index.claim_for(timestamp_ms)
    if claim is not None:
        segment.check_time(*claim)
    from_offset = max(segment.time_index.offset_for(timestamp_ms), start_offset)
    indexed = segment.indexed_position(from_offset, end_position)
    for position, size, header in _walk(fs, file, indexed, end_position):
        if (header[MAX_TIMESTAMP_MS] < timestamp_ms and not is_wrong(header)) or header[BASE_OFFSET] + header[
            LAST_OFFSET_DELTA
        ] < start_offset:
            continue
        match = yield from _first_record(
            fs,
            file,
            (position, size, header),
            lambda offset, stamp_ms: stamp_ms >= timestamp_ms and offset >= start_offset,
        )
        if match is not None:
            return match
    return None


def find_greatest(fs: FileSystem, segment: Segment, end_position: int) -> Slices[tuple[int, int] | None]:
    """Timestamp and offset of a segment's first record with the greatest timestamp, if any has one.

    Raises:
        BadBatchError: A batch on the way is damaged, or an index leads astray.
        DamagedIndexError: An index cannot be used.
    """
    file = segment.file
    indexed = segment.indexed_position(segment.max_timestamp_offset, end_position)
    greatest: tuple[int, int, HeaderTuple] | None = None
    greatest_ms = NO_TIMESTAMP
    # The second pass begins at the start: the segment's greatest timestamp may not be visible yet.
    for start_position in (indexed, 0):
        for batch in _walk(fs, file, start_position, end_position):
            batch_ms = greatest_ms_of(fs, file.fd, *batch)
            if batch_ms > greatest_ms:
                greatest, greatest_ms = batch, batch_ms
                if greatest_ms == segment.max_timestamp_ms:
                    break
        if greatest_ms == segment.max_timestamp_ms:
            break
    if greatest is None:
        return None
    return (yield from _first_record(fs, file, greatest, lambda _, stamp_ms: stamp_ms >= greatest_ms))


def _walk(
    fs: FileSystem, file: OpenFile, position: int, end_position: int
) -> Iterator[tuple[int, int, HeaderTuple]]:
    return walk(fs, file.fd, position, end_position, check=False, chunk_bytes=SEEK_CHUNK_BYTES)


def _first_record(
    fs: FileSystem, file: OpenFile, batch: tuple[int, int, HeaderTuple], matches: Callable[[int, int], bool]
) -> Slices[tuple[int, int] | None]:
    position, size, header = batch
    data = fs.pread(file.fd, size, position)
    if crc32c(memoryview(data)[CHECKED_FROM:]) != header[CHECKSUM_VALUE]:
        raise BadBatchError(position, "the checksum does not match")
    try:
        stamped_ms = header[MAX_TIMESTAMP_MS] if header[ATTRIBUTES] & LOG_APPEND_TIME else None
        for number, record in enumerate(stream_records(data, header)):
            if number % _RECORDS_AT_ONCE == 0:
                yield
            offset = header[BASE_OFFSET] + record[3]
            timestamp_ms = header[BASE_TIMESTAMP_MS] + record[4] if stamped_ms is None else stamped_ms
            if matches(offset, timestamp_ms):
                return timestamp_ms, offset
    except UnreadableBatchError:
        return header[MAX_TIMESTAMP_MS], header[BASE_OFFSET]
    return None
