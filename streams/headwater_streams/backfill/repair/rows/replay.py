"""Records, or rows of a table, read again by rewound offsets: the rows that the live job keeps, with the coordinates
that it gave them.

A record is judged as it was judged live: against what the job had seen when the record's batch began, beside the other
records of that batch. So of several copies the same one stays, wherever the others lie.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.backfill.history import LiveBatch, TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.input import row_input
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.delta.side import quarantine_rows
from headwater_streams.operators.dedup import ByOffset, BySequence, Dedup
from headwater_streams.operators.dedup.verdicts import judge, seen_from
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.lookups import Lookups, Versions
from headwater_streams.runtime.stages.narrowing import failing as failing_of
from headwater_streams.runtime.stages.row_pass import PassedRows, RowPass
from headwater_streams.sources.coordinates import (
    BATCH,
    GENERATION,
    OFFSET,
    PARTITION,
    SEEN_UNTIL,
    TOPIC,
)
from headwater_streams.sources.origins import with_origins
from headwater_streams.sources.problems import Problem

_BATCH_SCHEMA = T.StructType(
    [
        T.StructField("_of_topic", T.StringType()),
        T.StructField("_of_partition", T.IntegerType()),
        T.StructField("_of_block", T.LongType()),
        T.StructField("_of_start", T.LongType()),
        T.StructField("_of_end", T.LongType()),
        T.StructField(BATCH, T.LongType()),
        T.StructField(GENERATION, T.IntegerType()),
        T.StructField("_of_seen_us", T.LongType()),
    ]
)


@dataclass(frozen=True)
class ReplayedRows:
    """A chunk of a row job that is about to be computed.

    Attributes:
        results: The rows of each table with its columns, by the table's name; the target's are written first.
        rejected: Gives the rows for quarantine, once the results are written.
        passed: The pass that computes them, with its counts and checks.
        blamed: Tells, of the error with which it ended, for which records the function raises.
    """

    results: Mapping[str, DataFrame]
    rejected: Callable[[], DataFrame]
    passed: PassedRows
    blamed: Callable[[Exception], Problem]

    def release(self) -> None:
        """Lets go of what several tables' rows were made of."""
        self.passed.release()


class RowReplay:
    """A row job's records, read again."""

    def __init__(
        self, context: StageContext, plan: JobPlan, history: TableHistory, backfill: BackfillPlan
    ) -> None:
        """Args: what the job is and did; the repair, which says what is not read as the live batches read it."""
        self._context, self._plan, self._job = context, plan, plan.job
        self._lookups, self._pinned = Lookups(context, plan), backfill.lookups
        (declared,) = plan.job.inputs.values()
        self._input = row_input(context, declared, backfill.pinned)
        self._pass = RowPass(plan)
        self._live: dict[tuple[int, int], list[LiveBatch]] = {}
        for batch in history.batches():
            self._live.setdefault((batch.id.generation, batch.id.batch), []).append(batch)

    def replay(self, chunk: Chunk, failing: Problem | None = None) -> ReplayedRows:
        """The rows of some batches of the live job, as far as they belong to the backfill.

        What several tables' rows are made of is kept until `passed.release()`.

        Args:
            chunk: The batches.
            failing: Records for which the function raises, where they are known.
        """
        wanted = merge_ranges([batch.ranges for batch in chunk.batches])
        origin = self._job.dedup is not None and self._job.dedup.by_headers
        batches = [b for id_ in chunk.batches for b in self._live[id_.generation, id_.batch]]
        whole = merge_ranges([b.id.ranges for b in batches]) if origin else wanted
        records = self._pass.located(self._input.read(whole))
        if isinstance(self._job.dedup, ByOffset) and self._job.dedup.origin:
            records = with_origins(records, self._context.source.origins(whole))
        inside = records
        if origin or len(chunk.batches) > 1:  # between whose offsets there may be others
            inside = records.filter(Offsets.of([batch.ranges for batch in chunk.batches]).condition())
        verdicts = self._verdicts(records, batches, self._job.dedup) if origin else None
        lookups = self._lookups.at(self._versions(batches))
        with self._lookups.looked_at():
            passed = self._pass.over(inside, verdicts, {}, lookups.frames, failing=failing)
        results = {name: self._with_batches(rows, chunk) for name, rows in passed.results.items()}
        if not self._plan.is_ingest:
            results = {name: rows.drop(SEEN_UNTIL) for name, rows in results.items()}

        def rejected() -> DataFrame:
            bad = quarantine_rows(passed.rejected(), 0, 0).drop(BATCH, GENERATION)
            return self._with_batches(bad, chunk).drop(SEEN_UNTIL)

        def blamed(error: Exception) -> Problem:
            who = f"job {self._job.name!r}, chunk {chunk.number}"
            live = len({(batch.generation, batch.batch) for batch in chunk.batches})
            with self._pass.in_parts(inside, verdicts, lookups.frames) as compute:
                return failing_of(self._job, compute, wanted, who, error, live)

        return ReplayedRows(results, rejected, passed, blamed)

    def to_write(self, rows: DataFrame) -> DataFrame:
        """Results as they stand in files, see `RowPass.to_write`."""
        return self._pass.to_write(rows)

    def live_shortfall(self, chunk: Chunk) -> int:
        """Offsets of the chunk's batches that held no record for the live job: control records, compacted ones."""
        missing = 0
        for generation, batch in {(b.generation, b.batch) for b in chunk.batches}:
            missing += sum(live.shortfall for live in self._live[generation, batch])
        return missing

    def _versions(self, batches: Sequence[LiveBatch]) -> Versions:
        """The look-ups' versions; the plan put batches into one chunk that read the same."""
        read = batches[0].lookups
        return {name: self._pinned.get(name) or read[name] for name in self._plan.lookups}

    def _verdicts(
        self, records: DataFrame, batches: Sequence[LiveBatch], dedup: Dedup | None
    ) -> pa.Table | None:
        assert isinstance(dedup, ByOffset | BySequence)
        coordinates = self._pass.coordinates(records)
        found = []
        for batch in batches:
            mine = coordinates.filter(Offsets.of([batch.id.ranges]).mask(coordinates))
            if mine.num_rows:
                found.append(judge(mine, seen_from(batch.seen), dedup.max_jump).rows)
        verdicts = pa.concat_tables(found) if found else None
        return verdicts if verdicts is not None and verdicts.num_rows else None

    def _with_batches(self, rows: DataFrame, chunk: Chunk) -> DataFrame:
        """Each row's batch, generation and `_seen_until`, as the live job has or would have them."""
        if len(chunk.batches) == 1:
            (one,) = chunk.batches
            newest = self._live[one.generation, one.batch][0].max_event_time_us
            told = {BATCH: F.lit(one.batch).cast("long"), GENERATION: F.lit(one.generation).cast("int")}
            return rows.withColumns(told | {SEEN_UNTIL: F.timestamp_micros(F.lit(newest).cast("long"))})
        shift = _block_shift([batch.ranges for batch in chunk.batches])
        places = []
        for one in chunk.batches:
            newest = self._live[one.generation, one.batch][0].max_event_time_us
            for topic, partitions in one.ranges.items():
                for partition, (start, end) in partitions.items():
                    for block in range(start >> shift, (max(start, end - 1) >> shift) + 1):
                        place = (topic, partition, block, start, end)
                        places.append((*place, one.batch, one.generation, newest))
        batches = self._context.spark.createDataFrame(places, _BATCH_SCHEMA)
        same = (F.col(TOPIC) == F.col("_of_topic")) & (F.col(PARTITION) == F.col("_of_partition"))
        same &= F.shiftright(OFFSET, shift) == F.col("_of_block")
        within = (F.col(OFFSET) >= F.col("_of_start")) & (F.col(OFFSET) < F.col("_of_end"))
        joined = rows.join(F.broadcast(batches), same & within)
        joined = joined.withColumn(SEEN_UNTIL, F.timestamp_micros("_of_seen_us"))
        return joined.drop(*[name for name in _BATCH_SCHEMA.fieldNames() if name.startswith("_of_")])


def _block_shift(parts: Sequence[Ranges]) -> int:
    """By how many bits an offset is shifted to tell its block: one about as long as a batch's range is in the mean.

    A record is compared with the batches of its block; with all of a chunk it would be with thousands, where each was
    of a second.
    """
    sizes = [end - start for ranges in parts for found in ranges.values() for start, end in found.values()]
    return max(0, (sum(sizes) // max(1, len(sizes))).bit_length())
