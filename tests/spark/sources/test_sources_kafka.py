"""Several topics of a broker in one input and in several, through Spark's own Kafka source."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_broker.testing import broker
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.log import commits
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home

flights = hw.topic("east", "west", schema="carrier STRING, delay INT", format=hw.csv(sep=";"))


@hw.job(target=hw.delta("silver.flights"), dedup=hw.by_offset())
def all_flights(flights: DataFrame) -> DataFrame:
    return flights.filter("delay < 100")


east = hw.topic("east", schema="carrier STRING, delay INT", format=hw.csv(sep=";"))
west = hw.topic("west", schema="carrier STRING, delay INT", format=hw.csv(sep=";"))


@hw.job(target=hw.delta("silver.both"), dedup=hw.by_offset())
def both(east: DataFrame, west: DataFrame) -> DataFrame:
    return hw.union(east, west.filter("delay < 100"))


@pytest.mark.story
def test_kafka_topics_are_read_and_accounted_for_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    home = Home(tmp_path)
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("east", 2, 1), NewTopic("west", 1, 1)]).values():
            future.result()
        context = StageContext(spark, home, KafkaSource(running.bootstrap))
        for sent in (["UA;1", "DL;200", "broken"], ["AA;3"]):
            producer = Producer({"bootstrap.servers": running.bootstrap})
            for place, value in enumerate(sent):
                producer.produce("east", value, partition=place % 2)
                producer.produce("west", value)
            assert producer.flush(10) == 0
            runner = JobRunner(context, [bind(all_flights), bind(both)])
            runner.run_once()
            runner.stop()
    table = home.table("silver.flights")
    rows = spark.read.format("delta").load(str(table)).select("_topic", "_partition", "_offset", "carrier")
    assert sorted(tuple(row) for row in rows.collect()) == [
        ("east", 0, 0, "UA"),
        ("east", 0, 2, "AA"),
        ("west", 0, 0, "UA"),
        ("west", 0, 3, "AA"),
    ]
    first, second = [commit.entry for commit in commits(table) if commit.entry is not None]
    assert first.sources[0].ranges == {"east": {0: (0, 2), 1: (0, 1)}, "west": {0: (0, 3)}}
    assert second.sources[0].ranges == {"east": {0: (2, 3), 1: (1, 1)}, "west": {0: (3, 4)}}
    assert first.totals == {"read": 6, "written": 2, "filtered": 2, "duplicate": 0, "quarantined": 2}

    table = home.table("silver.both")
    rows = spark.read.format("delta").load(str(table)).select("_topic", "_partition", "_offset", "carrier")
    assert sorted(tuple(row) for row in rows.collect()) == [
        ("east", 0, 0, "UA"), ("east", 0, 2, "AA"), ("east", 1, 0, "DL"), ("west", 0, 0, "UA"), ("west", 0, 3, "AA"),
    ]  # fmt: skip
    first, second = [commit.entry for commit in commits(table) if commit.entry is not None]
    assert {s.input: s.ranges for s in first.sources} == {
        "east": {"east": {0: (0, 2), 1: (0, 1)}}, "west": {"west": {0: (0, 3)}},
    }  # fmt: skip
    assert {s.input: s.ranges for s in second.sources} == {
        "east": {"east": {0: (2, 3), 1: (1, 1)}}, "west": {"west": {0: (3, 4)}},
    }  # fmt: skip
    assert first.accounting == {
        "east": {"read": 3, "written": 2, "filtered": 0, "duplicate": 0, "quarantined": 1},
        "west": {"read": 3, "written": 1, "filtered": 1, "duplicate": 0, "quarantined": 1},
    }
    assert [audit.findings for audit in audit_home(home)] == [[], []]


clicks = hw.topic(
    "clicks",
    schema="at TIMESTAMP",
    event_time="at",
    watermark="30 minutes",
    max_offsets_per_batch=2,
    max_ahead="400 days",
)


@hw.job(target=hw.delta("gold.hours"), dedup=hw.by_offset(), late="count")
def hours(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 hour").agg(F.count("*").alias("n"))


def test_kafka_batches_of_one_query_each_have_a_watermark_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    home, late = Home(tmp_path), ["10:59", "10:58"]
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("clicks", 1, 1)])["clicks"].result()
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for at in [
            "10:00",
            "10:20",
            "11:29",
            "10:30",
            "11:40",
            "11:10",
            *late,
            "12:45",
            "11:20",
            "14:00",
            "13:40",
        ]:
            producer.produce("clicks", f'{{"at": "2026-01-01T{at}:00Z"}}')
        assert producer.flush(10) == 0
        runner = JobRunner(StageContext(spark, home, KafkaSource(running.bootstrap)), [bind(hours)])
        runner.run_once()
        runner.stop()
    entries = [c.entry for c in commits(home.table("gold.hours")) if c.entry is not None]
    # 11:29 and 11:40 leave the watermark at 10:59 and 11:10: 10:30 is in time, what follows 11:40 is late before 11:00.
    assert [entry.totals["late"] for entry in entries] == [0, 0, 0, 2, 0, 0]
    windows = spark.read.format("delta").load(str(home.table("gold.hours"))).select("n", "_sources")
    assert sorted((row["n"], row["_sources"][0]["start"]) for row in windows.collect()) == [(3, 0), (4, 2)]
    assert [audit.findings for audit in audit_home(home)] == [[]]


def test_a_range_that_ends_with_the_log_is_read_without_waiting_for_more(spark: SparkSession) -> None:
    with broker() as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("one", "UA;1")
        assert producer.flush(10) == 0
        took_s = []
        for options in ({}, {"kafka.fetch.max.wait.ms": "5000"}):
            source = KafkaSource(running.bootstrap, options)
            began_s = time.monotonic()
            assert source.read(spark, "one", {0: (0, 1)}).count() == 1
            took_s.append(time.monotonic() - began_s)
    ours_s, waiting_s = took_s
    assert ours_s < waiting_s - 2
