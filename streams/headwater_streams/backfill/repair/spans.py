"""Stretches of time, half-open, in microseconds: put together, widened, cut."""

from collections.abc import Sequence

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
    found, left = merged(spans), list(whole)
    while True:
        inside = [one for one in left if any(start < one[1] and one[0] < end for start, end in found)]
        if not inside:
            return found
        left = [one for one in left if one not in inside]
        found = merged([*found, *inside])


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of merged spans is in none of the others, merged ones, too.

    Example:
        >>> without([(0, 8)], [(1, 2), (7, 9)])
        [(0, 1), (2, 7)]
    """
    found = []
    for start, end in spans:
        at = start
        for low, high in others:
            if high <= at or low >= end:
                continue
            if at < low:
                found.append((at, low))
            at = max(at, high)
        if at < end:
            found.append((at, end))
    return found
