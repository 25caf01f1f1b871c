"""The tables of a home, read for a trace with Arrow."""

import re
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.ledger.log import lineage, since_rebuilt
from headwater_streams.ledger.trace.history import During, TableHistory
from headwater_streams.ledger.trace.places import OFFSET, PARTITION, SOURCES, TOPIC, Place, Span, joined
from headwater_streams.spark.run_facts import RunFacts, facts_of_last_run
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

_OWN_SCHEMA = "headwater."
_TIME = re.compile(r"\w+\((?:\w+=.*?, )??time='([^']*)'")


class HomeTables:
    """The tables of a home. Each log is read once, and each table at the version that it has when it is asked for."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._names = [name for name in home.tables() if not name.startswith(_OWN_SCHEMA)]
        self.history = cache(self._history)
        self.window_time = cache(self._window_time)
        self._facts = cache(self._facts_of)

    def names(self) -> Sequence[str]:
        """The tables, but those that are Headwater's own."""
        return self._names

    def _history(self, table: str) -> TableHistory:
        return TableHistory.of(table, since_rebuilt(lineage(self._home.table(table))))

    def rows_at(self, table: str, spans: Sequence[Span], during: During | None = None) -> pa.Table:
        """The rows whose own place is in some ranges: their coordinates, or those of their first record."""
        dataset = dataset_of(self._home.table(table))
        names = dataset.schema.names
        ranges = joined(spans)
        if not ranges or not {OFFSET, SOURCES} & {*names}:
            return dataset.schema.empty_table()
        with reading(self._home.table(table)):
            if OFFSET in names:
                chosen = reduce(or_, map(_at, ranges))
                if during is not None and during.column in names:
                    chosen &= _in(during, dataset.schema.field(during.column).type)
                return dataset.to_table(filter=chosen)
            # A row in more than one range stands in the table of each batch once.
            return _filtered(dataset, lambda rows: _first_in(rows[SOURCES], ranges))

    def rows_over(self, table: str, place: Place) -> pa.Table:
        """The rows that name a place in their `_sources`; of a table without them, those at that place."""
        dataset = dataset_of(self._home.table(table))
        if SOURCES not in dataset.schema.names:
            return self.rows_at(table, [place.span])
        with reading(self._home.table(table)):
            return _filtered(dataset, lambda rows: _holding(rows[SOURCES], place))

    def _window_time(self, job: str) -> str | None:
        facts = self._facts(job)
        return None if facts is None else time_of(facts.operator)

    def _facts_of(self, job: str) -> RunFacts | None:
        try:
            return facts_of_last_run(self._home.checkpoint(job, self._home.last_generation(job)))
        except (DamagedFileError, OSError):
            return None  # a trace can do without them


def time_of(operator: str) -> str | None:
    """The time column of a window, as its spec is written in the facts of a run.

    Example:
        >>> time_of("TumblingWindow(time='departed_at', size=datetime.timedelta(seconds=3600), by=('carrier',))")
        'departed_at'
    """
    time = _TIME.match(operator)
    return None if time is None else time[1]


def _at(span: Span) -> pc.Expression:
    offset = pc.field(OFFSET)
    return (
        (pc.field(TOPIC) == span.topic)
        & (pc.field(PARTITION) == span.partition)
        & (offset >= span.start)
        & (offset < span.end)
    )


def _in(during: During, kind: pa.DataType) -> pc.Expression:
    """Whether a row is in a time; always where the column holds no times."""
    if not pa.types.is_timestamp(kind):
        return pc.scalar(True)
    at = pc.field(during.column)
    return (at >= pa.scalar(during.start, kind)) & (at < pa.scalar(during.end, kind))


def _filtered(dataset: Any, mask: Any) -> pa.Table:
    """The rows of a table for which a mask of its batches is true; only these stay in memory."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in dataset.to_batches():
            chosen = mask(batch)
            if chosen.any():
                yield batch.filter(pa.array(chosen))

    return pa.Table.from_batches(batches(), dataset.schema)


def _first_in(sources: pa.Array, ranges: Sequence[Span]) -> np.ndarray:
    """Where the first range of rows begins in one of some ranges."""
    parents, topics, partitions, starts, _ = _flat(sources)
    _, firsts = np.unique(parents, return_index=True)
    mask = np.zeros(len(sources), dtype=bool)
    for each in ranges:
        found = _is(topics, each.topic) & (partitions == each.partition)
        found &= (starts >= each.start) & (starts < each.end)
        mask[parents[firsts][found[firsts]]] = True
    return mask


def _holding(sources: pa.Array, place: Place) -> np.ndarray:
    """Where one of the ranges of rows holds a place."""
    parents, topics, partitions, starts, ends = _flat(sources)
    found = _is(topics, place.topic) & (partitions == place.partition)
    found &= (starts <= place.offset) & (place.offset < ends)
    mask = np.zeros(len(sources), dtype=bool)
    mask[parents[found]] = True
    return mask


def _flat(sources: pa.Array) -> tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray, np.ndarray]:
    """The ranges of all rows, but missing ones: which row each is of, and its parts."""
    parents, ranges = pc.list_parent_indices(sources), pc.list_flatten(sources)
    there = ranges.is_valid()
    parents, ranges = parents.filter(there), ranges.filter(there)
    parts = (pc.struct_field(ranges, name) for name in ("topic", "partition", "start", "end"))
    topics, *numbers = parts
    partitions, starts, ends = (pc.fill_null(each, -1).to_numpy(zero_copy_only=False) for each in numbers)
    return parents.to_numpy(zero_copy_only=False), topics, partitions, starts, ends


def _is(topics: pa.Array, topic: str) -> np.ndarray:
    is_topic: np.ndarray = pc.fill_null(pc.equal(topics, topic), False).to_numpy(zero_copy_only=False)
    return is_topic
