"""Kafka's variable-length integers and tagged fields, over a memoryview of one frame.

Reading past the end raises IndexError; callers turn it into MalformedFrame once, not at each step.
"""

import struct

from headwater_broker.wire.errors import MalformedFrame

StructError = struct.error


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


def skip_tags(frame: memoryview, position: int) -> int:
    """Passes over a set of tagged fields; returns the position after it."""
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedFrame(f"a tagged field of {size} bytes passes the end of the frame")
    return position
