"""What is picked to be recomputed: within the limit, in one piece, the same for the same seed."""

from collections.abc import Sequence
from random import Random

import pytest

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.sampling import LEAST, limit_of, pick_offsets, pick_windows
from headwater_streams.base.ledger_entry import Ranges, merge_ranges

GAPPED = Offsets(pairs={("t", 0): ((0, 40), (60, 100)), ("t", 1): ((5, 10),)})


def test_limit_is_a_number_or_a_part_whichever_is_more() -> None:
    assert (limit_of(7), limit_of(10_000_000)) == (LEAST, 500_000)


def test_offsets_of_ranges_are_exact() -> None:
    found = Offsets.of([{"t": {0: (0, 5)}}, {"t": {0: (9, 12), 1: (3, 3)}}, {"s": {2: (1, 2)}}])
    assert found.pairs == {("s", 2): ((1, 2),), ("t", 0): ((0, 5), (9, 12))}
    assert found.count == 9
    assert found.topics == "s, t"
    assert found.spans == {"s": {2: (1, 2)}, "t": {0: (0, 12)}}
    assert found.inside({"t": {0: (4, 10)}}).pairs == {("t", 0): ((4, 5), (9, 10))}
    assert Offsets.union([found.inside({"t": {0: (4, 10)}}), found]) == found


@pytest.mark.parametrize("seed", range(50))
def test_pick_of_offsets_is_one_stretch_of_each_partition(seed: int) -> None:
    found = pick_offsets(GAPPED, 20, Random(seed))
    assert found == pick_offsets(GAPPED, 20, Random(seed))
    assert found.count == 20
    assert found.pairs["t", 1] == ((5, 10),), "what a small partition leaves is for the others"
    (*_, (_, end)), start = found.pairs["t", 0], found.pairs["t", 0][0][0]
    assert end - start in (15, 35), "what lies between is skipped"
    assert found.inside(GAPPED.spans) == found
    assert pick_offsets(GAPPED, 85, Random(seed)) == GAPPED


def test_pick_of_offsets_is_of_few_partitions() -> None:
    many = Offsets(pairs={("t", n): ((0, 1000),) for n in range(100)})
    found = pick_offsets(many, 160, Random(3))
    assert sorted(found.inside({"t": dict.fromkeys(range(100), (0, 1000))}).pairs) == sorted(found.pairs)
    assert len(found.pairs) == 8
    assert found.count == 160


def cost(parts: Sequence[Ranges]) -> int | None:
    found = Offsets.of([merge_ranges(list(parts))])
    return None if found.inside({"t": {0: (0, 10)}}).count else found.count


@pytest.mark.parametrize("seed", range(50))
def test_pick_of_windows_is_as_many_as_the_limit_lets(seed: int) -> None:
    sources = {start: {"t": {0: (start * 10, start * 10 + 12)}} for start in range(20)}
    found = pick_windows(sources, 45, Random(seed), cost)
    assert found is not None
    first, last = found
    assert first >= 1, "some of the first one's are gone"
    assert last == min(first + 3, 19)
    assert pick_windows(sources, 45, Random(seed), cost) == found
    assert pick_windows(sources, None, Random(seed), cost) == (1, 19)
    assert pick_windows(sources, 11, Random(seed), cost) is None
