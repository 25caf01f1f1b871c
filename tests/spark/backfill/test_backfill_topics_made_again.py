"""Backfills of jobs whose topic was deleted and made again: two records have each offset, and one is gone for ever.

generation 1   clicks    offsets 0 .. 9     n = 0 .. 9
               deleted, made again, headwater jobs renew
generation 2   clicks    offsets 0 .. 19    n = 100 .. 119      these alone are read again
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_broker.testing import RunningBroker
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError, Verdict
from headwater_streams.errors import DataLossError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.home import Home
from headwater_streams.runtime.job import Job, bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource

clicks = hw.topic(
    "clicks", schema="n INT, at TIMESTAMP", event_time="at", watermark="1 hour", max_ahead="1000000 hours"
)
silver = hw.table("silver.clicks", event_time="at")


def clean(violation: str) -> Job:
    @hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
    @hw.check("wanted", violation)
    def clean(clicks: DataFrame) -> DataFrame:
        return clicks

    return bind(clean)


@hw.job(target=hw.delta("silver.twice"))
def twice(silver: DataFrame) -> DataFrame:
    return silver.withColumn("n", F.col("n") * 2)


@hw.job(target=hw.delta("gold.hours", keys=["window_start"], mode="update"), dedup=hw.by_offset())
def hours(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 hour", by=[]).agg(F.count("*").alias("clicks"))


class Stage:
    """A home and a broker with one topic."""

    def __init__(self, spark: SparkSession, home: Path, running: RunningBroker) -> None:
        self.home = Home(home)
        self.context = StageContext(spark, self.home, KafkaSource(running.bootstrap))
        self._settings = {"bootstrap.servers": running.bootstrap}
        self._admin = AdminClient(self._settings)

    def make(self, numbers: Iterable[int]) -> None:
        """Makes the topic with these records, once more if it is there."""
        if "clicks" in self._admin.list_topics().topics:
            self._admin.delete_topics(["clicks"])["clicks"].result(10)
        self._admin.create_topics([NewTopic("clicks", 1, 1)])["clicks"].result(10)
        producer = Producer(self._settings)
        for n in numbers:
            value = {"n": n, "at": f"2013-01-01T10:{n % 60:02}:00Z"}
            producer.produce("clicks", json.dumps(value).encode())
        assert producer.flush(10) == 0

    def run(self, *jobs: Job) -> None:
        JobRunner(self.context, list(jobs)).run_once()

    def renew(self, *jobs: Job) -> None:
        begin_generations(self.context, jobs, "renew", lambda _: NoLease())

    def verified(self, job: Job, **asked: Any) -> tuple[str, Verdict]:
        planned = backfill.plan(self.context, job, **asked)
        backfill.run(self.context, planned.id, job)
        return planned.id, backfill.verify(self.context, planned.id, job)

    def rows(self, table: str = "silver.clicks") -> list[tuple[int, int]]:
        found = (
            DeltaTable(str(self.home.table(table))).to_pyarrow_table(columns=["n", "_generation"]).to_pylist()
        )
        return sorted((row["_generation"], row["n"]) for row in found)

    def findings(self) -> list[str]:
        return [finding for audit in audit_home(self.home) for finding in audit.findings]


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path, broker: RunningBroker) -> Stage:
    return Stage(spark, tmp_path / "home", broker)


def test_repair_of_a_topic_made_again_leaves_the_rows_of_the_old_one_alone(stage: Stage) -> None:
    before, mended = clean("n % 5 <> 1"), clean("n >= 0")
    stage.make(range(10))
    stage.run(before)
    stage.make(range(100, 120))
    stage.renew(before)
    stage.run(before)
    old = [(1, n) for n in range(10) if n % 5 != 1]
    new = [(2, n) for n in range(100, 120) if n % 5 != 1]
    assert stage.rows() == [*old, *new]
    backfill_id, verdict = stage.verified(mended, rows="quarantined")
    assert verdict.passed, verdict.findings
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (4, 0, 0)
    told = "the topic clicks was deleted and made again; what was made of the old one stays as it is"
    assert told in verdict.notes
    backfill.swap(stage.context, backfill_id)
    assert stage.rows() == [*old, *[(2, n) for n in range(100, 120)]]
    quarantined = DeltaTable(str(stage.home.table("silver.clicks__quarantine"))).to_pyarrow_table()
    assert sorted(quarantined["_generation"].to_pylist()) == [1, 1]
    assert stage.findings() == []
    backfill.rollback(stage.context, backfill_id)
    assert stage.rows() == [*old, *new]
    assert stage.findings() == []
    backfill_id, verdict = stage.verified(mended)
    assert verdict.passed, verdict.findings
    backfill.swap(stage.context, backfill_id)
    assert stage.rows() == [*old, *[(2, n) for n in range(100, 120)]]
    assert stage.findings() == []
    with pytest.raises(
        DataLossError, match="the topic clicks was deleted and made again since the job 'clean'"
    ):
        backfill.plan_rebuild(stage.context, mended)
    # One that is shorter than the old one was.
    stage.make(range(200, 203))
    stage.renew(mended)
    stage.run(mended)
    backfill_id, verdict = stage.verified(before)
    assert verdict.passed, verdict.findings
    backfill.swap(stage.context, backfill_id)
    assert stage.rows()[-2:] == [(3, 200), (3, 202)]
    assert len(stage.rows()) == len(old) + 20 + 2
    assert stage.findings() == []


@pytest.mark.story
def test_repairs_behind_a_topic_made_again_are_of_windows_or_refused(stage: Stage) -> None:
    jobs = [clean("n >= 0"), bind(twice), bind(hours)]
    stage.make(range(10))
    stage.run(*jobs)
    stage.make(range(100, 120))
    stage.renew(jobs[0], jobs[2])
    stage.run(*jobs)
    assert stage.rows("silver.twice") == [(1, 2 * n) for n in [*range(10), *range(100, 120)]]
    with pytest.raises(BackfillError, match=r"clicks was deleted and made again, .* of both .* --rebuild"):
        backfill.plan(stage.context, jobs[1])
    backfill_id, verdict = stage.verified(jobs[2])
    assert verdict.passed, verdict.findings
    assert (verdict.diff.changed, verdict.diff.unchanged) == (0, 1)
    assert verdict.accounting["read"] == 30
    assert verdict.notes[-1].endswith(
        "the topic clicks was deleted and made again, and what gold.hours__ingest_clicks has of before is in no topic"
    )
    backfill.swap(stage.context, backfill_id)
    assert stage.findings() == []


def test_generations_that_begin_twice_or_without_a_checkpoint_go_on_where_the_job_was(stage: Stage) -> None:
    """No dedup would leave out what they read again, and none of them has read another topic."""

    @hw.job(target=hw.delta("silver.clicks"))
    def plain(clicks: DataFrame) -> DataFrame:
        return clicks

    job = bind(plain)
    stage.make(range(5))
    stage.run(job)
    stage.renew(job)
    stage.renew(job)
    stage.run(job)
    assert stage.rows() == [(1, n) for n in range(5)]
    shutil.rmtree(stage.home.checkpoint("plain", 3))
    stage.renew(job)
    stage.run(job)
    assert stage.rows() == [(1, n) for n in range(5)]
    assert stage.findings() == []
    backfill_id, verdict = stage.verified(job)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.unchanged, verdict.accounting["before"]) == (5, 5)
    backfill.swap(stage.context, backfill_id)
    assert stage.rows() == [(1, n) for n in range(5)]
    assert stage.findings() == []
    backfill.plan_rebuild(stage.context, job)


def test_repair_is_taken_back_beside_the_rows_of_a_topic_made_again_since(stage: Stage) -> None:
    before, mended = clean("n % 5 <> 1"), clean("n >= 0")
    stage.make(range(10))
    stage.run(before)
    rows = stage.rows()
    backfill_id, _ = stage.verified(mended)
    backfill.swap(stage.context, backfill_id)
    stage.make(range(100, 107))
    stage.renew(before)
    stage.run(before)
    new = [(2, n) for n in range(100, 107) if n % 5 != 1]
    assert stage.rows() == [*[(1, n) for n in range(10)], *new]
    assert stage.findings() == []
    backfill.rollback(stage.context, backfill_id)
    assert stage.rows() == [*rows, *new]
    quarantined = DeltaTable(str(stage.home.table("silver.clicks__quarantine"))).to_pyarrow_table()
    assert sorted(quarantined["_generation"].to_pylist()) == [1, 1, 2, 2]
    assert stage.findings() == []
