"""Which byte ranges of a file were checked."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class RangeSet:
    """Half-open ranges that do not touch each other, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Adds a range, joining it with those that it touches."""
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def covers(self, start: int, end: int) -> bool:
        """Whether all of a range was added."""
        slot = bisect_right(self._starts, start) - 1
        return slot >= 0 and end <= self._ends[slot]

    def cut(self, end: int) -> None:
        """Forgets everything from `end` on."""
        keep = bisect_left(self._starts, end)
        del self._starts[keep:]
        del self._ends[keep:]
        if self._ends and self._ends[-1] > end:
            self._ends[-1] = end
