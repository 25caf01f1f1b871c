"""A table as of a version, read through Delta's own classes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from headwater_streams.sinks.file_swap import snapshot_of


def test_snapshot_of_a_table_with_a_checkpoint_is_read_in_a_thread_that_has_run_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    marked = CommitProperties(app_transactions=[Transaction("delays/1", 7)])
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1]}), commit_properties=marked)
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(snapshot_of, spark, tmp_path / "t", 0, with_files=False).result()
    assert found.marks == {"delays/1": 7}
