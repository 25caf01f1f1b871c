"""The sticky assignment: as even as can be and, of those, close to the one before (Kafka's KIP-54).

Partitions whose reader is still there stay with it. The others go to whoever has least. Then partitions move,
one at a time and perhaps over several members, from one that has two more than another to that other, until
nothing evens the shares out any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

TopicPartition = tuple[str, int]
_Shares = dict[str, set[TopicPartition]]


def sticky_assignment(
    subscriptions: Mapping[str, Collection[str]],
    partitions: Mapping[str, Collection[int]],
    previous: Mapping[str, Collection[TopicPartition]],
) -> dict[str, frozenset[TopicPartition]]:
    """Shares partitions out anew. An assignment that it made comes out unchanged if nothing else changed.

    Args:
        subscriptions: topics by member.
        partitions: partition numbers by topic.
        previous: the assignment before, of members that may have left.

    >>> shares = sticky_assignment({"a": ["t"], "b": ["t"]}, {"t": [0, 1, 2]}, {"a": [("t", 2)]})
    >>> sorted(shares["a"]), sorted(shares["b"])
    ([('t', 1), ('t', 2)], [('t', 0)])
    """
    readers = {
        topic: sorted(member for member, topics in subscriptions.items() if topic in topics)
        for topic in partitions
    }
    former = {tp: member for member in sorted(previous, reverse=True) for tp in previous[member]}
    shares: _Shares = {member: set() for member in subscriptions}
    free: list[TopicPartition] = []
    for topic, numbers in partitions.items():
        for tp in ((topic, number) for number in numbers):
            owner = former.get(tp)
            if owner is not None and owner in readers[topic]:
                shares[owner].add(tp)
            elif readers[topic]:
                free.append(tp)
    # Those with the least choice of readers first, so that the others can make up for it.
    for tp in sorted(free, key=lambda tp: (len(readers[tp[0]]), tp)):
        member = min(readers[tp[0]], key=lambda each: (len(shares[each]), each))
        shares[member].add(tp)
    while path := _way_to_even_out(shares, readers):
        for giver, topic, taker in path:
            moved = max(tp for tp in shares[giver] if tp[0] == topic)
            shares[giver].remove(moved)
            shares[taker].add(moved)
    return {member: frozenset(share) for member, share in shares.items()}


def _way_to_even_out(
    shares: _Shares, readers: Mapping[str, Collection[str]]
) -> list[tuple[str, str, str]] | None:
    """Moves (giver, topic, taker) by which one member has one partition less and another one more."""
    least = min(map(len, shares.values()), default=0)
    for member in sorted(shares, key=lambda each: (-len(shares[each]), each)):
        if len(shares[member]) < least + 2:
            return None
        path = _path_from(member, shares, readers)
        if path is not None:
            return path
    return None


def _path_from(
    start: str, shares: _Shares, readers: Mapping[str, Collection[str]]
) -> list[tuple[str, str, str]] | None:
    """The way from one member to whoever has least of those it can get to, found breadth first."""
    came_by: dict[str, tuple[str, str, str] | None] = {start: None}
    seen_topics: set[str] = set()
    queue = deque([start])
    while queue:
        giver = queue.popleft()
        for topic in sorted({topic for topic, _ in shares[giver]} - seen_topics):
            seen_topics.add(topic)  # whoever could take it has been reached
            for taker in readers[topic]:
                if taker not in came_by:
                    came_by[taker] = (giver, topic, taker)
                    queue.append(taker)
    least = min(came_by, key=lambda member: len(shares[member]))
    return _traced(least, came_by) if len(shares[least]) <= len(shares[start]) - 2 else None


def _traced(end: str, came_by: Mapping[str, tuple[str, str, str] | None]) -> list[tuple[str, str, str]]:
    """The moves, the last one first: a member gets a partition only after it gave one away."""
    path = []
    step = came_by[end]
    while step is not None:
        path.append(step)
        step = came_by[step[0]]
    return path
