"""Decides which records of a batch were delivered before, by their coordinates alone, in arrays.

Only coordinates come to the driver (some 30 bytes a record, for one batch); the state is a set of intervals for each
origin partition, whatever the number of records.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater_streams.operators.dedup.intervals import IntervalSet

Seen = dict[str, IntervalSet]
"""The offsets seen, by origin: `cluster TAB topic TAB partition`; cluster is empty for the broker's own."""

_NOTHING = IntervalSet()
DUPLICATE, IMPLAUSIBLE = "duplicate", "implausible"


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on a batch's records.

    Attributes:
        rows: The records that are not new: `_topic, _partition, _offset, _verdict`.
        duplicates: How many of them were delivered before.
        seen: The offsets seen once the batch is committed. An origin that the batch did not touch has the same object
            as before; one that it touched has a new object, and comes after the others.
    """

    rows: pa.Table
    duplicates: int
    seen: Seen


def own_key(topic: str, partition: int) -> str:
    """The key of a partition of the broker's own in `Seen`."""
    return f"\t{topic}\t{partition}"


def seen_from(pairs: Mapping[str, list[tuple[int, int]]] | None) -> Seen:
    """The state as a ledger entry holds it."""
    return {key: IntervalSet(intervals) for key, intervals in (pairs or {}).items()}


def judge(coordinates: pa.Table, seen: Seen, max_jump: int) -> Verdicts:
    """Finds the records that are not the first of their origin coordinates.

    Of several copies in one batch the one with the lowest (topic, partition, offset) stays.

    Args:
        coordinates: `key STRING, at LONG` (where the record first stood) and `_topic, _partition, _offset`.
        seen: The offsets of earlier batches; it is not changed.
        max_jump: How far beyond all seen offsets of its key an offset is believed.
    """
    after = dict(seen)
    keys = coordinates.column("key").combine_chunks().dictionary_encode()
    names, codes = keys.dictionary.to_pylist(), keys.indices.to_numpy()
    topics = coordinates.column("_topic").combine_chunks().dictionary_encode()
    at = coordinates.column("at").to_numpy()
    partitions, offsets = (
        coordinates.column("_partition").to_numpy(),
        coordinates.column("_offset").to_numpy(),
    )
    topic_rank = np.argsort(np.argsort(topics.dictionary.to_numpy(zero_copy_only=False)))[
        topics.indices.to_numpy()
    ]
    repeated = np.zeros(len(at), dtype=bool)
    implausible = np.zeros(len(at), dtype=bool)
    for code, key in enumerate(names):
        rows = np.flatnonzero(codes == code)
        rows = rows[np.lexsort((offsets[rows], partitions[rows], topic_rank[rows], at[rows]))]
        of_key = after[key] = after.pop(key, _NOTHING).copy()
        limit = (of_key.end if of_key.end is not None else int(at[rows[0]])) + max_jump
        implausible[rows] = at[rows] > limit
        rows = rows[at[rows] <= limit]
        repeated[rows[1:]] = at[rows[1:]] == at[rows[:-1]]
        first = rows[~repeated[rows]]
        old = _inside(at[first], of_key)
        repeated[first] |= old
        for start, end in _islands(at[first[~old]]):
            of_key.add(start, end)
    after = {key: intervals for key, intervals in after.items() if len(intervals)}
    chosen = np.flatnonzero(repeated | implausible)
    verdicts = pa.array(np.where(repeated[chosen], DUPLICATE, IMPLAUSIBLE), pa.string())
    rows_out = coordinates.select(["_topic", "_partition", "_offset"]).take(pa.array(chosen))
    return Verdicts(rows_out.append_column("_verdict", verdicts), int(repeated.sum()), after)


def _inside(values: np.ndarray, intervals: IntervalSet) -> np.ndarray:
    pairs = intervals.pairs()
    if not pairs or not len(values):
        return np.zeros(len(values), dtype=bool)
    starts, ends = np.array(pairs).T
    place = np.searchsorted(starts, values, side="right") - 1
    inside: np.ndarray = (place >= 0) & (values < ends[np.maximum(place, 0)])
    return inside


def _islands(values: np.ndarray) -> list[tuple[int, int]]:
    if not len(values):
        return []
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(values, breaks)]
