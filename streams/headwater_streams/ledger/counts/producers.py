"""The brokers' log against what the producers counted."""

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from headwater_client.events import Counts, bucket_of
from headwater_streams.ledger.counts.facts import Claims, Heard, TopicLog
from headwater_streams.ledger.counts.findings import Finding, Findings, TierCount
from headwater_streams.ledger.counts.stretches import (
    Stretches,
    add,
    common,
    first,
    merged,
    minus,
    more_than_once,
    size,
)

_SILENT = 3
"""A producer that has not ended and missed so many publications, and `_APART_MS`, is silent: it is idle, or dead."""
_APART_MS = 60_000
"""By how much the clocks of brokers and of the audit may differ; and how long a producer that was killed in a
transaction keeps the counts of others from readers."""
CLOCK_MS = 300_000
"""By how much a clock may be wrong before it is said."""

_ByBucket = dict[int, dict[int, Stretches]]


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
    elsewhere = claims.elsewhere
    if claims.counts or claims.sources or elsewhere.first_claimed or elsewhere.begun_ms is not None:
        still_open = _compare(found, log, claims, now_ms)
        _check_sources(found, claims, now_ms, log.again)
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
        self.unplaced_before: Counter[int] = Counter()  # and that was said before the log was looked at
        self.uncertain: Counter[int] = Counter()
        self.by_source: Counter[tuple[int, str]] = Counter()
        self.unread: Counter[tuple[int, str]] = Counter()  # at offsets that were not counted yet
        self.unheard: Counter[int] = Counter()  # of producers that ended or died without an answer


def _compare(found: Findings, log: TopicLog, claims: Claims, now_ms: int) -> _ByBucket:
    """Finds what is missing, doubled and uncounted; gives the offsets of which it is open."""
    held, claimed = _all(log), _Claimed()
    for counts in claims.counts:
        _claim(found, log, held, claimed, claims, counts)
    silent, live = silent_and_live(claims.sources, now_ms)
    _claim_unanswered(log, claimed, claims.sources, live)
    for (bucket, source), count in sorted(claimed.by_source.items()):
        still = claimed.unread[bucket, source]
        found.counts.append(TierCount(log.topic, bucket, "producer", source, count, still))
    _check_claimed_twice(found, claims.counts, claimed.offsets)
    settled = {partition: _settled(log, partition, live) for partition in log.runs}
    begun_ms = begun(log, claims)
    perhaps_of = sorted({each.record.source for each in silent})
    found.first_claimed = {p: min(offsets) for p, offsets in _claimed_first(claimed, claims).items()}
    first_claimed = {partition: found.first_claimed.get(partition, sys.maxsize) for partition in log.runs}
    # Of records without an offset nobody knows whether they are among those that were not seen.
    is_seen_in_part = log.is_compacted or any(
        log.seen(p) != [(0, end)] for p, (_, end) in log.counted.items() if end
    )
    still_open: _ByBucket = {}
    for bucket in sorted({*held, *claimed.unplaced, *claimed.unheard}):
        unclaimed = {
            partition: minus(pairs, merged(claimed.offsets[bucket][partition]))
            for partition, pairs in held.get(bucket, {}).items()
        }
        lost = claimed.unplaced_before[bucket] - sum(size(pairs) for pairs in unclaimed.values())
        if lost > 0 and is_seen_in_part:
            found.unknown[bucket] += lost
        elif lost > 0:
            mine = (c for c in claims.counts if bucket_of(c.bucket_start_ms, log.bucket_ms) == bucket)
            sources = sorted({c.source for c in mine})
            found.findings.append(Finding("broker", "missing", log.topic, (bucket,), lost, tuple(sources)))
        if begun_ms is None or bucket < begun_ms:
            unclaimed = {p: minus(pairs, [(0, first_claimed[p])]) for p, pairs in unclaimed.items()}
        still_open[bucket] = {p: minus(pairs, [(0, settled[p])]) for p, pairs in unclaimed.items()}
        judged = {p: minus(pairs, still_open[bucket][p]) for p, pairs in unclaimed.items()}
        repeated = {p: common(pairs, claims.repeats.get(p, ())) for p, pairs in judged.items()}
        # Records without an offset, or without an answer, may be some of these.
        rest = _without(
            {p: minus(pairs, repeated[p]) for p, pairs in judged.items()},
            claimed.unplaced[bucket] + claimed.uncertain[bucket],
        )
        found.found("broker", "doubled", {bucket: repeated})
        found.found("producer", "uncounted", {bucket: rest}, perhaps_of)
        found.unknown[bucket] += max(0, claimed.unheard[bucket] - sum(size(p) for p in unclaimed.values()))
    return still_open


def _claim(
    found: Findings,
    log: TopicLog,
    held: Mapping[int, Mapping[int, Stretches]],
    claimed: _Claimed,
    claims: Claims,
    counts: Counts,
) -> None:
    """Takes down one record of counts, and finds which of its offsets hold no such record.

    Offsets behind the end of the log are of later records, or were cut away; the latter where they were said before the
    log was looked at. What had been removed by then, or was by compaction, is not known.
    """
    bucket = bucket_of(counts.bucket_start_ms, log.bucket_ms)
    place = (bucket, counts.source)
    claimed.by_source[place] += counts.acknowledged
    claimed.unplaced[bucket] += _unplaced(counts)
    claimed.uncertain[bucket] += counts.uncertain
    earlier = claims.earlier.counts.get(counts.key)
    if earlier is not None and counts.key not in claims.doubtful:
        claimed.unplaced_before[bucket] += _unplaced(earlier)
    missing: dict[int, Stretches] = {}
    for partition, pairs in counts.ranges.items():
        offsets, end = merged(pairs), log.counted.get(partition, (0, 0))[1]
        behind = minus(offsets, [(0, end)])
        cut = common(behind, merged(earlier.ranges.get(partition, ()))) if earlier is not None else []
        claimed.unread[place] += size(behind) - size(cut)
        there = list[tuple[int, int]]()
        for each in near(held, counts.bucket_start_ms, counts.bucket_ms, log.bucket_ms):
            here = common(offsets, held[each].get(partition, ()))
            claimed.offsets[each][partition] += here
            there += here
        before = minus(offsets, behind)
        gone = minus(before, merged(there))
        unknown = gone if log.is_compacted else minus(gone, log.seen(partition))
        # An offset that this producer was told twice was given away again, and one of the two records is gone.
        lost = [*minus(gone, unknown), *cut, *more_than_once(pairs)]
        if counts.key in claims.doubtful:
            unknown, lost = [*unknown, *lost], []
        found.unknown[bucket] += size(unknown)
        missing[partition] = lost
    found.found("broker", "missing", {bucket: missing}, [counts.source])


def _unplaced(counts: Counts) -> int:
    """How many records were acknowledged at an offset that nobody said."""
    return counts.acknowledged - sum(size(pairs) for pairs in counts.ranges.values())


def _claim_unanswered(
    log: TopicLog, claimed: _Claimed, sources: Sequence[Heard], live: Sequence[Heard]
) -> None:
    """Takes down the records of which a producer had no answer when it was last heard of."""
    living = {each.record.instance for each in live}
    for each in sources:
        totals = each.record.topics.get(log.topic)
        for start_ms, count in totals.unanswered.items() if totals is not None else ():
            bucket = bucket_of(start_ms, log.bucket_ms)
            if each.record.instance in living:
                claimed.by_source[bucket, each.record.source] += 0
                claimed.unread[bucket, each.record.source] += count
            else:
                claimed.unheard[bucket] += count


def near(held: Collection[int], bucket_start_ms: int, bucket_ms: int, held_width_ms: int) -> Iterator[int]:
    """The buckets among some that have a part of one of another width."""
    first, end = bucket_start_ms - bucket_start_ms % held_width_ms, bucket_start_ms + bucket_ms
    if (end - first) // held_width_ms < len(held):
        return (each for each in range(first, end, held_width_ms) if each in held)
    return (each for each in held if first <= each < end)


def _claimed_first(claimed: _Claimed, claims: Claims) -> dict[int, list[int]]:
    """The first offsets of each partition that producers claim: what came before is of a time when none counted."""
    result: dict[int, list[int]] = defaultdict(list)
    for partition, offset in claims.elsewhere.first_claimed.items():
        result[partition].append(offset)
    for places in claimed.offsets.values():
        for partition, pairs in places.items():
            if pairs:
                result[partition].append(min(start for start, _ in pairs))
    return result


def begun(log: TopicLog, claims: Claims) -> int | None:
    """When the first producer began to count; of a topic that was made again, not before that."""
    opened = [opened_ms(each) for each in claims.sources]
    if claims.elsewhere.begun_ms is not None:
        opened.append(claims.elsewhere.begun_ms)
    if opened and log.again is not None:
        return max(min(opened), log.again[1])
    return min(opened, default=None)


def _settled(log: TopicLog, partition: int, live: Sequence[Heard]) -> int:
    """The offset before which each producer that lives has said all that it sent."""
    ends = []
    for each in live:
        # What waited for brokers, or has a clock that is behind, is no newer than it says itself.
        spoke_ms = min(_heard_ms(each), each.record.at_ms) if each.at_ms is not None else -sys.maxsize
        before = [m for m in log.marks if m.at_ms + each.record.every_ms <= spoke_ms]
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


def silent_and_live(sources: Sequence[Heard], now_ms: int) -> tuple[list[Heard], list[Heard]]:
    """The producers that have not ended: those that were not heard of for long, and those that were."""
    silent, live = list[Heard](), list[Heard]()
    for each in sources:
        if not each.record.closed:
            # Without the brokers' time nobody can say how long ago that was.
            patience_ms = _SILENT * each.record.every_ms + _APART_MS
            is_silent = each.at_ms is not None and now_ms - each.at_ms > patience_ms
            (silent if is_silent else live).append(each)
    return silent, live


def is_settled(source: Heard, now_ms: int) -> bool:
    """Whether all that a source said until it was last heard of is surely there."""
    return _heard_ms(source) + _APART_MS <= now_ms


def _heard_ms(source: Heard) -> int:
    return source.record.at_ms if source.at_ms is None else source.at_ms


def opened_ms(source: Heard) -> int:
    """When a source began, by the brokers' clock as far as that is known."""
    return source.record.opened_ms - (source.record.at_ms - _heard_ms(source))


def _check_appended(found: Findings, log: TopicLog, claims: Claims) -> None:
    """Finds what a broker appended, or an earlier audit saw, and the log does not have.

    An offset that a broker counted again after a start had another record before, which is lost. What a producer misses
    was found already.
    """
    known = found.lost()
    lost: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))

    def note(bucket: int, partition: int, gone: Stretches) -> bool:
        news = minus(gone, known.get(partition, ()))
        for start, end in news:
            add(lost[bucket][partition], start, end)
        return bool(news)

    counted: Counter[tuple[int, str]] = Counter()
    again: dict[int, list[tuple[int, int]]] = defaultdict(list)  # what newer counts have
    brokers, there, unknown = set[str](), _Near(log), Counter[int]()
    seen = {partition: log.seen(partition) for partition in log.counted}
    for each in reversed(claims.appended):
        partition = each.partition
        end = log.counted.get(partition, (0, 0))[1]
        for begin, until, bucket in each.runs:
            place, run = bucket_of(bucket, log.bucket_ms), [(begin, until)]
            counted[place, each.source] += until - begin
            gone = minus(run, there.of(partition, bucket, each.bucket_ms))
            inside = common(gone, seen.get(partition, ())) if not log.is_compacted else []
            cut = minus(gone, [(0, end)]) if partition in log.counted else []
            unknown[place] += size(minus(minus(gone, inside), cut))
            if note(place, partition, merged([*inside, *cut, *common(run, again[partition])])):
                brokers.add(each.source)
        for begin, until, _ in each.runs:
            add(again[partition], begin, until)
    for partition, behind in claims.lost.items():
        for each_run in behind:
            note(each_run.bucket_start_ms, partition, [(each_run.start, each_run.end)])
    for bucket, count in unknown.items():  # those that a producer counted, too, are the same
        found.unknown[bucket] = max(found.unknown[bucket], count)
    found.found("broker", "missing", lost, sorted(brokers))
    for (bucket, broker), count in sorted(counted.items()):
        found.counts.append(TierCount(log.topic, bucket, "appended", broker, count))


class _Near:
    """The offsets of a log in those buckets that have a part of one of another width."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._found: dict[tuple[int, int, int], Stretches] = {}

    def of(self, partition: int, bucket: int, width_ms: int) -> Stretches:
        key = partition, bucket, width_ms
        if key not in self._found:
            held = self._log.by_bucket(partition)
            places = [held[each] for each in near(held, bucket, width_ms, self._log.bucket_ms)]
            one = places[0] if len(places) == 1 else merged(pair for place in places for pair in place)
            self._found[key] = one
        return self._found[key]


def _without(places: Mapping[int, Stretches], count: int) -> dict[int, list[tuple[int, int]]]:
    """The offsets but for so many of the first ones."""
    result = {}
    for partition, pairs in places.items():
        taken = first(pairs, count)
        count -= size(taken)
        result[partition] = minus(pairs, taken)
    return result


def acknowledged_by(claims: Claims) -> Counter[str]:
    """How many records the counts of each instance name."""
    acknowledged = Counter(claims.elsewhere.acknowledged)
    for counts in claims.counts:
        acknowledged[counts.instance] += counts.acknowledged
    return acknowledged


def _check_sources(found: Findings, claims: Claims, now_ms: int, again: tuple[int, int] | None) -> None:
    acknowledged = acknowledged_by(claims)
    buckets: dict[str, set[int]] = defaultdict(set)
    for counts in claims.counts:
        buckets[counts.instance].add(counts.bucket_start_ms)
    for each in claims.sources:
        record = each.record
        of_it = tuple(sorted(buckets[record.instance]))
        earlier = claims.earlier.sources.get(record.instance)
        said = earlier.topics.get(found.topic) if earlier is not None else None
        lost = (said.acknowledged if said is not None else 0) - acknowledged[record.instance]
        # Its counts may be in another partition, and come later.
        if lost > 0 and is_settled(each, now_ms) and not (again and opened_ms(each) < again[1]):
            found.findings.append(Finding("producer", "unsent", found.topic, (), lost, (record.source,)))
        ahead_ms = 0 if each.at_ms is None else record.at_ms - each.at_ms
        if abs(ahead_ms) > CLOCK_MS:
            found.findings.append(
                Finding("producer", "clock", found.topic, of_it, 0, (record.source,), by_ms=ahead_ms)
            )
