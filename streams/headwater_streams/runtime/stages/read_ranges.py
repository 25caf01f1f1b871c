"""Which offsets a job's batches read: of this run's batches from memory, of older ones from the ledger."""

from pathlib import Path

import pyarrow as pa

from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.ledger.log import lineage
from headwater_streams.runtime.warm_up import WarmUp

_SOURCE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
)


class ReadRanges:
    """The ranges that each batch read, of the batches that the table's rows come from."""

    def __init__(self, table: Path, job: str) -> None:
        """Args: the job's table, in whose log its entries stand, and the job."""
        self._table, self._job = table, job
        self._of: dict[int, Ranges] = {}
        self._known_since: int | None = None

    def note(self, batch: int, ranges: Ranges) -> None:
        """Remembers what a batch read."""
        self._of[batch] = ranges
        if self._known_since is None:
            self._known_since = batch

    def between(self, first: int, last: int) -> pa.Table:
        """What was read from a batch to the last one.

        Args:
            first: The batch.
            last: The last one, which was noted.

        Returns:
            For each batch from the first on that read something: `_of BIGINT`, and `_sources`, the ranges from its
            beginning to the last one's end, one for each partition in their order. What is before the first batch is
            forgotten.
        """
        self._look_back(first)
        self._of = {batch: ranges for batch, ranges in self._of.items() if batch >= first}
        self._known_since = first
        numbers, sources, reach = [], [], self._of[last]
        for batch in sorted(self._of, reverse=True):
            reach = merge_ranges([reach, self._of[batch]])
            numbers.append(batch)
            sources.append(
                [
                    {"topic": topic, "partition": partition, "start": start, "end": end}
                    for topic, partitions in sorted(reach.items())
                    for partition, (start, end) in sorted(partitions.items())
                ]
            )
        return pa.table(
            {"_of": pa.array(numbers, pa.int64()), "_sources": pa.array(sources, pa.list_(_SOURCE))}
        )

    def _look_back(self, batch: int) -> None:
        """Reads the ranges of batches before this run from the ledger."""
        if self._known_since is not None and batch >= self._known_since:
            return
        for commit in reversed(lineage(self._table)):
            entry = commit.entry
            if entry is None or entry.job != self._job:
                continue
            if (again := WarmUp.of(entry)) is not None:  # the batches before have numbers of their own
                self._of.setdefault(0, merge_ranges([source.ranges for source in again.sources]))
                break
            if entry.is_batch:
                self._of.setdefault(entry.batch, merge_ranges([s.ranges for s in entry.sources]))
                if entry.batch <= batch:
                    break
