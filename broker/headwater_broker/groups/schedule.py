"""When which group has something to do."""

from __future__ import annotations

import heapq


class Schedule:
    """The next deadline of each group. Deadlines that moved back are found out when they come up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._earliest: dict[str, int] = {}

    def set(self, group_id: str, deadline_ms: int | None) -> None:
        """Makes sure that a group comes up no later than its deadline."""
        if deadline_ms is None:
            return
        earliest_ms = self._earliest.get(group_id)
        if earliest_ms is None or deadline_ms < earliest_ms:
            self._earliest[group_id] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, group_id))

    def next_ms(self) -> int | None:
        """The earliest deadline of all."""
        self._drop_overtaken()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """Takes out the groups whose deadline has come; each is to be set again."""
        due = []
        while (deadline_ms := self.next_ms()) is not None and deadline_ms <= now_ms:
            _, group_id = heapq.heappop(self._heap)
            del self._earliest[group_id]
            due.append(group_id)
        return due

    def drop(self, group_id: str) -> None:
        """Forgets a group."""
        self._earliest.pop(group_id, None)

    def _drop_overtaken(self) -> None:
        while self._heap and self._earliest.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
