"""What the tables of a home say and have of a topic, read without Spark."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone
from headwater_streams.base.target import LATE_SUFFIX, QUARANTINE_SUFFIX
from headwater_streams.ledger.counts.facts import Batch, Held, TableFacts
from headwater_streams.ledger.counts.stretches import merged, more_than_once
from headwater_streams.ledger.expired import is_expiry
from headwater_streams.ledger.log import Commit, lineage, since_rebuilt
from headwater_streams.ledger.shared import recreated_topics
from headwater_streams.storage.delta_files import opened_table, reading
from headwater_streams.storage.delta_log import has_versions, log_files
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

_PLACES = ("_partition", "_offset")
_ROW, _INGEST = "_row", "__ingest_"
_SIDES = {"table": "", "quarantine": QUARANTINE_SUFFIX, "late": LATE_SUFFIX}


def tables_by_topic(home: Home) -> dict[str, list[TableFacts]]:
    """What each table says of each topic that a job reads into it; its rows are read by `with_rows`."""
    found: dict[str, list[TableFacts]] = {}
    for table in home.tables():
        for topic, facts in _said(home, table).items():
            found.setdefault(topic, []).append(facts)
    return found


def with_rows(home: Home, topic: str, facts: TableFacts) -> TableFacts:
    """The same with the rows at rest that name the topic, where all records stand there."""
    return replace(facts, rows=_rows(home, facts, topic)) if facts.names_all else facts


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


def _rows(home: Home, facts: TableFacts, topic: str) -> dict[str, dict[int, Held]]:
    rows: dict[str, dict[int, Held]] = {}
    for place, suffix in _SIDES.items():
        # What a topic is read into shares the side tables of the job that it feeds.
        of = facts.beside or facts.table.partition(_INGEST)[0]
        path = home.table(of + suffix if suffix else facts.table)
        if not has_versions(path):
            continue
        with reading(path):
            # Rows that expire meanwhile are no rows that were lost.
            dataset = dataset_of(path, None if suffix else opened_table(path, facts.version))
            columns = [*_PLACES, *([_ROW] if _ROW in dataset.schema.names else [])]
            of_topic = dataset.scanner(columns=columns, filter=pc.field("_topic") == topic)
            rows[place] = held_by_partition(of_topic.to_batches())
    return rows


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
