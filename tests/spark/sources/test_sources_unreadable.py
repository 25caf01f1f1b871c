"""A batch that nobody can read is one record of its topic to every kind of job: in quarantine, and in the account."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from bad_batches import cases
from headwater_broker.testing import RunningBroker, broker
from headwater_streams import backfill
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from old_log import append_to_log

DELAY = "1 hour"
paid = hw.topic("paid", schema="who STRING, amount INT, at TIMESTAMP", event_time="at", watermark=DELAY)
refunds = hw.topic("refunds", schema="who STRING, back_at TIMESTAMP", event_time="back_at", watermark=DELAY)


@hw.job(target=hw.delta("silver.paid"), dedup=hw.by_offset(origin=True))
def rows(paid: DataFrame) -> DataFrame:
    return paid


@hw.job(target=hw.scd1("silver.last", keys=["who"], sequence_by="amount"))
def last(paid: DataFrame) -> DataFrame:
    return paid


_WINDOWS = {"keys": ["who", "window_start"], "mode": "update"}


@hw.job(target=hw.delta("gold.counted", **_WINDOWS), dedup=hw.by_offset(), late="count")
def read_directly(paid: DataFrame) -> DataFrame:
    return hw.tumbling(paid, "at", "1 hour", by=["who"]).agg(F.sum("amount").alias("amount"))


@hw.job(target=hw.delta("gold.kept", **_WINDOWS))
def through_a_table(paid: DataFrame) -> DataFrame:
    return hw.tumbling(paid, "at", "1 hour", by=["who"]).agg(F.sum("amount").alias("amount"))


@hw.job(target=hw.delta("gold.joined"), late="count")
def joined(paid: DataFrame, refunds: DataFrame) -> DataFrame:
    return hw.join(paid, refunds, on=["who"], left_time="at", right_time="back_at", within="1 hour")


JOBS = (rows, last, read_directly, through_a_table, joined)


def send(to: RunningBroker, topic: str, amounts: list[int]) -> None:
    producer, at = Producer({"bootstrap.servers": to.bootstrap, "log_level": 0}), "2026-01-01T10:00:00Z"
    for amount in amounts:
        producer.produce(topic, f'{{"who": "a", "amount": {amount}, "at": "{at}", "back_at": "{at}"}}')
    assert producer.flush(10) == 0


@pytest.mark.story
def test_unreadable_batch_is_one_quarantined_record_and_every_job_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, home = tmp_path / "data", Home(tmp_path / "home")
    with broker(data) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic("paid", 1, 1), NewTopic("refunds", 1, 1)]).values():
            made.result(10)
        send(running, "paid", [1, 2])
        send(running, "refunds", [3])
    assert append_to_log(data / "paid-0", cases(0)["garbage"]) == 2  # offsets 2 to 4
    with broker(data) as running:
        send(running, "paid", [4])
        context = StageContext(spark, home, KafkaSource(running.bootstrap))
        bound = [bind(job) for job in JOBS]
        JobRunner(context, bound).run_once()
        send(running, "paid", [8])
        JobRunner(context, bound).run_once()

        def table(name: str) -> DataFrame:
            return spark.read.format("delta").load(str(home.table(name)))

        def check() -> None:
            found = table("silver.paid").select("amount", "_offset").collect()
            assert sorted(map(tuple, found)) == [(1, 0), (2, 1), (4, 5), (8, 6)]
            for side in ("silver.paid", "silver.last", "gold.counted", "gold.kept", "gold.joined"):
                (row,) = table(f"{side}__quarantine").collect()
                assert (row["_topic"], row["_partition"], row["_offset"]) == ("paid", 0, 2), side
                assert row["_check"] == "unreadable", side
                assert row["_reason"].startswith("the batch of offsets 2 to 4 cannot be read: record 0 of 3 ")
                assert bytes(cases(0)["garbage"])[21:] in row["_raw"], "its bytes as they are stored"
            assert [audit.findings for audit in audit_home(home)] == [[]] * len(list(audit_home(home)))

        check()
        assert [row["amount"] for row in table("gold.counted").collect()] == [15]
        assert [row["amount"] for row in table("gold.kept").collect()] == [15]
        assert [row["amount"] for row in table("silver.last").collect()] == [8]
        assert table("gold.joined").count() == 4
        planned = backfill.plan(context, bind(rows))
        backfill.run(context, planned.id, bind(rows))
        assert backfill.verify(context, planned.id, bind(rows)).passed
        backfill.swap(context, planned.id)
        check()
