"""Kafka's variable-length integers and tagged fields, over a memoryview of one frame.

Reading past the end raises IndexError; callers turn it into MalformedFrame once, not at each step.
"""

import struct

from headwater_broker.wire.errors import MalformedFrame

StructError = struct.error

_MOST_TAGS = 256
"""Tagged fields of one structure: Kafka's have a few. A hundred megabytes of them would keep everybody else waiting."""

MOST_PARTITIONS = 20_000
"""Topics and partitions that one Produce or Fetch request may name: each takes microseconds to be looked at, and some
hundred bytes. Those of Kafka's clients name no partition twice."""


def too_wide(api: str) -> MalformedFrame:
    """The error for a request that names more."""
    return MalformedFrame(f"a {api} request names more than {MOST_PARTITIONS} topics and partitions")


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes.

    Returns:
        The value and the position after it.
    """
    byte = frame[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedFrame("a varint of more than five bytes")


def write_uvarint(value: int) -> bytes:
    """The varint of a non-negative number."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_tag_count(frame: memoryview, position: int) -> tuple[int, int]:
    """How many tagged fields follow, and where the first one begins."""
    count, position = read_uvarint(frame, position)
    if count > _MOST_TAGS:
        raise MalformedFrame(f"{count} tagged fields: a structure has at most {_MOST_TAGS}")
    return count, position


def skip_tags(frame: memoryview, position: int) -> int:
    """Passes over a set of tagged fields; returns the position after it."""
    count, position = read_tag_count(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedFrame(f"a tagged field of {size} bytes passes the end of the frame")
    return position
