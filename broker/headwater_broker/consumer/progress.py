"""How far a consumer has come in the partitions that it owns, and what of that is committed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

from headwater_broker.consumer.assignment import TopicPartition
from headwater_broker.coordination import Committed, Coordinator


class Progress(Mapping[TopicPartition, int | None]):
    """Next offsets by partition; None where the reset policy still has to say where to begin."""

    def __init__(self, coordinator: Coordinator, group: str) -> None:
        self._coordinator = coordinator
        self._group = group
        self._next: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}

    def __getitem__(self, tp: TopicPartition) -> int | None:
        return self._next[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._next)

    def __len__(self) -> int:
        return len(self._next)

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """Takes partitions up where the group left them.

        Raises:
            CoordinationError: shared state does not answer.
        """
        stored = self._coordinator.fetch_offsets(self._group, partitions)
        for tp in partitions:
            self._next[tp] = stored[tp].offset if tp in stored else None
            self._committed.pop(tp, None)
            if tp in stored:
                self._committed[tp] = stored[tp].offset

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions."""
        for tp in partitions:
            self._next.pop(tp, None)
            self._committed.pop(tp, None)

    def move(self, tp: TopicPartition, next_offset: int) -> None:
        """Goes on from another offset."""
        self._next[tp] = next_offset

    def commit(self, next_offsets: Mapping[TopicPartition, int | None] | None = None) -> None:
        """Stores how far the group has read, as far as that is news; by default, of all partitions.

        Raises:
            CoordinationError: shared state does not answer.
        """
        chosen = self._next if next_offsets is None else next_offsets
        now_ms = time.time_ns() // 1_000_000
        news = {
            tp: Committed(offset, timestamp_ms=now_ms)
            for tp, offset in chosen.items()
            if offset is not None and tp in self._next and offset != self._committed.get(tp)
        }
        self._coordinator.commit_offsets(self._group, news)
        self._committed.update((tp, each.offset) for tp, each in news.items())
