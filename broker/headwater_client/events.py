"""The records of the topic of counts: who wrote them, what they count, and how they stand as JSON.

There are three kinds. `Counts` says how many records of one topic and bucket a source saw; `Source` says that a source
is there, and how many records it saw of each topic in all. `Appended` says what a broker appended. All are cumulative:
the newest record of a key replaces those before it. So one that is delivered twice, or not at all before the next,
changes no sum, and the topic may be compacted.

A bucket is a stretch of the records' timestamps of `bucket_ms`, counted from the epoch. The timestamp is the one that
the broker keeps, which each tier sees alike: a producer whose clock is wrong puts its records into a wrong bucket, but
into the same one everywhere.

The counts of a bucket are in parts once a part has `MOST_RANGES` ranges. A part that is full does not change any more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

COUNTS_TOPIC = "__headwater_counts"
"""Where counts are published, unless another topic is named."""
BUCKET_MS = 60_000
"""The width of a bucket."""
MOST_RANGES = 1_000
"""The most ranges of a part; 1,000 are some 20 KB of JSON."""
MOST_UNANSWERED = 100
"""The most buckets that are named of records without an answer."""
EARLIEST_MS = -2_208_988_800_000
"""1900-01-01. What says that it is older is of the bucket of that time: not every reader of tables takes older ones."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, behind which no calendar goes. Times in microseconds are behind it."""
_VERSION = "headwater_counts"

Ranges = Mapping[int, Sequence[tuple[int, int]]]
"""Half-open offset ranges by partition."""


class EventError(ValueError):
    """A record of the topic of counts cannot be read; the message is a predicate of where it stands."""


def bucket_of(timestamp_ms: int, bucket_ms: int = BUCKET_MS) -> int:
    """When the bucket of a timestamp begins, in milliseconds since the epoch.

    Timestamps from before `EARLIEST_MS` or behind `LATEST_MS` are mistakes, and of the first or the last bucket.

    Example:
        >>> bucket_of(1357034459999), bucket_of(-1), bucket_of(1357034459999000)
        (1357034400000, -60000, 253402300740000)
    """
    timestamp_ms = min(max(timestamp_ms, EARLIEST_MS), LATEST_MS)
    return timestamp_ms - timestamp_ms % bucket_ms


@dataclass(frozen=True, kw_only=True)
class TopicTotals:
    """What a source did with the records of a topic, since it began.

    Attributes:
        sent: Records that it was given.
        acknowledged: Records that the brokers acknowledged.
        failed: Records that were refused, of which the source was told and the brokers have nothing.
        uncertain: Records of which it is not known: no answer came in time.
        unanswered: How many records of each bucket nothing was heard of yet: of the oldest `MOST_UNANSWERED` buckets.
    """

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    uncertain: int = 0
    unanswered: Mapping[int, int] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """Records of which nothing was heard yet."""
        return self.sent - self.acknowledged - self.failed - self.uncertain


@dataclass(frozen=True, kw_only=True)
class Event:
    """What the two kinds have in common.

    Attributes:
        source: The name of who counts, such as `web-1`.
        instance: A name of its own for each time that a source is started.
        tier: Where the source stands: `producer` or `broker`.
    """

    KIND: ClassVar[str]
    FORMAT: ClassVar[int] = 1

    source: str
    instance: str
    tier: str = "producer"

    @property
    def key(self) -> str:
        """The record's key: of those with the same one the newest counts."""
        raise NotImplementedError

    def to_json(self) -> str:
        """The record's value."""
        value = {_VERSION: self.FORMAT, "kind": self.KIND, **vars(self)}
        return json.dumps(value, separators=(",", ":"), default=asdict)


@dataclass(frozen=True, kw_only=True)
class Counts(Event):
    """How many records of a topic and bucket a source saw.

    Attributes:
        topic: The topic.
        bucket_start_ms: When the bucket begins.
        bucket_ms: How wide it is.
        part: Which part of the source's counts this is, from 0 on.
        acknowledged: Records that the brokers acknowledged.
        failed: Records that were refused.
        uncertain: Records of which no answer came in time; the brokers may have them.
        ranges: The offsets of the acknowledged records. They are fewer than these where the brokers were not asked to
            acknowledge, as with `acks=0`.
    """

    KIND = "counts"

    topic: str
    bucket_start_ms: int
    bucket_ms: int = BUCKET_MS
    part: int = 0
    acknowledged: int = 0
    failed: int = 0
    uncertain: int = 0
    ranges: Ranges = field(default_factory=dict)

    @property
    def key(self) -> str:
        """By source, instance, topic, bucket and part."""
        return "/".join(
            (self.tier, self.source, self.instance, self.topic, str(self.bucket_start_ms), str(self.part))
        )


@dataclass(frozen=True, kw_only=True)
class Source(Event):
    """That a source is there, and what it did in all.

    Attributes:
        opened_ms: When it began, by its own clock.
        at_ms: When it wrote this, by its own clock. The difference to the time at which the broker appended it is how
            wrong the clock is.
        every_ms: The longest time between two publications while it sends.
        closed: Whether it ended, and said all.
        topics: What it did with each topic.
    """

    KIND = "source"

    opened_ms: int
    at_ms: int
    every_ms: int = 10_000
    closed: bool = False
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """By source and instance."""
        return f"{self.tier}/{self.source}/{self.instance}"


@dataclass(frozen=True, kw_only=True)
class Appended(Event):
    """What a broker counted of a partition as it was appended, so of producers that do not count, too.

    `source` is the broker, and `instance` a name of its own for each time that the broker is started. What it appended
    and the log has no longer was lost: with a power failure, or with a disk.

    Attributes:
        topic: The topic.
        topic_id: Its id, as one that is deleted and made again has others; empty where it has none.
        partition: The partition.
        start: The first offset.
        end: One past the last.
        bucket_ms: How wide a bucket is.
        runs: Half-open offsets of records without a gap, and when their bucket begins. What a transaction wrote that
            was aborted is not among them. A newer record of the key has these, and more behind them.
        recounted: Whether the broker found no count of the log when it started, though the log had records: these may
            have been counted before, and that may have been removed.
    """

    KIND = "appended"
    FORMAT = 2  # who reads only 1 takes what is said again for other records

    topic: str
    topic_id: str = ""
    partition: int
    start: int
    end: int
    bucket_ms: int = BUCKET_MS
    runs: Sequence[tuple[int, int, int]] = ()
    recounted: bool = False

    @property
    def key(self) -> str:
        """By start of the broker, topic, partition and first offset."""
        return "/".join((self.tier, self.instance, self.topic, str(self.partition), str(self.start)))


def event_from_json(text: str | bytes) -> Counts | Source | Appended:
    """Reads what `to_json` wrote.

    Raises:
        EventError: It is no such record, or one of a newer Headwater.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise EventError("is no JSON") from error
    if not isinstance(value, dict) or type(value.get(_VERSION)) is not int:
        raise EventError("is no record of counts")
    newest, version = Appended.FORMAT, value[_VERSION]
    if version > newest:
        raise EventError(
            f"is of version {version}, of which this Headwater reads version {newest}: update Headwater"
        )
    given = {key: each for key, each in value.items() if key not in (_VERSION, "kind")}
    kind = {each.KIND: each for each in (Counts, Source, Appended)}.get(str(value.get("kind")))
    if kind is None:
        raise EventError(f"is of the kind {value.get('kind')!r}, which this Headwater does not know")
    if unknown := sorted(given.keys() - {each.name for each in fields(kind)}):
        raise EventError(f"has the key {unknown[0]!r}, which this Headwater does not know: update Headwater")
    try:
        if kind is Counts:
            given["ranges"] = {
                int(partition): [(int(start), int(end)) for start, end in pairs]
                for partition, pairs in given.get("ranges", {}).items()
            }
            return Counts(**given)
        if kind is Appended:
            runs = [(int(start), int(end), int(bucket)) for start, end, bucket in given.get("runs", ())]
            return Appended(**{**given, "runs": runs})
        given["topics"] = {name: _totals(totals) for name, totals in given.get("topics", {}).items()}
        return Source(**given)
    except (TypeError, ValueError, AttributeError) as error:
        raise EventError("lacks what such a record has, or has it in another form") from error


def _totals(value: Mapping[str, Any]) -> TopicTotals:
    unanswered = {int(bucket): int(count) for bucket, count in value.get("unanswered", {}).items()}
    return TopicTotals(**{**value, "unanswered": unanswered})
