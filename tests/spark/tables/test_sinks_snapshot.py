"""A table as of a version, read through Delta's own classes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from headwater_streams.delta.declared_table import ensure_table, write_checksums
from headwater_streams.delta.delta_table import read_version
from headwater_streams.spark.delta_log import snapshot_of


def test_snapshot_of_a_table_with_a_checkpoint_is_read_in_a_thread_that_has_run_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    marked = CommitProperties(app_transactions=[Transaction("delays/1", 7)])
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1]}), commit_properties=marked)
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(snapshot_of, spark, tmp_path / "t", 0, with_files=False).result()
    assert found.marks == {"delays/1": 7}


@pytest.mark.story
def test_versions_that_deltalake_made_are_looked_at_without_a_spark_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    ensure_table(spark, table, "t", T.StructType([T.StructField("n", T.LongType())]))
    for n in range(3):
        write_deltalake(str(table), pa.table({"n": [n, n]}), mode="append")
        if n != 1:
            write_checksums(table)  # that of the version before, too
    context = spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "looking")
    try:
        frames = [read_version(spark, table, version) for version in range(4)]
        assert all(frame.columns == ["n"] for frame in frames)
        assert not context.statusTracker().getJobIdsForGroup("looking")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert [sorted(row["n"] for row in frame.collect()) for frame in frames] == [
        [],
        [0, 0],
        [0, 0, 1, 1],
        [0, 0, 1, 1, 2, 2],
    ]
