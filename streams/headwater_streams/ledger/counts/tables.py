"""A table and its side tables against the brokers' log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater_streams.ledger.counts.facts import Batch, TableFacts, TopicLog
from headwater_streams.ledger.counts.findings import Finding, Findings, Tier, TierCount
from headwater_streams.ledger.counts.stretches import (
    Stretches,
    common,
    first,
    merged,
    minus,
    more_than_once,
    size,
)

_SIDES: tuple[tuple[Tier, str], ...] = (("table", "written"), ("quarantine", "quarantined"), ("late", "late"))
_ByBucket = dict[int, dict[int, Stretches]]


def of_this_topic(table: TableFacts, log: TopicLog) -> TableFacts:
    """What a table says, without what it says of a topic that had the same name before."""
    if log.again is None or (table.anew_ms is not None and table.anew_ms > log.again[0]):
        return table
    return replace(table, batches=(), names_all=False)


def check_table(found: Findings, log: TopicLog, table: TableFacts) -> None:
    """Compares what a job read of a topic, and what became of it, with the brokers' log.

    Args:
        found: Takes what is found.
        log: What the brokers hold.
        table: What the table says and has.
    """
    by_partition: dict[int, list[Batch]] = defaultdict(list)
    for batch in table.batches:
        if batch.start < batch.end:
            by_partition[batch.partition].append(batch)
    read: _ByBucket = defaultdict(dict)
    unread: _ByBucket = defaultdict(dict)
    skipped: _ByBucket = defaultdict(dict)
    twice: _ByBucket = defaultdict(dict)
    for partition in log.runs:
        batches = by_partition[partition]
        spans = [(batch.start, batch.end) for batch in batches]
        covered, again = merged(spans), more_than_once(spans)
        begin = min((batch.start for batch in batches), default=None)
        end = max((batch.end for batch in batches), default=0)
        has_duplicates = any((batch.terms or {}).get("duplicate") for batch in batches)
        for bucket, pairs in log.by_bucket(partition).items():
            read[bucket][partition] = common(pairs, covered)
            left = minus(pairs, covered)
            unread[bucket][partition] = minus(left, [(0, end)])
            # What stands before the first offset was not asked for.
            skipped[bucket][partition] = common(left, [(begin or 0, end)]) if begin is not None else ()
            if not has_duplicates:
                twice[bucket][partition] = common(pairs, merged(again))
    found.found("input", "missing", skipped, [table.table])
    found.found("input", "doubled", twice, [table.table])
    for bucket in sorted({*read, *unread}):
        count = _total(read[bucket])
        found.counts.append(
            TierCount(log.topic, bucket, "input", table.table, count, _total(unread.get(bucket, {})))
        )
    lost = found.lost()  # a job may have read these before
    _check_rows(found, log, table, lost)
    for partition, batches in by_partition.items():
        for batch in batches:
            _check_batch(found, log, table, partition, batch, lost.get(partition, ()))
    _count_duplicates(found, log, table)


def _judged(table: TableFacts) -> Sequence[tuple[Tier, str]]:
    """The places that are compared with the table's own commits, each with its term."""
    return _SIDES if table.beside is None else _SIDES[:1]


def _check_rows(found: Findings, log: TopicLog, table: TableFacts, lost: Mapping[int, Stretches]) -> None:
    for tier, _ in _judged(table):
        doubled: _ByBucket = defaultdict(dict)
        counts: dict[int, int] = defaultdict(int)
        stray: dict[int, Stretches] = {}
        for partition in {*log.runs, *table.rows.get(tier, {})}:
            held = table.held(tier, partition)
            known = held.offsets if log.whole is None else common(held.offsets, log.whole.get(partition, ()))
            rest = minus(common(known, log.seen(partition)), log.offsets(partition))
            rest = minus(rest, lost.get(partition, ()))
            if rest and not log.is_compacted:
                stray[partition] = rest
            for bucket, pairs in log.by_bucket(partition).items():
                counts[bucket] += size(common(pairs, held.offsets))
            for pair in held.again:
                for bucket, again in log.buckets_of(partition, [pair]).items():
                    counts[bucket] += size(again)
                    doubled[bucket][partition] = [*doubled[bucket].get(partition, ()), *again]
        found.found(tier, "doubled", doubled, [table.table])
        if stray:
            count = sum(size(pairs) for pairs in stray.values())
            found.findings.append(Finding(tier, "stray", log.topic, (), count, (table.table,), stray))
        for bucket, count in sorted(counts.items()):
            if count:
                found.counts.append(TierCount(log.topic, bucket, tier, table.table, count))


def _check_batch(
    found: Findings, log: TopicLog, table: TableFacts, partition: int, batch: Batch, lost: Stretches
) -> None:
    """What a commit says of its offsets, against the records there and the rows at rest."""
    span = [(batch.start, batch.end)]
    if batch.terms is None or log.is_compacted or minus(span, log.seen(partition)):
        return
    if not log.has_all(partition, span):  # its buckets are not judged
        return
    records = common(log.offsets(partition), span)
    absent = records
    for tier, _ in _SIDES:
        absent = minus(absent, table.held(tier, partition).offsets)
    read = batch.terms.get("read", 0)
    missing: dict[Tier, int] = {"input": max(0, size(records) - read)}
    doubled = read - size(records) - size(common(lost, span))
    if doubled > 0:
        buckets = log.buckets_of(partition, records)
        found.findings.append(Finding("input", "doubled", log.topic, tuple(buckets), doubled, (table.table,)))
    if table.names_all and not table.expired:
        for tier, term in _judged(table):
            expected = batch.terms.get(
                "exploded" if tier == "table" and "exploded" in batch.terms else term, 0
            )
            missing[tier] = max(0, expected - size(common(table.held(tier, partition).offsets, span)))
    elif missing["input"] and not table.names_all:
        absent = records  # which of them it lacks cannot be seen
    _say_missing(found, log, table, partition, absent, {t: n for t, n in missing.items() if n})


def _say_missing(
    found: Findings,
    log: TopicLog,
    table: TableFacts,
    partition: int,
    absent: Stretches,
    missing: Mapping[Tier, int],
) -> None:
    """Names the buckets of missing records: exactly, where nothing else can have taken these offsets."""
    by_bucket = log.buckets_of(partition, absent) if missing else {}
    for tier, count in missing.items():
        if count == size(absent) and len(missing) == 1:
            places: _ByBucket = {bucket: {partition: pairs} for bucket, pairs in by_bucket.items()}
            found.found(tier, "missing", places, [table.table])
        else:
            among = {partition: tuple(absent)} if absent else {}
            found.findings.append(
                Finding(tier, "missing", log.topic, tuple(by_bucket), count, (table.table,), among)
            )


def _count_duplicates(found: Findings, log: TopicLog, table: TableFacts) -> None:
    """How many records each bucket lost as duplicates, where that follows from the offsets that no row names."""
    counts: dict[int, int] = defaultdict(int)
    for batch in table.batches:
        duplicates = (batch.terms or {}).get("duplicate", 0)
        if not duplicates or not table.names_all:
            continue
        if not log.has_all(batch.partition, [(batch.start, batch.end)]):
            continue
        absent = common(log.offsets(batch.partition), [(batch.start, batch.end)])
        for tier, _ in _SIDES:
            absent = minus(absent, table.held(tier, batch.partition).offsets)
        by_bucket = log.buckets_of(batch.partition, first(absent, duplicates))
        for bucket, pairs in by_bucket.items():
            counts[bucket] += size(pairs)
    for bucket, count in sorted(counts.items()):
        found.counts.append(TierCount(log.topic, bucket, "duplicate", table.table, count))


def _total(places: Mapping[int, Stretches]) -> int:
    return sum(size(pairs) for pairs in places.values())
