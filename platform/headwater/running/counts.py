"""The audit by counts, end to end: reads the brokers, the producers' counts and the tables, and keeps what it finds."""

from collections.abc import Callable, Mapping, Sequence
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
    MirrorFacts,
    TopicLog,
    check_mirror,
    check_producers,
    check_table,
    mirror_facts,
    verdicts,
)
from headwater_streams.ledger.counts.at_rest import tables_of, topics_read
from headwater_streams.ledger.counts.store import Counted, counted_before, keep
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirror_reader import MirrorReader
from headwater_streams.sources.time_buckets import read_repeats, read_runs, records_of
from headwater_streams.sources.topic_metadata import (
    TopicIds,
    cluster_id,
    partitions,
    topic_names,
    topic_settings,
)
from headwater_streams.storage.home import Home

_APPENDED = 2  # librdkafka's TIMESTAMP_LOG_APPEND_TIME
_AS_KAFKA_SHOWS_IDS = str.maketrans("+/", "-_")
_SETTINGS = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
_LACKS_SETTINGS = (
    f"{COUNTS_TOPIC} loses counts by its retention, or does not show whose clock is wrong: headwater topics alter "
    f"{COUNTS_TOPIC} {' '.join(f'--config {name}={value}' for name, value in _SETTINGS.items())}"
)


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
        broken: What could not be read, or will not be there, a sentence each.
    """

    counts: list[Counts] = field(default_factory=list)
    sources: list[Heard] = field(default_factory=list)
    appended: list[Appended] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def of(self, topic: str) -> Claims:
        """What producers say of one topic."""
        return Claims(
            [each for each in self.counts if each.topic == topic],
            [each for each in self.sources if topic in each.record.topics],
        )

    def appended_to(self, topic: str, topic_id: str | None) -> list[Appended]:
        """What brokers counted of one topic, and not of another one that had its name before."""
        of_topic = [each for each in self.appended if each.topic == topic]
        # librdkafka shows an id in base64 with + and /, Kafka and our broker with - and _.
        same = {"", (topic_id or "").translate(_AS_KAFKA_SHOWS_IDS)}
        return [each for each in of_topic if topic_id is None or each.topic_id in same]


@dataclass(frozen=True)
class _Look:
    """What the brokers hold of a topic.

    Attributes:
        log: What was counted before, and what came since.
        at_ms: When it was looked at.
        topic_id: The topic's id; None where its brokers give none.
        lost: Offsets, by partition, that an earlier audit saw and that are behind the log's end now.
        notes: What could not be counted, a sentence each.
    """

    log: TopicLog
    at_ms: int
    topic_id: str | None
    lost: Mapping[int, Sequence[BucketRun]]
    notes: Sequence[str]


class CountsAudit:
    """Audits topics of one cluster, and their mirrors in others.

    Args:
        home: The home whose tables are compared, and where `audit.counts` is kept.
        cluster: The cluster.
        bucket_ms: How wide a bucket is.
        grace_ms: How long after its end a bucket counts as open.
        now_ms: The time.
        mirrors: Clusters that topics are mirrored into; each has a name.
    """

    def __init__(
        self,
        home: Home,
        cluster: KafkaCluster,
        *,
        bucket_ms: int,
        grace_ms: int,
        now_ms: Callable[[], int],
        mirrors: Sequence[KafkaCluster] = (),
    ) -> None:
        self._home, self._cluster, self._mirrors = home, cluster, mirrors
        self._bucket_ms, self._grace_ms, self._now_ms = bucket_ms, grace_ms, now_ms

    def run(self, topics: Sequence[str] = ()) -> list[TopicAudit]:
        """Audits the topics that are named, or all that a producer counts or a job of the home reads; then mirrors.

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
        # What was appended before the logs are looked at is there, and what was acknowledged before that is said
        # afterwards.
        before = self._said(existing)
        counted = {each.topic for each in before.counts} | {each.topic for each in before.appended}
        named = {self._cluster.named(topic) for topic in counted}
        chosen = sorted(set(topics) or ((topics_read(self._home) | named) & existing))
        looks = {topic: self._look(self._cluster, topic) for topic in chosen}
        said = self._said(existing)
        mirrored, audits = self._mirrored(chosen), list[TopicAudit]()
        for topic in chosen:
            bare, look = self._cluster.bare(topic), looks[topic]
            claims = replace(said.of(bare), appended=before.appended_to(bare, look.topic_id))
            of_it = mirrored.get(bare, [])
            audits.append(
                self._audit(self._cluster, look, claims, [facts for facts, _, _ in of_it], said.broken)
            )
            audits += [self._audit(cluster, there, Claims()) for _, cluster, there in of_it]
        return audits

    def _mirrored(self, topics: Sequence[str]) -> dict[str, list[tuple[MirrorFacts, KafkaCluster, _Look]]]:
        """The mirrors of topics: what each has by the offsets of its origin, where it is, and what is there."""
        found: dict[str, list[tuple[MirrorFacts, KafkaCluster, _Look]]] = {}
        origin = cluster_id(self._cluster) if self._mirrors else None
        bare = {self._cluster.bare(topic) for topic in topics}
        for cluster in self._mirrors:
            reader = MirrorReader(cluster)
            try:
                names = {
                    name: each.topic for name, each in reader.newest().topics.items() if each.source == origin
                }
                looks = {
                    name: self._look(cluster, cluster.named(name))
                    for name, topic in names.items()
                    if topic in bare
                }
                runs = reader.newest().runs  # a run is kept before its first record is written
            finally:
                reader.close()
            for name, look in looks.items():
                of_topic = {partition: each for (topic, partition), each in runs.items() if topic == name}
                facts = mirror_facts(cluster.name, look.log, of_topic)
                found.setdefault(names[name], []).append((facts, cluster, look))
        return found

    def _look(self, cluster: KafkaCluster, topic: str) -> _Look:
        before, at_ms, topic_id = (
            counted_before(self._home, topic),
            self._now_ms(),
            TopicIds(cluster).of(topic),
        )
        if before.bucket_ms not in (None, self._bucket_ms):
            raise UsageError(
                f"{topic} was counted in buckets of {(before.bucket_ms or 0) / 1000:g} s; give --bucket that width, or "
                "remove its rows from audit.counts"
            )
        there = partitions(cluster, topic)
        ends = {partition: high for partition, (_, high) in there.items()}
        is_another = None not in (before.topic_id, topic_id) and before.topic_id != topic_id
        is_cut = any(end > ends.get(partition, 0) for partition, (_, end) in before.bounds.items())
        if is_another or (is_cut and topic_id is None):  # it was made again
            before = Counted()
        notes, bounds = [], {}
        runs: dict[int, list[BucketRun]] = {}
        lost: dict[int, list[BucketRun]] = {}
        for partition, (low, high) in there.items():
            start, end = before.bounds.get(partition, (low, low))
            runs[partition], gone = _cut(before.runs.get(partition, ()), high)
            lost[partition] = _joined([*before.lost.get(partition, ()), *gone])
            end = min(end, high)
            if end < low:  # what came between was removed before it was counted
                notes.append(
                    f"{topic} {partition}: offsets [{end}, {low}) were removed before they were counted"
                )
                start, end, runs[partition] = low, low, []
            bounds[partition] = (start, end, high)
        new = {partition: (end, high) for partition, (_, end, high) in bounds.items()}
        more, ends = read_runs(cluster, topic, new, self._bucket_ms)
        for partition, of_it in more.items():
            runs[partition] = _joined([*runs[partition], *of_it])
        counted = {partition: (start, ends[partition]) for partition, (start, _, _) in bounds.items()}
        is_compacted = "compact" in topic_settings(cluster, topic).get("cleanup.policy", "")
        log = TopicLog(topic, self._bucket_ms, runs, counted, before.marks, is_compacted)
        return _Look(log, at_ms, topic_id, lost, notes)

    def _audit(
        self,
        cluster: KafkaCluster,
        look: _Look,
        claims: Claims,
        mirrors: Sequence[MirrorFacts] = (),
        broken: Sequence[str] = (),
    ) -> TopicAudit:
        log, topic = look.log, look.log.topic
        found = Findings(topic)
        claims = replace(claims, lost=look.lost)
        check_producers(found, log, claims, look.at_ms)
        questionable = {b for f in found.findings if f.kind == "uncounted" for b in f.buckets}
        if questionable:  # only then are the records themselves looked at
            repeats = read_repeats(cluster, topic, self._bounds_of(cluster, log, questionable))
            found = Findings(topic)
            check_producers(found, log, replace(claims, repeats=repeats), look.at_ms)
        for mirror in mirrors:
            check_mirror(found, log, mirror)
        for table in tables_of(self._home, topic):
            check_table(found, log, table)
        buckets = verdicts(found, bucket_ms=self._bucket_ms, now_ms=look.at_ms, grace_ms=self._grace_ms)
        keep(self._home, log, buckets, look.at_ms, topic_id=look.topic_id, lost=look.lost)
        return TopicAudit(
            topic,
            self._bucket_ms,
            tuple(buckets),
            tuple(str(each) for each in found.findings if each.kind != "clock"),
            (*look.notes, *broken, *(str(each) for each in found.findings if each.kind == "clock")),
        )

    def _bounds_of(
        self, cluster: KafkaCluster, log: TopicLog, buckets: set[int]
    ) -> dict[int, tuple[int, int]]:
        """The offsets of some buckets that the brokers still hold."""
        there, bounds = partitions(cluster, log.topic), {}
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
        settings = topic_settings(self._cluster, topic)
        if settings and any(settings.get(name) != value for name, value in _SETTINGS.items()):
            said.broken.append(_LACKS_SETTINGS)
        newest: dict[str, tuple[Counts | Source | Appended, int, int, int | None]] = {}
        for message in records_of(self._cluster, topic, partitions(self._cluster, topic)):
            if message.value() is None:
                continue
            kind, time_ms = message.timestamp()
            try:
                event = event_from_json(message.value())
            except EventError as error:
                said.broken.append(f"{topic} {message.partition()} offset {message.offset()} {error}")
                continue
            known = newest.get(event.key)
            if known is not None and known[1] != message.partition() and known[2] > time_ms:
                continue  # partitions were added, and its key was of another one before
            at_ms = time_ms if kind == _APPENDED else None
            newest[event.key] = (event, message.partition(), time_ms, at_ms)
        for event, _, _, at_ms in newest.values():
            if isinstance(event, Counts):
                said.counts.append(event)
            elif isinstance(event, Source):
                said.sources.append(Heard(event, at_ms))
            else:
                said.appended.append(event)
        return said


def _cut(runs: Sequence[BucketRun], end: int) -> tuple[list[BucketRun], list[BucketRun]]:
    """The runs before an offset, and those from there on."""
    before = [replace(run, end=min(run.end, end)) for run in runs if run.start < end]
    return before, [replace(run, start=max(run.start, end)) for run in runs if run.end > end]


def _joined(runs: Sequence[BucketRun]) -> list[BucketRun]:
    result: list[BucketRun] = []
    for run in runs:
        last = result[-1] if result else None
        if last is not None and last.end == run.start and last.bucket_start_ms == run.bucket_start_ms:
            result[-1] = replace(last, end=run.end)
        else:
            result.append(run)
    return result
