"""What an audit of counts knows before it decides: what the brokers hold, what producers say, what tables have."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headwater_client.events import Appended, Counts, Source
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts.stretches import Stretches, minus


@dataclass(frozen=True)
class Mark:
    """Where the partitions of a topic ended at some time.

    Attributes:
        at_ms: When, by the clocks of the audit and of the brokers: the later one of both.
        ends: The end of each partition.
    """

    at_ms: int
    ends: Mapping[int, int]


@dataclass(frozen=True)
class TopicLog:
    """What was counted of a topic's log.

    Attributes:
        topic: The topic, as the ledger calls it.
        bucket_ms: How wide a bucket is.
        runs: Its records, by partition, in order.
        counted: The offsets that were looked at, by partition. Before them nothing is known: the records were gone.
        marks: Where the partitions ended when the topic was looked at before, oldest first.
        is_compacted: Whether older records of a key are removed, or may be: then one that is gone is nothing that is
            missing.
        unseen: Offsets among those that were looked at whose records had been removed by then, by partition.
        again: Where the topic was deleted and made again, up to when counts are of the former one, and when this
            one was looked at first.
        whole: The offsets of which all records are among the runs, by partition; None where these are all there are.
    """

    topic: str
    bucket_ms: int
    runs: Mapping[int, Sequence[BucketRun]]
    counted: Mapping[int, tuple[int, int]]
    marks: Sequence[Mark] = ()
    is_compacted: bool = False
    unseen: Mapping[int, Stretches] = field(default_factory=dict)
    again: tuple[int, int] | None = None
    whole: Mapping[int, Stretches] | None = None

    def has_all(self, partition: int, pairs: Stretches) -> bool:
        """Whether all records of some offsets of a partition are among the runs."""
        return self.whole is None or not minus(pairs, self.whole.get(partition, ()))

    def seen(self, partition: int) -> list[tuple[int, int]]:
        """The offsets of a partition that were looked at in time."""
        return minus([self.counted.get(partition, (0, 0))], self.unseen.get(partition, ()))

    def by_bucket(self, partition: int) -> Mapping[int, Sequence[tuple[int, int]]]:
        """The offsets of a partition, by bucket."""
        return self._by_bucket.get(partition, {})

    def offsets(self, partition: int) -> Sequence[tuple[int, int]]:
        """All offsets of a partition that have a record."""
        return self._offsets.get(partition, ())

    def buckets_of(self, partition: int, pairs: Stretches) -> dict[int, list[tuple[int, int]]]:
        """Offsets of a partition that have a record, by bucket."""
        result: dict[int, list[tuple[int, int]]] = defaultdict(list)
        runs = self.runs.get(partition, ())
        for start, end in pairs:
            at = bisect_right(runs, start, key=lambda run: run.end)
            while at < len(runs) and runs[at].start < end:
                run = runs[at]
                result[run.bucket_start_ms].append((max(start, run.start), min(end, run.end)))
                at += 1
        return dict(sorted(result.items()))

    @cached_property
    def _offsets(self) -> dict[int, list[tuple[int, int]]]:
        return {partition: [(run.start, run.end) for run in runs] for partition, runs in self.runs.items()}

    @cached_property
    def _by_bucket(self) -> dict[int, dict[int, list[tuple[int, int]]]]:
        result: dict[int, dict[int, list[tuple[int, int]]]] = {}
        for partition, runs in self.runs.items():
            of_it = result[partition] = {}
            for run in runs:
                of_it.setdefault(run.bucket_start_ms, []).append((run.start, run.end))
        return result


@dataclass(frozen=True)
class Heard:
    """The newest record of a source, and when the brokers took it.

    Attributes:
        record: What it says.
        at_ms: When, by the clock of whoever appended it; None where the topic keeps the producers' own times.
    """

    record: Source
    at_ms: int | None = None


@dataclass(frozen=True)
class Earlier:
    """What producers had said before the log was looked at: all of it must be there.

    Attributes:
        counts: Their counts, by key.
        sources: Their newest records, by instance.
    """

    counts: Mapping[str, Counts] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True)
class Elsewhere:
    """What is known of counts that are not looked at again.

    Attributes:
        begun_ms: When the first of their producers began, by the brokers' clock as far as that is known.
        first_claimed: The first offset of each partition that one of them claims.
        acknowledged: How many records they name of each instance.
    """

    begun_ms: int | None = None
    first_claimed: Mapping[int, int] = field(default_factory=dict)
    acknowledged: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Claims:
    """What the producers of a topic say.

    Attributes:
        counts: Their counts of this topic.
        sources: Those that sent to it, or may have.
        repeats: Offsets, by partition, of records that equal another of the topic in key, value and timestamp. Only
            of those need to be looked at that no producer counted.
        appended: What brokers counted as they appended it, oldest first, and before the log was looked at.
        lost: What an earlier look at the log saw, by partition, and is behind its end now.
        earlier: What they had said before the log was looked at.
        doubtful: The keys of counts that may be of a topic that had the same name before.
        elsewhere: What is known of counts of buckets that are not judged again.
    """

    counts: Sequence[Counts] = ()
    sources: Sequence[Heard] = ()
    repeats: Mapping[int, Stretches] = field(default_factory=dict)
    appended: Sequence[Appended] = ()
    lost: Mapping[int, Sequence[BucketRun]] = field(default_factory=dict)
    earlier: Earlier = field(default_factory=Earlier)
    doubtful: Collection[str] = ()
    elsewhere: Elsewhere = field(default_factory=Elsewhere)


@dataclass(frozen=True)
class Held:
    """The offsets that stand in a table or in a mirrored topic.

    Attributes:
        offsets: Those that stand there.
        again: Those that stand there once more, as often as they do.
    """

    offsets: Stretches = ()
    again: Stretches = ()


@dataclass(frozen=True)
class Batch:
    """What a commit says of one partition of a topic.

    Attributes:
        partition: The partition.
        start: The first offset that it read.
        end: One past the last.
        terms: What became of the records: `read`, `written`, `filtered`, `duplicate`, `quarantined`, `late`; None where
            the commit does not say so by partition.
    """

    partition: int
    start: int
    end: int
    terms: Mapping[str, int] | None = None


@dataclass(frozen=True)
class TableFacts:
    """What a table says and has of a topic.

    Attributes:
        table: The table.
        job: The job that writes it.
        batches: What was committed, oldest first.
        rows: The rows at rest: of `table`, `quarantine` and `late`, by partition.
        names_all: Whether all records of the job that were not filtered, a duplicate or expired stand there with their
            coordinates, as they do in a table of rows and in one that a topic is read into.
        expired: Whether rows were let go of by their age: then an absent row is nothing that is missing.
        version: Of the table, when that was read; None for the newest.
        anew_ms: When the job began to read the topic that has the name now, where one was deleted and made again.
        beside: The job's first table, where this is another one: rejected rows stand beside that one, and are compared
            with it.
    """

    table: str
    job: str
    batches: Sequence[Batch]
    rows: Mapping[str, Mapping[int, Held]] = field(default_factory=dict)
    names_all: bool = True
    expired: bool = False
    version: int | None = None
    beside: str | None = None
    anew_ms: int | None = None

    def held(self, place: str, partition: int) -> Held:
        """The rows of one of the three places."""
        return self.rows.get(place, {}).get(partition, Held())


@dataclass(frozen=True)
class MirrorFacts:
    """What a mirror of a topic holds.

    Attributes:
        place: The cluster that it was mirrored to, with its topic there where that has another name.
        held: The offsets of the origin that it has, by the origin's partition.
        until: The offset of the origin up to which it was copied, by partition.
        since: The offset of the origin from which it was.
        unseen: Offsets of the origin whose records had been removed there before an audit looked.
        is_compacted: Whether older records of a key are removed there.
    """

    place: str
    held: Mapping[int, Held]
    until: Mapping[int, int]
    since: Mapping[int, int] = field(default_factory=dict)
    unseen: Mapping[int, Stretches] = field(default_factory=dict)
    is_compacted: bool = False
