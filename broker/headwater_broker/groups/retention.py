"""Which committed offsets of a group have served their time (KIP-211)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetUse:
    """What a group does with its offsets, as far as their retention is concerned.

    Attributes:
        idle_ms: How long the group has had no members; None where its offsets count from their own commits,
            as those of simple consumers, and of topics that a stable group reads no longer.
        read_topics: Topics whose offsets are in use; None: all of them, so that nothing expires.
    """

    idle_ms: int | None
    read_topics: frozenset[str] | None

    def is_expired(
        self, topic: str, committed_ms: int, expires_ms: int | None, now_ms: int, retention_ms: int
    ) -> bool:
        """Whether an offset may be forgotten.

        Args:
            topic: The offset's topic.
            committed_ms: When it was committed.
            expires_ms: When its client wanted it to expire (OffsetCommit 2 to 4), in place of `retention_ms`.
            now_ms: The time of day.
            retention_ms: `offsets.retention.minutes`.

        >>> alone = OffsetUse(idle_ms=None, read_topics=frozenset())
        >>> [alone.is_expired("t", 1000, None, now_ms, 500) for now_ms in (1499, 1500)]
        [False, True]
        """
        if self.read_topics is None or topic in self.read_topics:
            return False
        if expires_ms is not None:
            return now_ms >= expires_ms
        age_ms = now_ms - committed_ms if self.idle_ms is None else self.idle_ms
        return age_ms >= retention_ms
