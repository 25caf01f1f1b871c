"""Offsets of topics, exactly: disjoint half-open intervals by topic and partition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.ledger.places import inside
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.sources.coordinates import OFFSET, PARTITION, TOPIC

Pair = tuple[int, int]
"""A half-open stretch of offsets."""
_FEW = 16


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """Some offsets of some partitions; a partition without any is not named.

    Attributes:
        pairs: The stretches of each topic and partition, in order.
    """

    pairs: Mapping[tuple[str, int], tuple[Pair, ...]]

    @classmethod
    def of(cls, parts: Iterable[Ranges]) -> "Offsets":
        """All offsets that are in one of the parts.

        Example:
            >>> Offsets.of([{"t": {0: (3, 5)}}, {"t": {0: (0, 3), 1: (7, 7)}}]).pairs
            {('t', 0): ((0, 5),)}
        """
        found: dict[tuple[str, int], IntervalSet] = {}
        for ranges in parts:
            for topic, partitions in ranges.items():
                for partition, (start, end) in partitions.items():
                    if start < end:
                        found.setdefault((topic, partition), IntervalSet()).add(start, end)
        return cls(pairs={place: tuple(known.pairs()) for place, known in sorted(found.items())})

    @classmethod
    def union(cls, parts: Iterable["Offsets"]) -> "Offsets":
        """All that are in one of the parts."""
        each = [(place, pair) for part in parts for place, pairs in part.pairs.items() for pair in pairs]
        return cls.of([{topic: {partition: pair}} for (topic, partition), pair in each])

    @classmethod
    def at(cls, places: Iterable[tuple[str, int, int]]) -> "Offsets":
        """Those of some records, by their topics, partitions and offsets.

        Example:
            >>> Offsets.at([("t", 0, 4), ("t", 1, 7), ("t", 0, 3)]).pairs
            {('t', 0): ((3, 5),), ('t', 1): ((7, 8),)}
        """
        return cls.of([{topic: {partition: (at, at + 1)}} for topic, partition, at in places])

    def to_json(self) -> list[list[Any]]:
        """Each stretch as `[topic, partition, start, end]`."""
        return [[*place, *pair] for place, pairs in self.pairs.items() for pair in pairs]

    @classmethod
    def from_json(cls, value: Iterable[Sequence[Any]]) -> "Offsets":
        """Those that were written so."""
        return cls.of({topic: {partition: (start, end)}} for topic, partition, start, end in value)

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(end - start for pairs in self.pairs.values() for start, end in pairs)

    @property
    def topics(self) -> str:
        """The topics, for a sentence."""
        return ", ".join(dict.fromkeys(topic for topic, _ in self.pairs)) or "no topic"

    @property
    def spans(self) -> dict[str, dict[int, Pair]]:
        """From the first offset of each partition to the last, with what lies between."""
        found: dict[str, dict[int, Pair]] = {}
        for (topic, partition), pairs in self.pairs.items():
            found.setdefault(topic, {})[partition] = (pairs[0][0], pairs[-1][1])
        return found

    def inside(self, ranges: Ranges) -> "Offsets":
        """Those of them that are in the ranges."""
        found = {}
        for (topic, partition), pairs in self.pairs.items():
            low, high = ranges.get(topic, {}).get(partition, (0, 0))
            cut = [(max(start, low), min(end, high)) for start, end in pairs]
            kept = tuple((start, end) for start, end in cut if start < end)
            if kept:
                found[topic, partition] = kept
        return Offsets(pairs=found)

    def condition(self) -> Column:
        """True where a row's coordinates are among them, never NULL."""
        each = [
            (F.col(TOPIC) == topic) & (F.col(PARTITION) == partition) & _in_one_of(pairs)
            for (topic, partition), pairs in self.pairs.items()
        ]
        return any_of(each)

    def reach(self) -> Column:
        """True from the least of the offsets to the greatest, of whatever partition. It stands beside `condition`, by
        which Delta and Parquet can skip no file and no part of one; where it is NULL, that one is false."""
        pairs = [pair for pairs in self.pairs.values() for pair in pairs]
        if not pairs:
            return F.lit(False)
        return (F.col(OFFSET) >= min(start for start, _ in pairs)) & (
            F.col(OFFSET) < max(end for _, end in pairs)
        )

    def overlap(self, source: Column) -> Column:
        """True where a `{topic, partition, start, end}`, as in `_sources`, holds one of them, never NULL."""
        each = [
            (source["topic"] == topic)
            & (source["partition"] == partition)
            & any_of([(source["start"] < end) & (source["end"] > start) for start, end in pairs])
            for (topic, partition), pairs in self.pairs.items()
        ]
        return F.coalesce(any_of(each), F.lit(False))

    def mask(self, coordinates: pa.Table) -> pa.Array:
        """True at the rows of a table `_topic, _partition, _offset` that are among them."""
        return pa.array(inside(coordinates, self.pairs))


def _in_one_of(pairs: Sequence[Pair]) -> Column:
    """Whether an offset is in a stretch; many single ones are a set, which Spark looks up."""
    single = [start for start, end in pairs if end - start == 1]
    among: list[Column] = []
    if len(single) > _FEW:
        among, pairs = [F.col(OFFSET).isin(single)], [pair for pair in pairs if pair[1] - pair[0] > 1]
    return any_of([*among, *[(F.col(OFFSET) >= start) & (F.col(OFFSET) < end) for start, end in pairs]])
