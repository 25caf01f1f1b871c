"""Several topics of a broker in one input and in several, through Spark's own Kafka source."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater_broker.testing import broker
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.log import commits
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.home import Home
from headwater_streams.runtime.job import bind
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource

flights = hw.topic("east", "west", schema="carrier STRING, delay INT", format=hw.csv(sep=";"))


@hw.job(target=hw.delta("silver.flights"), dedup=hw.by_offset())
def all_flights(flights: DataFrame) -> DataFrame:
    return flights.filter("delay < 100")


east = hw.topic("east", schema="carrier STRING, delay INT", format=hw.csv(sep=";"))
west = hw.topic("west", schema="carrier STRING, delay INT", format=hw.csv(sep=";"))


@hw.job(target=hw.delta("silver.both"), dedup=hw.by_offset())
def both(east: DataFrame, west: DataFrame) -> DataFrame:
    return hw.union(east, west.filter("delay < 100"))


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
