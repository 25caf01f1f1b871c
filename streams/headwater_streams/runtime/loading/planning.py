"""Which offsets a load reads, and in which chunks. It decides, and opens nothing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headwater_streams.base.errors import StreamsError

Pair = tuple[int, int]
"""Half-open offsets."""
Partitions = Mapping[int, Pair]

CHUNK_BYTES = 512 * 1024 * 1024
"""What is lost when a load is killed, and what a commit holds."""
TASK_BYTES = 64 * 1024 * 1024
"""Half of the 128 MB that Spark gives a task of files: records are decoded besides."""
_UNKNOWN_BYTES = 200.0


class LoadRefusedError(StreamsError):
    """A load that is not begun; the message says why, and what can be done."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the records of a topic are.

    Attributes:
        bytes_each: The mean of a record's bytes, by partition, as far as some were looked at.
    """

    bytes_each: Mapping[int, float] = field(default_factory=dict)

    def of(self, partition: int) -> float:
        """The mean of a partition; where it is not known, that of the others."""
        known = list(self.bytes_each.values())
        return max(1.0, self.bytes_each.get(partition, sum(known) / len(known) if known else _UNKNOWN_BYTES))


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """What one commit of a load reads.

    Attributes:
        ranges: The offsets, by partition.
        records_a_task: The most offsets of a partition that one task reads.
        size_bytes: About how many bytes that is.
    """

    ranges: Partitions
    records_a_task: int
    size_bytes: int

    @property
    def offsets(self) -> int:
        """How many offsets it has."""
        return sum(end - start for start, end in self.ranges.values())


def requested(
    topic: str, existing: Partitions, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, Pair]:
    """The offsets that a load is to read; partitions without any are left out.

    Args:
        topic: The topic.
        existing: What its partitions hold: the earliest offset, and the next one.
        starts: Where to begin; a partition that is not named, at its earliest.
        ends: Where to end; a partition that is not named, at its end.

    Raises:
        LoadRefusedError: Records that are asked for are gone, or are not there yet.
    """
    ranges: dict[int, Pair] = {}
    for partition, (earliest, following) in sorted(existing.items()):
        start, end = starts.get(partition, earliest), ends.get(partition, following)
        if start >= min(end, following):
            continue
        if start < earliest:
            raise LoadRefusedError(
                f"topic {topic}, partition {partition}: offsets {start} to {min(end, earliest) - 1} are gone; load "
                f"from {earliest} on, or from earliest"
            )
        if end > following:
            raise LoadRefusedError(
                f"topic {topic}, partition {partition}: it ends at offset {following}, and {end} is asked for; load up "
                "to latest"
            )
        ranges[partition] = (start, end)
    return ranges


def remaining(ranges: Partitions, done: Iterable[Partitions]) -> dict[int, list[Pair]]:
    """What of a load's ranges its commits do not have yet, in order.

    Args:
        ranges: The ranges.
        done: Those of each commit.
    """
    left = {partition: [pair] for partition, pair in ranges.items()}
    for committed in done:
        for partition, (start, end) in committed.items():
            left[partition] = [
                rest
                for low, high in left.get(partition, [])
                for rest in ((low, min(high, start)), (max(low, end), high))
                if rest[0] < rest[1]
            ]
    return {partition: pairs for partition, pairs in left.items() if pairs}


def require_following(topic: str, left: Mapping[int, list[Pair]], done: Iterable[Partitions]) -> None:
    """Checks that what is left begins where the table's commits end, as a job's batches do: its account is of one
    range a partition, and an audit finds what it lacks.

    Raises:
        LoadRefusedError: It begins before, or leaves some out.
    """
    starts, ends = dict[int, int](), dict[int, int]()
    for committed in done:
        for partition, (start, end) in committed.items():
            starts[partition] = min(start, starts.get(partition, start))
            ends[partition] = max(end, ends.get(partition, end))
    for partition, pairs in left.items():
        first, behind = pairs[0][0], ends.get(partition)
        if behind is not None and first != behind:
            what = f"leave out {behind} to {first - 1}" if first > behind else f"put {first} behind them"
            raise LoadRefusedError(
                f"topic {topic}, partition {partition}: the table has offsets {starts[partition]} to {behind - 1}, and "
                f"this would {what}; load from {behind} on, or into another table"
            )


def chunks_of(
    left: Mapping[int, list[Pair]],
    sizes: Sizes,
    *,
    cut_off: Partitions = MappingProxyType({}),
    chunk_bytes: int = CHUNK_BYTES,
    task_bytes: int = TASK_BYTES,
) -> list[Chunk]:
    """The chunks in which what is left is read: of about as many bytes each, and each with its part of every partition,
    so that the records of a chunk are of about one time.

    Args:
        left: What is left; of a partition, the first range is read to its end before the next one.
        sizes: How large records are.
        cut_off: What a chunk reads that was begun and not committed; it comes first, and as it was.
        chunk_bytes: The bytes of a chunk.
        task_bytes: The bytes of a task.
    """
    chunks = [_chunk(cut_off, 0, 1, sizes, task_bytes)]
    for number in range(max(map(len, left.values()), default=0)):
        ranges = {partition: pairs[number] for partition, pairs in left.items() if number < len(pairs)}
        total = sum((end - start) * sizes.of(partition) for partition, (start, end) in ranges.items())
        count = min(
            max(1, math.ceil(total / chunk_bytes)), max(end - start for start, end in ranges.values())
        )
        chunks += [_chunk(ranges, place, count, sizes, task_bytes) for place in range(count)]
    return [chunk for chunk in chunks if chunk.ranges]


def _chunk(ranges: Partitions, place: int, count: int, sizes: Sizes, task_bytes: int) -> Chunk:
    """The chunk of a place among so many of some ranges."""
    parts = {
        partition: (
            start + (end - start) * place // count,
            start + (end - start) * (place + 1) // count,
        )
        for partition, (start, end) in ranges.items()
    }
    parts = {partition: pair for partition, pair in parts.items() if pair[0] < pair[1]}
    largest = max((sizes.of(partition) for partition in parts), default=1.0)
    size = sum((end - start) * sizes.of(partition) for partition, (start, end) in parts.items())
    return Chunk(ranges=parts, records_a_task=max(1, int(task_bytes / largest)), size_bytes=round(size))
