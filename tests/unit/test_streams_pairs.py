"""Which rows are to blame for pairs that raise: what is left out suffices, no row too many, and the right one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_streams.runtime.stages.pairs import Member, NotOfPairsError, Pair, Which, blamed

Edge = tuple[int, int]


def left(offset: int) -> Member:
    return 0, ("sales", 0, offset)


def right(offset: int) -> Member:
    return 1, ("returns", 0, offset)


@dataclass
class Known:
    """Pairs of which it is known whether they raise."""

    edges: Sequence[Edge]
    raising: Collection[Edge]
    old: Collection[Member] = ()
    fails_always: bool = False
    tries: int = 0
    counts: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.edges)

    def at(self, number: int) -> Pair:
        (_, one), (_, other) = members = self.members(number)
        return Pair((one, other), (members[0] not in self.old, members[1] not in self.old))

    def members(self, number: int) -> tuple[Member, Member]:
        one, other = self.edges[number]
        return left(one), right(other)

    def numbers(self, which: Which) -> list[int]:
        found = []
        for number in range(which.start, which.end):
            members = self.members(number)
            if (which.of is None or which.of in members) and not which.without & {*members}:
                found.append(number)
        return found

    def error_of(self, which: Which) -> Exception | None:
        self.tries += 1
        fails = self.fails_always or any(self.edges[n] in self.raising for n in self.numbers(which))
        return ZeroDivisionError(str(which)) if fails else None


def found_in(pairs: Known, **how: object) -> list[Member]:
    return [each.member for each in blamed(pairs, **how)]  # type: ignore[arg-type]


def test_row_that_came_last_is_to_blame_where_the_other_is_in_the_state() -> None:
    edges = [(0, 0), (1, 0)]
    assert found_in(Known(edges, {(0, 0)}, old={right(0)})) == [left(0)]
    assert found_in(Known(edges, {(0, 0)}, old={left(0)})) == [right(0)]
    # Each left row that meets it, for what is in the state stays.
    assert found_in(Known(edges, {*edges}, old={right(0)})) == [left(0), left(1)]


def test_row_that_raises_with_others_is_to_blame() -> None:
    every = [(one, other) for one in range(30) for other in range(3)]
    of_right = {edge for edge in every if edge[1] == 2}
    assert found_in(Known(every, of_right)) == [right(2)]
    of_left = {edge for edge in every if edge[0] == 17}
    assert found_in(Known(every, of_left)) == [left(17)]
    assert {*found_in(Known(every, of_left | of_right))} == {left(17), right(2)}
    two = {edge for edge in every if edge[0] in (4, 5)}
    assert found_in(Known(every, two)) == [left(4), left(5)]


def test_row_with_more_pairs_is_to_blame_where_all_raise() -> None:
    every = [(one, other) for one in range(2) for other in range(100)]
    assert found_in(Known(every, every)) == [left(0), left(1)]
    every = [(one, other) for one in range(100) for other in range(2)]
    assert found_in(Known(every, every)) == [right(0), right(1)]


def test_one_pair_falls_on_the_side_that_is_given() -> None:
    assert found_in(Known([(0, 0)], {(0, 0)})) == [right(0)]
    assert found_in(Known([(0, 0)], {(0, 0)}), falls_on=0) == [left(0)]


def test_row_that_a_job_blamed_before_is_to_blame_again() -> None:
    edges = [(0, 0), (1, 0), (2, 1)]
    preferred = {left(0), left(1)}
    assert found_in(Known(edges, {(0, 0), (1, 0)}), preferred=preferred) == [left(0), left(1)]
    assert found_in(Known(edges, {*edges}), preferred={left(2)}) == [right(0), left(2)]


def test_what_fails_without_a_pair_is_no_rows_doing() -> None:
    with pytest.raises(NotOfPairsError):
        found_in(Known([(0, 0)], (), fails_always=True))
    assert found_in(Known([(0, 0)], ())) == []
    assert found_in(Known([], ())) == []


def test_one_row_of_many_is_found_in_few_tries() -> None:
    every = [(one, one % 10) for one in range(100_000)]
    pairs = Known(every, {(77_777, 7)})
    assert found_in(pairs) == [right(7)]
    assert pairs.tries < 30


EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), unique=True, max_size=30)


@given(EDGES, st.data())
def test_rows_to_blame_suffice_and_each_was_needed(edges: list[Edge], data: st.DataObject) -> None:
    raising = set(data.draw(st.lists(st.sampled_from(edges), unique=True))) if edges else set()
    rows = [*map(left, range(6)), *map(right, range(6))]
    old = set(data.draw(st.lists(st.sampled_from(rows), unique=True)))
    edges = [(one, other) for one, other in edges if not {left(one), right(other)} <= old]
    raising &= {*edges}
    preferred = set(data.draw(st.lists(st.sampled_from(rows), unique=True)))
    side = data.draw(st.integers(0, 1))
    found = found_in(Known(edges, raising, old), preferred=preferred, falls_on=side)
    assert not {*found} & old
    assert all({left(one), right(other)} & {*found} for one, other in raising), "what is left raises nothing"
    covered = set[Edge]()
    for member in found:
        own = {edge for edge in raising - covered if member in (left(edge[0]), right(edge[1]))}
        assert own, "each of them raises with a row that was not left out before it"
        covered |= own
    assert found == oracle(edges, raising, old, preferred, side)


def oracle(
    edges: list[Edge], raising: set[Edge], old: set[Member], preferred: set[Member], side: int
) -> list[Member]:
    """The same by the rules as they are written, pair by pair."""
    found = list[Member]()
    for one, other in edges:
        if (one, other) not in raising or {left(one), right(other)} & {*found}:
            continue
        rest = [e for e in edges if not {left(e[0]), right(e[1])} & {*found}]
        of_left = [e in raising for e in rest if e[0] == one and e[1] != other]
        of_right = [e in raising for e in rest if e[1] == other and e[0] != one]
        both = any(of_left) and any(of_right)
        apart: list[tuple[object, object]] = [
            (left(one) not in old, right(other) not in old),
            (left(one) in preferred, right(other) in preferred),
            (any(of_left), any(of_right)),
        ]
        if both:
            apart.append(
                ((sum(of_left) / len(of_left), len(of_left)), (sum(of_right) / len(of_right), len(of_right)))
            )
        rule = next(((a, b) for a, b in apart if a != b), (side == 0, side == 1))
        found.append(left(one) if rule[0] > rule[1] else right(other))  # type: ignore[operator]
    return found
