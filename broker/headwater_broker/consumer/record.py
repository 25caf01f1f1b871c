"""What a consumer hands out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset there.
        timestamp_ms: its timestamp, None if it has none.
        key: its key.
        value: its value, None for a tombstone.
        headers: its headers, in order.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
