"""An input of which a repair reads some offsets: topics, or a table at one version."""

from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory, intersection
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import Span
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import Ranges, gone_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import BATCH, GENERATION, OFFSET, PARTITION, TIMESTAMP, TOPIC
from headwater_streams.sources.decode import RecordDecoder, needless, value_schema
from headwater_streams.sources.inputs import Input, TopicInput
from headwater_streams.spark.columns import col


class RowInput(Protocol):
    """The records or rows of an input, by their offsets."""

    def read(self, ranges: Ranges) -> DataFrame:
        """Those of some ranges, as the live job gets them."""

    def of_timestamps(self, read: Ranges, span: Span) -> Ranges:
        """The ranges, of what was read, of the records' timestamps in a span of microseconds."""

    def of_event_time(self, read: Ranges, span: Span) -> Ranges:
        """From the first to the last of each partition, of what was read, whose event time is in the span."""

    def gone(self, read: Ranges) -> Ranges:
        """The ranges, of what was read, that nobody can read again."""

    def require(self, needed: Ranges) -> None:
        """Sees to it that ranges can be read.

        Raises:
            DataLossError: Records of them are gone.
        """


def row_input(context: StageContext, declared: Input, pinned: PinnedInput | None) -> RowInput:
    """An input by its offsets; `pinned` is the table, None for topics."""
    if isinstance(declared, TopicInput):
        return _Topics(context, declared)
    assert pinned is not None
    return _Table(context, pinned, declared.event_time)


class _Topics:
    def __init__(self, context: StageContext, declared: TopicInput) -> None:
        self._context, self._declared = context, declared

    def read(self, ranges: Ranges) -> DataFrame:
        read, spark = self._context.source.read, self._context.spark
        return reduce(DataFrame.union, [read(spark, topic, found) for topic, found in ranges.items()])

    def of_timestamps(self, read: Ranges, span: Span) -> Ranges:
        """From each partition's first record that is not before the start to its first that is not before the end."""
        found = {}
        for topic, partitions in read.items():
            firsts, ends = (self._context.source.first_since(topic, time_us) for time_us in span)
            found[topic] = {
                partition: (firsts[partition], ends.get(partition, end))
                for partition, (_, end) in partitions.items()
                if partition in firsts
            }
        return found

    def of_event_time(self, read: Ranges, span: Span) -> Ranges:
        held = intersection(read, self._there(read))
        unused = needless(self._declared, value_schema(self._declared))
        decoder = RecordDecoder(self._declared, (), origin=False, unused=unused)
        decoded = decoder.decode(decoder.locate(self.read(held)))
        assert self._declared.event_time is not None
        return _between(decoded.frame, decoded.columns[self._declared.event_time], span)

    def gone(self, read: Ranges) -> Ranges:
        there = self._there(read)
        found = {topic: gone_of(partitions, there[topic]) for topic, partitions in sorted(read.items())}
        return {topic: partitions for topic, partitions in found.items() if partitions}

    def _there(self, read: Ranges) -> dict[str, dict[int, tuple[int, int]]]:
        return {topic: self._context.source.partitions(topic) for topic in read}

    def require(self, needed: Ranges) -> None:
        for topic in self._declared.names:
            there = self._context.source.partitions(topic)
            for partition, (start, end) in sorted(needed.get(topic, {}).items()):
                earliest = there.get(partition, (end, end))[0]
                if start < earliest:
                    rest = f"; from {earliest} on it can be repaired" if earliest < end else ""
                    raise DataLossError(
                        f"{topic} {partition}: offsets [{start}, {min(end, earliest)}) of the range are gone from the "
                        f"topic, which begins at {earliest}{rest}"
                    )


class _Table:
    def __init__(self, context: StageContext, pinned: PinnedInput, event_time: str | None) -> None:
        self._context, self._pinned, self._event_time = context, pinned, event_time

    def read(self, ranges: Ranges) -> DataFrame:
        return pinned_table(self._context, self._pinned).filter(Offsets.of([ranges]).condition())

    def of_timestamps(self, read: Ranges, span: Span) -> Ranges:
        return _between(self.read(read), F.col(TIMESTAMP), span)

    def of_event_time(self, read: Ranges, span: Span) -> Ranges:
        return _between(self.read(read), col(str(self._event_time)), span)

    def gone(self, read: Ranges) -> Ranges:
        return {}  # its version was read when the repair was planned

    def require(self, needed: Ranges) -> None:
        """Its version was read when the repair was planned."""


def _between(rows: DataFrame, time: Column, span: Span) -> Ranges:
    """From the first to the last row of each partition whose time is in the span."""
    return first_to_last(rows.filter(in_span(time, span)))


def in_span(time: Column, span: Span) -> Column:
    """True for a time in a span of microseconds."""
    time_us = F.unix_micros(time)
    return (time_us >= span[0]) & (time_us < span[1])


def first_to_last(rows: DataFrame) -> Ranges:
    """From the first to the last row of each partition."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    bounds = rows.groupBy(TOPIC, PARTITION).agg(
        F.min(OFFSET).alias("start"), (F.max(OFFSET) + 1).alias("end")
    )
    for row in bounds.collect():
        found.setdefault(row[TOPIC], {})[row[PARTITION]] = (row["start"], row["end"])
    return found


def cut_at(ranges: Ranges, firsts: Ranges) -> tuple[Ranges, Ranges]:
    """Each partition's offsets before the first of some, and those from there on."""
    before: dict[str, dict[int, tuple[int, int]]] = {}
    behind: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in ranges.items():
        for partition, (start, end) in partitions.items():
            first, _ = firsts.get(topic, {}).get(partition, (end, end))
            before.setdefault(topic, {})[partition] = (start, first)
            behind.setdefault(topic, {})[partition] = (first, end)
    return before, behind


def asked_of(source: RowInput, declared: Input, selection: Selection, read: Ranges, job: str) -> Ranges:
    """The offsets, of those that a job read of an input, that a range of offsets or times names; without one all.

    Raises:
        BackfillError: The job has not read them, or the input has no event time.
    """
    if selection.offsets is not None:
        require_read(selection.offsets, read, job)
        return selection.offsets
    if selection.timestamps is not None:
        return source.of_timestamps(read, selection.timestamps)
    if selection.event_time is not None:
        if declared.event_time is None:
            what = "topic" if isinstance(declared, TopicInput) else "table"
            raise BackfillError(
                f"the {what} {declared.name} has no event_time=, so give offsets or timestamps"
            )
        return source.of_event_time(read, selection.event_time)
    return read


def require_read(asked: Ranges, read: Ranges, job: str) -> None:
    """Checks that the job has read the offsets that are asked for.

    Raises:
        BackfillError: It has not; the message says what it has read.
    """
    for topic, partitions in asked.items():
        for partition, (start, end) in partitions.items():
            low, high = read.get(topic, {}).get(partition, (0, 0))
            if start < low or end > high:
                there = (
                    f"[{low}, {high})" if low < high else f"none (its topics are {', '.join(sorted(read))})"
                )
                raise BackfillError(
                    f"{topic} {partition}: offsets [{start}, {end}) are asked for, and the job {job!r} has read {there}"
                )


def is_written_since(history: TableHistory, version: int) -> Column:
    """True for a row of the target that the live job wrote after a version of it, never NULL."""
    entries = history.entries()
    before = entries[: len(entries) - len(history.entries(since=version))]
    if not before:
        return F.lit(True)
    last = F.struct(F.lit(before[-1].generation), F.lit(before[-1].batch).cast("long"))
    return F.coalesce(F.struct(GENERATION, BATCH) > last, F.lit(False))
