"""The Java client, as Spark's Kafka source and sink use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headwater_broker.testing import RunningBroker, broker


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "2"}) as started:
        yield started


def read(spark: SparkSession, running: RunningBroker, topic: str, **options: str) -> list[Any]:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", running.bootstrap)
    return list(reader.option("subscribe", topic).options(**options).load().collect())


def test_spark_sink_writes_what_its_source_reads(spark: SparkSession, running: RunningBroker) -> None:
    rows = spark.range(1000).selectExpr(
        "CAST(id AS STRING) AS key",
        "repeat(CAST(id AS STRING), 20) AS value",
        "CAST(id % 2 AS INT) AS partition",
    )
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", running.bootstrap)
        writer.option("topic", f"sink-{codec}").option("kafka.compression.type", codec).save()
        back = read(spark, running, f"sink-{codec}")
        assert {(row.key, row.value) for row in back} == {
            (str(index).encode(), str(index).encode() * 20) for index in range(1000)
        }
        for partition in (0, 1):
            offsets = [row.offset for row in back if row.partition == partition]
            assert sorted(offsets) == list(range(500))


def test_spark_source_reads_ranges_by_offset_and_by_time(spark: SparkSession, running: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for index in range(100):
        producer.produce("ranges", str(index).encode(), partition=0, timestamp=1_000_000 + 1000 * index)
    assert producer.flush(60) == 0
    by_offset = read(
        *(spark, running, "ranges"),
        startingOffsets='{"ranges":{"0":10,"1":-2}}',
        endingOffsets='{"ranges":{"0":20,"1":-1}}',
    )
    assert sorted(row.offset for row in by_offset) == list(range(10, 20))
    by_time = read(
        spark, running, "ranges", startingTimestamp="1090000", startingOffsetsByTimestampStrategy="latest"
    )
    assert sorted(row.offset for row in by_time) == list(range(90, 100))


def test_spark_stream_follows_a_topic_while_it_grows(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", running.bootstrap)
    source = source.option("subscribe", "followed").option("startingOffsets", "earliest")

    def run_once() -> int:
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return int(spark.read.parquet(str(tmp_path / "out")).count())

    for total in (300, 600):
        for _ in range(300):
            producer.produce("followed", b"x" * 100)
        assert producer.flush(60) == 0
        assert run_once() == total
