"""Stretches of offsets: half-open pairs, and what one list of them has that another lacks."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

Stretches = Sequence[tuple[int, int]]
"""In order, apart from each other."""


def _end(pair: tuple[int, int]) -> int:
    return pair[1]


def merged(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The offsets of any pairs, in order and apart.

    Example:
        >>> merged([(5, 7), (0, 2), (1, 5), (9, 9)])
        [(0, 7)]
    """
    result: list[tuple[int, int]] = []
    for start, end in sorted(pairs):
        if start >= end:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def common(one: Stretches, other: Stretches) -> list[tuple[int, int]]:
    """The offsets that are in both.

    Example:
        >>> common([(0, 5), (8, 9)], [(3, 12)])
        [(3, 5), (8, 9)]
    """
    result = list[tuple[int, int]]()
    if not one or not other:
        return result
    # A batch has few offsets, and a log or a table many: what comes before is not gone through.
    begin = max(one[0][0], other[0][0])
    i, j = bisect_right(one, begin, key=_end), bisect_right(other, begin, key=_end)
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            result.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return result


def minus(one: Stretches, other: Stretches) -> list[tuple[int, int]]:
    """The offsets of the first that are not in the second.

    Example:
        >>> minus([(0, 10)], [(2, 3), (5, 20)])
        [(0, 2), (3, 5)]
    """
    result = list[tuple[int, int]]()
    j = bisect_right(other, one[0][0], key=_end) if one else 0
    for start, end in one:
        while j < len(other) and other[j][1] <= start:
            j += 1
        at = j
        while start < end and at < len(other) and other[at][0] < end:
            if start < other[at][0]:
                result.append((start, other[at][0]))
            start = max(start, other[at][1])
            at += 1
        if start < end:
            result.append((start, end))
    return result


def size(pairs: Iterable[tuple[int, int]]) -> int:
    """How many offsets there are."""
    return sum(end - start for start, end in pairs)


def first(pairs: Stretches, count: int) -> list[tuple[int, int]]:
    """The first so many offsets.

    Example:
        >>> first([(0, 2), (5, 9)], 3)
        [(0, 2), (5, 6)]
    """
    result = []
    for start, end in pairs:
        if count <= 0:
            break
        result.append((start, min(end, start + count)))
        count -= end - start
    return result


def more_than_once(pairs: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """The offsets that several of the pairs have; one that three of them have is there twice.

    Example:
        >>> more_than_once([(0, 5), (3, 8), (4, 6)])
        [(3, 4), (4, 5), (4, 5), (5, 6)]
    """
    steps = sorted([(start, 1) for start, _ in pairs] + [(end, -1) for _, end in pairs])
    again, depth = list[tuple[int, int]](), 0
    for (at, step), (until, _) in pairwise(steps):
        depth += step
        if at < until:
            again += [(at, until)] * (depth - 1)
    return again


def add(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    """Adds offsets to stretches.

    Example:
        >>> pairs = [(0, 2), (5, 6), (9, 12)]
        >>> add(pairs, 2, 5)
        >>> pairs
        [(0, 6), (9, 12)]
    """
    i, j = bisect_left(pairs, start, key=_end), bisect_right(pairs, end, key=lambda pair: pair[0])
    touching = pairs[i:j]
    if touching:
        start, end = min(start, touching[0][0]), max(end, touching[-1][1])
    pairs[i:j] = [(start, end)]
