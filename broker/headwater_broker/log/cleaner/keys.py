"""The last offset of every key in the part of a log that is not compacted yet, in bounded memory."""

from __future__ import annotations

from hashlib import blake2b

BYTES_PER_KEY = 192
"""What one entry was measured to take, with the dictionary's room to grow."""

_DIGEST_BYTES = 16


class KeyOffsets:
    """Keys to offsets.

    A key of 16 bytes or more is kept as its 128-bit digest, a shorter one as itself: no two kinds are equal.

    Attributes:
        end_offset: Every record before it is in the map.
    """

    def __init__(self, memory_bytes: int, start_offset: int) -> None:
        """Makes an empty one.

        Args:
            memory_bytes: What it may take; it always has room for one batch.
            start_offset: Where the part begins.
        """
        self._limit = memory_bytes // BYTES_PER_KEY
        self._offsets: dict[bytes, int] = {}
        self.end_offset = start_offset

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be added."""
        return len(self._offsets) >= self._limit

    def put(self, key: bytes, offset: int) -> None:
        """A record with this key is at `offset`, later than every other so far."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        self._offsets[key] = offset

    def supersedes(self, key: bytes, offset: int) -> bool:
        """Whether a later record than the one at `offset` has the same key."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1) > offset
