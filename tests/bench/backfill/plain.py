"""The same in plain PySpark, as one would write it by hand to fill a table once: batch queries."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.jobs import CONDITIONS, TOPIC, WINDOW, folded, shaped
from operators.topic import SCHEMA, TIME


def clean(spark: SparkSession, address: str, table: Path) -> None:
    """The topic's rows that can be read and hold, shaped, with their coordinates."""
    coordinates = {name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp")}
    rows = _parsed(spark, address, *coordinates)
    for condition in CONDITIONS.values():
        rows = rows.filter(condition)
    shaped(rows).withColumnsRenamed(coordinates).write.format("delta").save(str(table))


def parse(spark: SparkSession, address: str) -> None:
    """The topic's values parsed, and nothing done with them: no batch query over them takes less."""
    _parsed(spark, address).write.format("noop").mode("overwrite").save()


def by_device(spark: SparkSession, cleaned: Path, table: Path) -> None:
    """The windows of a table's rows."""
    _write_windows(spark.read.format("delta").load(str(cleaned)), table)


def by_device_of_topic(spark: SparkSession, address: str, table: Path) -> None:
    """The windows of the topic's rows that can be read."""
    _write_windows(shaped(_parsed(spark, address)), table)


def _parsed(spark: SparkSession, address: str, *coordinates: str) -> DataFrame:
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", TOPIC)
    records = read.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    value = F.from_json(F.col("value").cast("string"), f"{SCHEMA}, _corrupt STRING", options)
    parsed = records.withColumn("_v", value).filter(f"_v._corrupt IS NULL AND _v.{TIME} IS NOT NULL")
    return parsed.select("_v.*", *coordinates).drop("_corrupt")


def _write_windows(rows: DataFrame, table: Path) -> None:
    grouped = rows.groupBy("device", F.window(TIME, WINDOW).alias("window")).agg(*folded())
    bounds = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]
    grouped.select("*", *bounds).drop("window").write.format("delta").save(str(table))
