"""The audit by counts, end to end: reads the brokers, the producers' counts and the tables, and keeps what it finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from headwater.errors import UsageError
from headwater.running.counts_topic import CountsTopic, Place, hole
from headwater_client.events import COUNTS_TOPIC
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.moments import iso
from headwater_streams.base.nearest import nearest
from headwater_streams.base.topics import cluster_of
from headwater_streams.ledger.counts import (
    BucketVerdict,
    Finding,
    MirrorFacts,
    TableFacts,
    TopicLog,
    mirror_facts,
)
from headwater_streams.ledger.counts.at_rest import AtRest, tables_by_topic
from headwater_streams.ledger.counts.judging import Judge, Look, Told
from headwater_streams.ledger.counts.said import of_topic
from headwater_streams.ledger.counts.store import (
    Counted,
    CountsTable,
    counted_before,
    stored_verdicts,
    topics_counted,
)
from headwater_streams.ledger.counts.stretches import Stretches, merged, minus
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirror_reader import MirrorReader
from headwater_streams.sources.time_buckets import read_repeats, read_runs
from headwater_streams.sources.topic_metadata import (
    TopicIds,
    cluster_id,
    partitions,
    shown_id,
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
        judged: What is said of each bucket that this audit judged, oldest first.
        findings: What is wrong, a sentence each.
        notes: What could not be looked at, a sentence each.
        settled: How many buckets are complete, or unknown, as an earlier audit said, and nothing new is known of them.
        rest: Reads from `audit.counts` what is said of these.
    """

    topic: str
    bucket_ms: int
    judged: tuple[BucketVerdict, ...]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    settled: Mapping[str, int] = field(default_factory=dict)
    rest: Callable[[], Sequence[BucketVerdict]] = tuple

    @cached_property
    def verdicts(self) -> tuple[BucketVerdict, ...]:
        """What is said of each bucket, oldest first."""
        return tuple(sorted((*self.judged, *self.rest()), key=lambda each: each.bucket_start_ms))

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, doubled or uncounted; buckets that are open or unknown are no fault."""
        return (
            not any(each.status not in ("complete", "open", "unknown") for each in self.judged)
            and not self.findings
        )


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
        tables, known = tables_by_topic(self._home), topics_counted(self._home)
        before = {
            topic: counted_before(self._home, topic)
            for topic in set(topics) or ((tables.keys() | known) & existing)
        }
        # What was said before the logs are looked at is there. What stands there is said afterwards, if not before.
        told = CountsTopic(self._cluster, is_there=self._cluster.named(COUNTS_TOPIC) in existing)
        told.read((_told(each) for each in before.values()), whole=self._whole)
        place, heard_ms = told.place, told.newest_ms
        counted = {self._cluster.named(topic) for topic in told.topics()}
        for topic in (counted & existing) - before.keys() if not topics else ():
            before[topic] = counted_before(self._home, topic)
        chosen = sorted(before)
        looks = {topic: self._look(self._cluster, topic, before[topic], heard_ms) for topic in chosen}
        told.read()
        mirrored, audits = (
            self._mirrored({topic: look for topic, (look, _) in looks.items()}),
            list[TopicAudit](),
        )
        for topic in chosen:
            bare, (look, notes) = self._cluster.bare(topic), looks[topic]
            ids = None if look.topic_id is None else {"", shown_id(look.topic_id)}
            since = _told(before[topic])
            of_it = Told(
                topic=bare,
                first=of_topic(told.of(bare, 0, since), bare, topic, ids),
                then=of_topic(told.of(bare, 1, since), bare, topic, ids),
                again=of_topic(told.again(bare, since), bare, topic, ids) if self._whole else (),
                read=place,
                topics=sorted(counted | known),
            )
            facts = mirrored.get(bare, [])
            audits.append(
                self._audit(
                    self._cluster,
                    look,
                    of_it,
                    tables,
                    [each for each, _, _, _ in facts],
                    [*notes, *told.broken],
                )
            )
            for _, cluster, there, said in facts:
                nothing = Told(topic=cluster.bare(there.topic), topics=of_it.topics)
                audits.append(self._audit(cluster, there, nothing, tables, (), said))
        return audits

    def _mirrored(
        self, origins: Mapping[str, Look]
    ) -> dict[str, list[tuple[MirrorFacts, KafkaCluster, Look, list[str]]]]:
        """The mirrors of topics: what each has by the offsets of its origin, where it is, what is there, and notes."""
        found: dict[str, list[tuple[MirrorFacts, KafkaCluster, Look, list[str]]]] = {}
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
                    name: self._look(
                        cluster, cluster.named(name), counted_before(self._home, cluster.named(name))
                    )
                    for name, topic in names.items()
                    if topic in ids
                }
                kept = reader.newest().topics
                looks = {
                    name: look for name, look in looks.items() if kept[name].is_here(look[0].topic_id)
                }  # not what was made after the mirror was deleted
                runs = reader.newest().runs  # a run is kept before its first record is written
            finally:
                reader.close()
            if not looks:
                raise UsageError(
                    f"{', '.join(origins)} is not mirrored from {self._cluster.bootstrap} into {cluster.name}; "
                    f"what is: {', '.join(sorted(set(names.values()))) or 'nothing'}"
                )
            for name, (look, notes) in looks.items():
                of_it = {partition: each for (topic, partition), each in runs.items() if topic == name}
                place = cluster.name if name == names[name] else cluster.named(name)
                facts = mirror_facts(place, look.log(), of_it)
                found.setdefault(names[name], []).append((facts, cluster, look, notes))
        return found

    def _look(
        self, cluster: KafkaCluster, topic: str, before: Counted, heard_ms: int = 0
    ) -> tuple[Look, list[str]]:
        """What the brokers hold of a topic, and what could not be counted."""
        topic_id, at_ms = TopicIds(cluster).of(topic), self._now_ms()
        heard_ms = max(heard_ms, before.heard_ms)  # nothing may have come since
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
            before = Counted(again=(before.heard_ms, max(at_ms, heard_ms)), number=before.number)
            notes.append(_MADE_AGAIN.format(topic, iso(since_ms * 1000), iso(at_ms * 1000)))
        bounds: dict[int, tuple[int, int, int]] = {}
        lost: dict[int, list[BucketRun]] = {}
        unseen: dict[int, Stretches] = {}
        for partition, (low, high) in there.items():
            start, end = before.bounds.get(partition, (low, low))
            lost[partition] = _joined([*before.lost.get(partition, ()), *before.runs.behind(partition, high)])
            unseen[partition] = before.unseen.get(partition, ())
            end = min(end, high)
            if end < low:  # what came between was removed before it was counted
                notes.append(
                    f"{topic} {partition}: offsets [{end}, {low}) were removed before they were counted"
                )
                unseen[partition] = merged([*unseen[partition], (end, low)])
                end = low
            bounds[partition] = (start, end, high)
        begins = {p: there[p][0] if self._whole else end for p, (_, end, _) in bounds.items()}
        settings = topic_settings(cluster, topic)
        if not settings:
            notes.append(_NO_SETTINGS.format(topic))
        is_compacted = not settings or "compact" in settings.get("cleanup.policy", "")
        gaps: dict[int, list[tuple[int, int]]] = {}
        new = {partition: (begins[partition], high) for partition, (_, _, high) in bounds.items()}
        more, read_until = read_runs(cluster, topic, new, self._bucket_ms, lost=gaps)
        for partition, pairs in sorted(gaps.items()):
            notes += [hole(topic, partition, start, end) for start, end in pairs]
        kept = before.runs.extended(ends, {})
        for partition, of_it in more.items():
            again = kept.behind(partition, begins[partition])
            read, known = [(run.start, run.end) for run in of_it], [(run.start, run.end) for run in again]
            # A file that was restored brings back what the last audit lacked; behind its end offsets are given anew.
            lacked = minus(minus(read, known), [(bounds[partition][1], ends[partition])])
            gone = [] if is_compacted else _less(again, read)
            lost[partition] = _joined([*_less(lost[partition], lacked), *gone])
        counted = {partition: (start, read_until[partition]) for partition, (start, _, _) in bounds.items()}
        look = Look(
            topic=topic,
            bucket_ms=self._bucket_ms,
            before=before,
            runs=kept.extended(begins, more),
            counted=counted,
            tail={run.bucket_start_ms for runs in more.values() for run in runs},
            at_ms=at_ms,
            is_anew=self._whole or bool(gaps),
            is_cut=is_cut,
            is_compacted=is_compacted,
            unseen=unseen,
            again=before.again,
            heard_ms=heard_ms,
            topic_id=topic_id,
            lost=lost,
        )
        return look, notes

    def _audit(
        self,
        cluster: KafkaCluster,
        look: Look,
        told: Told,
        tables: Mapping[str, Sequence[TableFacts]],
        mirrors: Sequence[MirrorFacts],
        said: Sequence[str],
    ) -> TopicAudit:
        notes = list(said)

        def repeats(log: TopicLog, uncounted: Sequence[Finding]) -> Mapping[int, Stretches] | None:
            count = sum(finding.count for finding in uncounted)
            bounds = self._bounds_of(cluster, log, {b for finding in uncounted for b in finding.buckets})
            if count > _MOST_LOOKED_AT or sum(end - start for start, end in bounds.values()) > _MOST_READ:
                notes.append(_TOO_MANY.format(log.topic, count))
                return None
            offsets: dict[int, list[tuple[int, int]]] = {}  # only then are the records themselves looked at
            for finding in uncounted:
                for partition, pairs in finding.places.items():
                    offsets[partition] = merged([*offsets.get(partition, ()), *pairs])
            return read_repeats(cluster, log.topic, offsets, bounds)

        judged = Judge(
            CountsTable(self._home),
            look,
            told,
            at_rest=AtRest(self._home),
            tables=tables.get(look.topic, ()),
            mirrors=mirrors,
            grace_ms=self._grace_ms,
            repeats=repeats,
        ).run()
        buckets = {each.bucket_start_ms for each in judged.verdicts}
        return TopicAudit(
            look.topic,
            self._bucket_ms,
            tuple(judged.verdicts),
            tuple(str(each) for each in judged.findings if each.kind != "clock"),
            tuple(dict.fromkeys([*notes, *(str(each) for each in judged.findings if each.kind == "clock")])),
            judged.settled,
            partial(stored_verdicts, self._home, look.topic, buckets) if judged.settled else tuple,
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


def _told(before: Counted) -> Place | None:
    """Up to where an earlier audit of a topic read the topic of counts; None where none did."""
    return None if before.standing is None else before.standing.told


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
