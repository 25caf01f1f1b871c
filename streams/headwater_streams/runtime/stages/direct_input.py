"""An input of a stateful stage over the topic itself, for jobs that only count their late rows.

Nothing keeps the rows on the way. A row is late when its state is gone by the watermark that Spark runs the batch with,
which the checkpoint holds: a batch that is run again splits its rows as before. Late rows are
recognised in the stream and counted; if Spark dropped them, nobody would know how many there were. The bytes of a bad
record are read from the topic once more, for the quarantine table.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.durations import in_micros
from headwater_streams.base.ledger_entry import LedgerEntry, Partitions, Ranges, intersection
from headwater_streams.ledger.log import lineage, since_rebuilt
from headwater_streams.operators.windows.spec import CLOSED_UNTIL, SINCE
from headwater_streams.plan.chain import empty
from headwater_streams.runtime.generations import starts_of
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.failing_rows import in_ranges, known_failing
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.kept_input import KeptInput
from headwater_streams.runtime.stages.narrowing import problem_of
from headwater_streams.runtime.stages.read_before import read_before
from headwater_streams.runtime.stages.stateful import (
    LATE,
    NEWEST,
    PARTLY_LATE,
    SplitBatch,
    StatefulInput,
    observed,
    read_metric,
)
from headwater_streams.sources.coordinates import OFFSET, PARTITION, ROW_COLUMNS, TOPIC
from headwater_streams.sources.decode import BAD, Decoded, RecordDecoder
from headwater_streams.sources.inputs import Input, TopicInput
from headwater_streams.sources.reader import Starts
from headwater_streams.spark.hidden_columns import hide


def input_kind(declared: Input) -> type[StatefulInput]:
    """The class of an input of a stage. A topic is such an input only where the job reads it itself."""
    return DirectInput if isinstance(declared, TopicInput) else KeptInput


_US_PER_MS = 1000
_MOST_PARTITIONS = 16  # each costs three counts of every row
_TERMS = ("kept", "late", "quarantined")


class DirectInput(StatefulInput):
    """See `StatefulInput`."""

    def prepare(self, last: LedgerEntry | None) -> None:
        """See `StatefulInput`."""
        self._starts: Starts = starts_of(last) if last is not None else {}
        again = self._read_again(last)
        if again is not None:
            self._starts = {
                topic: {partition: start for partition, (start, _) in partitions.items()}
                for topic, partitions in again.ranges.items()
            }

    def stream(self) -> DataFrame:
        """See `StatefulInput`."""
        assert self._values is not None
        located = self._decoder.locate(self.reader.stream(self._starts))
        decoded = self._without_failing(self._decoder.decode(located))
        split = self._marked(decoded, self._values.watermark(self._beyond_us))
        bad, late = F.col(BAD), F.col(LATE)
        became = dict(zip(_TERMS, (~bad & ~late, ~bad & late, bad), strict=True))
        terms = [F.count(F.when(which, 1)).alias(term) for term, which in became.items()]
        topics = {topic for topic, _ in self._places}
        for place, (topic, partition) in enumerate(self._places):
            here = F.col(PARTITION) == partition
            if len(topics) > 1:
                here &= F.col(TOPIC) == topic
            terms += [F.count(F.when(here & which, 1)).alias(f"{t}_{place}") for t, which in became.items()]
        kept = became["kept"]
        if self._closes is not None:
            time = split.columns[str(self._declared.event_time)]
            terms.append(F.max(F.when(kept, F.unix_micros(time))).alias(NEWEST))
        hidden, more = list(ROW_COLUMNS), []
        if self._overlap is not None:
            terms.append(F.count(F.when(kept & F.col(PARTLY_LATE), 1)).alias("partly_late"))
            hidden.append(CLOSED_UNTIL)
        if self._plan.kind == "window" and self._plan.job.target.mode == "append":
            more.append(self._values.batch.alias(SINCE))
        # One observation for all: each observation ends a piece of compiled code and copies every row.
        read = split.frame.observe(read_metric(self.name), F.count(F.lit(1)).alias("rows"), *terms)
        rows = read.filter(kept).select(*split.columns.values(), *hidden, *more)
        judging = self._gate().aggregates()
        if judging:
            rows = rows.observe(f"{self.name}_checks", *judging)
        return hide(self._with_watermark(rows), [*hidden, *([SINCE] if more else [])])

    def divert(self, batch: int, batch_input: BatchInput, metrics: Mapping[str, Any]) -> SplitBatch:
        """See `StatefulInput`."""
        read = read_metric(self.name)
        quarantined = observed(metrics, read, "quarantined")
        rows = observed(metrics, read)
        self._none_rejected(rows)
        if quarantined:
            self._quarantine(self._rejected(batch_input), batch, batch_input, quarantined, rows)
        partly_late = observed(metrics, read, "partly_late")
        return SplitBatch(
            observed(metrics, read, "late"), quarantined, self._partitions(metrics), partly_late
        )

    def rows_for_function(self, batch_input: BatchInput, watermark_ms: int) -> DataFrame:
        """See `StatefulInput`."""
        decoded = self._without_failing(self._read(batch_input.source.ranges))
        watermark = F.timestamp_micros(F.lit(watermark_ms * _US_PER_MS + self._beyond_us))
        return self._in_time(self._marked(decoded, watermark))

    def earlier_rows_for_function(
        self, batch_input: BatchInput, times_us: tuple[int, int] | None
    ) -> DataFrame:
        """See `StatefulInput`; rows that the topic has lost since are not among them."""
        entries, source = self._batches(), batch_input.source
        ranges = read_before(entries, source, None if times_us is None else times_us[0], self._delay_us)
        ranges = intersection(ranges, {topic: self._context.source.partitions(topic) for topic in ranges})
        decoded = self._read(ranges)
        failing = in_ranges(known_failing(self._checkpoint).get(self.name, {}), ranges)
        if failing:
            decoded = decoded.with_problem(decoded.frame, problem_of(failing))
        return self._in_time(self._marked(decoded, self._watermark_of_batch(entries, source.topic, ranges)))

    def _batches(self) -> list[LedgerEntry]:
        """The entries of the batches whose rows the job's table has, oldest first."""
        job, table = self._plan.job, self._context.home.table(self._plan.job.target.name)
        entries = (commit.entry for commit in since_rebuilt(lineage(table)))
        return [entry for entry in entries if entry is not None and entry.is_batch and entry.job == job.name]

    def _watermark_of_batch(
        self, entries: Sequence[LedgerEntry], topic: str | None, ranges: Ranges
    ) -> Column:
        """The watermark of the batch that read a record of some ranges, where that batch had late ones; else NULL."""
        watermark = F.lit(None).cast("timestamp")
        for entry in entries:
            for source in entry.sources:
                is_needed = source.topic == topic and intersection(source.ranges, ranges)
                if is_needed and entry.accounting[source.input]["late"]:
                    at_us = entry.watermark_ms * _US_PER_MS + self._beyond_us
                    is_of_batch = _is_in(source.ranges)
                    watermark = F.when(is_of_batch, F.timestamp_micros(F.lit(at_us))).otherwise(watermark)
        return watermark

    @property
    def _beyond_us(self) -> int:
        """How far Spark's watermark is held back (`closes_beyond`): lateness goes by what it would be otherwise."""
        return in_micros(self._beyond)

    def judge(self, batch: int, split: SplitBatch, metrics: Mapping[str, Any]) -> CheckGate:
        """See `StatefulInput`."""
        gate = self._gate()
        gate.judge(
            metrics.get(f"{self.name}_checks", {}),
            batch,
            before=self._memory.before,
        )
        gate.results = {**self._rejected_by, **gate.results}
        return gate

    @cached_property
    def _empty(self) -> DataFrame:
        return empty(self._context.spark, self._plan.inputs[self.name])

    @cached_property
    def _decoder(self) -> RecordDecoder:
        assert isinstance(self._declared, TopicInput)
        checks, unused = self._quarantining(self._empty), self._plan.unused.get(self.name, frozenset())
        return RecordDecoder(self._declared, checks, origin=False, unused=unused)

    @cached_property
    def _places(self) -> list[tuple[str, int]]:
        """The partitions that are counted one by one: those that existed at the start; none where they are too many."""
        assert isinstance(self._declared, TopicInput)
        source = self._context.source
        places = [(topic, p) for topic in self._declared.names for p in source.partitions(topic)]
        return places if len(places) <= _MOST_PARTITIONS else []

    def _partitions(self, metrics: Mapping[str, Any]) -> Partitions:
        """The terms by topic and partition; empty where records came of a partition that is not counted."""
        partitions: dict[str, dict[int, dict[str, int]]] = {}
        for place, (topic, partition) in enumerate(self._places):
            terms = {t: observed(metrics, read_metric(self.name), f"{t}_{place}") for t in _TERMS}
            partitions.setdefault(topic, {})[partition] = {"read": sum(terms.values()), **terms}
        total = sum(terms["read"] for of_topic in partitions.values() for terms in of_topic.values())
        return partitions if total == observed(metrics, read_metric(self.name)) else {}

    def _gate(self) -> CheckGate:
        return CheckGate(self._plan.job, "input").over(self._empty)

    def _rejected(self, batch_input: BatchInput) -> DataFrame:
        decoded = self._without_failing(self._read(batch_input.source.ranges))
        return decoded.rejected(decoded.apart(F.col(BAD)))

    def _read(self, ranges: Ranges) -> Decoded:
        """The records of some ranges, or of none, read again."""
        source, spark = self._context.source, self._context.spark
        assert isinstance(self._declared, TopicInput)
        topics = [topic for topic in self._declared.names if topic in ranges] or self._declared.names[:1]
        records = [source.read(spark, topic, ranges.get(topic, {})) for topic in topics]
        return self._decoder.decode(self._decoder.locate(reduce(DataFrame.unionByName, records)))


def _is_in(ranges: Ranges) -> Column:
    """Whether a record is of some ranges."""
    each = [
        (F.col(TOPIC) == topic) & (F.col(PARTITION) == partition) & F.col(OFFSET).between(start, end - 1)
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
    ]
    return reduce(Column.__or__, each, F.lit(False))
