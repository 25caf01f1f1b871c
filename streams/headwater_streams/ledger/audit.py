"""The audit: a table's rows against its ledger, and the ledger against its inputs. It needs no Spark.

Every finding is a sentence. What is looked at:

- each entry's identity (see `ledger.entry`), in all and by partition;
- batches follow each other without a gap or an overlap of offsets or of table versions, also from one generation to the
  next where that was warmed up: what it read for its state only is in no batch;
- what was read of a topic is as much as the offsets span (`control` records are said apart by the caller);
- a row table holds, for each batch, the rows that its commit wrote: one deleted by hand, slipped in or doubled is
  named by its coordinates;
- an as-of join's table likewise, and its rows with an answer and without are as many as the entries say;
- the rows of a slowly changing dimension stand for as many change events as the entries say, and its table of changes
  has those that each batch kept;
- a window table's rows sum to what was folded, a join's pairs name as many rows of each side as were matched;
- late and quarantined rows are as many as the entries say.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from headwater_streams.delta_rows import dataset_of
from headwater_streams.ledger.entry import LedgerEntry, counted_in_windows, is_undone, warm_up_sources
from headwater_streams.ledger.log import Commit, commits, lineage, since_rebuilt
from headwater_streams.runtime.home import Home
from headwater_streams.sinks.scd_target import CHANGES, CHANGES_SUFFIX
from headwater_streams.sinks.target import LATE_SUFFIX, QUARANTINE_SUFFIX

_SAMPLES = 5

Coordinates = tuple[str, int, int]


@dataclass(frozen=True)
class PartitionAudit:
    """One partition of one input topic, as a table's ledger accounts for it.

    Attributes:
        table: The table.
        topic: The topic that the rows come from.
        partition: Its partition.
        start: The first offset read.
        end: One past the last offset read.
        terms: `read` and what became of the rows, summed over the batches.
        ok: Whether nothing was found wrong with this partition.
    """

    table: str
    topic: str
    partition: int
    start: int
    end: int
    terms: dict[str, int]
    ok: bool


@dataclass
class TableAudit:
    """What was found in a table.

    Attributes:
        table: The table.
        job: The job that writes it.
        kind: Its kind of stage.
        totals: The terms of the identity, summed over the batches, by input.
        partitions: The account of each partition.
        findings: What is wrong, a sentence each; empty if all is well.
        notes: What backfills moved since the batches that `partitions` accounts for, a sentence each.
    """

    table: str
    job: str
    kind: str
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    partitions: list[PartitionAudit] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def audit_home(home: Home, tables: Sequence[str] | None = None) -> list[TableAudit]:
    """Audits the tables that jobs write, or those named."""
    found = []
    for table in tables or home.tables():
        audit = audit_table(home, table)
        if audit is not None:
            found.append(audit)
    return found


def audit_table(home: Home, table: str) -> TableAudit | None:
    """Audits one table; None if no job's batch stands in its log."""
    made = lineage(home.table(table))
    last = next((c.entry for c in reversed(made) if c.entry is not None and c.entry.is_batch), None)
    if last is None:
        return None
    audit = TableAudit(table, last.job, last.kind)
    made = since_rebuilt(made)
    cleared = [c.entry for c in made if c.entry and c.entry.extra.get("action") == "clear"]
    made = [c for c in made if c.entry is None or not any(is_undone(c.entry, begun) for begun in cleared)]
    live = [c for c in made if c.entry is not None and c.entry.is_batch]
    entries = [c.entry for c in live if c.entry is not None]
    repairs = [c.entry for c in made if c.entry is not None and c.entry.kind == "backfill"]
    for sequence in _sequences(made, entries):
        _sum_up(audit, sequence)
        _check_sequence(audit, sequence)
        _check_reads(audit, sequence)
    for entry in entries:
        audit.findings += entry.imbalances()
    audit.notes += [_moved_by(entry) for entry in repairs if "before" in entry.totals]
    audit.notes += [_lost(c.entry) for c in made if c.entry is not None and c.entry.extra.get("lost")]
    if last.kind == "row":
        _check_rows(audit, home, live, repairs)
    elif last.kind == "scd":
        _check_changes(audit, home, entries)
    elif last.kind == "window":
        _check_windows(audit, home, entries, repairs)
    elif last.kind == "as_of":
        _check_rows(audit, home, live, repairs)
        if entries:
            _check_answers(audit, home, entries[-1])
    elif entries:
        _check_pairs(audit, home, live)
    begun = made[0].entry if made else None
    since = begun.generation if begun is not None and begun.extra.get("action") == "rebuild" else 0
    for suffix, term in ((LATE_SUFFIX, "late"), (QUARANTINE_SUFFIX, "quarantined")):
        _check_side(audit, home, table + suffix, term, entries, since)
    return audit


def _lost(begun: LedgerEntry) -> str:
    ranges = [
        f"{topic} {partition} offsets [{start}, {end})"
        for topic, partitions in begun.extra["lost"].items()
        for partition, (start, end) in partitions.items()
    ]
    return (
        f"{begun.table}: gone before generation {begun.generation} began, and never read: {', '.join(ranges)}"
    )


def _moved_by(repair: LedgerEntry) -> str:
    terms = repair.totals
    rows = (counted_in_windows(terms) or terms.get("written", 0)) - terms["before"]
    late = f", {terms['late_folded']:+,} of them late ones" if terms.get("late_folded") else ""
    action, backfill = repair.extra.get("action", "swap"), repair.extra.get("backfill", "")
    return f"{repair.table}: since the {action} of backfill {backfill} it accounts for {rows:+,} rows{late}"


def _sum_up(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    readers: dict[str, set[tuple[str, bool]]] = defaultdict(set)
    terms: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    gaps: Counter[tuple[str, int]] = Counter()
    for entry in entries:
        for of_input in entry.extra.get("gaps", {}).values():
            for topic, by_partition in of_input.items():
                gaps.update({(topic, int(partition)): count for partition, count in by_partition.items()})
        for name, found in entry.accounting.items():
            total = Counter(audit.totals.get(name, {}))
            total.update(found)
            audit.totals[name] = dict(total)
        for source in entry.sources:
            for topic, partitions in source.ranges.items():
                readers[topic].add((source.input, source.table is None))
                for partition, (start, end) in partitions.items():
                    known = spans.get((topic, partition), (start, end))
                    spans[topic, partition] = (min(start, known[0]), max(end, known[1]))
        for topic, counted in entry.partitions.items():
            for partition, became in counted.items():
                terms[topic, partition].update(became)
    all_counted = all(entry.partitions for entry in entries)
    for (topic, partition), (start, end) in sorted(spans.items()):
        summed = dict(terms[topic, partition])
        parts = sum(value for term, value in summed.items() if term != "read")
        ok = summed.get("read", 0) == parts
        # A table's rows may be fewer than its records, or more: what was filtered is gone, pairs share a record.
        is_counted = all_counted and [direct for _, direct in readers[topic]] == [True]
        expected = end - start - gaps[topic, partition]
        if is_counted and summed.get("read", 0) != expected:
            ok = False
            empty = f", {gaps[topic, partition]} of them without a record" if gaps[topic, partition] else ""
            audit.findings.append(
                f"{audit.table}: {topic} {partition} has offsets [{start}, {end}){empty}, "
                f"and {summed['read']} records were read"
            )
        if not ok:
            audit.findings.append(f"{audit.table}: {topic} {partition}: {summed} do not add up")
        audit.partitions.append(PartitionAudit(audit.table, topic, partition, start, end, summed, ok))


def _check_reads(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Where what was read is not counted by partition: as many records as the topics' offsets, less those without."""
    offsets: Counter[str] = Counter()
    for entry in entries:
        for source in entry.sources:
            if source.table is None and not entry.partitions:
                spans = [end - start for found in source.ranges.values() for start, end in found.values()]
                empty = entry.extra.get("gaps", {}).get(source.input, {})
                offsets[source.input] += sum(spans) - sum(sum(counts.values()) for counts in empty.values())
                offsets[source.input] -= entry.accounting[source.input]["read"]
    for name, missing in offsets.items():
        if missing:
            audit.findings.append(
                f"{audit.table}: {missing} records of {name} were not read that its topic holds"
            )


def _sequences(made: Sequence[Commit], entries: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """The batches that read on where the one before ended: those of a generation, and of one that was warmed up those
    of the generation before it, too."""
    warm = {c.entry.generation for c in made if c.entry is not None and warm_up_sources(c.entry)}
    found: list[list[LedgerEntry]] = []
    for generation in sorted({entry.generation for entry in entries}):
        of_it = [entry for entry in entries if entry.generation == generation]
        if generation in warm and found:
            found[-1] += of_it
        else:
            found.append(of_it)
    return found


def _check_sequence(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
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
                    if ends.get(place, start) != start:
                        audit.findings.append(
                            f"{audit.table} batch {entry.batch}: {topic} {partition} was read from {start}, "
                            f"the batch before ended at {ends[place]}"
                        )
                    ends[place] = end


def _check_rows(
    audit: TableAudit, home: Home, live: Sequence[Commit], repairs: Sequence[LedgerEntry]
) -> None:
    path = home.table(audit.table)
    rows = _columns(path, ["_topic", "_partition", "_offset", "_batch", "_generation"])
    # A topic that was made again has the same offsets once more, in another generation.
    twice = _places(_more_than_once(rows, ["_generation", "_topic", "_partition", "_offset"]))
    if twice and not _reads_pairs(home, live):
        audit.findings.append(f"{audit.table}: {len(twice)} rows stand there twice: {_named(twice)}")
    if repairs:
        return  # batches are no longer what the live commits wrote; the backfill's verdict accounts for them
    there = _batches(rows)
    for commit in live:
        assert commit.entry is not None
        batch = (commit.entry.generation, commit.entry.batch)
        if there.pop(batch, 0) == commit.rows_added:
            continue
        _name_difference(audit, path, commit, Counter(_places(_of_batch(rows, batch))))
    for (generation, batch_number), count in sorted(there.items(), key=str):
        strangers = _places(_of_batch(rows, (generation, batch_number)))
        audit.findings.append(
            f"{audit.table}: {count} rows of batch {batch_number}, which no commit wrote: {_named(strangers)}"
        )


def _reads_pairs(home: Home, live: Sequence[Commit]) -> bool:
    """Whether the rows come from a join's table, where a row has the coordinates of its left one."""
    tables = {s.table for c in live if c.entry is not None for s in c.entry.sources if s.table is not None}
    return any("_sources" in dataset_of(home.table(table)).schema.names for table in tables)


def _name_difference(audit: TableAudit, path: Path, commit: Commit, now: Counter[Coordinates]) -> None:
    assert commit.entry is not None
    batch = commit.entry.batch
    files = [path / name for name in commit.added_paths]
    if not files or not all(file.exists() for file in files):
        audit.findings.append(
            f"{audit.table} batch {batch}: {now.total()} rows where its commit wrote {commit.rows_added}; "
            "its files were removed since, so the rows cannot be named"
        )
        return
    wrote = Counter(
        _places(ds.dataset([str(file) for file in files]).to_table(["_topic", "_partition", "_offset"]))
    )
    gone, new = sorted((wrote - now).elements()), sorted((now - wrote).elements())
    if gone:
        audit.findings.append(f"{audit.table} batch {batch}: {len(gone)} rows are gone: {_named(gone)}")
    if new:
        audit.findings.append(f"{audit.table} batch {batch}: {len(new)} rows slipped in: {_named(new)}")


def _check_changes(audit: TableAudit, home: Home, entries: Sequence[LedgerEntry]) -> None:
    held = sum(entry.totals["held"] for entry in entries)
    there = pa.compute.sum(_columns(home.table(audit.table), [CHANGES])[CHANGES]).as_py() or 0
    if there != held:
        audit.findings.append(
            f"{audit.table}: its rows stand for {there} change events, {held} were applied and hold"
        )
    _check_side(audit, home, audit.table + CHANGES_SUFFIX, "kept", entries)


def _check_windows(
    audit: TableAudit, home: Home, entries: Sequence[LedgerEntry], repairs: Sequence[LedgerEntry]
) -> None:
    folded = sum(counted_in_windows(terms) for entry in entries for terms in entry.accounting.values())
    for entry in repairs:
        for terms in entry.accounting.values():
            folded += counted_in_windows(terms) - terms["before"]
    _check_open(audit, entries)
    counted = pa.compute.sum(_columns(home.table(audit.table), ["_rows"])["_rows"]).as_py() or 0
    if counted != folded:
        audit.findings.append(f"{audit.table}: its windows count {counted} rows, {folded} were folded")


def _check_open(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Rows that wait for their window to be closed: placed, not written yet, and never fewer than none."""
    waiting = 0
    for entry in entries:
        for terms in entry.accounting.values():
            placed = terms.get("placed", terms["folded"])
            if "open" in terms and placed != terms["emitted"] + terms["open"]:
                audit.findings.append(
                    f"{audit.table} batch {entry.batch}: placed {placed} is not {terms['emitted']} emitted + "
                    f"{terms['open']} open"
                )
            waiting += terms.get("open", 0)
        if waiting < 0:
            audit.findings.append(
                f"{audit.table} batch {entry.batch}: {-waiting} more rows left windows than came"
            )
            return


def _check_pairs(audit: TableAudit, home: Home, live: Sequence[Commit]) -> None:
    path = home.table(audit.table)
    entries = [commit.entry for commit in live if commit.entry is not None]
    sources = _columns(path, ["_sources"]).column("_sources").to_pylist()
    written = sum(commit.rows_added for commit in live)
    pairs = sum(int(entry.extra.get("pairs", 0)) for entry in entries)
    alone = sum(int(entry.extra.get("alone", 0)) for entry in entries)
    if not len(sources) == written == pairs + alone:
        found = f"{pairs} pairs and {alone} rows without a partner" if alone else f"{pairs} pairs"
        audit.findings.append(
            f"{audit.table}: {found} were found, {written} written, {len(sources)} are there"
        )
    is_semi = entries[-1].extra.get("how") == "semi"
    paired = [places for places in sources if is_semi or None not in places]
    for position, name in enumerate(_inputs_by_side(entries)):
        if is_semi and position:
            continue
        matched = {(p[position]["topic"], p[position]["partition"], p[position]["start"]) for p in paired}
        expected = audit.totals[name]["matched"]
        if len(matched) != expected:
            audit.findings.append(
                f"{audit.table}: its rows name {len(matched)} rows of {name}, {expected} were matched"
            )


def _check_answers(audit: TableAudit, home: Home, last: LedgerEntry) -> None:
    """The rows with an answer and those without, as many as the entries say."""
    sources = _columns(home.table(audit.table), ["_sources"])["_sources"].to_pylist()
    answered = sum(places[1] is not None for places in sources)
    terms = audit.totals[last.extra["left"]]
    expected = {
        "matched": terms["matched"],
        "unmatched": terms["unmatched"] if last.extra["how"] == "left" else 0,
    }
    there = {"matched": answered, "unmatched": len(sources) - answered}
    for term, count in there.items():
        if count != expected[term]:
            audit.findings.append(
                f"{audit.table}: {count} {term} rows are there, {expected[term]} were counted"
            )
    if terms["waiting"] < 0:
        audit.findings.append(
            f"{audit.table}: {-terms['waiting']} rows more were answered than were read and waited; "
            "the left table holds rows that the job did not read"
        )


def _inputs_by_side(entries: Sequence[LedgerEntry]) -> list[str]:
    sides: dict[str, str] = dict(entries[-1].extra["sides"])
    return sorted(sides, key=lambda name: sides[name])


def _check_side(
    audit: TableAudit, home: Home, table: str, term: str, entries: Sequence[LedgerEntry], since: int = 0
) -> None:
    """Checks the rows of a side table; `since` is the generation with which all of them were made anew."""
    path = home.table(table)
    if not (path / "_delta_log").exists():
        return
    expected = {(entry.generation, entry.batch): _sent(entry, term) for entry in entries}
    made = [c.entry for c in commits(path) if c.entry is not None]
    ingest = {entry.job for entry in made} - {audit.job}
    if ingest:
        return  # an ingest job shares the table; its own audit looks at it
    repairs = [entry for entry in made if entry.kind == "backfill" and entry.generation >= since]
    if repairs:
        _check_repaired_side(audit, path, table, term, entries, repairs)
        return
    mine = {(entry.generation, entry.batch) for entry in made}
    there = _batches(_columns(path, ["_batch", "_generation"]))
    for batch, count in expected.items():
        if there.pop(batch, 0) != count and (count or batch in mine):
            audit.findings.append(
                f"{table} batch {batch[1]}: not the {count} rows that {audit.table} sent there"
            )
    if there:
        audit.findings.append(
            f"{table}: {sum(there.values())} rows of batches {sorted({b for _, b in there})} that nobody wrote"
        )


def _check_repaired_side(
    audit: TableAudit,
    path: Path,
    table: str,
    term: str,
    entries: Sequence[LedgerEntry],
    repairs: Sequence[LedgerEntry],
) -> None:
    expected = sum(_sent(entry, term) for entry in entries)
    for entry in repairs:
        expected += sum(t.get(term, 0) - t.get("before", 0) for t in entry.accounting.values())
    there = _columns(path, ["_batch"]).num_rows
    if there != expected:
        audit.findings.append(f"{table}: {there} rows, {expected} were sent there")


def _sent(entry: LedgerEntry, term: str) -> int:
    """The rows that a batch sent to a side table; the late table has those that are late for some windows, too."""
    terms = entry.totals
    if term != "late":
        return terms[term]
    return 0 if entry.extra.get("late") == "count" else terms["late"] + terms["partly_late"]


def _columns(path: Path, names: list[str]) -> pa.Table:
    return dataset_of(path).to_table(columns=names)


def _batches(rows: pa.Table) -> Counter[tuple[int, int]]:
    """How many rows each batch has."""
    found = rows.group_by(["_generation", "_batch"]).aggregate([([], "count_all")])
    columns = (found[name].to_pylist() for name in ("_generation", "_batch", "count_all"))
    return Counter({(generation, batch): count for generation, batch, count in zip(*columns, strict=True)})


def _more_than_once(rows: pa.Table, names: list[str]) -> pa.Table:
    """The places that several rows share. Arrow counts them: as Python objects ten million rows take gigabytes."""
    encoded = rows["_topic"].dictionary_encode()  # a third of the time
    rows = rows.set_column(rows.schema.get_field_index("_topic"), "_topic", encoded).unify_dictionaries()
    found = rows.group_by(names).aggregate([([], "count_all")])
    return found.filter(pa.compute.greater(found["count_all"], 1))


def _of_batch(rows: pa.Table, batch: tuple[int, int]) -> pa.Table:
    of_generation = pa.compute.equal(rows["_generation"], batch[0])
    return rows.filter(pa.compute.and_(of_generation, pa.compute.equal(rows["_batch"], batch[1])))


def _places(rows: pa.Table) -> list[Coordinates]:
    columns = (rows.column(name).to_pylist() for name in ("_topic", "_partition", "_offset"))
    return list(zip(*columns, strict=True))


def _named(places: Sequence[Coordinates]) -> str:
    first = sorted(places, key=lambda place: (str(place[0]), place[1] or 0, place[2] or 0))[:_SAMPLES]
    told = ", ".join(f"{topic} {partition} offset {offset}" for topic, partition, offset in first)
    return told + (f" and {len(places) - _SAMPLES} more" if len(places) > _SAMPLES else "")
