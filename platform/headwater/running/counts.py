"""The audit by counts, end to end: reads the brokers, the producers' counts and the tables, and keeps what it finds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headwater.errors import UsageError
from headwater_client.events import COUNTS_TOPIC, Appended, Counts, EventError, Source, event_from_json
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.nearest import nearest
from headwater_streams.base.topics import cluster_of
from headwater_streams.ledger.counts import (
    BucketVerdict,
    Claims,
    Findings,
    Heard,
    TopicLog,
    check_producers,
    check_table,
    verdicts,
)
from headwater_streams.ledger.counts.at_rest import tables_of, topics_read
from headwater_streams.ledger.counts.store import Counted, counted_before, keep
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.time_buckets import read_repeats, read_runs, records_of
from headwater_streams.sources.topic_metadata import cleanup_policy, partitions, topic_names
from headwater_streams.storage.home import Home

_APPENDED = 2  # librdkafka's TIMESTAMP_LOG_APPEND_TIME


@dataclass(frozen=True)
class TopicAudit:
    """What an audit says of a topic.

    Attributes:
        topic: The topic.
        bucket_ms: How wide a bucket is.
        verdicts: What is said of each bucket, oldest first.
        findings: What is wrong, a sentence each.
        notes: What could not be looked at, a sentence each.
    """

    topic: str
    bucket_ms: int
    verdicts: tuple[BucketVerdict, ...]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, doubled or uncounted; buckets that are open are no fault."""
        return (
            not any(each.status not in ("complete", "open") for each in self.verdicts) and not self.findings
        )


@dataclass
class _Said:
    """What the topic of counts says.

    Attributes:
        counts: How many records producers sent.
        sources: The producers.
        appended: What brokers counted as they appended it.
        broken: What could not be read, a sentence each.
    """

    counts: list[Counts] = field(default_factory=list)
    sources: list[Heard] = field(default_factory=list)
    appended: list[Appended] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def of(self, topic: str) -> Claims:
        """What is said of one topic."""
        return Claims(
            [each for each in self.counts if each.topic == topic],
            [each for each in self.sources if topic in each.record.topics],
            appended=[each for each in self.appended if each.topic == topic],
        )


class CountsAudit:
    """Audits topics of one cluster.

    Args:
        home: The home whose tables are compared, and where `audit.counts` is kept.
        cluster: The cluster.
        bucket_ms: How wide a bucket is.
        grace_ms: How long after its end a bucket counts as open.
        now_ms: The time.
    """

    def __init__(
        self, home: Home, cluster: KafkaCluster, *, bucket_ms: int, grace_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._home, self._cluster = home, cluster
        self._bucket_ms, self._grace_ms, self._now_ms = bucket_ms, grace_ms, now_ms

    def run(self, topics: Sequence[str] = ()) -> list[TopicAudit]:
        """Audits the topics that are named, or all that a producer counts or a job of the home reads.

        Raises:
            UsageError: There is no such topic, or its counts are of other buckets.
            RefusedError: The brokers and this client do not come together.
            UnavailableError: The brokers do not answer.
        """
        topics = [topic if cluster_of(topic) else self._cluster.named(topic) for topic in topics]
        existing = {self._cluster.named(name) for name in topic_names(self._cluster)}
        for topic in topics:
            if topic not in existing:
                raise UsageError(
                    f"there is no topic {topic}; the topics are {nearest(topic, sorted(existing)) or 'none'}"
                )
        # First where the logs end, then what producers say: what was acknowledged before the first is in the second.
        counted_topics = {self._cluster.named(each.topic) for each in self._said(existing).counts}
        chosen = sorted(set(topics) or ((topics_read(self._home) | counted_topics) & existing))
        looks = {topic: self._look(topic) for topic in chosen}
        said = self._said(existing)
        return [self._audit(topic, *looks[topic], said) for topic in chosen]

    def _look(self, topic: str) -> tuple[TopicLog, list[str], int]:
        """What the brokers hold of a topic: what was counted before, and what came since."""
        before, at_ms = counted_before(self._home, topic), self._now_ms()
        if before.bucket_ms not in (None, self._bucket_ms):
            raise UsageError(
                f"{topic} was counted in buckets of {(before.bucket_ms or 0) / 1000:g} s; give --bucket that width, or "
                "remove its rows from audit.counts"
            )
        there = partitions(self._cluster, topic)
        if any(end > there.get(partition, (0, 0))[1] for partition, (_, end) in before.bounds.items()):
            before = Counted()  # the topic was made again, or cut
        notes, bounds = [], {}
        runs: dict[int, list[BucketRun]] = {}
        for partition, (low, high) in there.items():
            start, end = before.bounds.get(partition, (low, low))
            runs[partition] = list(before.runs.get(partition, ()))
            if end < low:  # what came between was removed before it was counted
                notes.append(
                    f"{topic} {partition}: offsets [{end}, {low}) were removed before they were counted"
                )
                start, end, runs[partition] = low, low, []
            bounds[partition] = (start, end, high)
        new = {partition: (end, high) for partition, (_, end, high) in bounds.items()}
        more, ends = read_runs(self._cluster, topic, new, self._bucket_ms)
        for partition, of_it in more.items():
            runs[partition] = _joined([*runs[partition], *of_it])
        counted = {partition: (start, ends[partition]) for partition, (start, _, _) in bounds.items()}
        is_compacted = "compact" in cleanup_policy(self._cluster, topic)
        return TopicLog(topic, self._bucket_ms, runs, counted, before.marks, is_compacted), notes, at_ms

    def _audit(self, topic: str, log: TopicLog, notes: Sequence[str], at_ms: int, said: _Said) -> TopicAudit:
        claims = said.of(self._cluster.bare(topic))
        found = Findings(topic)
        check_producers(found, log, claims, at_ms)
        questionable = {b for f in found.findings if f.kind == "uncounted" for b in f.buckets}
        if questionable:  # only then are the records themselves looked at
            repeats = read_repeats(self._cluster, topic, self._bounds_of(topic, log, questionable))
            found = Findings(topic)
            check_producers(found, log, replace(claims, repeats=repeats), at_ms)
        for table in tables_of(self._home, topic):
            check_table(found, log, table)
        buckets = verdicts(found, bucket_ms=self._bucket_ms, now_ms=at_ms, grace_ms=self._grace_ms)
        keep(self._home, log, buckets, at_ms)
        return TopicAudit(
            topic,
            self._bucket_ms,
            tuple(buckets),
            tuple(str(each) for each in found.findings if each.kind != "clock"),
            (*notes, *said.broken, *(str(each) for each in found.findings if each.kind == "clock")),
        )

    def _bounds_of(self, topic: str, log: TopicLog, buckets: set[int]) -> dict[int, tuple[int, int]]:
        """The offsets of some buckets that the brokers still hold."""
        there, bounds = partitions(self._cluster, topic), {}
        for partition, runs in log.runs.items():
            mine = [run for run in runs if run.bucket_start_ms in buckets]
            if mine:
                low = there.get(partition, (0, 0))[0]
                bounds[partition] = (max(low, mine[0].start), mine[-1].end)
        return bounds

    def _said(self, existing: set[str]) -> _Said:
        """The newest record of each key in the topic of counts."""
        topic, said = self._cluster.named(COUNTS_TOPIC), _Said()
        if topic not in existing:
            return said
        newest: dict[str, tuple[Counts | Source | Appended, int | None]] = {}
        for message in records_of(self._cluster, topic, partitions(self._cluster, topic)):
            if message.value() is None:
                continue
            kind, appended_ms = message.timestamp()
            try:
                event = event_from_json(message.value())
            except EventError as error:
                said.broken.append(f"{topic} {message.partition()} offset {message.offset()} {error}")
                continue
            newest[event.key] = (event, appended_ms if kind == _APPENDED else None)
        for event, at_ms in newest.values():
            if isinstance(event, Counts):
                said.counts.append(event)
            elif isinstance(event, Source):
                said.sources.append(Heard(event, at_ms))
            else:
                said.appended.append(event)
        return said


def _joined(runs: Sequence[BucketRun]) -> list[BucketRun]:
    result: list[BucketRun] = []
    for run in runs:
        last = result[-1] if result else None
        if last is not None and last.end == run.start and last.bucket_start_ms == run.bucket_start_ms:
            result[-1] = replace(last, end=run.end)
        else:
            result.append(run)
    return result
