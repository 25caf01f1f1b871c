"""Splitting a segment whose offsets reach further than its indexes can say.

An index has 31 bits for the distance of an offset from the segment's first. Appending rolls in time, and compaction
joins no more than fits; but the cleaner of a Kafka before 1.1 may have joined more (KAFKA-6264). Kafka splits such a
segment when it opens the log (`splitOverflowedSegment`), and so do we.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from headwater_broker.log import paths
from headwater_broker.log.batch import BASE_OFFSET, SEEK_CHUNK_BYTES, BadBatchError, last_offset_of, walk
from headwater_broker.log.config import LogConfig
from headwater_broker.log.files import OpenFile, copy_bytes
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.index import DamagedIndexError
from headwater_broker.log.segment import Segment
from headwater_broker.log.txnindex import encode_transaction_index

_LOGGER = logging.getLogger(__name__)


def split_overflowed(
    fs: FileSystem,
    directory: str,
    segment: Segment,
    following: Segment | None,
    config: LogConfig,
    now_ms: int,
) -> list[Segment]:
    """Splits a segment before each batch that is too far from its first offset.

    A crash leaves the segment whole, perhaps with some of its parts behind it, which the next start takes as done.

    Args:
        fs: Files.
        directory: The partition's.
        segment: The segment; its indexes are of no use after a split.
        following: The one behind it.
        config: The topic's settings.
        now_ms: The wall clock.

    Returns:
        The segments that it is now, in order: itself alone where everything fits, else its parts without index files,
        which are to be rebuilt. Each part has its aborted transactions.
    """
    parts = [segment]
    while (beyond := _first_beyond(fs, parts[-1], following)) is not None:
        position, base_offset = beyond
        last = parts[-1]
        _LOGGER.warning(
            "%s: offset %d is too far from its first for an index: split there", last.log_path, base_offset
        )
        # The rest gets its name once it is complete.
        if following is None or following.base_offset != base_offset:
            _copy_aborted(fs, directory, last, base_offset)
            _copy_rest(fs, directory, last, position, base_offset)
            parts.append(Segment.open(fs, directory, base_offset, config, now_ms))
        _keep_first(fs, last, position, base_offset)
    return parts


def _first_beyond(fs: FileSystem, segment: Segment, following: Segment | None) -> tuple[int, int] | None:
    """Position and base offset of the first batch that reaches too far; None where there is none before damage."""
    try:
        for position, _, header in walk(
            fs, segment.file.fd, 0, segment.size_bytes, check=False, chunk_bytes=SEEK_CHUNK_BYTES
        ):
            base_offset = header[BASE_OFFSET]
            if following is not None and base_offset > following.base_offset:
                return None
            if last_offset_of(header) > segment.last_possible_offset:
                return position, base_offset
    except BadBatchError:
        pass  # the scan meets the same damage, and handles it
    return None


def _copy_aborted(fs: FileSystem, directory: str, segment: Segment, base_offset: int) -> None:
    """Makes the rest's index of aborted transactions; a damaged one stays damaged in both parts, to be made again."""
    try:
        mine = [each for each in segment.aborted if each.last_offset >= base_offset]
    except DamagedIndexError:
        data = fs.read_file(segment.transaction_index_path)
    else:
        data = encode_transaction_index(mine)
    if data:
        path = paths.segment_path(directory, base_offset, paths.TRANSACTION_INDEX_SUFFIX)
        fs.write_file(path, data, durable=True)


def _copy_rest(fs: FileSystem, directory: str, segment: Segment, position: int, base_offset: int) -> None:
    path = paths.segment_path(directory, base_offset, paths.LOG_SUFFIX)
    target = OpenFile(fs, path + paths.CLEANED_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    copy_bytes(fs, segment.file.fd, position, segment.size_bytes, target.fd)
    fs.sync(target.fd)
    fs.rename(path + paths.CLEANED_SUFFIX, path)
    fs.sync_dir(directory)


def _keep_first(fs: FileSystem, segment: Segment, position: int, end_offset: int) -> None:
    """Cuts off the part that was copied. The cut comes last: until then, a start sees that there is more to split."""
    for path in segment.index_paths:
        fs.remove(path)
    with suppress(DamagedIndexError):
        mine = [each for each in segment.aborted if each.last_offset < end_offset]
        segment.forget_aborted()
        segment.aborted.extend(mine)
        fs.write_file(segment.transaction_index_path, encode_transaction_index(mine), durable=True)
    fs.truncate(segment.file.fd, position)
    fs.sync(segment.file.fd)
    segment.size_bytes = position
    segment.trusted_from = min(segment.trusted_from, position)
    segment.reset()
