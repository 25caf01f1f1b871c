"""The records of a topic's log by bucket, as arrays: a year of minutes is searched without an object for each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts.stretches import Stretches

_Columns = np.ndarray
"""Of a partition: rows of start, end and bucket, in order and apart."""


@dataclass(frozen=True)
class LogRuns:
    """Which offsets have a record, and of which bucket.

    Attributes:
        columns: By partition.
    """

    columns: Mapping[int, _Columns]

    @classmethod
    def of_rows(cls, rows: pa.Table) -> "LogRuns":
        """Those of rows of `audit.counts` with the columns `bucket` and `offsets`; each offset once."""
        rows = rows.filter(pc.is_valid(rows["offsets"]))
        lists = rows["offsets"].combine_chunks()
        if not len(lists):
            return cls({})
        lists = lists if isinstance(lists, pa.ListArray) else lists.chunk(0)
        flat, parents = lists.flatten(), pc.list_parent_indices(lists).to_numpy()
        buckets = rows["bucket"].combine_chunks().cast(pa.int64()).to_numpy()[parents] // 1000
        partitions = flat.field("partition").to_numpy()
        stacked = np.stack([flat.field("start").to_numpy(), flat.field("end").to_numpy(), buckets])
        return cls({int(p): _apart(stacked[:, partitions == p]) for p in np.unique(partitions)})

    @classmethod
    def of(cls, runs: Mapping[int, Sequence[BucketRun]]) -> "LogRuns":
        """The same as arrays."""
        return cls({partition: _stacked(of_it) for partition, of_it in runs.items() if of_it})

    @property
    def buckets(self) -> set[int]:
        """The buckets that have a record."""
        return {int(bucket) for of_it in self.columns.values() for bucket in np.unique(of_it[2])}

    def runs(self) -> dict[int, list[BucketRun]]:
        """All of them."""
        return {partition: _listed(of_it) for partition, of_it in self.columns.items()}

    def behind(self, partition: int, end: int) -> list[BucketRun]:
        """What a partition has from an offset on."""
        of_it = self._of(partition)
        later = of_it[:, of_it[1] > end]
        return _listed(np.stack([np.maximum(later[0], end), later[1], later[2]]))

    def extended(self, ends: Mapping[int, int], more: Mapping[int, Sequence[BucketRun]]) -> "LogRuns":
        """Those before the ends, with more of them behind; those that follow each other in a bucket are one."""
        result: dict[int, _Columns] = {}
        for partition in ends:
            of_it = self._of(partition)
            kept = of_it[:, of_it[0] < ends[partition]]
            kept = np.stack([kept[0], np.minimum(kept[1], ends[partition]), kept[2]])
            result[partition] = _joined(np.concatenate([kept, _stacked(more.get(partition, ()))], axis=1))
        return LogRuns(result)

    def buckets_at(self, partition: int, pairs: Stretches) -> set[int]:
        """The buckets of the records at some offsets."""
        return {int(bucket) for bucket in np.unique(self._of(partition)[2][self._at(partition, pairs)])}

    def some(self, buckets: Collection[int], within: Mapping[int, Stretches]) -> dict[int, list[BucketRun]]:
        """Those of some buckets, and those that have some of these offsets; each partition is there."""
        chosen = np.array(sorted(buckets), dtype=np.int64)
        result = {}
        for partition, of_it in self.columns.items():
            mask = np.isin(of_it[2], chosen) | self._at(partition, within.get(partition, ()))
            result[partition] = _listed(of_it[:, mask])
        return result

    def _of(self, partition: int) -> _Columns:
        return self.columns.get(partition, np.empty((3, 0), dtype=np.int64))

    def _at(self, partition: int, pairs: Stretches) -> np.ndarray:
        of_it = self._of(partition)
        mask = np.zeros(of_it.shape[1], dtype=bool)
        for start, end in pairs:
            first = np.searchsorted(of_it[1], start, side="right")
            mask[first : np.searchsorted(of_it[0], end, side="left")] = True
        return mask


def _stacked(runs: Sequence[BucketRun]) -> _Columns:
    triples = [(run.start, run.end, run.bucket_start_ms) for run in runs]
    return np.array(triples, dtype=np.int64).reshape(-1, 3).T


def _listed(columns: _Columns) -> list[BucketRun]:
    return [BucketRun(start, end, bucket) for start, end, bucket in columns.T.tolist()]


def _apart(columns: _Columns) -> _Columns:
    """The runs in order, each offset once, whatever stands in the table."""
    start, end, bucket = columns[:, np.lexsort((-columns[1], columns[0]))]
    before = np.concatenate(([0], np.maximum.accumulate(end)[:-1]))
    start = np.maximum(start, before)
    return np.stack([start, end, bucket])[:, start < end]


def _joined(columns: _Columns) -> _Columns:
    if not columns.shape[1]:
        return columns
    start, end, bucket = columns
    begins = np.concatenate(([True], (start[1:] != end[:-1]) | (bucket[1:] != bucket[:-1])))
    last = np.concatenate((np.flatnonzero(begins)[1:] - 1, [len(start) - 1]))
    return np.stack([start[begins], end[last], bucket[begins]])
