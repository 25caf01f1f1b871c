"""Produce requests and responses, by hand: this is the path of every message that comes in.

Versions 0 to 11; below 3 they carry message sets, not record batches. The records stay where they are: a request
says where in the frame each partition's are.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from headwater_broker.wire.errors import MalformedFrame
from headwater_broker.wire.primitives import (
    MOST_PARTITIONS,
    StructError,
    read_uvarint,
    skip_tags,
    too_wide,
    write_uvarint,
)

FLEXIBLE_FROM = 9
"""The first version with tagged fields and short lengths."""

BATCHES_FROM = 3
"""The first version that carries record batches."""

ZSTD_FROM = 7
"""The first version whose batches may be compressed by zstd (KIP-110)."""

_SHORT = Struct(">h")
_INT = Struct(">i")
_FRAME_START = Struct(">ii")
_ACKS_TIMEOUT = Struct(">hi")
_PARTITION = Struct(">ii")
_RESULT = Struct(">ihqqq")
_RESULT_V3 = Struct(">ihqq")
_RESULT_V0 = Struct(">ihq")
_RESULT_END = Struct(">qq")
_RESULT_END_V3 = Struct(">q")
_NO_ERRORS_V8 = b"\x00\x00\x00\x00\xff\xff"
_NO_ERRORS_V9 = b"\x01\x00\x00"


PartitionRecords = tuple[bytes, int, int, int]
"""Topic, partition, and from where to where in the frame its record batches are (nowhere if there are none).

A plain tuple: naming its fields would cost a tenth of the time that the whole request takes.
"""


class ProduceRequest(NamedTuple):
    """A parsed request."""

    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionRecords]


class ProduceResult(NamedTuple):
    """The answer for one partition; offsets and times are -1 where there are none.

    `record_errors` names records of the batch by their number, and what is wrong with each.
    """

    topic: bytes
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()


def parse_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Parses the body that starts at `position`.

    Raises:
        MalformedFrame: A length or count passes the end of the frame.
    """
    try:
        if version >= FLEXIBLE_FROM:
            return _parse_flexible(frame, position)
        return _parse_legacy(frame, position, version)
    except (StructError, IndexError) as error:
        raise MalformedFrame("a Produce request ends early") from error


def _parse_flexible(frame: memoryview, position: int) -> ProduceRequest:
    size = len(frame)
    transactional_id, position = _compact_bytes(frame, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topics, position = read_uvarint(frame, position + 6)
    partitions: list[PartitionRecords] = []
    room = MOST_PARTITIONS - topics
    if room < 0:
        raise too_wide("Produce")
    for _ in range(topics - 1):
        topic, position = _compact_bytes(frame, position)
        if topic is None:
            raise MalformedFrame("a Produce request has a topic without a name")
        count, position = read_uvarint(frame, position)
        room -= count
        if not 0 <= room <= MOST_PARTITIONS:
            raise too_wide("Produce")
        for _ in range(count - 1):
            (index,) = _INT.unpack_from(frame, position)
            length, start = read_uvarint(frame, position + 4)
            end = start + length - 1 if length else start
            if end > size:
                raise MalformedFrame(f"records of {length - 1} bytes pass the end of a frame of {size}")
            partitions.append((topic, index, start, end))
            # Tagged fields are empty in every version that there is: one zero byte.
            position = end + 1 if frame[end] == 0 else skip_tags(frame, end)
        position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
    skip_tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _parse_legacy(frame: memoryview, position: int, version: int) -> ProduceRequest:
    size = len(frame)
    transactional_id = None
    if version >= BATCHES_FROM:
        transactional_id, position = _short_bytes(frame, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    (topics,) = _INT.unpack_from(frame, position + 6)
    position += 10
    partitions: list[PartitionRecords] = []
    room = MOST_PARTITIONS - topics
    if room < 0:
        raise too_wide("Produce")
    for _ in range(topics):
        topic, position = _short_bytes(frame, position)
        if topic is None:
            raise MalformedFrame("a Produce request has a topic without a name")
        (count,) = _INT.unpack_from(frame, position)
        position += 4
        room -= count
        if not 0 <= room <= MOST_PARTITIONS:
            raise too_wide("Produce")
        for _ in range(count):
            index, length = _PARTITION.unpack_from(frame, position)
            start = position + 8
            position = start + length if length > 0 else start
            if position > size:
                raise MalformedFrame(f"records of {length} bytes pass the end of a frame of {size}")
            partitions.append((topic, index, start, position))
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _compact_bytes(frame: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_uvarint(frame, position)
    if length == 0:
        return None, position
    end = position + length - 1
    if end > len(frame):
        raise MalformedFrame(f"a string of {length - 1} bytes passes the end of the frame")
    return frame[position:end].tobytes(), end


def _short_bytes(frame: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = _SHORT.unpack_from(frame, position)
    position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise MalformedFrame(f"a string of {length} bytes passes the end of the frame")
    return frame[position:end].tobytes(), end


def encode_produced(
    correlation_id: int,
    version: int,
    topic: bytes,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The response frame of the ordinary case: one partition, and nothing wrong."""
    size, before, after = _around_single_result(topic, version)
    if version >= 5:
        result = _RESULT.pack(partition, 0, base_offset, log_append_time_ms, log_start_offset)
    else:
        result = _RESULT_V3.pack(partition, 0, base_offset, log_append_time_ms)
    return b"".join((_FRAME_START.pack(size, correlation_id), before, result, after))


def encode_all_produced(
    correlation_ids: Sequence[int],
    base_offsets: Sequence[int],
    version: int,
    topic: bytes,
    partition: int,
    log_start_offset: int,
) -> bytes:
    """The response frames of as many ordinary requests in a row for one partition, which keeps producers' times."""
    size, before, after = _around_single_result(topic, version)
    result = _INT.pack(partition) + b"\x00\x00"
    end = _RESULT_END.pack(-1, log_start_offset) if version >= 5 else _RESULT_END_V3.pack(-1)
    before += result
    after = end + after
    pack = _produced(len(before), len(after)).pack
    return b"".join(
        [
            pack(size, correlation_id, before, base_offset, after)
            for correlation_id, base_offset in zip(correlation_ids, base_offsets, strict=True)
        ]
    )


@lru_cache(maxsize=1024)
def _produced(before_bytes: int, after_bytes: int) -> Struct:
    """The response frame of the ordinary case around its correlation id and its base offset."""
    return Struct(f">ii{before_bytes}sq{after_bytes}s")


@lru_cache(maxsize=4096)
def _around_single_result(topic: bytes, version: int) -> tuple[int, bytes, bytes]:
    """Size of the frame, and its bytes before and after the only result."""
    result = ProduceResult(topic, 0, 0, 0, 0, 0)
    frame = encode_produce_response(0, version, [result])
    numbers = _RESULT.size if version >= 5 else _RESULT_V3.size
    start = frame.index(topic, _FRAME_START.size) + len(topic) + (1 if version >= FLEXIBLE_FROM else 4)
    return len(frame) - 4, frame[_FRAME_START.size : start], frame[start + numbers :]


def encode_produce_response(correlation_id: int, version: int, results: Sequence[ProduceResult]) -> bytes:
    """A whole response frame, length prefix and header included.

    Results of one topic must be neighbours, as they are in the request.
    """
    flexible = version >= FLEXIBLE_FROM
    parts = [b"", _INT.pack(correlation_id) + (b"\x00" if flexible else b"")]
    groups: list[list[ProduceResult]] = []
    for result in results:
        if groups and groups[-1][0].topic == result.topic:
            groups[-1].append(result)
        else:
            groups.append([result])
    parts.append(write_uvarint(len(groups) + 1) if flexible else _INT.pack(len(groups)))
    for group in groups:
        topic = group[0].topic
        if flexible:
            parts += (write_uvarint(len(topic) + 1), topic, write_uvarint(len(group) + 1))
        else:
            parts += (_SHORT.pack(len(topic)), topic, _INT.pack(len(group)))
        for result in group:
            parts.append(_encode_result(result, version))
        if flexible:
            parts.append(b"\x00")
    if version >= 1:
        parts.append(b"\x00\x00\x00\x00\x00" if flexible else b"\x00\x00\x00\x00")  # throttle time, tags
    parts[0] = _INT.pack(sum(map(len, parts)))
    return b"".join(parts)


def _encode_result(result: ProduceResult, version: int) -> bytes:
    _, index, error, base, append_time, log_start, message, record_errors = result
    if version >= 5:
        encoded = _RESULT.pack(index, error, base, append_time, log_start)
    elif version >= 2:
        encoded = _RESULT_V3.pack(index, error, base, append_time)
    else:
        encoded = _RESULT_V0.pack(index, error, base)
    if version < 8:
        return encoded
    flexible = version >= FLEXIBLE_FROM
    if message is None:
        return encoded + (_NO_ERRORS_V9 if flexible else _NO_ERRORS_V8)
    count = len(record_errors)
    encoded += write_uvarint(count + 1) if flexible else _INT.pack(count)
    for number, record_message in record_errors:
        encoded += _INT.pack(number) + _text(record_message, flexible) + (b"\x00" if flexible else b"")
    return encoded + _text(message, flexible) + (b"\x00" if flexible else b"")


def _text(message: str, flexible: bool) -> bytes:
    text = message.encode()[:1000].decode(errors="ignore").encode()
    return (write_uvarint(len(text) + 1) if flexible else _SHORT.pack(len(text))) + text
