"""Kafka's embedded consumer protocol: what a consumer subscribes to, and what it is assigned.

The coordinator reads subscriptions only to tell which offsets are in use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

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


def encode_subscription(topics: Iterable[str]) -> bytes:
    """A ConsumerProtocolSubscription of version 0: version, topics, no user data."""
    names = [name.encode() for name in topics]
    fields = b"".join(_INT16.pack(len(name)) + name for name in names)
    return _INT16.pack(0) + _INT32.pack(len(names)) + fields + _INT32.pack(-1)


def encode_assignment(partitions: Iterable[tuple[str, int]]) -> bytes:
    """A ConsumerProtocolAssignment of version 0: version, partitions by topic, no user data."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    fields = b""
    for topic, numbers in by_topic.items():
        name = topic.encode()
        fields += _INT16.pack(len(name)) + name + _INT32.pack(len(numbers))
        fields += b"".join(map(_INT32.pack, numbers))
    return _INT16.pack(0) + _INT32.pack(len(by_topic)) + fields + _INT32.pack(-1)
