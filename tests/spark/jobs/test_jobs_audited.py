"""Producers that count and others, a broker, jobs, a mirror, tables: only faults that are made by hand are found."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from audited_clicks import MINUTE_MS, START_MS, audit, await_appended, counts, words
from headwater.running.counts import TopicAudit
from headwater_broker.testing import RunningBroker, broker
from headwater_client import counted
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from mirrored_topics import make_topic, mirror_once

clicks = hw.topic("clicks", schema="n BIGINT, at TIMESTAMP", event_time="at", watermark="10 minutes")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
@hw.check("small", "n < 1000")
def even(clicks: DataFrame) -> DataFrame:
    return clicks.where(F.col("n") % 2 == 0)


@hw.job(target=hw.delta("gold.minutes", keys=["window_start"], mode="update"), dedup=hw.by_offset())
@hw.check("small", "n < 1000")
def minutes(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 minute").agg(F.count("*").alias("clicks"))


JOBS = [bind(even), bind(minutes)]


def send(running: RunningBroker, numbers: Iterable[int], *, name: str | None) -> None:
    """Ten a minute, in order; each 20th is one that the check rejects. None: of a program that does not count."""
    client = Producer({"bootstrap.servers": running.bootstrap})
    producer = client if name is None else counted(client, name=name)
    for n in numbers:
        at_ms = START_MS + n * 6_000
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
        text = f'{{"n": {n + 1000 if n % 20 == 7 else n}, "at": "{at}"}}'
        producer.produce("clicks", text.encode(), partition=n % 2, timestamp=at_ms)
    client.flush(10)
    if name is not None:
        producer.end()


def audited(
    home: Home, running: RunningBroker, mirrors: list[KafkaCluster], appended: int
) -> list[TopicAudit]:
    """What an audit says once the broker has counted so many records."""
    await_appended(running, appended)
    return audit(home, running, mirrors=mirrors)


@pytest.mark.timeout(600)
def test_audit_of_the_whole_way_names_what_was_done_by_hand_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker(properties={"counts.interval.ms": "50"}) as west, broker() as east:
        home, there = Home(tmp_path / "home"), Home(tmp_path / "there")
        context = StageContext(spark, home, KafkaSource(west.bootstrap))
        mirror = KafkaCluster(east.bootstrap, name="east")
        make_topic(west.bootstrap, "clicks", 2, counts_bucket_ms=str(MINUTE_MS))
        send(west, range(40), name="web-1")
        JobRunner(context, JOBS).run_once()
        mirror_once(west.bootstrap, east.bootstrap)
        here, copy = audited(home, west, [mirror], 40)
        assert (set(words(here)), here.findings, here.notes) == ({"complete"}, (), ())
        assert (set(words(copy)), copy.findings) == ({"complete"}, ())

        send(west, range(40, 60), name="web-2")
        send(west, range(60, 80), name=None)
        JobRunner(context, JOBS).run_once()
        mirror_once(west.bootstrap, east.bootstrap)
        here, copy = audited(home, west, [mirror], 80)
        # Those of the program that does not count: two minutes of them.
        assert [each.words for each in here.verdicts if each.status != "complete"] == ["uncounted 10"] * 2
        assert len(here.findings) == 2
        seen = counts(here)
        assert (seen["producer web-1"], seen["producer web-2"], seen["broker"]) == (40, 20, 80)
        assert (seen["input silver.clicks"], seen["table silver.clicks"], seen["mirror east"]) == (80, 40, 80)
        assert seen["quarantine silver.clicks"] == 4
        assert seen["input gold.minutes__ingest_clicks"] == 80
        assert (set(words(copy)), copy.findings) == ({"complete"}, ())
        assert audit(there, west)[0].findings == here.findings  # it needs nothing of what was counted before

        table = DeltaTable(str(home.table("silver.clicks")))
        table.delete("_partition = 0 AND _offset = 3")
        DeltaTable(str(home.table("silver.clicks__quarantine"))).delete("_partition = 1 AND _offset = 3")
        more = [each for each in audited(home, west, [mirror], 80)[0].findings if "counted" not in each]
        assert len(more) == 2
        assert "missing at quarantine silver.clicks" in more[1]
        assert "missing at table silver.clicks" in more[0]
