"""What one source counted so far, by topic and bucket. It reads no clock and sends nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater_client.events import BUCKET_MS, MOST_RANGES, MOST_UNANSWERED, Counts, TopicTotals, bucket_of

_KEPT_BUCKETS = 1_440
"""Buckets kept to be added to: a day of minutes. A record of an older one begins a new part of it."""


@dataclass
class _Part:
    number: int = 0
    acknowledged: int = 0
    failed: int = 0
    uncertain: int = 0
    ranges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    count_of_ranges: int = 0


class Tally:
    """Counts of records by topic and bucket, and which of them changed since they were last taken.

    Args:
        bucket_ms: How wide a bucket is.
        most_ranges: The most ranges of a part.
        kept_buckets: How many buckets are kept in memory.

    Example:
        >>> tally = Tally()
        >>> tally.sent("clicks", 5)
        >>> tally.acknowledged("clicks", 5, partition=0, offset=7)
        >>> [(each.acknowledged, each.ranges) for each in tally.take("web", "a1")]
        [(1, {0: [(7, 8)]})]
    """

    def __init__(
        self, bucket_ms: int = BUCKET_MS, *, most_ranges: int = MOST_RANGES, kept_buckets: int = _KEPT_BUCKETS
    ) -> None:
        self._bucket_ms = bucket_ms
        self._most_ranges = most_ranges
        self._kept_buckets = kept_buckets
        self._parts: dict[tuple[str, int], _Part] = {}
        self._full: list[tuple[tuple[str, int], _Part]] = []
        self._committed: list[tuple[tuple[str, int], _Part]] = []  # and not taken yet
        self._next_part = 0
        self._changed: dict[tuple[str, int], None] = {}
        self._unanswered: dict[str, Counter[int]] = {}
        self._sent: Counter[str] = Counter()
        self._totals: dict[str, Counter[str]] = {}
        self._sealed: tuple[Counter[str], dict[str, Counter[str]]] = (Counter(), {})

    def sent(self, topic: str, sent_ms: int, count: int = 1) -> None:
        """Records are given to the client, with that timestamp; of records that it did not take, a negative count."""
        self._sent[topic] += count
        self._count_unanswered(topic, sent_ms, count)

    def answered(self, topic: str, sent_ms: int) -> None:
        """Something was heard of a record that was sent with that timestamp: `acknowledged` and `refused` say what."""
        self._count_unanswered(topic, sent_ms, -1)

    def acknowledged(self, topic: str, timestamp_ms: int, *, partition: int, offset: int) -> None:
        """A record stands in the log, at an offset, or at one that nobody said: a negative one."""
        place = (topic, bucket_of(timestamp_ms, self._bucket_ms))
        part = self._part(place)
        part.acknowledged += 1
        self._total(topic)["acknowledged"] += 1
        if offset < 0:
            return
        ranges = part.ranges.get(partition)
        if ranges is None:
            ranges = part.ranges[partition] = []
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
            return
        ranges.append((offset, offset + 1))
        part.count_of_ranges += 1
        if part.count_of_ranges >= self._most_ranges:
            self._let_go(place)

    def refused(self, topic: str, timestamp_ms: int, *, uncertain: bool) -> None:
        """A record was refused, or no answer came in time."""
        part = self._part((topic, bucket_of(timestamp_ms, self._bucket_ms)))
        term = "uncertain" if uncertain else "failed"
        setattr(part, term, getattr(part, term) + 1)
        self._total(topic)[term] += 1

    def take(self, source: str, instance: str) -> list[Counts]:
        """What changed since the last call, as the records that say so; the oldest buckets are let go of."""
        changed = [*self._committed, *self._full, *((place, self._parts[place]) for place in self._changed)]
        self._committed.clear()
        self._full.clear()
        self._changed.clear()
        while len(self._parts) > self._kept_buckets:
            self._parts.pop(min(self._parts, key=lambda place: place[1]))
        return [
            Counts(
                source=source,
                instance=instance,
                topic=topic,
                bucket_start_ms=start_ms,
                bucket_ms=self._bucket_ms,
                part=part.number,
                acknowledged=part.acknowledged,
                failed=part.failed,
                uncertain=part.uncertain,
                ranges={partition: joined(pairs) for partition, pairs in sorted(part.ranges.items())},
            )
            for (topic, start_ms), part in changed
        ]

    def seal(self) -> None:
        """All of it is committed: what comes next is in parts of its own, which can be given up alone."""
        self._committed += [*self._full, *((place, self._parts[place]) for place in self._changed)]
        self._full.clear()
        self._changed.clear()
        self._parts.clear()
        self._sealed = (self._sent.copy(), {topic: total.copy() for topic, total in self._totals.items()})

    def give_up(self) -> None:
        """What came since the last seal was aborted, and is as if it had never been sent."""
        self._parts.clear()
        self._full.clear()
        self._changed.clear()
        self._unanswered.clear()
        sent, totals = self._sealed
        self._sent, self._totals = sent.copy(), {topic: total.copy() for topic, total in totals.items()}

    def totals(self) -> dict[str, TopicTotals]:
        """What was done with each topic, since the beginning."""
        return {
            topic: TopicTotals(
                **self._totals.get(topic, Counter()), sent=sent, unanswered=self._oldest_unanswered(topic)
            )
            for topic, sent in sorted(self._sent.items())
        }

    def _part(self, place: tuple[str, int]) -> _Part:
        part = self._parts.get(place)
        if part is None:
            part = self._parts[place] = _Part(self._next_part)
            self._next_part += 1
        self._changed[place] = None
        return part

    def _let_go(self, place: tuple[str, int]) -> None:
        self._full.append((place, self._parts.pop(place)))
        self._changed.pop(place, None)

    def _count_unanswered(self, topic: str, sent_ms: int, count: int) -> None:
        of_topic = self._unanswered.setdefault(topic, Counter())
        bucket = bucket_of(sent_ms, self._bucket_ms)
        of_topic[bucket] += count
        if not of_topic[bucket]:
            del of_topic[bucket]

    def _oldest_unanswered(self, topic: str) -> dict[int, int]:
        of_topic = self._unanswered.get(topic, Counter())
        waiting = sorted((bucket, count) for bucket, count in of_topic.items() if count > 0)
        return dict(waiting[:MOST_UNANSWERED])

    def _total(self, topic: str) -> Counter[str]:
        return self._totals.setdefault(topic, Counter())


def joined(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open ranges in order, those that touch made one.

    Example:
        >>> joined([(5, 7), (0, 2), (2, 5)])
        [(0, 7)]
    """
    ordered: list[tuple[int, int]] = []
    for start, end in sorted(pairs):
        if ordered and ordered[-1][1] == start:
            ordered[-1] = (ordered[-1][0], end)
        else:
            ordered.append((start, end))
    return ordered
