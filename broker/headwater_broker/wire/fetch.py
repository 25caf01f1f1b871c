"""Fetch requests and responses, by hand: this is the path of every message that goes out.

Versions 0 to 17; below 4 they carry message sets, not record batches, and from 13 on a topic is named by its id. A
response is a list of byte strings with gaps between them, where the caller puts the ranges of the log files.

The rack that a consumer of version 11 and up says it stands in (its setting `client.rack`) chooses no replica here. The
name `headwater-past-unreadable` asks for a record in the place of each batch that cannot be read: every client can be
told to send it, and other brokers ignore it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headwater_broker.wire.errors import MalformedFrame
from headwater_broker.wire.primitives import (
    MOST_PARTITIONS,
    StructError,
    read_tag_count,
    read_uvarint,
    skip_tags,
    too_wide,
    write_uvarint,
)

BATCHES_FROM = 4
"""The first version whose answers hold record batches; 2 and 3 have messages of format 1, 0 and 1 of format 0."""

PAST_UNREADABLE = b"headwater-past-unreadable"
"""The rack of a consumer that goes past batches that cannot be read."""

_RACK_FROM = 11
_FLEXIBLE_FROM = 12
_IDS_FROM = 13
_SHORT = Struct(">h")
_INT = Struct(">i")
_LIMITS = Struct(">iiib")
_LIMITS_V3 = Struct(">iii")
_LIMITS_V0 = Struct(">ii")
_NO_LIMIT = 2**31 - 1
_LEGACY_NAME_BYTES = 2**15 - 1
_SESSION = Struct(">ii")
_ERROR_AND_SESSION = Struct(">hi")
_REPLICA_STATE_SIZE = 12
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_ABORTED = Struct(">qq")
_RESULT_V0 = Struct(">ihq")
_RESULT_V4 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")


class FetchPartition(NamedTuple):
    """One partition asked for. `topic` is its name, or from version 13 on the 16 bytes of its id."""

    topic: bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A parsed request."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: Sequence[tuple[bytes, int]] = ()
    past_unreadable: bool = False


class FetchResult(NamedTuple):
    """The answer for one partition, but for its records, of which only the size is told here.

    `aborted` holds producer id and first offset of transactions to leave out; None where the reader did not ask.
    """

    topic: bytes
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records_size: int
    aborted: Sequence[tuple[int, int]] | None = None


def parse_fetch(frame: memoryview, position: int, version: int) -> FetchRequest:
    """Parses the body that starts at `position`.

    Raises:
        MalformedFrame: A length or count passes the end of the frame.
    """
    try:
        return _parse(frame, position, version)
    except (StructError, IndexError) as error:
        raise MalformedFrame("a Fetch request ends early") from error


def _parse(frame: memoryview, position: int, version: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE_FROM
    replica_id = -1
    if version <= 14:
        (replica_id,) = _INT.unpack_from(frame, position)
        position += 4
    if version >= BATCHES_FROM:
        max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(frame, position)
        position += 13
    else:
        isolation_level = 0
        if version == 3:
            max_wait_ms, min_bytes, max_bytes = _LIMITS_V3.unpack_from(frame, position)
            position += 12
        else:
            max_wait_ms, min_bytes = _LIMITS_V0.unpack_from(frame, position)
            max_bytes = _NO_LIMIT
            position += 8
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += 8
    partitions: list[FetchPartition] = []
    topics, position = _count(frame, position, flexible)
    room = MOST_PARTITIONS - topics
    if room < 0:
        raise too_wide("Fetch")
    for _ in range(topics):
        topic, position = _topic(frame, position, version)
        count, position = _count(frame, position, flexible)
        room -= count
        if not 0 <= room <= MOST_PARTITIONS:
            raise too_wide("Fetch")
        for _ in range(count):
            epoch = -1
            if version >= 12:
                index, epoch, offset, _, _, limit = _PARTITION_V12.unpack_from(frame, position)
                position = skip_tags(frame, position + 32)
            elif version >= 9:
                index, epoch, offset, _, limit = _PARTITION_V9.unpack_from(frame, position)
                position += 28
            elif version >= 5:
                index, offset, _, limit = _PARTITION_V5.unpack_from(frame, position)
                position += 24
            else:
                index, offset, limit = _PARTITION_V4.unpack_from(frame, position)
                position += 16
            partitions.append(FetchPartition(topic, index, epoch, offset, limit))
        if flexible:
            position = skip_tags(frame, position)
    forgotten: Sequence[tuple[bytes, int]] = ()
    if version >= 7:
        forgotten, position = _forgotten(frame, position, version)
    past_unreadable = False
    if version >= _RACK_FROM:
        past_unreadable, position = _past_unreadable(frame, position, flexible)
    if version >= 15:
        replica_id = _replica_from_tags(frame, position)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        past_unreadable,
    )


def _count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = read_uvarint(frame, position)
        return count - 1, position
    return _INT.unpack_from(frame, position)[0], position + 4


def _topic(frame: memoryview, position: int, version: int) -> tuple[bytes, int]:
    if version >= _IDS_FROM:
        length = 16
    elif version >= _FLEXIBLE_FROM:
        length, position = read_uvarint(frame, position)
        length -= 1
    else:
        (length,) = _SHORT.unpack_from(frame, position)
        position += 2
    end = position + length
    if length < 0 or end > len(frame):
        raise MalformedFrame(f"a topic of {length} bytes passes the end of the frame")
    return frame[position:end].tobytes(), end


def _forgotten(frame: memoryview, position: int, version: int) -> tuple[Sequence[tuple[bytes, int]], int]:
    """Topics and partitions that a fetch session is to leave out."""
    flexible = version >= _FLEXIBLE_FROM
    topics, position = _count(frame, position, flexible)
    if topics <= 0:
        return (), position
    forgotten = []
    room = MOST_PARTITIONS - topics
    if room < 0:
        raise too_wide("Fetch")
    for _ in range(topics):
        topic, position = _topic(frame, position, version)
        count, position = _count(frame, position, flexible)
        room -= count
        if not 0 <= room <= MOST_PARTITIONS:
            raise too_wide("Fetch")
        end = position + 4 * max(count, 0)
        if end > len(frame):
            raise MalformedFrame(f"{count} forgotten partitions pass the end of the frame")
        forgotten += [(topic, number) for (number,) in _INT.iter_unpack(frame[position:end])]
        position = end
        if flexible:
            position = skip_tags(frame, position)
    return forgotten, position


def _past_unreadable(frame: memoryview, position: int, flexible: bool) -> tuple[bool, int]:
    """What the rack asks for."""
    if flexible:
        length, position = read_uvarint(frame, position)
        length -= 1
    else:
        (length,) = _SHORT.unpack_from(frame, position)
        position += 2
    end = position + max(length, 0)
    return length == len(PAST_UNREADABLE) and frame[position:end] == PAST_UNREADABLE, end


def _replica_from_tags(frame: memoryview, position: int) -> int:
    """The replica id of a follower, which versions 15 and up carry in tagged field 1."""
    count, position = read_tag_count(frame, position)
    replica_id = -1
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == 1 and size >= _REPLICA_STATE_SIZE:
            (replica_id,) = _INT.unpack_from(frame, position)
        position += size
    return replica_id


def encode_fetch_response(
    correlation_id: int, version: int, results: list[FetchResult], *, error_code: int = 0, session_id: int = 0
) -> list[bytes]:
    """A response frame in pieces.

    Results of one topic that are no neighbours name it again.

    Returns:
        One piece more than `results`: the records of result i belong between pieces i and i + 1.
    """
    flexible = version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    start = _INT.pack(correlation_id) + tags
    if version >= 1:
        start += b"\x00\x00\x00\x00"  # throttle time
    if version >= 7:
        start += _ERROR_AND_SESSION.pack(error_code, session_id)
    topics: list[list[FetchResult]] = []
    for result in results:
        if topics and topics[-1][0].topic == result.topic:
            topics[-1].append(result)
        else:
            topics.append([result])
    start += _pack_count(len(topics), flexible)
    pieces: list[bytes] = []
    records_size = 0
    open_piece = start
    for group in topics:
        open_piece += _pack_topic(group[0].topic, version) + _pack_count(len(group), flexible)
        for result in group:
            _, index, error, high_watermark, stable, log_start, size, aborted = result
            if version >= 5:
                open_piece += _RESULT_V5.pack(index, error, high_watermark, stable, log_start)
            elif version >= BATCHES_FROM:
                open_piece += _RESULT_V4.pack(index, error, high_watermark, stable)
            else:
                open_piece += _RESULT_V0.pack(index, error, high_watermark)
            if version < BATCHES_FROM:
                pass
            elif aborted is None:
                open_piece += b"\x00" if flexible else b"\xff\xff\xff\xff"
            else:
                open_piece += _pack_count(len(aborted), flexible)
                open_piece += b"".join([_ABORTED.pack(*each) + tags for each in aborted])
            if version >= 11:
                open_piece += b"\xff\xff\xff\xff"  # no preferred replica
            open_piece += write_uvarint(size + 1) if flexible else _INT.pack(size)
            pieces.append(open_piece)
            records_size += size
            open_piece = tags
        open_piece += tags
    pieces.append(open_piece + tags)
    total = sum(map(len, pieces)) + records_size
    pieces[0] = _INT.pack(total) + pieces[0]
    return pieces


def _pack_count(count: int, flexible: bool) -> bytes:
    return write_uvarint(count + 1) if flexible else _INT.pack(count)


def _pack_topic(topic: bytes, version: int) -> bytes:
    if version >= _IDS_FROM:
        return topic
    if version >= _FLEXIBLE_FROM:
        return write_uvarint(len(topic) + 1) + topic
    # A session that a version with longer names began may go on in this one.
    name = topic[:_LEGACY_NAME_BYTES]
    return _SHORT.pack(len(name)) + name
