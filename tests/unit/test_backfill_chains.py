"""Chains of sessions between which rows may have moved are one: some have more rows now, some fewer, at one time."""

import random

from amount import drawn_seed
from headwater_streams.backfill.repair.windows.sessions.chains import Chain, exchanging


def chain(first: int, end: int, more: int, *, is_open: bool = False, is_written: bool = True) -> Chain:
    return Chain((first, first + 1), end, more, is_open, is_written)


def test_chains_that_have_more_and_fewer_rows_at_one_time_are_one() -> None:
    moved = [chain(0, 5, 1), chain(5, 9, -1), chain(10, 12, 2), chain(13, 20, -2), chain(15, 18, -1)]
    assert list(exchanging(moved)) == [Chain((0, 6), 9, 0, is_open=False, is_written=True)]


def test_chain_that_rows_may_have_left_for_an_open_one_is_half_written() -> None:
    [one] = exchanging([chain(0, 9, -1), chain(4, 30, 3, is_open=True, is_written=False)])
    assert one.is_half_written


def test_chains_of_any_times_are_put_together_as_a_search_finds_them() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    for _ in range(300):
        chains = [
            chain(first, first + rng.randrange(1, 9), rng.choice([-1, 1]))
            for first in (rng.randrange(60) for _ in range(rng.randrange(9)))
        ]
        groups = [{number} for number in range(len(chains))]
        for one in range(len(chains)):
            for other in range(one):
                a, b = chains[one], chains[other]
                if a.begins[0] <= b.end and b.begins[0] <= a.end:
                    joined = groups[one] | groups[other]
                    for number in joined:
                        groups[number] = joined
        several = {
            frozenset(group) for group in groups if len({chains[number].more for number in group}) == 2
        }
        wanted = sorted(
            (min(chains[n].begins[0] for n in group), max(chains[n].begins[1] for n in group))
            for group in several
        )
        assert [found.begins for found in exchanging(chains)] == wanted, seed
