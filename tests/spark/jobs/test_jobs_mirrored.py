"""Jobs over mirrored topics: a record counts once by where it first stood."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater_broker.testing import broker
from headwater_streams import backfill
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from kafka_clients import QUIET
from mirrored_topics import make_topic, mirror_once, rows

clicks = hw.topic("clicks", "again.clicks", schema="n BIGINT")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


JOB = bind(clean)


def send(bootstrap: str, numbers: Iterable[int]) -> None:
    """In a transaction, whose marker takes an offset."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "sender", **QUIET})
    producer.init_transactions()
    producer.begin_transaction()
    for number in numbers:
        producer.produce("clicks", b'{"n": %d}' % number)
    producer.flush()
    producer.commit_transaction()


@pytest.mark.timeout(600)
def test_records_of_a_mirrored_topic_count_once_by_their_place_at_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker() as west, broker() as east:
        home = Home(tmp_path / "home")
        context = StageContext(spark, home, KafkaSource(east.bootstrap))
        make_topic(west.bootstrap, "clicks")
        for part in range(3):
            send(west.bootstrap, range(part * 10, part * 10 + 10))
        mirror_once(west.bootstrap, east.bootstrap, name="west")
        make_topic(east.bootstrap, "again.clicks")
        JobRunner(context, [JOB]).run_once()
        send(west.bootstrap, range(30, 40))
        mirror_once(west.bootstrap, east.bootstrap, prefix="again.")
        mirror_once(west.bootstrap, east.bootstrap)
        JobRunner(context, [JOB]).run_once()

        table = DeltaTable(str(home.table("silver.clicks"))).to_pyarrow_table().to_pylist()
        places = {row[3]: row[1] for row in rows(west.bootstrap, "clicks")}
        assert sorted(row["n"] for row in table) == list(range(40))
        for row in table:
            origin, place = row["_origin"], places[b'{"n": %d}' % row["n"]]
            assert origin == {"cluster": "west", "topic": "clicks", "partition": 0, "offset": place}

        # A repair reads the topics again, and its proof a second time, by other code: both know the origins, too.
        planned = backfill.plan(
            context, JOB, offsets={topic: {0: (0, 40)} for topic in ("clicks", "again.clicks")}
        )
        backfill.run(context, planned.id, JOB)
        verdict = backfill.verify(context, planned.id, JOB, recompute="all")
        assert verdict.passed, verdict.findings
        assert verdict.accounting["duplicate"] == 40
        assert not verdict.diff.changed
