"""What the tables of a home say and have of a topic, read without Spark."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone
from headwater_streams.base.target import LATE_SUFFIX, QUARANTINE_SUFFIX
from headwater_streams.ledger.counts.facts import Batch, Held, TableFacts
from headwater_streams.ledger.expired import is_expiry
from headwater_streams.ledger.log import Commit, lineage, since_rebuilt
from headwater_streams.ledger.shared import recreated_topics
from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

_PLACES = ("_topic", "_partition", "_offset")
_ROW, _INGEST = "_row", "__ingest_"
_SIDES = {"table": "", "quarantine": QUARANTINE_SUFFIX, "late": LATE_SUFFIX}


def topics_read(home: Home) -> set[str]:
    """The topics that the tables of a home were made of."""
    return {
        topic
        for table in home.tables()
        for entry in _entries(lineage(home.table(table)))
        if entry.is_batch
        for source in entry.sources
        if source.table is None
        for topic in source.ranges
    }


def tables_of(home: Home, topic: str) -> list[TableFacts]:
    """What each table says of a topic that a job reads into it."""
    found = []
    for table in home.tables():
        facts = _facts(home, table, topic)
        if facts is not None:
            found.append(facts)
    return found


def _facts(home: Home, table: str, topic: str) -> TableFacts | None:
    history = since_rebuilt(lineage(home.table(table)))
    entries = _entries(history)
    cleared = [entry for entry in entries if Extra.ACTION.get(entry) == "clear"]
    live = [
        entry
        for entry in entries
        if entry.is_batch and not any(is_undone(entry, beginning) for beginning in cleared)
    ]
    # A topic that was made again has the same offsets once more: what is said of the newest one alone is compared.
    since = recreated_topics(entries).get(topic, 0)
    batches = [batch for entry in live if entry.generation >= since for batch in _batches(entry, topic)]
    if not batches:
        return None
    last = live[-1]
    is_moved = any(entry.kind == "backfill" for entry in entries)
    names_all = last.kind == "row" and not is_moved and not since
    return TableFacts(
        table,
        last.job,
        batches,
        _rows(home, table, topic) if names_all else {},
        names_all=names_all,
        expired=any(is_expiry(commit.entry) for commit in history),
    )


def _entries(history: list[Commit]) -> list[LedgerEntry]:
    return [commit.entry for commit in history if commit.entry is not None]


def _batches(entry: LedgerEntry, topic: str) -> list[Batch]:
    by_partition: Mapping[int, Mapping[str, int]] = entry.partitions.get(topic, {})
    return [
        Batch(partition, start, end, by_partition.get(partition))
        for source in entry.sources
        if source.table is None
        for partition, (start, end) in source.ranges.get(topic, {}).items()
    ]


def _rows(home: Home, table: str, topic: str) -> dict[str, dict[int, Held]]:
    rows: dict[str, dict[int, Held]] = {}
    for place, suffix in _SIDES.items():
        # What a topic is read into shares the side tables of the job that it feeds.
        path = home.table(table.partition(_INGEST)[0] + suffix if suffix else table)
        if not has_versions(path):
            continue
        with reading(path):
            dataset = dataset_of(path)
            columns = [*_PLACES, *([_ROW] if _ROW in dataset.schema.names else [])]
            of_topic = dataset.to_table(columns=columns, filter=pc.field("_topic") == topic)
        rows[place] = held_by_partition(of_topic)
    return rows


def held_by_partition(rows: pa.Table) -> dict[int, Held]:
    """The offsets of rows, by partition; of a record that became several rows, once.

    Args:
        rows: `_partition`, `_offset` and perhaps `_row`.
    """
    known = rows.filter(pc.and_(pc.is_valid(rows["_offset"]), pc.is_valid(rows["_partition"])))
    partitions, offsets = known["_partition"].to_numpy(), known["_offset"].to_numpy()
    places: Any = None
    if _ROW in known.column_names:
        places = pc.fill_null(known[_ROW], 0).to_numpy()
    result = {}
    for partition in np.unique(partitions):
        here = partitions == partition
        mine = offsets[here]
        once, times = np.unique(mine, return_counts=True)
        again = np.repeat(once, times - 1)
        if places is not None:
            pairs, pair_times = np.unique(np.stack([mine, places[here]]), axis=1, return_counts=True)
            again = np.repeat(pairs[0], pair_times - 1)
        result[int(partition)] = Held(_pairs(once), [(int(at), int(at) + 1) for at in again])
    return result


def _pairs(offsets: np.ndarray) -> list[tuple[int, int]]:
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
