"""The topic of counts as an audit reads it: once before it looks at the logs, and then what came meanwhile.

It is read from where the last audit ended, which has kept what stood there before.
"""

from collections.abc import Iterable, Mapping, Sequence

from headwater_client.events import COUNTS_TOPIC, Appended, Counts, EventError, Source, event_from_json
from headwater_streams.ledger.counts.said import Record
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.time_buckets import records_of
from headwater_streams.sources.topic_metadata import TopicIds, partitions, topic_settings

Place = tuple[str | None, Mapping[int, int]]
"""A topic's id, and the offset up to which each partition was read."""
_APPENDED = 2  # librdkafka's TIMESTAMP_LOG_APPEND_TIME
_SETTINGS = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
_SHORT_MS = 30 * 86_400_000
"""A retention that is shorter is Kafka's default of a week, or a mistake."""
_LACKS_SETTINGS = (
    f"{COUNTS_TOPIC} loses counts by its retention, or does not show whose clock is wrong: headwater topics alter "
    f"{COUNTS_TOPIC} {' '.join(f'--config {name}={value}' for name, value in _SETTINGS.items())}"
)
_REMOVED = (
    "{} {}: counts at offsets [{}, {}) were removed before an audit read them, so records that they count may be told "
    "as uncounted: audit more often than what this topic keeps"
)


class CountsTopic:
    """The newest record of each key of what came since an audit read it, and when the brokers took it.

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
        self._id = TopicIds(cluster).of(self._topic) if is_there else None
        self._next: dict[int, int] = {}
        self._reads: list[dict[str, list[tuple[Record, int]]]] = []  # by topic
        self.broken: list[str] = []
        self.newest_ms = 0
        if is_there:
            settings = topic_settings(cluster, self._topic)
            if settings and not _keeps(settings):
                self.broken.append(_LACKS_SETTINGS)

    @property
    def place(self) -> Place:
        """The topic's id, and up to where it was read."""
        return self._id, dict(self._next)

    def read(self, since: Iterable[Place | None] = (None,), *, whole: bool = False) -> None:
        """Reads what came since the last time.

        Args:
            since: At the first time: where others ended that read it before; None for one that did not.
            whole: At the first time: whether what they read is read once more.

        Raises:
            RefusedError: The brokers and this client do not come together, or it may not read the topic.
            UnavailableError: The brokers do not answer.
        """
        newest: dict[str, tuple[Record, int]] = {}
        if self._is_there:
            self._read(newest, since, whole=whole)
        by_topic: dict[str, list[tuple[Record, int]]] = {}
        for record, offset in newest.values():
            event = record.event
            for topic in event.topics if isinstance(event, Source) else (event.topic,):
                by_topic.setdefault(topic, []).append((record, offset))
        self._reads.append(by_topic)

    def _read(
        self, newest: dict[str, tuple[Record, int]], since: Iterable[Place | None], *, whole: bool
    ) -> None:
        there = partitions(self._cluster, self._topic)
        if not self._reads:
            begin = self._begin(there, list(since))
            self._next = {} if whole else begin
        bounds = {
            partition: (max(start, self._next.get(partition, start)), end)
            for partition, (start, end) in there.items()
        }
        self._next |= {partition: end for partition, (_, end) in bounds.items()}
        lost: dict[int, list[tuple[int, int]]] = {}
        for message in records_of(self._cluster, self._topic, bounds, ends=self._next, lost=lost):
            if message.value() is not None:
                self._take(
                    newest, message.value(), message.partition(), message.offset(), *message.timestamp()
                )
        self.broken += [hole(self._topic, partition, *each) for partition in lost for each in lost[partition]]

    def _begin(self, there: Mapping[int, tuple[int, int]], since: Sequence[Place | None]) -> dict[int, int]:
        """From where each partition is read."""
        if not since or any(place is None or place[0] != self._id for place in since):
            return {}
        result = {}
        for partition, (start, end) in there.items():
            ended = min(place[1].get(partition, 0) for place in since if place is not None)
            if start > ended:
                self.broken.append(_REMOVED.format(self._topic, partition, ended, start))
            result[partition] = ended if ended <= end else start  # it was cut: what is there is read again
        return result

    def topics(self) -> set[str]:
        """The topics that somebody counted since."""
        return {
            topic
            for read in self._reads
            for topic, records in read.items()
            if any(isinstance(record.event, Counts | Appended) for record, _ in records)
        }

    def of(self, topic: str, read: int, since: Place | None) -> list[Record]:
        """What was read of a topic at one time and stands behind the place where another one ended.

        Args:
            topic: The topic, as producers call it.
            read: The number of the time, from 0 on.
            since: The place; None for all.
        """
        return [
            record
            for record, offset in self._reads[read].get(topic, ())
            if self._is_behind(since, record.partition, offset)
        ]

    def again(self, topic: str, since: Place | None) -> list[Record]:
        """What was read of a topic at the first time and had been read by the one that ended at the place."""
        return [
            record
            for record, offset in self._reads[0].get(topic, ())
            if not self._is_behind(since, record.partition, offset)
        ]

    def _is_behind(self, since: Place | None, partition: int, offset: int) -> bool:
        ends = since[1] if since is not None and since[0] == self._id else {}
        return offset >= ends.get(partition, 0) or ends[partition] > self._next[partition]

    def _take(
        self,
        newest: dict[str, tuple[Record, int]],
        value: bytes,
        partition: int,
        offset: int,
        kind: int,
        at_ms: int,
    ) -> None:
        is_stamped = kind == _APPENDED
        if is_stamped:
            self.newest_ms = max(self.newest_ms, at_ms)
        try:
            event = event_from_json(value)
        except EventError as error:
            self.broken.append(f"{self._topic} {partition} offset {offset} {error}")
            return
        record, (known, _) = Record(event, partition, at_ms, is_stamped), newest.get(event.key, (None, 0))
        if record.is_newer(known):
            newest[event.key] = record, offset


def _keeps(settings: Mapping[str, str]) -> bool:
    """Whether the topic keeps counts for long, and has the brokers' time."""
    policies = {each.strip() for each in settings.get("cleanup.policy", "").split(",")}
    retention_ms = int(settings.get("retention.ms", -1))
    lets_go = "delete" in policies and (
        0 <= retention_ms < _SHORT_MS or int(settings.get("retention.bytes", -1)) >= 0
    )
    is_stamped = settings.get("message.timestamp.type") == _SETTINGS["message.timestamp.type"]
    return "compact" in policies and not lets_go and is_stamped


def hole(topic: str, partition: int, start: int, end: int) -> str:
    """What is said of offsets that the brokers have lost."""
    return (
        f"{topic} {partition}: the brokers have lost offsets [{start}, {end}): a file of the log is gone or short, and "
        "headwater doctor names it, on the brokers' machine"
    )
