"""Who reads what: computed by every member for itself, from the same facts, to the same result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import cycle
from typing import Literal, get_args

from headwater_broker.consumer.sticky import sticky_assignment

TopicPartition = tuple[str, int]
Assignment = Mapping[str, frozenset[TopicPartition]]

StrategyName = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
"""Kafka's names. All but the last are eager: at each change a member gives up all that it has, and then
claims what it is to have. With the last one it only gives up what goes to others.
"""

_NEEDS_PREVIOUS = frozenset({"sticky", "cooperative-sticky"})


def common_strategy(wishes: Iterable[str]) -> StrategyName:
    """The strategy of a group: the one that most members wish, and of those the first in `STRATEGIES`.

    Every member knows all of them, so a group changes from one to another a member at a time.

    >>> common_strategy(["range", "sticky", "sticky"]), common_strategy(["sticky", "range"])
    ('sticky', 'range')
    """
    votes = Counter(wishes)
    return max(STRATEGIES, key=lambda strategy: (votes[strategy], -STRATEGIES.index(strategy)))


def is_eager(strategy: StrategyName) -> bool:
    """Whether members give up everything before they claim anything."""
    return strategy != "cooperative-sticky"


def needs_previous(strategy: StrategyName) -> bool:
    """Whether the assignment depends on the one before."""
    return strategy in _NEEDS_PREVIOUS


def assign(
    strategy: StrategyName,
    subscriptions: Mapping[str, Collection[str]],
    partitions: Mapping[str, Collection[int]],
    previous: Assignment,
) -> dict[str, frozenset[TopicPartition]]:
    """The assignment of every member.

    Args:
        strategy: how to share.
        subscriptions: topics by member.
        partitions: partition numbers by topic; a topic that is not in it does not exist (yet).
        previous: the assignment before, of members that may have left; see `needs_previous`.
    """
    if strategy == "range":
        return range_assignment(subscriptions, partitions)
    if strategy == "roundrobin":
        return round_robin_assignment(subscriptions, partitions)
    return sticky_assignment(subscriptions, partitions, previous)


def range_assignment(
    subscriptions: Mapping[str, Collection[str]], partitions: Mapping[str, Collection[int]]
) -> dict[str, frozenset[TopicPartition]]:
    """Gives each member, topic by topic, a run of neighbouring partitions (Kafka's range assignment).

    Members are in the order of their names; the first ones get one partition more where it does not come out
    even.

    >>> shares = range_assignment({"a": ["t"], "b": ["t"]}, {"t": [0, 1, 2]})
    >>> sorted(shares["a"]), sorted(shares["b"])
    ([('t', 0), ('t', 1)], [('t', 2)])
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    for topic, numbers in partitions.items():
        readers = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not readers:
            continue
        ordered = sorted(numbers)
        least, extra = divmod(len(ordered), len(readers))
        start = 0
        for index, member in enumerate(readers):
            end = start + least + (index < extra)
            shares[member].update((topic, number) for number in ordered[start:end])
            start = end
    return _frozen(shares)


def round_robin_assignment(
    subscriptions: Mapping[str, Collection[str]], partitions: Mapping[str, Collection[int]]
) -> dict[str, frozenset[TopicPartition]]:
    """Deals all partitions of all topics out in turn, passing over those who do not read a topic.

    >>> shares = round_robin_assignment({"a": ["t", "u"], "b": ["t", "u"]}, {"t": [0], "u": [0, 1]})
    >>> sorted(shares["a"]), sorted(shares["b"])
    ([('t', 0), ('u', 1)], [('u', 0)])
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    read = {topic for topics in subscriptions.values() for topic in topics}
    turns = cycle(sorted(subscriptions))
    for topic in sorted(read & partitions.keys()):
        for number in sorted(partitions[topic]):
            member = next(member for member in turns if topic in subscriptions[member])
            shares[member].add((topic, number))
    return _frozen(shares)


def _frozen(shares: Mapping[str, set[TopicPartition]]) -> dict[str, frozenset[TopicPartition]]:
    return {member: frozenset(share) for member, share in shares.items()}
