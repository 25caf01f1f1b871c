"""Stretches of time, half-open, in microseconds: put together, widened, cut."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import itemgetter

from headwater_streams.backfill.values import Span


def merged(spans: Sequence[Span]) -> list[Span]:
    """Spans that do not touch each other, in their order, with the moments of these.

    Example:
        >>> merged([(5, 7), (0, 2), (2, 3)])
        [(0, 3), (5, 7)]
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def widened(spans: Sequence[Span], whole: Sequence[Span]) -> list[Span]:
    """The spans, merged, with all of each whole that they, or another one that came with them, hold a part of.

    Example:
        >>> widened([(0, 2)], [(1, 5), (4, 8), (9, 10)])
        [(0, 8)]
    """
    found = merged(spans)
    # Of wholes that overlap, all come where one does.
    return merged([*found, *(one for one in merged(whole) if overlaps(found, one))])


def overlaps(spans: Sequence[Span], one: Span) -> bool:
    """Whether a span holds a moment of one of merged spans.

    Example:
        >>> overlaps([(0, 3), (5, 7)], (3, 5))
        False
    """
    # The last that begins before its end: those before that end earlier.
    place = bisect_left(spans, one[1], key=itemgetter(0))
    return place > 0 and one[0] < spans[place - 1][1]


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of merged spans is in none of the others, merged ones, too.

    Example:
        >>> without([(0, 8)], [(1, 2), (7, 9)])
        [(0, 1), (2, 7)]
    """
    found, rest = [], deque(others)
    for start, end in spans:
        at = start
        while rest and rest[0][0] < end:
            low, high = rest[0]
            if at < low:
                found.append((at, low))
            at = max(at, high)
            if high > end:
                break
            rest.popleft()
        if at < end:
            found.append((at, end))
    return found
