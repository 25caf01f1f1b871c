"""An input of which a repair reads some offsets: topics, or a table at one version."""

from collections.abc import Sequence
from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.backfill.values import Span
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import Ranges, gone_of, intersection
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

    def _there(self, read: Ranges) -> dict[str, dict[int, tuple[int, int]]]:
        return {topic: self._context.source.partitions(topic) for topic in read}


class _Table:
    def __init__(self, context: StageContext, pinned: PinnedInput, event_time: str | None) -> None:
        self._context, self._pinned, self._event_time = context, pinned, event_time

    def read(self, ranges: Ranges) -> DataFrame:
        return pinned_table(self._context, self._pinned).filter(Offsets.of([ranges]).condition())

    def of_timestamps(self, read: Ranges, span: Span) -> Ranges:
        return _between(self.read(read), F.col(TIMESTAMP), span)

    def of_event_time(self, read: Ranges, span: Span) -> Ranges:
        return _between(self.read(read), col(str(self._event_time)), span)


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


def refused_range(declared: Input, selection: Selection, read: Ranges, job: str) -> Refusal | None:
    """Why a range of offsets or times cannot be meant: the job has not read the offsets, or the input has no event
    time.

    Args:
        declared: The input.
        selection: The range.
        read: The offsets that the job has read of it.
        job: The job's name.
    """
    if selection.offsets is not None:
        return unread(selection.offsets, read, job)
    if selection.event_time is not None and declared.event_time is None:
        what = "topic" if isinstance(declared, TopicInput) else "table"
        return Refusal(f"the {what} {declared.name} has no event_time=, so give offsets or timestamps")
    return None


def offsets_of(source: RowInput, declared: Input, selection: Selection, read: Ranges) -> Ranges:
    """The offsets, of those that a job has read of an input, that a range of offsets or times names; without one all,
    and of what has no event time none."""
    if selection.offsets is not None:
        return selection.offsets
    if selection.timestamps is not None:
        return source.of_timestamps(read, selection.timestamps)
    if selection.event_time is not None:
        return source.of_event_time(read, selection.event_time) if declared.event_time is not None else {}
    return read


def unread(asked: Ranges, read: Ranges, job: str) -> Refusal | None:
    """Refuses offsets that the job has not read; the sentence says what it has read."""
    for topic, partitions in asked.items():
        for partition, (start, end) in partitions.items():
            low, high = read.get(topic, {}).get(partition, (0, 0))
            if start < low or end > high:
                there = (
                    f"[{low}, {high})" if low < high else f"none (its topics are {', '.join(sorted(read))})"
                )
                return Refusal(
                    f"{topic} {partition}: offsets [{start}, {end}) are asked for, and the job {job!r} has read {there}"
                )
    return None


def unreadable(needed: Ranges, topics: Sequence[str], held: Ranges) -> Refusal | None:
    """Refuses offsets that topics do not hold any more.

    Args:
        needed: The offsets.
        topics: The topics.
        held: What these hold.
    """
    for topic in topics:
        for partition, (start, end) in sorted(needed.get(topic, {}).items()):
            earliest = held.get(topic, {}).get(partition, (end, end))[0]
            if start < earliest:
                rest = f"; from {earliest} on it can be repaired" if earliest < end else ""
                return Refusal(
                    f"{topic} {partition}: offsets [{start}, {min(end, earliest)}) of the range are gone from the "
                    f"topic, which begins at {earliest}{rest}",
                    DataLossError,
                )
    return None


def gone_from(held: Ranges, read: Ranges) -> Ranges:
    """What was read of topics and they do not hold any more."""
    found = {topic: gone_of(partitions, held[topic]) for topic, partitions in sorted(read.items())}
    return {topic: partitions for topic, partitions in found.items() if partitions}


def is_written_since(history: TableHistory, version: int) -> Column:
    """True for a row of the target that the live job wrote after a version of it, never NULL."""
    entries = history.entries()
    before = entries[: len(entries) - len(history.entries(since=version))]
    if not before:
        return F.lit(True)
    last = F.struct(F.lit(before[-1].generation), F.lit(before[-1].batch).cast("long"))
    return F.coalesce(F.struct(GENERATION, BATCH) > last, F.lit(False))
