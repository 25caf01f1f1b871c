"""The same in plain PySpark, as anybody would write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater_streams.sources.inputs import OFFSETS_PER_BATCH
from operators.topic import SCHEMA

_STORES = {
    "drop_duplicates": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "drop_duplicates_memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
CONTENDERS = ("plain", *_STORES)
TABLE = "rows"


def rows(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """The topic's rows with their coordinates."""
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    read = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    value = F.from_json(F.col("value").cast("string"), f"{SCHEMA}, _corrupt STRING", options)
    parsed = read.option("subscribe", topic).load().withColumn("_v", value).filter("_v._corrupt IS NULL")
    return (
        parsed.filter("_v.at IS NOT NULL")
        .select("_v.*", "topic", "partition", "offset", "timestamp")
        .drop("_corrupt")
    )


def into_delta(found: DataFrame, home: Path) -> DataStreamWriter:
    """What writes them."""
    writer = found.writeStream.format("delta").option("checkpointLocation", str(home / "checkpoint"))
    return writer.option("path", str(home / TABLE))


def run(spark: SparkSession, address: str, topic: str, home: Path, name: str) -> list[Mapping[str, Any]]:
    """Goes on over what the topic holds now; gives Spark's account of its batches."""
    found = rows(spark, address, topic)
    if name in _STORES:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STORES[name])
        found = found.dropDuplicates(["topic", "partition", "offset"])
    query = into_delta(found, home).trigger(availableNow=True).start()
    query.awaitTermination()
    return [dict(told) for told in query.recentProgress]


def state_of(told: Mapping[str, Any]) -> dict[str, int]:
    """What Spark says that a batch's operators keep: rows, and bytes in memory and in RocksDB's files."""
    kept = {"rows": 0, "memory_bytes": 0, "file_bytes": 0}
    for operator in told["stateOperators"]:
        kept["rows"] += operator["numRowsTotal"]
        kept["memory_bytes"] += operator["memoryUsedBytes"]
        kept["file_bytes"] += operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    return kept
