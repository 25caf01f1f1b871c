"""The audit by counts, end to end: reads the brokers, the producers' counts and the tables, and keeps what it finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.errors import UsageError
from headwater.running.counts_topic import CountsTopic, hole, of_topic, shown_id
from headwater_client.events import COUNTS_TOPIC
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.moments import iso
from headwater_streams.base.nearest import nearest
from headwater_streams.base.topics import cluster_of
from headwater_streams.ledger.counts import (
    BucketVerdict,
    Claims,
    Findings,
    MirrorFacts,
    TableFacts,
    TopicLog,
    check_mirror,
    check_producers,
    check_table,
    mirror_facts,
    of_this_topic,
    verdicts,
)
from headwater_streams.ledger.counts.at_rest import tables_by_topic, with_rows
from headwater_streams.ledger.counts.store import Counted, counted_before, keep
from headwater_streams.ledger.counts.stretches import Stretches, merged, minus
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirror_reader import MirrorReader
from headwater_streams.sources.time_buckets import read_repeats, read_runs
from headwater_streams.sources.topic_metadata import (
    TopicIds,
    cluster_id,
    partitions,
    topic_names,
    topic_settings,
)
from headwater_streams.storage.home import Home

_MOST_LOOKED_AT = 200_000
"""So many records that no producer counted are compared with others; their digests take some 50 MB."""
_MOST_READ = 10_000_000
"""Among so many others: each audit reads them twice."""
_TOO_MANY = (
    "{}: {:,} records that no producer counted are too many, or among too many, to be compared with others: those that "
    "stand there more than once are not told apart"
)
_NO_SETTINGS = (
    "{}: this client may not know the topic's settings, so what is gone may have been compacted, and is unknown rather "
    "than missing: give it the operation DescribeConfigs"
)
_MADE_AGAIN = (
    "{} was deleted and made again between {} and {}: counts that were published before are not compared, and those of "
    "about that time are unknown where they differ"
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
        """Whether nothing is missing, doubled or uncounted; buckets that are open or unknown are no fault."""
        return (
            not any(each.status not in ("complete", "open", "unknown") for each in self.verdicts)
            and not self.findings
        )


@dataclass(frozen=True)
class _Look:
    """What the brokers hold of a topic.

    Attributes:
        log: What was counted before, and what came since.
        at_ms: When it was looked at.
        heard_ms: The brokers' time of the newest counts that were read before; 0 where that is not known.
        topic_id: The topic's id; None where its brokers give none.
        lost: Offsets, by partition, that an earlier audit saw and that are not in the log now.
        notes: What could not be counted, a sentence each.
    """

    log: TopicLog
    at_ms: int
    heard_ms: int
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
        whole: Whether topics are read from their beginning, and not from where the last audit ended.
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
        whole: bool = False,
    ) -> None:
        self._home, self._cluster, self._mirrors, self._whole = home, cluster, mirrors, whole
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
        # What was said before the logs are looked at is there. What stands there is said afterwards, if not before.
        told = CountsTopic(self._cluster, is_there=self._cluster.named(COUNTS_TOPIC) in existing)
        told.read()
        earlier, appended = told.earlier(), told.appended()
        counted = told.topics()
        named = {self._cluster.named(topic) for topic in counted}
        tables = tables_by_topic(self._home)
        chosen = sorted(set(topics) or ((tables.keys() | named) & existing))
        looks = {topic: self._look(self._cluster, topic, told.newest_ms) for topic in chosen}
        told.read()
        mirrored, audits = self._mirrored(looks), list[TopicAudit]()
        for topic in chosen:
            bare, look = self._cluster.bare(topic), looks[topic]
            claims = told.of(bare, look.log, earlier)
            claims = replace(claims, appended=of_topic(appended, bare, look.topic_id))
            of_it = mirrored.get(bare, [])
            audits.append(
                self._audit(
                    self._cluster, look, claims, tables, [facts for facts, _, _ in of_it], told.broken
                )
            )
            audits += [self._audit(cluster, there, Claims(), tables) for _, cluster, there in of_it]
        return audits

    def _mirrored(
        self, origins: Mapping[str, _Look]
    ) -> dict[str, list[tuple[MirrorFacts, KafkaCluster, _Look]]]:
        """The mirrors of topics: what each has by the offsets of its origin, where it is, and what is there."""
        found: dict[str, list[tuple[MirrorFacts, KafkaCluster, _Look]]] = {}
        origin = cluster_id(self._cluster) if self._mirrors and origins else None
        ids = {self._cluster.bare(topic): shown_id(look.topic_id) for topic, look in origins.items()}
        for cluster in self._mirrors if origins else ():
            reader = MirrorReader(cluster)
            try:
                existing = set(topic_names(cluster))
                names = {
                    name: each.topic
                    for name, each in reader.newest().topics.items()
                    if each.source == origin
                    and name in existing
                    and each.released is None
                    # Offsets of a topic that was made again have nothing to do with those that are mirrored.
                    and ("" in (each.topic_id, ids.get(each.topic, "")) or each.topic_id == ids[each.topic])
                }
                looks = {
                    name: self._look(cluster, cluster.named(name))
                    for name, topic in names.items()
                    if topic in ids
                }
                runs = reader.newest().runs  # a run is kept before its first record is written
            finally:
                reader.close()
            if not looks:
                raise UsageError(
                    f"{', '.join(origins)} is not mirrored from {self._cluster.bootstrap} into {cluster.name}; "
                    f"what is: {', '.join(sorted(set(names.values()))) or 'nothing'}"
                )
            for name, look in looks.items():
                of_topic = {partition: each for (topic, partition), each in runs.items() if topic == name}
                place = cluster.name if name == names[name] else cluster.named(name)
                facts = mirror_facts(place, look.log, of_topic)
                found.setdefault(names[name], []).append((facts, cluster, look))
        return found

    def _look(self, cluster: KafkaCluster, topic: str, heard_ms: int = 0) -> _Look:
        before, topic_id = counted_before(self._home, topic), TopicIds(cluster).of(topic)
        at_ms = self._now_ms()
        if before.bucket_ms not in (None, self._bucket_ms):
            raise UsageError(
                f"{topic} was counted in buckets of {(before.bucket_ms or 0) / 1000:g} s; give --bucket that width, or "
                "remove its rows from audit.counts"
            )
        there = partitions(cluster, topic)
        ends = {partition: high for partition, (_, high) in there.items()}
        is_another = None not in (before.topic_id, topic_id) and before.topic_id != topic_id
        is_cut = any(end > ends.get(partition, 0) for partition, (_, end) in before.bounds.items())
        notes: list[str] = []
        if is_another or (is_cut and topic_id is None):
            since_ms = before.marks[-1].at_ms if before.marks else 0
            before = Counted(again=(before.heard_ms, max(at_ms, heard_ms)))
            notes.append(_MADE_AGAIN.format(topic, iso(since_ms * 1000), iso(at_ms * 1000)))
        bounds: dict[int, tuple[int, int, int]] = {}
        runs: dict[int, list[BucketRun]] = {}
        lost: dict[int, list[BucketRun]] = {}
        unseen: dict[int, Stretches] = {}
        for partition, (low, high) in there.items():
            start, end = before.bounds.get(partition, (low, low))
            runs[partition], gone = _cut(before.runs.get(partition, ()), high)
            lost[partition] = _joined([*before.lost.get(partition, ()), *gone])
            unseen[partition] = before.unseen.get(partition, ())
            end = min(end, high)
            if end < low:  # what came between was removed before it was counted
                notes.append(
                    f"{topic} {partition}: offsets [{end}, {low}) were removed before they were counted"
                )
                unseen[partition] = merged([*unseen[partition], (end, low)])
                end = low
            bounds[partition] = (start, end, high)
        new = {
            partition: (there[partition][0] if self._whole else end, high)
            for partition, (_, end, high) in bounds.items()
        }
        settings = topic_settings(cluster, topic)
        if not settings:
            notes.append(_NO_SETTINGS.format(topic))
        is_compacted = not settings or "compact" in settings.get("cleanup.policy", "")
        gaps: dict[int, list[tuple[int, int]]] = {}
        more, read_until = read_runs(cluster, topic, new, self._bucket_ms, lost=gaps)
        for partition, pairs in sorted(gaps.items()):
            notes += [hole(topic, partition, start, end) for start, end in pairs]
        for partition, of_it in more.items():
            runs[partition], again = _cut(runs[partition], new[partition][0])
            read, known = [(run.start, run.end) for run in of_it], [(run.start, run.end) for run in again]
            # A file that was restored brings back what the last audit lacked; behind its end offsets are given anew.
            lacked = minus(minus(read, known), [(bounds[partition][1], new[partition][1])])
            gone = [] if is_compacted else _less(again, read)
            lost[partition] = _joined([*_less(lost[partition], lacked), *gone])
            runs[partition] = _joined([*runs[partition], *of_it])
        counted = {partition: (start, read_until[partition]) for partition, (start, _, _) in bounds.items()}
        log = TopicLog(
            topic, self._bucket_ms, runs, counted, before.marks, is_compacted, unseen, before.again
        )
        return _Look(log, at_ms, heard_ms, topic_id, lost, notes)

    def _audit(
        self,
        cluster: KafkaCluster,
        look: _Look,
        claims: Claims,
        tables: Mapping[str, Sequence[TableFacts]],
        mirrors: Sequence[MirrorFacts] = (),
        broken: Sequence[str] = (),
    ) -> TopicAudit:
        log, topic = look.log, look.log.topic
        found = Findings(topic)
        claims = replace(claims, lost=look.lost)
        check_producers(found, log, claims, look.at_ms)
        notes = [*look.notes, *broken]
        uncounted = [finding for finding in found.findings if finding.kind == "uncounted"]
        count = sum(finding.count for finding in uncounted)
        bounds = self._bounds_of(cluster, log, {b for finding in uncounted for b in finding.buckets})
        if count > _MOST_LOOKED_AT or sum(end - start for start, end in bounds.values()) > _MOST_READ:
            notes.append(_TOO_MANY.format(topic, count))
        elif uncounted:  # only then are the records themselves looked at
            offsets: dict[int, list[tuple[int, int]]] = {}
            for finding in uncounted:
                for partition, pairs in finding.places.items():
                    offsets[partition] = merged([*offsets.get(partition, ()), *pairs])
            repeats = read_repeats(cluster, topic, offsets, bounds)
            found = Findings(topic)
            check_producers(found, log, replace(claims, repeats=repeats), look.at_ms)
        for mirror in mirrors:
            check_mirror(found, log, mirror)
        for table in tables.get(topic, ()):
            check_table(found, log, with_rows(self._home, topic, of_this_topic(table, log)))
        buckets = verdicts(found, bucket_ms=self._bucket_ms, now_ms=look.at_ms, grace_ms=self._grace_ms)
        mark_ms = max(look.at_ms, look.heard_ms)  # where the brokers' clock is ahead
        keep(
            self._home,
            log,
            buckets,
            mark_ms,
            topic_id=look.topic_id,
            lost=look.lost,
            heard_ms=look.heard_ms,
        )
        return TopicAudit(
            topic,
            self._bucket_ms,
            tuple(buckets),
            tuple(str(each) for each in found.findings if each.kind != "clock"),
            (*notes, *(str(each) for each in found.findings if each.kind == "clock")),
        )

    def _bounds_of(
        self, cluster: KafkaCluster, log: TopicLog, buckets: set[int]
    ) -> dict[int, tuple[int, int]]:
        """The offsets of some buckets that the brokers still hold."""
        bounds: dict[int, tuple[int, int]] = {}
        if not buckets:
            return bounds
        there = partitions(cluster, log.topic)
        for partition, runs in log.runs.items():
            mine = [run for run in runs if run.bucket_start_ms in buckets]
            if mine:
                low = there.get(partition, (0, 0))[0]
                bounds[partition] = (max(low, mine[0].start), mine[-1].end)
        return bounds


def _cut(runs: Sequence[BucketRun], end: int) -> tuple[list[BucketRun], list[BucketRun]]:
    """The runs before an offset, and those from there on."""
    before = [replace(run, end=min(run.end, end)) for run in runs if run.start < end]
    return before, [replace(run, start=max(run.start, end)) for run in runs if run.end > end]


def _less(runs: Sequence[BucketRun], pairs: Stretches) -> list[BucketRun]:
    """The runs without some offsets."""
    return [
        replace(run, start=start, end=end)
        for run in runs
        for start, end in minus([(run.start, run.end)], pairs)
    ]


def _joined(runs: Sequence[BucketRun]) -> list[BucketRun]:
    result: list[BucketRun] = []
    for run in runs:
        last = result[-1] if result else None
        if last is not None and last.end == run.start and last.bucket_start_ms == run.bucket_start_ms:
            result[-1] = replace(last, end=run.end)
        else:
            result.append(run)
    return result
