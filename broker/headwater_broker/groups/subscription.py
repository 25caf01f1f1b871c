"""The topics in a consumer's metadata, which the coordinator reads only to tell which offsets are in use."""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a ConsumerProtocolSubscription: INT16 version, then ARRAY of STRING in every version.

    Returns:
        The topics, None if the bytes are something else.
    """
    try:
        (count,) = _INT32.unpack_from(metadata, _INT16.size)
        position = _INT16.size + _INT32.size
        if count < 0 or count * _INT16.size > len(metadata) - position:
            return None
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += _INT16.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
