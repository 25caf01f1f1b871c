"""Which of the rows read again are copies that the job left out: told by their headers, or by their keys.

A header says of a record by itself where it first stood, so that what had been seen before a batch is enough, and the
ledger has it. Which of a key's rows stays depends on those that came before, so that all batches are judged again.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.outcome import NotRecomputableError
from headwater_streams.backfill.recompute.reading import place_in, without
from headwater_streams.operators.dedup import ByKey, ByOffset, BySequence
from headwater_streams.operators.dedup.recent_keys import RecentKeys, key_columns
from headwater_streams.operators.dedup.verdicts import judge, seen_from
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.stages.row_pass import RowPass
from headwater_streams.sources.coordinates import PLACE
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.columns import col


def copies_by_headers(
    plan: JobPlan, located: DataFrame, batches: Sequence[LiveBatch], chosen: Sequence[bool]
) -> pa.Table:
    """The coordinates of the copies that a job with headers which tell these left out.

    What had been seen is taken from the ledger once, where the chosen batches begin, and carried on from there.

    Args:
        plan: The job that reads the topic.
        located: All records of the chosen batches.
        batches: The job's batches, in their order.
        chosen: Which of them are looked at.
    """
    dedup = plan.job.dedup
    assert isinstance(dedup, ByOffset | BySequence)
    coordinates = RowPass(plan).coordinates(located)
    nothing = _places(coordinates.slice(0, 0))
    found, seen = [nothing], None
    generation = None
    for batch, wanted in zip(batches, chosen, strict=True):
        if not wanted or batch.id.generation != generation:
            seen = None
        generation = batch.id.generation
        mine = coordinates.filter(Offsets.of([batch.id.ranges]).mask(coordinates)) if wanted else nothing
        if mine.num_rows:
            verdicts = judge(mine, seen_from(batch.seen) if seen is None else seen, dedup.max_jump)
            found.append(_places(verdicts.rows))
            seen = verdicts.seen
    return pa.concat_tables(found)


def copies_by_key(plan: JobPlan, good: DataFrame, batches: Sequence[LiveBatch]) -> pa.Table:
    """The coordinates of the copies that a job left out which tells them by their keys, with their places in their
    records where the rows have any.

    Args:
        plan: The job that left them out.
        good: The rows of the batches that are not bad, with their coordinates.
        batches: Its batches from the first on, in their order.

    Raises:
        NotRecomputableError: Rows of the table that it reads share their coordinates.
    """
    dedup, ((its_name, declared),) = plan.job.dedup, plan.job.inputs.items()
    assert isinstance(dedup, ByKey)
    assert declared.watermark is not None, "the plan was checked"
    at_us, kinds = F.unix_micros(col(str(declared.event_time))), plan.inputs[its_name]
    named = key_columns([(kinds[name].dataType, col(name)) for name in dedup.columns], at_us)
    place = place_in(good)
    keys = good.select(*named, *place).toArrow()
    if not isinstance(declared, TopicInput) and _shared(keys, place):
        raise NotRecomputableError(
            f"rows of {declared.name} share their coordinates, and which of them are copies is not known"
        )
    recent = RecentKeys.of(dedup, declared.watermark)
    found = [keys.slice(0, 0).select(place)]
    for batch in batches:  # of a rewind's generation, too: it goes on with the keys of that time
        verdicts = recent.judge(keys.filter(Offsets.of([batch.id.ranges]).mask(keys)))
        recent.add(verdicts.kept)
        found.append(verdicts.rows.select(place))
    return pa.concat_tables(found)


def without_copies(rows: DataFrame, copies: pa.Table) -> DataFrame:
    """The rows but those of some coordinates."""
    # Spark reads nothing behind a piece without rows.
    found = copies.combine_chunks()
    return without(rows, rows.sparkSession.createDataFrame(found)) if found.num_rows else rows


def _shared(keys: pa.Table, place: Sequence[str]) -> bool:
    return bool(keys.group_by(list(place)).aggregate([]).num_rows < keys.num_rows)


def _places(rows: pa.Table) -> pa.Table:
    return rows.select(list(PLACE))
