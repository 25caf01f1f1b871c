"""Which records of a batch are to blame for the pairs of a join for which the job's function raises.

A pair has two rows, and one of them at least is of the batch: the others were paired before. The pairs have an order;
the first one that raises is found by halving, and one of its rows is to blame and is left out with all of its pairs.
That goes on until no pair raises. The first of these rules by which the two rows differ says which one is to blame:

- the row of the batch, where the other one came before: that one is in the state, and in the account of its batch;
- the row that stands in quarantine already, where a rebuild reads what a job has read before;
- the row that raises with others, too;
- where both do, the one of whose other pairs more raise, by a few of them that are tried, then the one with more pairs;
- else the row of a side that the caller names.

    lefts  l1 l2         l1-r1 is well, l1-r2 raises, l2-r2 raises: r2 is to blame, for it raises with l2, too
    rights r1 r2
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater_streams.runtime.stages.narrowing import Place

_SAMPLES = 8
"""The number of a row's other pairs that are tried one by one, where both rows of a pair raise with others."""

Member = tuple[int, Place]
"""A row of a pair: its side, 0 for the left one, and its coordinates."""


@dataclass(frozen=True)
class Pair:
    """Two rows that a join puts together.

    Attributes:
        places: Their coordinates, the left one's first.
        is_new: Which of them are of the batch; one at least.
    """

    places: tuple[Place, Place]
    is_new: tuple[bool, bool]

    @property
    def members(self) -> tuple[Member, Member]:
        """The two rows."""
        return (0, self.places[0]), (1, self.places[1])


@dataclass(frozen=True)
class Which:
    """Some pairs.

    Attributes:
        start: The number of the first one.
        end: One past the last.
        of: A row that all of them have; None: any.
        without: Rows that none of them has.
    """

    start: int
    end: int
    of: Member | None = None
    without: frozenset[Member] = frozenset()


class Pairs(Protocol):
    """The pairs of a batch, numbered from 0 on, of which each is computed by itself."""

    count: int

    def error_of(self, which: Which) -> Exception | None:
        """The error that the computation of some of them ends with; None where none raises."""

    def numbers(self, which: Which) -> Sequence[int]:
        """The numbers of some of them, in order."""

    def at(self, number: int) -> Pair:
        """The pair with a number."""


class NotOfPairsError(Exception):
    """The computation fails without any pair, too, or with some pairs together and none alone."""


@dataclass(frozen=True)
class Blamed:
    """A row that is to blame.

    Attributes:
        member: The row.
        pair: The first pair that raises and has the row.
        error: What its computation ends with.
    """

    member: Member
    pair: Pair
    error: Exception


def blamed(pairs: Pairs, *, preferred: Collection[Member] = (), falls_on: int = 1) -> Iterator[Blamed]:
    """The rows without which no pair raises; none where none does.

    Args:
        pairs: The pairs.
        preferred: Rows that are to blame sooner than others.
        falls_on: The side whose row is to blame where the two do not differ.

    Raises:
        NotOfPairsError: The computation fails without any pair, or fails once and not again.
    """
    if pairs.error_of(Which(0, 0)) is not None:
        raise NotOfPairsError
    start, excluded = 0, frozenset[Member]()
    while pairs.error_of(Which(start, pairs.count, without=excluded)) is not None:
        start, error = _first(pairs, start, excluded)
        pair = pairs.at(start)
        member = _to_blame(pairs, pair, excluded, preferred, falls_on)
        excluded |= {member}
        yield Blamed(member, pair, error)
        start += 1  # no pair before it raises, and it is left out with the row


def _first(pairs: Pairs, start: int, excluded: frozenset[Member]) -> tuple[int, Exception]:
    """The first pair from a number on that raises, and what it ends with; one of them raises."""
    low, high = start, pairs.count
    while high - low > 1:
        middle = (low + high) // 2
        if pairs.error_of(Which(low, middle, without=excluded)) is not None:
            high = middle
        else:
            low = middle
    error = pairs.error_of(Which(low, high, without=excluded))
    if error is None:
        raise NotOfPairsError
    return low, error


def _to_blame(
    pairs: Pairs, pair: Pair, excluded: frozenset[Member], preferred: Collection[Member], falls_on: int
) -> Member:
    left, right = pair.members
    for of_left, of_right in (pair.is_new, (left in preferred, right in preferred)):
        if of_left != of_right:
            return left if of_left else right
    others = [
        Which(0, pairs.count, of=one, without=excluded | {other})
        for one, other in ((left, right), (right, left))
    ]
    raises = [pairs.error_of(which) is not None for which in others]
    if raises[0] != raises[1]:
        return left if raises[0] else right
    if all(raises):
        weights = [_weight(pairs, which) for which in others]
        if weights[0] != weights[1]:
            return left if weights[0] > weights[1] else right
    return pair.members[falls_on]


def _weight(pairs: Pairs, which: Which) -> tuple[float, int]:
    """The share of some pairs that raises, by a few of them, and the number of the pairs."""
    numbers = pairs.numbers(which)
    step = max(1, len(numbers) // _SAMPLES)
    samples = numbers[::step][:_SAMPLES]
    raising = sum(pairs.error_of(Which(number, number + 1)) is not None for number in samples)
    return raising / len(samples), len(numbers)
