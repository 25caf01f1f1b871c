"""The rows of a join's pairs that find their first partner, told as by sets of Python's.

A row may share its place with another one of another time, as windows do: it is told by both.
"""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_streams.ledger.partners import LEFT, RIGHT, find_partners

Place = tuple[str, int, int]
Pair = tuple[Place | None, Place | None]

places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(0, 5))
pairs = st.lists(st.tuples(st.none() | places, st.none() | places), max_size=12)
_RANGE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
)


def results(found: list[Pair]) -> pa.Table:
    def told(place: Place | None) -> dict[str, object] | None:
        return place and {"topic": place[0], "partition": place[1], "start": place[2], "end": place[2] + 1}

    sources = [[told(left), told(right)] for left, right in found]
    return pa.table({"_sources": pa.array(sources, pa.list_(_RANGE))})


def ends(found: list[Pair], sides: tuple[int, ...]) -> set[tuple[int, str, int, int]]:
    whole = [pair for pair in found if all(pair[side] is not None for side in sides)]
    return {(side, *place) for pair in whole for side in sides if (place := pair[side]) is not None}


@settings(print_blob=True)
@given(pairs, st.lists(pairs, max_size=3), st.sampled_from([(LEFT,), (LEFT, RIGHT)]))
def test_partners_are_those_of_sets(
    now: list[Pair], earlier: list[list[Pair]], sides: tuple[int, ...]
) -> None:
    batches = [batch for before in earlier for batch in results(before).to_batches()]
    partners = find_partners(results(now), batches, sides)
    mine = ends(now, sides)
    known = set().union(*(ends(before, sides) for before in earlier))
    first, before = ({tuple(row.values())[:-1] for row in told.to_pylist()} for told in partners)
    assert (first, before) == (mine - known, mine & known)
    assert partners.first.num_rows == len(first)
    for side in (LEFT, RIGHT):
        assert partners.count_first(side) == sum(place[0] == side for place in first)
