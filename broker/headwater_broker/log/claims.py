"""What headers of stored batches claim of their records' timestamps, and what is true.

Versions before 0.2 believed a client's greatest timestamp. Some clients send -1 or 0 there, so that look-ups by time
passed the batch over, and retention took it for very old. A batch that is appended now is right (see `inspection`).
"""

from __future__ import annotations

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_TIMESTAMP_MS,
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    RECORD_COUNT,
    HeaderTuple,
)
from headwater_broker.log.compression import UndecodableError
from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.decompression import decompressed_slices
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.inspection import LONG_MIN, SLICE_BYTES
from headwater_broker.log.walk import Walker

_MEANS_OTHERWISE = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON


def is_wrong(header: HeaderTuple) -> bool:
    """Whether the greatest timestamp cannot be: it is before the first one."""
    return header[MAX_TIMESTAMP_MS] < header[BASE_TIMESTAMP_MS] and not header[ATTRIBUTES] & _MEANS_OTHERWISE


def greatest_ms(fs: FileSystem, fd: int, position: int, size: int, header: HeaderTuple) -> int:
    """The greatest timestamp of a stored batch: the one that its header claims, unless that is impossible.

    Where the records cannot be read, the first one's is all that is known.

    Raises:
        OSError: The disk refused.
    """
    if not is_wrong(header):
        return header[MAX_TIMESTAMP_MS]
    first_ms = header[BASE_TIMESTAMP_MS]
    walker = Walker(header[RECORD_COUNT], first_ms, LONG_MIN, LONG_MAX, False, True)
    records = memoryview(fs.pread(fd, size, position))[HEADER.size :]
    try:
        for piece in decompressed_slices(records, header[ATTRIBUTES] & COMPRESSION_MASK, SLICE_BYTES):
            if walker.feed(piece):
                return first_ms
    except UndecodableError:
        return first_ms
    return walker.state()[2]
