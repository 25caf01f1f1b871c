"""An input, read as a batch: records of some offsets of the raw topic, decoded by its format, or rows of a table."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Order
from headwater_streams.base.check import Check
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.operators.dedup import ByOffset, BySequence, Dedup
from headwater_streams.plan.chain import empty
from headwater_streams.plan.job import Job
from headwater_streams.quality.columns import speaking_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import OFFSET, PLACE, ROW
from headwater_streams.sources.decode import Decoded, RecordDecoder, RowDecoder
from headwater_streams.sources.inputs import TableInput, TopicInput
from headwater_streams.sources.origins import with_origins
from headwater_streams.sources.sequence import sequence_problem


def checks_on(
    spark: SparkSession, job: Job, schema: T.StructType, kept: DataFrame | None
) -> tuple[Check, ...]:
    """The checks that send rows of an input to quarantine: of several inputs' those that speak of its columns.

    Args:
        spark: A session.
        job: The job.
        schema: The input's own columns.
        kept: The rows of the table that it is read from.
    """
    if len(job.inputs) == 1:
        return job.quarantining
    has_row = kept is not None and ROW in kept.columns
    return speaking_of(empty(spark, schema, has_row=has_row), job.quarantining)


class RawTopic:
    """The topics of one input."""

    def __init__(
        self, context: StageContext, declared: TopicInput, dedup: Dedup | None, checks: Sequence[Check] = ()
    ) -> None:
        """Args: the declaration; how the job removes copies; the checks by which a record is bad."""
        self._context, self._declared = context, declared
        self._by_origin = isinstance(dedup, ByOffset) and dedup.origin
        self._decoder = RecordDecoder(declared, checks, origin=self._by_origin)
        self._by_sequence = isinstance(dedup, BySequence)

    def there(self) -> dict[str, dict[int, tuple[int, int]]]:
        """The offsets that the topics have now, by partition: the earliest and the next.

        Raises:
            StreamsError: Nobody answers, or there is no such topic.
        """
        return {topic: self._context.source.partitions(topic) for topic in self._declared.names}

    def located(self, offsets: Offsets) -> DataFrame:
        """The records of some offsets, of one at least, with their coordinates.

        Raises:
            DataLossError: Some are gone.
        """
        read, spark = self._context.source.read, self._context.spark
        records = [read(spark, topic, partitions) for topic, partitions in offsets.spans.items()]
        located = self._decoder.locate(reduce(DataFrame.unionByName, records))
        if self._by_origin:
            located = with_origins(located, self._context.source.origins(offsets.spans))
        has_gaps = any(len(pairs) > 1 for pairs in offsets.pairs.values())
        return located.filter(offsets.condition()) if has_gaps else located

    def decoded(self, located: DataFrame) -> Decoded:
        """The records decoded, bad ones marked."""
        decoded = self._decoder.decode(located)
        return decoded.with_problem(decoded.frame, sequence_problem()) if self._by_sequence else decoded


class RawTable:
    """The table of one input, at one version."""

    def __init__(
        self,
        declared: TableInput,
        columns: Sequence[str],
        rows: DataFrame,
        read: Ranges,
        checks: Sequence[Check] = (),
    ) -> None:
        """Args: the declaration; the table's own columns; its rows at that version; what the job has read of it; the
        checks by which a row is bad."""
        self._rows, self._read = rows, read
        self._decoder = RowDecoder(declared, columns, checks)

    def there(self) -> Ranges:
        """The offsets that the job has read: a version of a table keeps all that it had."""
        return self._read

    def located(self, offsets: Offsets) -> DataFrame:
        """The rows of some offsets, of one at least, with their coordinates."""
        located = self._decoder.locate(self._rows)
        # From the first to the last of all, said of the column itself, so that files of other offsets are not read.
        bounds = [pair for pairs in offsets.spans.values() for pair in pairs.values()]
        near = F.col(OFFSET).between(min(start for start, _ in bounds), max(end for _, end in bounds) - 1)
        return located.filter(near).filter(offsets.condition())

    def decoded(self, located: DataFrame) -> Decoded:
        """The rows as decoded records are, bad ones marked."""
        return self._decoder.decode(located)


def in_order(rows: DataFrame, order: Order | None) -> DataFrame:
    """The rows in the order of their offsets, or as they come."""
    if order is None:
        return rows
    return rows.orderBy([F.col(name) for name in PLACE], ascending=order == "up")


def place_in(rows: DataFrame) -> list[str]:
    """The columns that name a row: its coordinates, and its place in its record where it has one."""
    return [*PLACE, ROW] if ROW in rows.columns else [*PLACE]


def without(rows: DataFrame, coordinates: DataFrame) -> DataFrame:
    """The rows but those of some coordinates; by their places in their records, too, where both sides have them."""
    place = [name for name in place_in(coordinates) if name in rows.columns]
    return rows.join(coordinates.select(*place), place, "left_anti")
