"""What the topic of counts says of one topic, and how it is kept beside the verdict of the bucket that it was said of.

A row of `audit.counts` of the tiers `producer` and `appended` has in `said` what its place said of the bucket, as JSON:

    producer    [instance, part, bucket, bucket_ms, acknowledged, failed, uncertain, {partition: [[start, end]]}, ...]
    appended    [instance, partition, bucket, bucket_ms, [[start, end]], ...]

each with the partition of the topic of counts that said it, the time that the record has there, and whether that is the
brokers'. So a bucket is judged again without what the topic of counts may have lost by then.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater_client.events import Appended, Counts, Source, bucket_of
from headwater_streams.ledger.counts.facts import Claims, Earlier, Elsewhere, Heard, TopicLog
from headwater_streams.ledger.counts.stretches import add, minus

_ABOUT_MS = 60_000
_ANYBODY = ""  # no instance has that name
Event = Counts | Source | Appended
Place = tuple[int, str, str]
"""Bucket, tier and place of a row."""


@dataclass(frozen=True)
class Record:
    """A record of the topic of counts.

    Attributes:
        event: What it says.
        partition: Where it stands.
        at_ms: Its time.
        is_stamped: Whether that is the brokers'.
    """

    event: Event
    partition: int
    at_ms: int
    is_stamped: bool

    def is_newer(self, other: "Record | None") -> bool:
        """Whether it counts in place of one of its key, which is in another partition where some were added."""
        return other is None or other.partition == self.partition or other.at_ms <= self.at_ms


@dataclass
class Said:
    """What was said of a topic.

    Attributes:
        counts: The newest record of each key.
        sources: Of each instance.
        appended: What brokers counted as they appended it.
    """

    counts: dict[str, Record] = field(default_factory=dict)
    sources: dict[str, Record] = field(default_factory=dict)
    appended: list[Record] = field(default_factory=list)

    def with_more(self, records: Iterable[Record]) -> "Said":
        """The same with records that were read later."""
        result = Said(dict(self.counts), dict(self.sources), list(self.appended))
        appended: list[Record] = []
        for record in records:
            event = record.event
            if isinstance(event, Counts):
                if record.is_newer(result.counts.get(event.key)):
                    result.counts[event.key] = record
            elif isinstance(event, Source):
                if record.is_newer(result.sources.get(event.instance)):
                    result.sources[event.instance] = record
            else:
                appended.append(record)
        result._append(sorted(appended, key=_at_ms))
        return result

    def with_unknown(self, records: Iterable[Record]) -> "Said":
        """The same with those of records that were read earlier, or might have been, that it does not have."""
        return self.with_more(
            each
            for each in records
            if not isinstance(each.event, Counts) or each.event.key not in self.counts
            if not isinstance(each.event, Source) or each.event.instance not in self.sources
        )

    def _append(self, records: Sequence[Record]) -> None:
        """Adds what is new in them: a start of a broker counts an offset once, and says it again with what follows."""
        if not records:
            return
        known: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        for record in self.appended:
            _note(known, record.event)
        for record in records:
            event = record.event
            if isinstance(event, Appended):
                # What was counted before, by whomever, is no other record where a broker did not know of it.
                of = _ANYBODY if event.recounted else event.instance
                runs = [
                    (start, end, bucket)
                    for begin, until, bucket in event.runs
                    for start, end in minus([(begin, until)], known.get((of, event.partition, bucket), ()))
                ]
                if runs:
                    news = replace(event, runs=runs)
                    _note(known, news)
                    self.appended.append(replace(record, event=news))
        self.appended.sort(key=_at_ms)

    def claims(self, log: TopicLog, earlier: "Said", elsewhere: Elsewhere) -> Claims:
        """What is compared with the log.

        Args:
            log: The log.
            earlier: What had been said before it was looked at.
            elsewhere: What is known of the rest.
        """
        gone_ms, there_ms = log.again or (0, 0)

        def is_of_this(record: Record) -> bool:
            return not (record.is_stamped and record.at_ms <= gone_ms)

        counts = [each for each in self.counts.values() if is_of_this(each)]
        doubtful = {
            each.event.key
            for each in counts
            if log.again is not None
            and isinstance(each.event, Counts)
            and _is_near(each, each.event, there_ms)
        }
        return Claims(
            [each.event for each in counts if isinstance(each.event, Counts)],
            [
                Heard(each.event, each.at_ms if each.is_stamped else None)
                for each in self.sources.values()
                if is_of_this(each) and isinstance(each.event, Source)
            ],
            appended=[each.event for each in earlier.appended if isinstance(each.event, Appended)],
            earlier=Earlier(
                {key: each.event for key, each in earlier.counts.items() if isinstance(each.event, Counts)},
                {key: each.event for key, each in earlier.sources.items() if isinstance(each.event, Source)},
            ),
            doubtful=doubtful,
            elsewhere=elsewhere,
        )

    def by_place(self, bucket_ms: int) -> dict[Place, str]:
        """What stands in the rows."""
        found: dict[Place, list[list[Any]]] = {}
        for record in (*self.counts.values(), *self.appended):
            event = record.event
            of_record = [record.partition, record.at_ms, int(record.is_stamped)]
            if isinstance(event, Counts):
                place = bucket_of(event.bucket_start_ms, bucket_ms), "producer", event.source
                found.setdefault(place, []).append(
                    [
                        *(event.instance, event.part, event.bucket_start_ms, event.bucket_ms),
                        *(event.acknowledged, event.failed, event.uncertain, event.ranges),
                        *of_record,
                    ]
                )
            elif isinstance(event, Appended):
                for start, end, bucket in event.runs:
                    entries = found.setdefault((bucket_of(bucket, bucket_ms), "appended", event.source), [])
                    about = [event.instance, event.partition, bucket, event.bucket_ms]
                    if entries and entries[-1][:4] == about and entries[-1][4][-1][1] == start:
                        entries[-1] = [
                            *about,
                            [*entries[-1][4][:-1], [entries[-1][4][-1][0], end]],
                            *of_record,
                        ]
                    else:
                        entries.append([*about, [[start, end]], *of_record])
        for (_, tier, _), entries in found.items():
            if tier == "producer":
                entries.sort(key=lambda each: (each[0], each[1], each[2]))
        return {place: json.dumps(entries, separators=(",", ":")) for place, entries in found.items()}


def _at_ms(record: Record) -> int:
    return record.at_ms


def _note(known: dict[tuple[str, int, int], list[tuple[int, int]]], event: Event) -> None:
    if isinstance(event, Appended):
        for start, end, bucket in event.runs:
            for of in (event.instance, _ANYBODY):
                add(known.setdefault((of, event.partition, bucket), []), start, end)


def said_in(topic: str, rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    """What stands in rows of `audit.counts`.

    Args:
        topic: The topic, as producers call it.
        rows: Their tier, place and `said`.
    """
    records: list[Record] = []
    for row in rows:
        for entry in json.loads(row["said"]) if row["said"] else ():
            *about, partition, at_ms, is_stamped = entry
            event = _counts(topic, row, about) if row["tier"] != "appended" else _appended(topic, row, about)
            records.append(Record(event, partition, at_ms, bool(is_stamped)))
    return records


def _counts(topic: str, row: Mapping[str, Any], about: Sequence[Any]) -> Counts:
    instance, part, bucket, bucket_ms, acknowledged, failed, uncertain, ranges = about
    return Counts(
        source=row["place"],
        instance=instance,
        topic=topic,
        bucket_start_ms=bucket,
        bucket_ms=bucket_ms,
        part=part,
        acknowledged=acknowledged,
        failed=failed,
        uncertain=uncertain,
        ranges={int(partition): [(s, e) for s, e in pairs] for partition, pairs in ranges.items()},
    )


def _appended(topic: str, row: Mapping[str, Any], about: Sequence[Any]) -> Appended:
    instance, partition, bucket, bucket_ms, pairs = about
    return Appended(
        source=row["place"],
        instance=instance,
        tier="broker",
        topic=topic,
        partition=partition,
        start=pairs[0][0],
        end=pairs[-1][1],
        bucket_ms=bucket_ms,
        runs=[(start, end, bucket) for start, end in pairs],
    )


def _is_near(record: Record, counts: Counts, there_ms: int) -> bool:
    return not record.is_stamped or record.at_ms <= there_ms + counts.bucket_ms + _ABOUT_MS


def of_topic(records: Iterable[Record], topic: str, name: str, ids: set[str] | None) -> list[Record]:
    """What is said of one topic.

    Args:
        records: What was read.
        topic: The topic, as producers call it.
        name: As the ledger calls it.
        ids: The ids under which brokers count it; None for any. One that had its name before has another one.
    """
    found = []
    for record in records:
        event = record.event
        if isinstance(event, Source):
            if topic in event.topics:
                found.append(replace(record, event=replace(event, topics={name: event.topics[topic]})))
        elif event.topic == topic and (isinstance(event, Counts) or ids is None or event.topic_id in ids):
            found.append(record)
    return found
