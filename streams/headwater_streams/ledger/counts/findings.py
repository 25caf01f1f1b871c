"""What an audit of counts finds, by topic, bucket and tier."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.counts.stretches import Stretches, merged, size

Tier = Literal[
    "producer", "appended", "broker", "mirror", "input", "table", "quarantine", "late", "duplicate"
]
Kind = Literal["missing", "doubled", "uncounted", "stray", "clock", "unsent"]
"""What is wrong.

`missing`: the tier before had the records, this one has them not. `doubled`: this one has them more often.
`uncounted`: the brokers hold records that no producer counted. `stray`: a table has rows of records that the brokers do
not hold. `clock`: a producer's clock is wrong. `unsent`: a producer counted records, and its counts are not there.
"""
_SAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        tier: Where the records went missing, or came twice.
        kind: What is wrong.
        topic: The topic.
        buckets: The buckets in question. Where there are several, it is in one of these or spread over them.
        count: Of how many records.
        where: The producers or the table in question.
        places: The offsets in question, by partition.
        by_ms: Of a clock: by how much it is ahead.
    """

    tier: Tier
    kind: Kind
    topic: str
    buckets: tuple[int, ...]
    count: int
    where: tuple[str, ...] = ()
    places: Mapping[int, Stretches] = field(default_factory=dict)
    by_ms: int = 0

    def __str__(self) -> str:
        named = ", ".join(self.where[:_SAMPLES])
        if len(self.where) > _SAMPLES:
            named += f" and {len(self.where) - _SAMPLES} more"
        when = _when(self.buckets)
        records = quantity(self.count, "record")
        if self.kind == "clock":
            side = "ahead" if self.by_ms > 0 else "behind"
            return (
                f"{self.topic}: the clock of producer {named} is {abs(self.by_ms) / 60_000:.0f} min {side}; its "
                "records are in buckets of that time at every tier, and none is missing for it"
            )
        if self.kind == "unsent":
            return f"{self.topic}: producer {named} counted {records} more than its counts in the topic of counts name"
        if self.kind == "uncounted":
            verb = "was" if len(self.where) == 1 else "were"
            who = (
                f"perhaps of {named}, which {verb} not heard of since"
                if named
                else "all producers that count have ended"
            )
            return f"{self.topic} {when}: {records} that no producer counted ({who}){self._offsets()}"
        if self.kind == "stray":
            rows = quantity(self.count, "row")
            return (
                f"{self.topic}: {named} has {rows} of records that the brokers do not hold{self._offsets()}"
            )
        verb = "are missing" if self.count > 1 else "is missing"
        if self.kind == "doubled":
            verb = "stand there more than once" if self.count > 1 else "stands there more than once"
        at = f"{self.tier} {named}" if named and self.tier != "broker" else self.tier
        of = f" ({named})" if named and self.tier == "broker" else ""
        return f"{self.topic} {when}: {records} {verb} at {at}{of}{self._offsets()}"

    def _offsets(self) -> str:
        named = [
            f"{self.topic} {partition} [{start}, {end})"
            for partition, pairs in sorted(self.places.items())
            for start, end in pairs
        ]
        if not named:
            return ""
        more = f" and {len(named) - _SAMPLES} more" if len(named) > _SAMPLES else ""
        return f": offsets {', '.join(named[:_SAMPLES])}{more}"


def _when(buckets: Sequence[int]) -> str:
    if not buckets:
        return "in no bucket"
    first = iso(buckets[0] * 1000)
    return first if len(buckets) == 1 else f"{first} to {iso(buckets[-1] * 1000)}"


@dataclass(frozen=True)
class TierCount:
    """How many records of a bucket a tier saw.

    Attributes:
        topic: The topic.
        bucket_start_ms: When the bucket begins.
        tier: The tier.
        where: The producer, table or cluster.
        count: How many records it saw.
        open: How many it may still see: a producer's without an answer, a job's that it has not read yet.
    """

    topic: str
    bucket_start_ms: int
    tier: Tier
    where: str
    count: int
    open: int = 0


@dataclass
class Findings:
    """What the tiers of one topic add up to.

    Attributes:
        topic: The topic.
        counts: What each tier saw.
        findings: What is wrong.
        unknown: Records of each bucket of which nobody can say whether they were there: they were removed before an
            audit looked, or by compaction, or a producer ended without an answer.
        first_claimed: The first offset of each partition that a producer claims.
    """

    topic: str
    counts: list[TierCount] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)
    first_claimed: dict[int, int] = field(default_factory=dict)

    def lost(self) -> dict[int, list[tuple[int, int]]]:
        """The offsets, by partition, whose records were found missing at the brokers."""
        places: dict[int, list[tuple[int, int]]] = {}
        for finding in self.findings:
            if (finding.tier, finding.kind) == ("broker", "missing"):
                for partition, pairs in finding.places.items():
                    places.setdefault(partition, []).extend(pairs)
        return {partition: merged(pairs) for partition, pairs in places.items()}

    def found(
        self,
        tier: Tier,
        kind: Kind,
        by_bucket: Mapping[int, Mapping[int, Stretches]],
        where: Iterable[str] = (),
    ) -> None:
        """Adds a finding for each bucket that has offsets in question.

        Args:
            tier: The tier.
            kind: What is wrong.
            by_bucket: Offsets, by bucket and partition.
            where: Producers or tables.
        """
        for bucket, places in sorted(by_bucket.items()):
            count = sum(size(pairs) for pairs in places.values())
            if count:
                kept = {partition: tuple(pairs) for partition, pairs in places.items() if pairs}
                self.findings.append(Finding(tier, kind, self.topic, (bucket,), count, tuple(where), kept))


@dataclass(frozen=True)
class BucketVerdict:
    """What is said of a topic's bucket.

    Attributes:
        topic: The topic.
        bucket_start_ms: When it begins.
        status: `complete`, `missing`, `doubled`, `uncounted`, `unknown` or `open`; the worst that was found.
        numbers: How many records are missing, doubled, uncounted, stray, unknown or open.
        counts: What each tier saw.
    """

    topic: str
    bucket_start_ms: int
    status: str
    numbers: Mapping[str, int]
    counts: tuple[TierCount, ...]

    @property
    def words(self) -> str:
        """The verdict as a person reads it.

        Example:
            >>> BucketVerdict("clicks", 0, "missing", {"missing": 2, "open": 1}, ()).words
            'missing 2, still open 1'
        """
        named = [
            f"{'still open' if kind == 'open' else kind} {number}"
            for kind, number in self.numbers.items()
            if number and kind != "clock"
        ]
        return ", ".join(named) or ("still open" if self.status == "open" else "complete")


_WORST = ("missing", "doubled", "uncounted", "stray", "unknown", "open")


def verdicts(found: Findings, *, bucket_ms: int, now_ms: int, grace_ms: int) -> list[BucketVerdict]:
    """What is said of each bucket of a topic, oldest first.

    Args:
        found: What was found.
        bucket_ms: How wide a bucket is.
        now_ms: The time; a bucket that has not ended for so long as `grace_ms` is open.
        grace_ms: How long records may be on their way.
    """
    counts: dict[int, list[TierCount]] = defaultdict(list)
    numbers: dict[int, Counter[str]] = defaultdict(Counter)
    for count in found.counts:
        counts[count.bucket_start_ms].append(count)
        numbers[count.bucket_start_ms]["open"] = max(numbers[count.bucket_start_ms]["open"], count.open)
    for bucket, count_unknown in found.unknown.items():
        numbers[bucket]["unknown"] += count_unknown
    for finding in found.findings:
        for bucket in finding.buckets:
            numbers[bucket][finding.kind] += finding.count
    result = []
    for bucket in sorted({*counts, *numbers}):
        of_bucket = numbers[bucket]
        status = next((kind for kind in _WORST if of_bucket[kind]), "complete")
        if status == "complete" and bucket + bucket_ms + grace_ms > now_ms:
            status = "open"
        ordered = {kind: of_bucket[kind] for kind in _WORST if of_bucket[kind]}
        result.append(BucketVerdict(found.topic, bucket, status, ordered, tuple(counts[bucket])))
    return result
