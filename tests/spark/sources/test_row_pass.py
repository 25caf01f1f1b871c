"""The pass of a row job: which functions need no count of their own, where rejected records stand."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headwater_streams.runtime.stages.rejected_blocks import BLOCKS, noted, standing_in
from headwater_streams.sources.coordinates import OFFSET, PARTITION
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.spark.projection import only_projects

KEEPING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda rows: rows,
    "a column more, renamed, one less": lambda rows: (
        rows.withColumn("twice", F.col("id") * 2).withColumnRenamed("id", "number").drop("words")
    ),
    "an alias": lambda rows: rows.alias("r").select("r.id", F.size("r.words").alias("words")),
    "an observation": lambda rows: rows.observe(Observation(), F.count(F.lit(1))).select("id"),
}
OTHERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a filter": lambda rows: rows.filter("id > 1"),
    "a filter below": lambda rows: rows.filter(F.lit(True)).select("id"),
    "an explode": lambda rows: rows.select("id", F.explode("words")),
    "a limit": lambda rows: rows.limit(1),
    "a join": lambda rows: rows.join(rows.select("id").alias("o"), "id"),
    "a union": lambda rows: rows.unionByName(rows),
    "an aggregate": lambda rows: rows.select(F.max("id").alias("id")),
    "duplicates dropped": lambda rows: rows.dropDuplicates(["id"]),
    "another frame": lambda rows: rows.sparkSession.range(3),
}


@pytest.mark.parametrize("name", [*KEEPING, *OTHERS])
def test_only_projects_is_seen_in_the_plan(spark: SparkSession, name: str) -> None:
    rows = spark.range(10).select("id", F.array(F.lit("a"), F.lit("b")).alias("words"), F.lit(0).alias("_at"))
    seen, other = Observation("seen"), Observation("another")
    passed = rows.observe(seen, F.count(F.lit(1))).filter("id > 3").select("id", "words", "_at")
    result = (KEEPING | OTHERS)[name](hide(passed.observe(other, F.count(F.lit(1))), ["_at"]))
    assert only_projects(result, "seen") == (name in KEEPING)
    assert not only_projects(result, "another"), "no filter stands upon it"


@pytest.mark.story
@pytest.mark.parametrize(("every", "most"), [(1, 60_000), (1_000, 2 * 32 * 60), (60_001, 2 * 32)])
def test_rejected_records_are_among_the_few_of_their_blocks(
    spark: SparkSession, every: int, most: int
) -> None:
    # Two partitions of 30,000 records, 938 blocks of 32 each; where one begins a bit may stand for a block of both.
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
    assert found.count() <= 2 * 32 * 3, "a bit is shared by three blocks of three million offsets"


def test_rejected_records_none_noted_none_read(spark: SparkSession) -> None:
    records = spark.range(100).select(F.lit(0).alias(PARTITION), F.col("id").alias(OFFSET))
    (blocks,) = records.agg(noted(F.lit(False))).collect()
    assert standing_in(records, bytes(blocks[BLOCKS])).count() == 0


def test_rejected_records_without_a_place_are_found(spark: SparkSession) -> None:
    no_place = (F.lit(None).cast("int").alias(PARTITION), F.lit(None).cast("long").alias(OFFSET))
    records = spark.range(3).select(*no_place, "id")
    (blocks,) = records.agg(noted(F.col("id") == 1)).collect()
    assert standing_in(records, bytes(blocks[BLOCKS])).filter("id = 1").count() == 1
