"""A set of offsets as disjoint half-open intervals: one interval in the ordinary case, exact in any order."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """Offsets seen, kept as sorted, disjoint, non-adjacent `[start, end)` pairs.

    Example:
        >>> seen = IntervalSet([(0, 3)])
        >>> seen.add(5, 7)
        >>> seen.add(3, 5)
        >>> seen.pairs(), 6 in seen, 7 in seen
        ([(0, 7)], True, False)
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in pairs:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Adds `[start, end)`, merging what it touches.

        Raises:
            ValueError: The interval is empty or turned round.
        """
        if start >= end:
            raise ValueError(f"[{start}, {end}) is not an interval")
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def overlapping(self, start: int, end: int) -> list[tuple[int, int]]:
        """The intervals that share an offset with `[start, end)`, whole."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        return list(zip(self._starts[first:last], self._ends[first:last], strict=True))

    def pairs(self) -> list[tuple[int, int]]:
        """The intervals in order."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def end(self) -> int | None:
        """One past the greatest offset, or None when nothing was seen."""
        return self._ends[-1] if self._ends else None

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs())

    def __len__(self) -> int:
        """The number of intervals, on which the set's size depends."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self.pairs() == other.pairs()

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> "IntervalSet":
        """An independent copy."""
        twin = IntervalSet()
        twin._starts, twin._ends = self._starts.copy(), self._ends.copy()
        return twin

    def __repr__(self) -> str:
        return f"IntervalSet({self.pairs()})"
