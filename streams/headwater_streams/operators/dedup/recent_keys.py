"""The keys of rows that were kept, as far back as a duplicate may come, and the duplicates of a batch.

A key is two 64-bit hashes of the key columns with different seeds: 24 bytes for each row kept, with its time, in
arrays sorted by the first hash. Arrays of like size are merged, so that there are few whatever the number of batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.operators.dedup.by_key import ByKey
from headwater_streams.operators.dedup.verdicts import DUPLICATE
from headwater_streams.spark.hashed import hash_parts

KEY_SCHEMA = pa.schema([("key", pa.int64()), ("more", pa.int64()), ("at_us", pa.int64())])
"""What is remembered of a row: the two hashes and the event time in microseconds."""

_Key = tuple[int, int]


def key_columns(columns: Sequence[tuple[T.DataType, Column]], at_us: Column) -> list[Column]:
    """The columns of `KEY_SCHEMA`, of rows in Spark.

    Args:
        columns: The key's columns, with their types.
        at_us: The event time, microseconds.
    """
    parts = [part for kind, column in columns for part in hash_parts(kind, column)]
    hashes = [F.xxhash64(F.lit(seed), *parts) for seed in (0, 1)]
    return [c.alias(name) for name, c in zip(KEY_SCHEMA.names, (*hashes, at_us), strict=True)]


@dataclass(frozen=True)
class KeyVerdicts:
    """The verdicts on a batch's rows.

    Attributes:
        rows: The rows that are duplicates: their coordinates, and `_verdict`.
        kept: The keys of the other rows, in `KEY_SCHEMA`.
    """

    rows: pa.Table
    kept: pa.Table


class RecentKeys:
    """Keys with the times of the rows that were kept for them.

    A row is a duplicate if a row of its key was kept whose event time is at most `within` from its own. Of several in
    one batch the earliest is judged first; of those of one time the one with the lowest coordinates, and of those of
    one record the one with the lowest place.
    """

    def __init__(self, within_us: int, delay_us: int) -> None:
        """Args: how far apart duplicates may be; how far behind the greatest time a row may be to be judged."""
        self._within_us, self._reach_us = within_us, within_us + delay_us
        self._chunks: list[pa.Table] = []
        self._newest_us: int | None = None

    def __len__(self) -> int:
        return sum(chunk.num_rows for chunk in self._chunks)

    @classmethod
    def of(cls, dedup: ByKey, watermark: str) -> "RecentKeys":
        """The keys of a job, by its declaration and its input's watermark."""
        return cls(in_micros(parse_duration(dedup.within)), in_micros(parse_duration(watermark)))

    @property
    def horizon_us(self) -> int | None:
        """Keys of rows older than this are forgotten; None before the first row."""
        return None if self._newest_us is None else self._newest_us - self._reach_us

    def judge(self, batch: pa.Table) -> KeyVerdicts:
        """Finds the duplicates of a batch; nothing is remembered until `add`.

        Args:
            batch: `KEY_SCHEMA`, followed by what identifies a row: `_topic, _partition, _offset`, and a number where
                several rows have the same.
        """
        row_columns = [name for name in batch.column_names if name not in KEY_SCHEMA.names]
        key, more, at = (batch.column(name).to_numpy() for name in KEY_SCHEMA.names)
        places = [(name, "ascending") for name in row_columns]
        rank = np.empty(batch.num_rows, dtype=np.int64)
        rank[pc.sort_indices(batch, places).to_numpy()] = np.arange(batch.num_rows)
        order = np.lexsort((rank, at, more, key))
        same = (key[order][1:] == key[order][:-1]) & (more[order][1:] == more[order][:-1])
        first = (
            np.flatnonzero(np.concatenate(([True], ~same))) if len(order) else np.array([], dtype=np.int64)
        )
        sizes = np.diff(np.append(first, len(order)))
        suspicious = (sizes > 1) | self._has(key[order[first]])
        duplicate = np.zeros(batch.num_rows, dtype=bool)
        for start, size in zip(first[suspicious], sizes[suspicious], strict=True):
            rows = order[start : start + size]
            times = list(self._times((int(key[rows[0]]), int(more[rows[0]]))))
            for row in rows:
                if any(abs(int(at[row]) - time) <= self._within_us for time in times):
                    duplicate[row] = True
                else:
                    times.append(int(at[row]))
        duplicates = batch.select(row_columns).filter(pa.array(duplicate))
        verdicts = pa.array([DUPLICATE] * duplicates.num_rows, pa.string())
        kept = batch.select(KEY_SCHEMA.names).filter(pa.array(~duplicate)).cast(KEY_SCHEMA)
        return KeyVerdicts(duplicates.append_column("_verdict", verdicts), kept)

    def add(self, keys: pa.Table) -> None:
        """Remembers the keys of a batch that was committed, and forgets those that are too old."""
        if not keys.num_rows:
            return
        newest = pc.max(keys["at_us"]).as_py()
        self._newest_us = newest if self._newest_us is None else max(newest, self._newest_us)
        self._chunks.append(keys.combine_chunks().sort_by("key"))
        while len(self._chunks) > 1 and self._chunks[-2].num_rows <= 2 * self._chunks[-1].num_rows:
            both = pa.concat_tables([self._chunks.pop(), self._chunks.pop()])
            recent = both.filter(pc.greater_equal(both["at_us"], self.horizon_us))
            self._chunks.append(recent.combine_chunks().sort_by("key"))

    def _has(self, keys: np.ndarray) -> np.ndarray:
        present = np.zeros(len(keys), dtype=bool)
        for chunk in self._chunks:
            hashes = chunk["key"].to_numpy()
            place = np.searchsorted(hashes, keys)
            inside = place < len(hashes)
            present[inside] |= hashes[place[inside]] == keys[inside]
        return present

    def _times(self, key: _Key) -> Iterator[int]:
        for chunk in self._chunks:
            hashes = chunk["key"].to_numpy()
            start, end = np.searchsorted(hashes, key[0], "left"), np.searchsorted(hashes, key[0], "right")
            part = chunk.slice(start, end - start)
            for more, at in zip(part["more"].to_pylist(), part["at_us"].to_pylist(), strict=True):
                if more == key[1]:
                    yield at
