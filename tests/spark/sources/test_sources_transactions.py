"""A topic of transactions: markers and aborted records take offsets and are not read; the books know of them."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_broker.testing import broker
from headwater_streams.base.errors import DataLossError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home

paid = hw.topic("paid", schema="who STRING, amount INT, at TIMESTAMP", event_time="at", watermark="1 hour")


@hw.job(target=hw.delta("silver.paid"), dedup=hw.by_offset())
def all_paid(paid: DataFrame) -> DataFrame:
    return paid


@hw.job(
    target=hw.delta("gold.paid", keys=["who", "window_start"], mode="update"),
    dedup=hw.by_offset(),
    late="count",
)
def hourly(paid: DataFrame) -> DataFrame:
    return hw.tumbling(paid, "at", "1 hour", by=["who"]).agg(F.sum("amount").alias("amount"))


def test_transactions_markers_and_aborted_records_are_accounted_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("paid", 1, 1)])["paid"].result(10)
        producer = Producer(
            {"bootstrap.servers": running.bootstrap, "transactional.id": "till", "log_level": 0}
        )
        producer.init_transactions(10)
        options = {"kafka.isolation.level": "read_committed"}
        context = StageContext(spark, home, KafkaSource(running.bootstrap, options))
        for amounts, kept in (((1, 2), True), ((4, 8), False), ((16,), True)):
            producer.begin_transaction()
            for amount in amounts:
                producer.produce("paid", f'{{"who": "a", "amount": {amount}, "at": "2026-01-01T10:00:00Z"}}')
            assert producer.flush(10) == 0  # an abort would drop what has not been sent
            producer.commit_transaction(10) if kept else producer.abort_transaction(10)
            runner = JobRunner(context, [bind(all_paid), bind(hourly)])
            runner.run_once()
            runner.stop()
        producer.begin_transaction()
        producer.produce("paid", b"not JSON")
        producer.commit_transaction(10)
        with monkeypatch.context() as patched:
            patched.setattr(KafkaSource, "count_records", lambda *_: 2)
            runner = JobRunner(context, [bind(all_paid)])
            with pytest.raises(DataLossError, match="the topic holds 2 there"):
                runner.run_once()
        JobRunner(context, [bind(all_paid), bind(hourly)]).run_once()
    amounts = spark.read.format("delta").load(str(home.table("silver.paid"))).select("amount", "_offset")
    assert sorted(map(tuple, amounts.collect())) == [(1, 0), (2, 1), (16, 6)]
    (summed,) = spark.read.format("delta").load(str(home.table("gold.paid"))).collect()
    assert summed["amount"] == 19
    raw = spark.read.format("delta").load(str(home.table("gold.paid__quarantine"))).select("_raw", "_offset")
    assert [tuple(row) for row in raw.collect()] == [(b"not JSON", 8)]
    assert [audit.findings for audit in audit_home(home)] == [[], []]
