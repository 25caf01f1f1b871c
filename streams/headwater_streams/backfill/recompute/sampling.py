"""What is recomputed where not all is: offsets, or windows, that lie together, picked by a seed.

Little of the topic is read, and what is read is read in one go. The limit is a number of offsets, or a part of all of
them where that is more; the same seed picks the same.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from headwater_streams.backfill.offsets import Offsets, Pair
from headwater_streams.base.ledger_entry import Ranges

LEAST = 50_000
"""Offsets that a sample may have whatever the number of all.

Measured with 400,000 events of 207 bytes: 100,000 of a row job took 2 s of CPU and all of them 7 s, where its repair
took 15 s; all of a window job, decoded from the topic, 8 s, where its repair took 5 s from the ingest table.
"""
_PART, _PART_OF_WINDOWS = 20, 8
_MOST_PARTITIONS = 8  # each is a task that reads


def limit_of(offsets: int) -> int:
    """How many offsets a sample of so many may have."""
    return max(LEAST, offsets // _PART)


def limit_of_windows(offsets: int) -> int:
    """How many where not even the windows of one start are within `limit_of`."""
    return max(LEAST, offsets // _PART_OF_WINDOWS)


def pick_offsets(offsets: Offsets, limit: int, rng: Random) -> Offsets:
    """A stretch of each partition, or of some where they are many.

    Example:
        >>> pick_offsets(Offsets(pairs={("t", 0): ((0, 100),)}), 10, Random(1)).pairs
        {('t', 0): ((72, 82),)}
    """
    if offsets.count <= limit:
        return offsets
    places = sorted(rng.sample(sorted(offsets.pairs), min(_MOST_PARTITIONS, len(offsets.pairs))))
    found, left = {}, limit
    # The small ones first: what they leave of their share is for the others.
    for n, place in enumerate(sorted(places, key=lambda place: _length(offsets.pairs[place]))):
        pairs = offsets.pairs[place]
        share = min(max(1, left // (len(places) - n)), _length(pairs))
        found[place] = _stretch(pairs, rng.randrange(_length(pairs) - share + 1), share)
        left -= share
    return Offsets(pairs=dict(sorted(found.items())))


def pick_windows(
    sources: Mapping[int, Ranges],
    limit: int | None,
    rng: Random,
    cost: Callable[[Sequence[Ranges]], int | None],
) -> Pair | None:
    """Window starts that follow each other, as many as the limit lets: the first and the last, both inclusive.

    Args:
        sources: By window start, in microseconds, where the rows of its windows are.
        limit: How many offsets may be read; None for any number.
        rng: Picks the one to begin with.
        cost: How many offsets are read for windows with these ranges; None where some of them are gone.

    Returns:
        None where not even one start is within the limit.
    """
    starts = sorted(sources)
    if limit is None:
        gone = [place for place, start in enumerate(starts) if cost([sources[start]]) is None]
        following = gone[-1] + 1 if gone else 0
        return (starts[following], starts[-1]) if following < len(starts) else None
    for first in rng.sample(range(len(starts)), len(starts)):
        chosen: list[Ranges] = []
        step = 1
        # Twice as many each time, then half as many: to ask for each one more would be a square of the windows.
        growing = True
        while step:
            more = [sources[start] for start in starts[first + len(chosen) :][:step]]
            read = cost([*chosen, *more]) if more else None
            if read is not None and read <= limit:
                chosen += more
            else:
                growing = False
            step = step * 2 if growing else step // 2
        if chosen:
            return starts[first], starts[first + len(chosen) - 1]
    return None


def _length(pairs: Sequence[Pair]) -> int:
    return sum(end - start for start, end in pairs)


def _stretch(pairs: Sequence[Pair], skipped: int, wanted: int) -> tuple[Pair, ...]:
    found = []
    for start, end in pairs:
        begin = min(start + skipped, end)
        skipped -= begin - start
        stop = min(begin + wanted, end)
        if begin < stop:
            found.append((begin, stop))
            wanted -= stop - begin
    return tuple(found)
