"""A mirrored topic against its origin's log."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from headwater_streams.ledger.counts.facts import Held, MirrorFacts, TopicLog
from headwater_streams.ledger.counts.findings import Findings, TierCount
from headwater_streams.ledger.counts.stretches import Stretches, common, merged, minus, more_than_once, size
from headwater_streams.sources.mirrored import Runs


def mirror_facts(place: str, mirrored: TopicLog, runs: Mapping[int, Runs]) -> MirrorFacts:
    """What a mirror holds, by the offsets of its origin.

    Args:
        place: The cluster that it was mirrored to, with its topic there where that has another name.
        mirrored: What is there.
        runs: What the mirror keeps of where each partition's records first stood.
    """
    held, until, since, unseen = {}, {}, {}, {}
    for partition, of_it in runs.items():
        start, end = mirrored.counted.get(partition, (0, 0))
        pairs = _at_origin(of_it, mirrored.offsets(partition))
        held[partition] = Held(merged(pairs), more_than_once(pairs))
        until[partition], since[partition] = of_it.origin(end) or 0, of_it.origin(start) or 0
        unseen[partition] = merged(_at_origin(of_it, mirrored.unseen.get(partition, ())))
    return MirrorFacts(place, held, until, since, unseen, mirrored.is_compacted)


def _at_origin(runs: Runs, offsets: Stretches) -> list[tuple[int, int]]:
    begins = [here for here, _ in runs]
    pairs = []
    for start, end in offsets:
        cuts = [start, *(here for here in begins if start < here < end), end]
        for first, last in pairwise(cuts):
            there = runs.origin(first)
            if there is not None:
                pairs.append((there, there + last - first))
    return pairs


def check_mirror(found: Findings, log: TopicLog, mirror: MirrorFacts) -> None:
    """Compares a mirrored topic with its origin: each offset of it once, up to where it was copied.

    Args:
        found: Takes what is found.
        log: What the origin's brokers hold.
        mirror: What the mirror holds.
    """
    missing: dict[int, dict[int, Stretches]] = defaultdict(dict)
    doubled: dict[int, dict[int, Stretches]] = defaultdict(dict)
    unread: dict[int, int] = defaultdict(int)
    counts: dict[int, int] = defaultdict(int)
    for partition in log.runs:
        held = mirror.held.get(partition, Held())
        since, until = mirror.since.get(partition, 0), mirror.until.get(partition, 0)
        for bucket, pairs in log.by_bucket(partition).items():
            if since < until and not mirror.is_compacted:
                known = minus([(since, until)], mirror.unseen.get(partition, ()))
                missing[bucket][partition] = minus(common(pairs, known), held.offsets)
            again = [each for pair in held.again for each in common([pair], pairs)]
            doubled[bucket][partition] = again
            counts[bucket] += size(common(pairs, held.offsets)) + size(again)
            unread[bucket] += size(minus(minus(pairs, [(0, until)] if until else []), held.offsets))
    found.found("mirror", "missing", missing, [mirror.place])
    found.found("mirror", "doubled", doubled, [mirror.place])
    for bucket, count in sorted(counts.items()):
        found.counts.append(TierCount(log.topic, bucket, "mirror", mirror.place, count, unread[bucket]))
