"""The pass of a row job: where rejected records stand."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater_streams.runtime.stages.rejected_blocks import BLOCKS, noted, standing_in
from headwater_streams.sources.coordinates import OFFSET, PARTITION


@pytest.mark.parametrize(("every", "most"), [(1, 60_000), (1_000, 2 * 16 * 60), (60_001, 2 * 16)])
def test_rejected_records_are_among_the_few_of_their_blocks(
    spark: SparkSession, every: int, most: int
) -> None:
    # Two partitions of 30,000 records, 1,875 blocks of 16 each; where one begins a bit may stand for a block of both.
    at = F.col("id") % 2
    records = spark.range(60_000).select(
        at.cast("int").alias(PARTITION), (F.floor(F.col("id") / 2) + at * 1_000_000_007).alias(OFFSET), "id"
    )
    bad = F.col("id") % every == 0
    (blocks,) = records.agg(noted(bad)).collect()
    found = standing_in(records, bytes(blocks[BLOCKS]))
    assert found.filter(bad).count() == -(-60_000 // every)
    assert found.count() <= most


def test_rejected_records_of_more_offsets_than_the_bitmap_has_blocks_are_found(spark: SparkSession) -> None:
    records = spark.range(3_000_000).select(F.lit(3).alias(PARTITION), F.col("id").alias(OFFSET))
    bad = F.col(OFFSET).isin(0, 2_999_999)
    (blocks,) = records.agg(noted(bad)).collect()
    found = standing_in(records, bytes(blocks[BLOCKS]))
    assert found.filter(bad).count() == 2
    assert found.count() <= 2 * 16 * 6, "a bit is shared by six blocks of three million offsets"


def test_rejected_records_none_noted_none_read(spark: SparkSession) -> None:
    records = spark.range(100).select(F.lit(0).alias(PARTITION), F.col("id").alias(OFFSET))
    (blocks,) = records.agg(noted(F.lit(False))).collect()
    assert standing_in(records, bytes(blocks[BLOCKS])).count() == 0
