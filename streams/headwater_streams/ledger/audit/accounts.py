"""Compares the ledger with itself and its inputs: what entries say of offsets and records, whatever the rows are."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import (
    EXPLODED,
    LedgerEntry,
    identity_terms,
    warm_up_sources,
    with_records,
)
from headwater_streams.ledger.audit.table_audit import PartitionAudit, TableAudit
from headwater_streams.ledger.log import Commit


def sequences(history: Sequence[Commit], entries: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Sequences of batches that each read on where the one before ended: those of a generation, together with those of
    the generation before where it was warmed up."""
    warm = {c.entry.generation for c in history if c.entry is not None and warm_up_sources(c.entry)}
    runs: list[list[LedgerEntry]] = []
    for generation in sorted({entry.generation for entry in entries}):
        of_it = [entry for entry in entries if entry.generation == generation]
        if generation in warm and runs:
            runs[-1] += of_it
        else:
            runs.append(of_it)
    return runs


def sum_up(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Sums up the accounts of batches that follow each other, by input and by partition of the topics."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    readers: dict[str, set[tuple[str, bool]]] = defaultdict(set)
    terms: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    gaps: Counter[tuple[str, int]] = Counter()
    read: Counter[tuple[str, int]] = Counter()
    # A function may have begun, or ceased, to make several rows of a record.
    explodes = any(entry.explodes for entry in entries) or any(EXPLODED in t for t in audit.totals.values())
    for entry in entries:
        for of_input in Extra.GAPS.get(entry, {}).values():
            for topic, by_partition in of_input.items():
                gaps.update({(topic, int(partition)): count for partition, count in by_partition.items()})
        for name, counts in entry.accounting.items():
            before = audit.totals.get(name, {})
            total = Counter(with_records(before) if explodes else before)
            total.update(with_records(counts) if explodes else counts)
            audit.totals[name] = dict(total)
        for source in entry.sources:
            for topic, partitions in source.ranges.items():
                readers[topic].add((source.input, source.table is None))
                for partition, (start, end) in partitions.items():
                    span = spans.get((topic, partition), (start, end))
                    spans[topic, partition] = (min(start, span[0]), max(end, span[1]))
                    read[topic, partition] += end - start
        for topic, of_topic in entry.partitions.items():
            for partition, became in of_topic.items():
                terms[topic, partition].update(with_records(became) if explodes else became)
    all_by_partition = all(entry.partitions for entry in entries)
    for (topic, partition), (start, end) in sorted(spans.items()):
        summed = dict(terms[topic, partition])
        ok = summed.get("read", 0) == sum(_parts(audit.kind, summed).values())
        # A table's rows may be fewer than its records, or more: what was filtered is gone, pairs share a record.
        is_comparable = all_by_partition and [direct for _, direct in readers[topic]] == [True]
        # Offsets that were delivered again were read again.
        expected = max(end - start, read[topic, partition]) - gaps[topic, partition]
        if is_comparable and summed.get("read", 0) != expected:
            ok = False
            empty = f", {gaps[topic, partition]} of them without a record" if gaps[topic, partition] else ""
            audit.findings.append(
                f"{audit.table}: {topic} {partition} has offsets [{start}, {end}){empty}, "
                f"and {summed['read']} records were read"
            )
        if not ok:
            audit.findings.append(f"{audit.table}: {topic} {partition}: {summed} do not add up")
        audit.partitions.append(PartitionAudit(audit.table, topic, partition, start, end, summed, ok))


def _parts(kind: str, summed: Mapping[str, int]) -> dict[str, int]:
    """What became of the records of a partition; stateful stages count by partition what was kept, too."""
    if kind == "row":
        return identity_terms(kind, summed)
    return {term: value for term, value in summed.items() if term != "read"}


def check_reads(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Checks, where records are not counted by partition, that as many were read as the topics' offsets without
    gaps."""
    offsets: Counter[str] = Counter()
    for entry in entries:
        for source in entry.sources:
            if source.table is None and not entry.partitions:
                spans = [end - start for pairs in source.ranges.values() for start, end in pairs.values()]
                empty = Extra.GAPS.get(entry, {}).get(source.input, {})
                offsets[source.input] += sum(spans) - sum(sum(counts.values()) for counts in empty.values())
                offsets[source.input] -= entry.accounting[source.input]["read"]
    for name, missing in offsets.items():
        if missing:
            audit.findings.append(
                f"{audit.table}: {missing} records of {name} were not read that its topic holds"
            )


def check_sequence(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Checks that batches follow each other without a gap or an overlap of offsets or table versions."""
    ends: dict[tuple[str, str, int], int] = {}
    versions: dict[str, int] = {}
    for entry in entries:
        for source in entry.sources:
            if source.versions is not None:
                if versions.get(source.input, source.versions[0]) != source.versions[0]:
                    audit.findings.append(
                        f"{audit.table} batch {entry.batch}: {source.table} was read from version "
                        f"{source.versions[0]}, the batch before ended at {versions[source.input]}"
                    )
                versions[source.input] = source.versions[1]
                continue
            for topic, partitions in source.ranges.items():
                for partition, (start, end) in partitions.items():
                    place = (source.input, topic, partition)
                    before = ends.get(place, start)
                    # What was delivered again and left out is accounted for.
                    again = min(end, before) - start
                    left_out = entry.accounting.get(source.input, {}).get("duplicate", 0)
                    if before < start or again > left_out:
                        audit.findings.append(
                            f"{audit.table} batch {entry.batch}: {topic} {partition} was read from {start}, "
                            f"the batch before ended at {before}"
                        )
                    ends[place] = max(end, before)
