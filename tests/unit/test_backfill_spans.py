"""Stretches of time against sets of their moments."""

from itertools import pairwise
from random import Random

import pytest

from headwater_streams.backfill.repair.spans import merged, overlaps, widened, without
from headwater_streams.backfill.values import Span


def spans_of(rng: Random, most: int = 6) -> list[Span]:
    starts = [rng.randrange(40) for _ in range(rng.randrange(most))]
    return [(start, start + rng.randrange(1, 9)) for start in starts]


def moments(spans: list[Span]) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}


@pytest.mark.parametrize("seed", range(50))
def test_spans_hold_the_moments_that_they_should(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        spans, others = spans_of(rng), spans_of(rng)
        whole = merged(spans)
        assert moments(whole) == moments(spans)
        assert all(one[1] < other[0] for one, other in pairwise(whole))
        left = without(whole, merged(others))
        assert moments(left) == moments(spans) - moments(others)
        assert all(start < end for start, end in left)
        for one in others:
            assert overlaps(whole, one) == bool(moments(spans) & moments([one]))


@pytest.mark.parametrize("seed", range(50))
def test_widened_spans_hold_each_whole_or_nothing_of_it(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        spans, whole = spans_of(rng, 3), spans_of(rng)
        found = widened(spans, whole)
        assert moments(spans) <= moments(found) <= moments(spans) | moments(whole)
        for one in whole:
            assert moments([one]) <= moments(found) or not moments([one]) & moments(found)
