"""The topic of counts as an audit reads it: once whole before it looks at the logs, and then what came meanwhile."""

from collections.abc import Sequence
from dataclasses import replace

from headwater_client.events import COUNTS_TOPIC, Appended, Counts, EventError, Source, event_from_json
from headwater_streams.ledger.counts import Claims, Earlier, Heard, TopicLog
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.time_buckets import records_of
from headwater_streams.sources.topic_metadata import partitions, topic_settings

_APPENDED = 2  # librdkafka's TIMESTAMP_LOG_APPEND_TIME
_SETTINGS = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
_LACKS_SETTINGS = (
    f"{COUNTS_TOPIC} loses counts by its retention, or does not show whose clock is wrong: headwater topics alter "
    f"{COUNTS_TOPIC} {' '.join(f'--config {name}={value}' for name, value in _SETTINGS.items())}"
)
_ABOUT_MS = 60_000


class CountsTopic:
    """The newest record of each key, and when the brokers took it.

    Args:
        cluster: The cluster.
        is_there: Whether it has the topic.

    Attributes:
        broken: What could not be read, or will not be there, a sentence each.
        newest_ms: The brokers' time of the newest record; 0 where that is not known.
    """

    def __init__(self, cluster: KafkaCluster, *, is_there: bool = True) -> None:
        self._cluster, self._is_there = cluster, is_there
        self._topic = cluster.named(COUNTS_TOPIC)
        self._next: dict[int, int] = {}
        self._newest: dict[str, tuple[Counts | Source | Appended, int, int, bool]] = {}
        self.broken: list[str] = []
        self.newest_ms = 0
        if is_there:
            settings = topic_settings(cluster, self._topic)
            if settings and any(settings.get(name) != value for name, value in _SETTINGS.items()):
                self.broken.append(_LACKS_SETTINGS)

    def read(self) -> None:
        """Reads what came since the last time.

        Raises:
            RefusedError: The brokers and this client do not come together, or it may not read the topic.
            UnavailableError: The brokers do not answer.
        """
        if not self._is_there:
            return
        bounds = {
            partition: (max(start, self._next.get(partition, start)), end)
            for partition, (start, end) in partitions(self._cluster, self._topic).items()
        }
        self._next |= {partition: end for partition, (_, end) in bounds.items()}
        lost: dict[int, list[tuple[int, int]]] = {}
        for message in records_of(self._cluster, self._topic, bounds, ends=self._next, lost=lost):
            if message.value() is not None:
                self._take(message.value(), message.partition(), message.offset(), *message.timestamp())
        self.broken += [hole(self._topic, partition, *each) for partition in lost for each in lost[partition]]

    def topics(self) -> set[str]:
        """The topics that somebody counted."""
        return {event.topic for event, *_ in self._newest.values() if isinstance(event, Counts | Appended)}

    def appended(self) -> list[Appended]:
        """What brokers counted as they appended it, oldest first."""
        found = [
            (at_ms, event) for event, _, at_ms, _ in self._newest.values() if isinstance(event, Appended)
        ]
        return [event for _, event in sorted(found, key=lambda each: each[0])]

    def earlier(self) -> Earlier:
        """What producers said by now, as a thing of its own."""
        events = [event for event, *_ in self._newest.values()]
        return Earlier(
            {event.key: event for event in events if isinstance(event, Counts)},
            {event.instance: event for event in events if isinstance(event, Source)},
        )

    def of(self, topic: str, log: TopicLog, earlier: Earlier) -> Claims:
        """What producers say of one topic; of one that was made again nothing of the time before."""

        def named(source: Source) -> Source:
            return replace(source, topics={log.topic: source.topics[topic]})

        counts, sources, doubtful = list[Counts](), list[Heard](), set[str]()
        gone_ms, there_ms = log.again or (0, 0)
        for event, _, at_ms, is_stamped in self._newest.values():
            if is_stamped and at_ms <= gone_ms:
                continue
            if isinstance(event, Source) and topic in event.topics:
                sources.append(Heard(named(event), at_ms if is_stamped else None))
            elif isinstance(event, Counts) and event.topic == topic:
                counts.append(event)
                is_near = not is_stamped or at_ms <= there_ms + event.bucket_ms + _ABOUT_MS
                if log.again is not None and is_near:
                    doubtful.add(event.key)
        before = {each.instance: named(each) for each in earlier.sources.values() if topic in each.topics}
        return Claims(counts, sources, earlier=replace(earlier, sources=before), doubtful=doubtful)

    def _take(self, value: bytes, partition: int, offset: int, kind: int, at_ms: int) -> None:
        is_stamped = kind == _APPENDED
        if is_stamped:
            self.newest_ms = max(self.newest_ms, at_ms)
        try:
            event = event_from_json(value)
        except EventError as error:
            self.broken.append(f"{self._topic} {partition} offset {offset} {error}")
            return
        known = self._newest.get(event.key)
        # Where partitions were added, a key was of another one before.
        if known is None or known[1] == partition or known[2] <= at_ms:
            self._newest[event.key] = event, partition, at_ms, is_stamped


def hole(topic: str, partition: int, start: int, end: int) -> str:
    """What is said of offsets that the brokers have lost."""
    return (
        f"{topic} {partition}: the brokers have lost offsets [{start}, {end}): a file of the log is gone or short, and "
        "headwater doctor names it, on the brokers' machine"
    )


def of_topic(appended: Sequence[Appended], topic: str, topic_id: str | None) -> list[Appended]:
    """What brokers counted of one topic, and not of another one that had its name before."""
    same = {"", shown_id(topic_id)}
    return [each for each in appended if each.topic == topic and (topic_id is None or each.topic_id in same)]


def shown_id(topic_id: str | None) -> str:
    """A topic's id as Kafka and our broker show it: librdkafka has + and / for - and _; empty where there is none."""
    return (topic_id or "").translate(str.maketrans("+/", "-_"))
