"""How far jobs are behind their topics, according to the brokers; no Spark is needed."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headwater.running.clusters import Clusters
from headwater_streams.base.errors import RefusedError, StreamsError, UnavailableError
from headwater_streams.base.topics import cluster_of

Bounds = dict[int, tuple[int, int]]
"""The earliest and the next offset of each partition."""

AskTopic = Callable[[str], Bounds]
"""Asks the brokers for a topic's bounds."""


class TopicAsker:
    """Asks the brokers for each topic once, and a cluster that does not answer once.

    Attributes:
        refusals: Why brokers refuse this client, or the settings of a cluster are wrong: a sentence for each cluster or
            topic.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._known: dict[str, Bounds] = {}
        self._errors: dict[
            str, StreamsError
        ] = {}  # by topic, or by "CLUSTER:" where it is about all of a cluster's

    @property
    def refusals(self) -> list[str]:
        """See the class."""
        return [str(error) for error in self._errors.values() if not isinstance(error, UnavailableError)]

    def __call__(self, topic: str) -> Bounds:
        """The topic's bounds.

        Raises:
            StreamsError: No broker answers, one refuses this client, or there is no such topic.
        """
        from headwater_streams.sources.topic_metadata import partitions

        name = cluster_of(topic)
        whole = f"{name}:"
        before = self._errors.get(whole) or self._errors.get(topic)
        if before is not None:
            raise before
        try:
            cluster = self._clusters.of(name)
        except StreamsError as error:
            self._errors[whole] = error
            raise
        if topic not in self._known:
            try:
                self._known[topic] = partitions(cluster, topic)
            except RefusedError as error:
                self._errors[error.topic or whole] = error
                raise
            except UnavailableError as error:
                self._errors[whole] = error
                raise
        return self._known[topic]


def topic_asker(home: Path, bootstrap: str | None) -> TopicAsker:
    """Asks the named brokers, those of the settings, or those of the home's running stack."""
    return TopicAsker(Clusters(home, bootstrap))


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
