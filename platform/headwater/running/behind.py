"""How far jobs are behind their topics, according to the brokers; no Spark is needed."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path

from headwater.stack.local import known_bootstrap
from headwater_streams.base.errors import StreamsError

Bounds = dict[int, tuple[int, int]]
"""The earliest and the next offset of each partition."""

AskTopic = Callable[[str], Bounds]
"""Asks the brokers for a topic's bounds."""


def topic_asker(home: Path, bootstrap: str | None) -> AskTopic | None:
    """Asks the named brokers, or those of the home's running stack, for each topic once; None without brokers."""
    from headwater_streams.sources.topic_metadata import partitions

    address = bootstrap or known_bootstrap(home)
    return cache(partial(partitions, address)) if address else None


def bounds_of(topics: Iterable[str], ask: AskTopic | None) -> dict[str, Bounds] | None:
    """The bounds of each topic; None if no broker could be asked, or one of the topics is gone."""
    if ask is None:
        return None
    try:
        return {topic: ask(topic) for topic in topics}
    except StreamsError:
        return None


def records_behind(
    topics: Mapping[str, Bounds], read: Mapping[str, Mapping[int, int]]
) -> dict[tuple[str, int], int]:
    """The records that wait in each partition in which some do, most first.

    Args:
        topics: The bounds of each topic. If a topic ends before what was read, it was made again, and all of it waits;
            of a topic that retention cut, what remains.
        read: The next offset that the job reads, by topic and partition.
    """
    behind = {}
    for topic, bounds in topics.items():
        for partition, (low, end) in bounds.items():
            at = read.get(topic, {}).get(partition, low)
            behind[topic, partition] = end - (max(at, low) if at <= end else low)
    return {place: n for place, n in sorted(behind.items(), key=lambda each: -each[1]) if n > 0}
