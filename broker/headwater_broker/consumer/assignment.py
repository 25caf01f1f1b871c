"""Who reads what: computed by every member for itself, from the same facts, to the same result."""

from __future__ import annotations

from collections.abc import Collection, Mapping

TopicPartition = tuple[str, int]


def range_assignment(
    subscriptions: Mapping[str, Collection[str]], partitions: Mapping[str, Collection[int]]
) -> dict[str, frozenset[TopicPartition]]:
    """Gives each member, topic by topic, a run of neighbouring partitions (Kafka's range assignment).

    Members are in the order of their names; the first ones get one partition more where it does not come out
    even.

    Args:
        subscriptions: topics by member.
        partitions: partition numbers by topic; a topic that is not in it does not exist (yet).

    Returns:
        Partitions by member, of every member.

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
    return {member: frozenset(share) for member, share in shares.items()}
