"""What the tables of a home say and have of a topic, read without Spark."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone
from headwater_streams.base.target import LATE_SUFFIX, QUARANTINE_SUFFIX
from headwater_streams.ledger.counts.facts import Batch, Held, TableFacts
from headwater_streams.ledger.counts.stretches import Stretches, merged, more_than_once
from headwater_streams.ledger.expired import is_expiry
from headwater_streams.ledger.log import Commit, commits, lineage, replacements, since_rebuilt
from headwater_streams.ledger.shared import recreated_topics
from headwater_streams.storage.delta_files import data_file, opened_table, reading
from headwater_streams.storage.delta_log import has_versions, log_files
from headwater_streams.storage.delta_rows import data_files, dataset_of
from headwater_streams.storage.files import exists
from headwater_streams.storage.home import Home

_PLACES = ("_partition", "_offset")
_ROW, _INGEST = "_row", "__ingest_"
_FEW = 50
_SIDES = {"table": "", "quarantine": QUARANTINE_SUFFIX, "late": LATE_SUFFIX}


def tables_by_topic(home: Home) -> dict[str, list[TableFacts]]:
    """What each table says of each topic that a job reads into it; its rows are read by `with_rows`."""
    found: dict[str, list[TableFacts]] = {}
    for table in home.tables():
        for topic, facts in _said(home, table).items():
            found.setdefault(topic, []).append(facts)
    return found


def with_rows(
    home: Home, topic: str, facts: TableFacts, within: Mapping[int, Stretches] | None = None
) -> TableFacts:
    """The same with the rows at rest that name the topic, where all records stand there.

    Args:
        home: The home.
        topic: The topic.
        facts: What the table says.
        within: Offsets whose rows are read, by partition; rows of others may be among them. None for all.
    """
    return replace(facts, rows=_rows(home, facts, topic, within)) if facts.names_all else facts


@dataclass(frozen=True)
class AtRest:
    """Reads what the tables of a home have."""

    home: Home

    def state(self, facts: TableFacts) -> dict[str, Any]:
        """See `state_of`."""
        return state_of(self.home, facts)

    def added(
        self, topic: str, facts: TableFacts, then: Mapping[str, Any], now: Mapping[str, Any]
    ) -> dict[int, list[tuple[int, int]]] | None:
        """See `added_since`."""
        return added_since(self.home, topic, facts, then, now)

    def rows(self, topic: str, facts: TableFacts, within: Mapping[int, Stretches] | None) -> TableFacts:
        """See `with_rows`."""
        return with_rows(self.home, topic, facts, within)


def state_of(home: Home, facts: TableFacts) -> dict[str, Any]:
    """What a table is like now, as `added_since` compares it later; JSON."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    repeating = set[int]()
    for batch in facts.batches:
        begins[batch.partition] = min(batch.start, begins.get(batch.partition, batch.start))
        ends[batch.partition] = max(batch.end, ends.get(batch.partition, batch.end))
        if (batch.terms or {}).get("duplicate"):
            repeating.add(batch.partition)
    versions = {}
    for place, path in _paths(home, facts).items():
        files = log_files(path)
        versions[place] = files[-1][0] if files else -1
    if facts.version is not None:
        versions["table"] = facts.version
    return {
        "versions": versions,
        "ends": {str(partition): end for partition, end in sorted(ends.items())},
        "kind": [facts.job, facts.names_all, facts.expired, facts.beside, facts.anew_ms],
        "begins": sorted(begins.items()),
        "repeating": sorted(repeating),
    }


def added_since(
    home: Home, topic: str, facts: TableFacts, then: Mapping[str, Any], now: Mapping[str, Any]
) -> dict[int, list[tuple[int, int]]] | None:
    """Of which offsets a table says something new, by partition; None where rows were taken away or much has changed.

    Args:
        home: The home.
        topic: The topic.
        facts: What the table says.
        then: What it was like.
        now: What it is like.
    """
    alike = ("kind", "begins", "repeating")
    if [json.dumps(then[key]) for key in alike] != [json.dumps(now[key]) for key in alike]:
        return None
    found: dict[int, list[tuple[int, int]]] = {}
    for place, path in _paths(home, facts).items():
        since, until = then["versions"].get(place, -1), now["versions"][place]
        files = log_files(path)
        if since > until or (files and since + 1 < files[0][0] and since < until):
            return None
        for commit in commits(path, since=since + 1, until=until + 1) if since < until else ():
            entry = commit.entry
            if (commit.data_changed and commit.removed_files) or replacements([commit]) or _is_more(entry):
                return None
            if commit.data_changed and facts.names_all:
                paths = [data_file(path, name) for name in commit.added_paths]
                if not all(exists(each) for each in paths):  # they were compacted, and removed since
                    return None
                for partition, held in _offsets_of(path, paths, topic).items():
                    found.setdefault(partition, []).extend(held.offsets)
            for of, batch in _batches(entry) if entry is not None and place == "table" else ():
                if of == topic:
                    begin = min(then["ends"].get(str(batch.partition), batch.start), batch.start)
                    found.setdefault(batch.partition, []).append((begin, batch.end))
    return {partition: merged(pairs) for partition, pairs in found.items()}


def _is_more(entry: LedgerEntry | None) -> bool:
    """Whether a commit is more than a batch, or rows that came beside one."""
    return entry is not None and (
        not (entry.is_batch or entry.kind == "side") or bool(Extra.ACTION.get(entry))
    )


def _offsets_of(path: Path, paths: Sequence[Path], topic: str) -> dict[int, Held]:
    with reading(path):
        rows = data_files(paths, dataset_of(path).schema)
        of_topic = rows.scanner(columns=[*_PLACES], filter=pc.field("_topic") == topic)
        return held_by_partition(of_topic.to_batches())


def _said(home: Home, table: str) -> dict[str, TableFacts]:
    versions = log_files(home.table(table))
    if not versions:
        return {}
    version = versions[-1][0]
    history = since_rebuilt(lineage(home.table(table), until=version + 1))
    entries = _entries(history)
    cleared = [entry for entry in entries if Extra.ACTION.get(entry) == "clear"]
    live = [
        entry
        for entry in entries
        if entry.is_batch and not any(is_undone(entry, beginning) for beginning in cleared)
    ]
    # A topic that was made again has the same offsets once more: what is said of the newest one alone is compared.
    anew = recreated_topics(entries)
    anew_ms = {
        topic: commit.timestamp_ms
        for commit in history
        if commit.entry is not None
        for topic in Extra.ANEW.get(commit.entry, ())
    }
    batches: dict[str, list[Batch]] = {}
    for entry in live:
        for topic, batch in _batches(entry):
            if entry.generation >= anew.get(topic, 0):
                batches.setdefault(topic, []).append(batch)
    is_moved = any(entry.kind == "backfill" for entry in entries)
    is_expired = any(is_expiry(commit.entry) for commit in history)
    return {
        topic: TableFacts(
            table,
            live[-1].job,
            of_it,
            names_all=live[-1].kind == "row" and not is_moved and not anew.get(topic, 0),
            expired=is_expired,
            version=version,
            beside=Extra.BESIDE.get(live[-1]),
            anew_ms=anew_ms.get(topic),
        )
        for topic, of_it in batches.items()
    }


def _entries(history: list[Commit]) -> list[LedgerEntry]:
    return [commit.entry for commit in history if commit.entry is not None]


def _batches(entry: LedgerEntry) -> Iterator[tuple[str, Batch]]:
    for source in entry.sources:
        if source.table is None:
            for topic, ranges in source.ranges.items():
                terms = entry.partitions.get(topic, {})
                for partition, (start, end) in ranges.items():
                    yield topic, Batch(partition, start, end, terms.get(partition))


def _paths(home: Home, facts: TableFacts) -> dict[str, Path]:
    """Where the rows of each place stand."""
    # What a topic is read into shares the side tables of the job that it feeds.
    of = facts.beside or facts.table.partition(_INGEST)[0]
    return {place: home.table(of + suffix if suffix else facts.table) for place, suffix in _SIDES.items()}


def _rows(
    home: Home, facts: TableFacts, topic: str, within: Mapping[int, Stretches] | None
) -> dict[str, dict[int, Held]]:
    rows: dict[str, dict[int, Held]] = {}
    where = pc.field("_topic") == topic
    if within is not None:
        where = where & _is_within(within)
    for place, path in _paths(home, facts).items():
        if not has_versions(path):
            continue
        with reading(path):
            # Rows that expire meanwhile are no rows that were lost.
            dataset = dataset_of(path, opened_table(path, facts.version) if place == "table" else None)
            columns = [*_PLACES, *([_ROW] if _ROW in dataset.schema.names else [])]
            rows[place] = held_by_partition(dataset.scanner(columns=columns, filter=where).to_batches())
    return rows


def _is_within(within: Mapping[int, Stretches]) -> pc.Expression:
    """Rows of offsets in the bounds of some stretches; by each of these, where they are few."""
    few = sum(len(pairs) for pairs in within.values()) <= _FEW
    chosen = pc.scalar(False)
    for partition, pairs in within.items():
        for start, end in pairs if few else [(pairs[0][0], pairs[-1][1])] if pairs else ():
            offset = pc.field("_offset")
            chosen = chosen | ((pc.field("_partition") == partition) & (offset >= start) & (offset < end))
    return chosen


def held_by_partition(batches: Iterable[pa.RecordBatch]) -> dict[int, Held]:
    """The offsets of rows, by partition; of a record that became several rows, once.

    Args:
        batches: `_partition`, `_offset` and perhaps `_row`. Without it, no more is kept than stretches of offsets.
    """
    pairs: dict[int, list[tuple[int, int]]] = {}
    again: dict[int, list[tuple[int, int]]] = {}
    places: dict[int, list[np.ndarray]] = {}
    for batch in batches:
        known = batch.filter(pc.and_(pc.is_valid(batch["_offset"]), pc.is_valid(batch["_partition"])))
        partitions, offsets = known["_partition"].to_numpy(), known["_offset"].to_numpy()
        for partition in (int(each) for each in np.unique(partitions)):
            here = partitions == partition
            once, times = np.unique(offsets[here], return_counts=True)
            pairs.setdefault(partition, []).extend(_pairs(once))
            copies = again.setdefault(partition, [])
            if _ROW in known.schema.names:
                numbers = pc.fill_null(known[_ROW], 0).to_numpy()[here]
                places.setdefault(partition, []).append(np.stack([offsets[here], numbers]))
            else:
                copies += [(int(at), int(at) + 1) for at in np.repeat(once, times - 1)]
    for partition, of_it in pairs.items():
        if partition not in places:
            again[partition] += more_than_once(of_it)
            continue
        alike, times = np.unique(np.concatenate(places[partition], axis=1), axis=1, return_counts=True)
        again[partition] += [(int(at), int(at) + 1) for at in np.repeat(alike[0], times - 1)]
    return {partition: Held(merged(of_it), sorted(again[partition])) for partition, of_it in pairs.items()}


def _pairs(offsets: np.ndarray) -> list[tuple[int, int]]:
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
