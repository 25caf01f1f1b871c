"""The brokers' log against what the producers counted."""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from headwater_client.events import Counts, bucket_of
from headwater_streams.ledger.counts.facts import Claims, Heard, TopicLog
from headwater_streams.ledger.counts.findings import Finding, Findings, TierCount
from headwater_streams.ledger.counts.stretches import (
    Stretches,
    common,
    first,
    merged,
    minus,
    more_than_once,
    size,
)

_SILENT = 3
"""A producer that has not ended and missed so many publications is silent: it is idle, or dead."""
_APART_MS = 60_000
"""By how much the clocks of brokers and of the audit may differ."""
CLOCK_MS = 300_000
"""By how much a clock may be wrong before it is said."""

_ByBucket = dict[int, dict[int, list[tuple[int, int]]]]


def check_producers(found: Findings, log: TopicLog, claims: Claims, now_ms: int) -> None:
    """Compares a topic's log with the counts of its producers; counts the brokers' records in any case.

    What a producer was told is in the log, at that offset, in a record of the bucket that it counted it in: else the
    record is missing. A record that no producer counted is doubled where it equals another; else a producer that does
    not count sent it, or one that died with counts unsent. While a producer that counts may still speak of it, it is
    open: a producer that was heard of lately has said all of what stood there before that, and nothing of the rest.

    Args:
        found: Takes what is found.
        log: What the brokers hold.
        claims: What the producers say.
        now_ms: When the log was read.
    """
    still_open: _ByBucket = {}
    if claims.counts or claims.sources:
        still_open = _compare(found, log, claims, now_ms)
        _check_sources(found, claims, now_ms)
    _check_appended(found, log, claims)
    for bucket, places in sorted(_all(log).items()):
        count = sum(size(pairs) for pairs in places.values())
        open_count = sum(size(pairs) for pairs in still_open.get(bucket, {}).values())
        found.counts.append(TierCount(log.topic, bucket, "broker", "", count, open_count))


def _all(log: TopicLog) -> _ByBucket:
    result: _ByBucket = defaultdict(dict)
    for partition in log.runs:
        for bucket, pairs in log.by_bucket(partition).items():
            result[bucket][partition] = pairs
    return result


class _Claimed:
    """What producers claim of a log, by bucket."""

    def __init__(self) -> None:
        self.offsets: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        self.unplaced: Counter[int] = Counter()  # acknowledged, at an offset that nobody said
        self.uncertain: Counter[int] = Counter()
        self.by_source: Counter[tuple[int, str]] = Counter()
        self.unread: Counter[tuple[int, str]] = Counter()  # at offsets that were not counted yet


def _compare(found: Findings, log: TopicLog, claims: Claims, now_ms: int) -> _ByBucket:
    """Finds what is missing, doubled and uncounted; gives the offsets of which it is open."""
    held, claimed = _all(log), _Claimed()
    said = {each.record.instance for each in claims.sources if _is_settled(each, now_ms)}
    for counts in claims.counts:
        _claim(found, log, held, claimed, counts, is_old=counts.instance in said)
    for (bucket, source), count in sorted(claimed.by_source.items()):
        still = claimed.unread[bucket, source]
        found.counts.append(TierCount(log.topic, bucket, "producer", source, count, still))
    _check_claimed_twice(found, claims.counts, claimed.offsets)
    silent, live = _silent(claims.sources, now_ms)
    settled = {partition: _settled(log, partition, live) for partition in log.runs}
    begun_ms = min((_opened_ms(each) for each in claims.sources), default=None)
    still_open: _ByBucket = {}
    for bucket in sorted({*held, *claimed.unplaced}):
        unclaimed = {
            partition: minus(pairs, merged(claimed.offsets[bucket][partition]))
            for partition, pairs in held.get(bucket, {}).items()
        }
        lost = claimed.unplaced[bucket] - sum(size(pairs) for pairs in unclaimed.values())
        if lost > 0:
            sources = sorted({c.source for c in claims.counts if c.bucket_start_ms == bucket})
            found.findings.append(Finding("broker", "missing", log.topic, (bucket,), lost, tuple(sources)))
        if begun_ms is None or bucket + log.bucket_ms <= begun_ms:
            unclaimed = {p: minus(pairs, [(0, _first(claimed, p))]) for p, pairs in unclaimed.items()}
        still_open[bucket] = {p: minus(pairs, [(0, settled[p])]) for p, pairs in unclaimed.items()}
        judged = {p: minus(pairs, still_open[bucket][p]) for p, pairs in unclaimed.items()}
        repeated = {p: common(pairs, claims.repeats.get(p, ())) for p, pairs in judged.items()}
        # Records without an offset, or without an answer, may be some of these.
        rest = _without(
            {p: minus(pairs, repeated[p]) for p, pairs in judged.items()},
            claimed.unplaced[bucket] + claimed.uncertain[bucket],
        )
        found.found("broker", "doubled", {bucket: repeated})
        found.found("producer", "uncounted", {bucket: rest}, [each.record.source for each in silent])
    return still_open


def _claim(
    found: Findings,
    log: TopicLog,
    held: Mapping[int, Mapping[int, Stretches]],
    claimed: _Claimed,
    counts: Counts,
    *,
    is_old: bool,
) -> None:
    """Takes down one record of counts, and finds which of its offsets hold no such record.

    Offsets behind the end of the log are of later records, or were cut away; the latter where the counts are older
    (`is_old`) than the look at the log.
    """
    place = (counts.bucket_start_ms, counts.source)
    claimed.by_source[place] += counts.acknowledged
    claimed.unplaced[counts.bucket_start_ms] += counts.acknowledged
    claimed.uncertain[counts.bucket_start_ms] += counts.uncertain
    missing: dict[int, Stretches] = {}
    for partition, pairs in counts.ranges.items():
        claimed.unplaced[counts.bucket_start_ms] -= size(pairs)
        offsets, (start, end) = merged(pairs), log.counted.get(partition, (0, 0))
        if is_old:
            end = sys.maxsize
        claimed.unread[place] += size(minus(offsets, [(0, end)]))
        known, there = common(offsets, [(start, end)]), list[tuple[int, int]]()
        for bucket, places in held.items():
            if (
                bucket < counts.bucket_start_ms + counts.bucket_ms
                and counts.bucket_start_ms < bucket + log.bucket_ms
            ):
                here = common(known, places.get(partition, ()))
                claimed.offsets[bucket][partition] += here
                there += here
        # An offset that this producer was told twice was given away again, and one of the two records is gone.
        gone = [] if log.is_compacted else minus(known, merged(there))
        missing[partition] = [*gone, *more_than_once(pairs)]
    found.found("broker", "missing", {counts.bucket_start_ms: missing}, [counts.source])


def _first(claimed: _Claimed, partition: int) -> int:
    """The first offset of a partition that a producer claims: what came before it is of a time when none counted."""
    starts = (start for places in claimed.offsets.values() for start, _ in places.get(partition, ()))
    return min(starts, default=sys.maxsize)


def _settled(log: TopicLog, partition: int, live: Sequence[Heard]) -> int:
    """The offset before which each producer that lives has said all that it sent."""
    ends = []
    for each in live:
        before = [m for m in log.marks if m.at_ms + each.record.every_ms <= _heard_ms(each)]
        ends.append(before[-1].ends.get(partition, 0) if before else 0)
    return min(ends, default=sys.maxsize)


def _check_claimed_twice(
    found: Findings,
    counts: Sequence[Counts],
    claimed: Mapping[int, Mapping[int, Sequence[tuple[int, int]]]],
) -> None:
    """Two producers were told of one offset: the brokers gave it away a second time, and kept one of the records."""
    for bucket, places in sorted(claimed.items()):
        twice = {p: more_than_once(pairs) for p, pairs in places.items()}
        twice = {p: pairs for p, pairs in twice.items() if pairs}
        if twice:
            sources = {
                each.source
                for each in counts
                for p, pairs in twice.items()
                if common(merged(each.ranges.get(p, ())), merged(pairs))
            }
            found.found("broker", "missing", {bucket: twice}, sorted(sources))


def _silent(sources: Sequence[Heard], now_ms: int) -> tuple[list[Heard], list[Heard]]:
    """The producers that have not ended: those that were not heard of for long, and those that were."""
    silent, live = list[Heard](), list[Heard]()
    for each in sources:
        if not each.record.closed:
            of = silent if now_ms - _heard_ms(each) > _SILENT * each.record.every_ms else live
            of.append(each)
    return silent, live


def _is_settled(source: Heard, now_ms: int) -> bool:
    """Whether all that a source said until it was last heard of is surely there."""
    return _heard_ms(source) + _APART_MS <= now_ms


def _heard_ms(source: Heard) -> int:
    return source.record.at_ms if source.at_ms is None else source.at_ms


def _opened_ms(source: Heard) -> int:
    """When a source began, by its own clock or by the brokers', whichever is earlier."""
    ahead_ms = source.record.at_ms - _heard_ms(source)
    return source.record.opened_ms - max(0, ahead_ms)


def _check_appended(found: Findings, log: TopicLog, claims: Claims) -> None:
    """Finds what a broker appended, or an earlier audit saw, and the log does not have.

    An offset that a broker counted again after a start had another record before, which is lost. What a producer misses
    was found already.
    """
    known: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for finding in found.findings:
        if (finding.tier, finding.kind) == ("broker", "missing"):
            for partition, pairs in finding.places.items():
                known[partition] += pairs
    lost: _ByBucket = defaultdict(lambda: defaultdict(list))

    def note(bucket: int, partition: int, gone: Stretches) -> bool:
        news = [] if log.is_compacted else minus(merged(gone), merged(known[partition]))
        if news:
            lost[bucket][partition] = merged([*lost[bucket][partition], *news])
        return bool(news)

    counted: Counter[tuple[int, str]] = Counter()
    again: dict[int, list[tuple[int, int]]] = defaultdict(list)  # what newer counts have
    brokers, held = set(), _all(log)
    for each in reversed(claims.appended):
        partition, start = each.partition, log.counted.get(each.partition, (sys.maxsize, 0))[0]
        for begin, end, bucket in each.runs:
            place, run = bucket_of(bucket, log.bucket_ms), [(begin, end)]
            counted[place, each.source] += end - begin
            there = _near(held, partition, bucket, each.bucket_ms, log.bucket_ms)
            gone = minus(common(run, [(start, sys.maxsize)]), merged(there))
            if note(place, partition, [*gone, *common(run, merged(again[partition]))]):
                brokers.add(each.source)
        again[partition] += [(begin, end) for begin, end, _ in each.runs]
    for partition, behind in claims.lost.items():
        for each_run in behind:
            note(each_run.bucket_start_ms, partition, [(each_run.start, each_run.end)])
    found.found("broker", "missing", lost, sorted(brokers))
    for (bucket, broker), count in sorted(counted.items()):
        found.counts.append(TierCount(log.topic, bucket, "appended", broker, count))


def _near(
    held: Mapping[int, Mapping[int, Stretches]],
    partition: int,
    bucket: int,
    width_ms: int,
    held_width_ms: int,
) -> list[tuple[int, int]]:
    """The offsets of a partition in those buckets that have a part of one of another width."""
    return [
        pair
        for other, places in held.items()
        if other < bucket + width_ms and bucket < other + held_width_ms
        for pair in places.get(partition, ())
    ]


def _without(places: Mapping[int, Stretches], count: int) -> dict[int, list[tuple[int, int]]]:
    """The offsets but for so many of the first ones."""
    result = {}
    for partition, pairs in places.items():
        taken = first(pairs, count)
        count -= size(taken)
        result[partition] = minus(pairs, taken)
    return result


def _check_sources(found: Findings, claims: Claims, now_ms: int) -> None:
    acknowledged: dict[str, int] = defaultdict(int)
    buckets: dict[str, set[int]] = defaultdict(set)
    for counts in claims.counts:
        acknowledged[counts.instance] += counts.acknowledged
        buckets[counts.instance].add(counts.bucket_start_ms)
    for each in claims.sources:
        record = each.record
        of_it = tuple(sorted(buckets[record.instance]))
        totals = record.topics.get(found.topic)
        lost = (totals.acknowledged if totals is not None else 0) - acknowledged[record.instance]
        if lost > 0 and _is_settled(each, now_ms):  # its counts may be in another partition, and come later
            found.findings.append(Finding("producer", "unsent", found.topic, (), lost, (record.source,)))
        ahead_ms = 0 if each.at_ms is None else record.at_ms - each.at_ms
        if abs(ahead_ms) > CLOCK_MS:
            found.findings.append(
                Finding("producer", "clock", found.topic, of_it, 0, (record.source,), by_ms=ahead_ms)
            )
