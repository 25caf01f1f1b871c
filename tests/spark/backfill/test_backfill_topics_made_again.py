"""Backfills of jobs whose topic was deleted and made again: two records have each offset, and one is gone for ever.

generation 1   clicks    offsets 0 .. 9     n = 0 .. 9
               deleted, made again, headwater jobs renew
generation 2   clicks    offsets 0 .. 19    n = 100 .. 119      these alone are read again

Before the renewal nothing is: what a job has read is in no topic, and every step of a backfill says so.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
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
from headwater_streams.base.errors import DataLossError, IncompatibleStateError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home

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
        self.home, self.bootstrap = Home(home), running.bootstrap
        self.context = StageContext(spark, self.home, KafkaSource(running.bootstrap))
        self._settings = {"bootstrap.servers": running.bootstrap}
        self._admin = AdminClient(self._settings)

    def make(self, numbers: Iterable[int], topic: str = "clicks", *, partitions: int = 1) -> None:
        """Makes a topic with these records, in its last partition, once more if it is there."""
        if topic in self._admin.list_topics().topics:
            self._admin.delete_topics([topic])[topic].result(10)
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)
        self.send(numbers, topic, partition=partitions - 1)

    def send(self, numbers: Iterable[int], topic: str = "clicks", *, partition: int = 0) -> None:
        producer = Producer(self._settings)
        for n in numbers:
            value = {"n": n, "at": f"2013-01-01T10:{n % 60:02}:00Z"}
            producer.produce(topic, json.dumps(value).encode(), partition=partition)
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


MADE_AGAIN = "was deleted and made again since the backfill"


@pytest.mark.story
def test_backfill_of_a_topic_made_again_is_not_planned_until_the_job_is_renewed(stage: Stage) -> None:
    before, mended = clean("n % 5 <> 1"), clean("n >= 0")
    stage.make(range(6))
    stage.run(before)
    stage.send(range(6, 10))
    stage.run(before)
    rows, context = stage.rows(), stage.context
    span = ("2013-01-01T00:00:00Z", "2100-01-01T00:00:00Z")
    ranges: list[Callable[[], Any]] = [
        lambda: backfill.plan(context, mended),
        lambda: backfill.plan(context, mended, offsets={"clicks": {0: (0, 1)}}),
        lambda: backfill.plan(context, mended, timestamps=span),
        lambda: backfill.plan(context, mended, event_time=span),
        lambda: backfill.plan(context, mended, since_version=0),
        lambda: backfill.plan(context, mended, rows="quarantined"),
        lambda: backfill.plan_rebuild(context, before),
        lambda: backfill.plan_rewind(context, before, version=1),
    ]
    for numbers, partitions in ((range(100, 120), 1), (range(100, 103), 1), (range(100, 120), 2)):
        stage.make(numbers, partitions=partitions)
        with pytest.raises(IncompatibleStateError, match=r"made again.*jobs renew clean") as run:
            stage.run(before)
        for plan in ranges:
            with pytest.raises(IncompatibleStateError) as refused:
                plan()
            assert str(refused.value) == str(run.value), "it is refused as the next run is"
    assert stage.rows() == rows
    stage.renew(before)
    stage.run(before)
    backfill_id, verdict = stage.verified(mended)
    assert verdict.passed, verdict.findings
    backfill.swap(context, backfill_id)
    assert stage.rows() == [*rows, *[(2, n) for n in range(100, 120)]]


def test_backfill_whose_topic_is_made_again_between_its_steps_goes_no_further(stage: Stage) -> None:
    before, mended = clean("n % 5 <> 1"), clean("n >= 0")
    stage.make(range(10))
    stage.run(before)
    stage.send(range(10, 13))
    stage.run(before)
    context, rows = stage.context, stage.rows()

    def of(start: int, end: int) -> Mapping[str, Any]:
        return {"offsets": {"clicks": {0: (start, end)}}}

    planned, ran = (backfill.plan(context, mended, **of(start, start + 2)).id for start in (0, 2))
    backfill.run(context, ran, mended)
    verified, _ = stage.verified(mended, **of(4, 6))
    swapped, _ = stage.verified(mended, **of(6, 8))
    rebuild = backfill.plan_rebuild(context, mended).id
    backfill.run(context, rebuild, mended)
    assert backfill.verify(context, rebuild, mended).passed
    backfill.swap(context, swapped)
    mended_rows = stage.rows()
    assert mended_rows != rows
    rewind = backfill.plan_rewind(context, before, version=1).id
    assert backfill.verify(context, rewind, before).passed

    stage.make(range(100, 120))
    steps: list[Callable[[], Any]] = [
        *[
            lambda each=each: backfill.preview(context, each, mended)
            for each in (planned, ran, verified, rebuild)
        ],
        *[
            lambda each=each: backfill.run(context, each, mended)
            for each in (planned, ran, verified, rebuild)
        ],
        *[lambda each=each: backfill.verify(context, each, mended) for each in (ran, verified, rebuild)],
        *[lambda each=each: backfill.swap(context, each) for each in (verified, rebuild, rewind)],
        lambda: backfill.verify(context, rewind, before),
        lambda: hw.backfill.swap(verified, home=stage.home.root, bootstrap=stage.bootstrap),
    ]
    for step in steps:
        with pytest.raises(
            BackfillError, match=f"the topic clicks {MADE_AGAIN}.*jobs renew clean; then plan again"
        ):
            step()
    assert stage.rows() == mended_rows
    assert backfill.verify(context, swapped, mended).passed, "what is swapped in has its verdict still"
    backfill.swap(context, swapped)
    assert stage.findings() == []
    backfill.rollback(context, swapped)
    assert stage.rows() == rows
    stage.renew(before)
    stage.run(before)
    for step in steps:
        with pytest.raises(BackfillError, match=f"the topic clicks {MADE_AGAIN}"):
            step()
    assert stage.rows() == [*rows, *[(2, n) for n in range(100, 120) if n % 5 != 1]]
    assert stage.findings() == []


def test_backfill_whose_topic_is_made_again_while_it_is_read_commits_nothing(stage: Stage) -> None:
    before, mended = clean("n % 5 <> 1"), clean("n >= 0")
    stage.make(range(10))
    stage.run(before)
    rows = stage.rows()
    chunked = backfill.plan(stage.context, mended).id
    rebuild = backfill.plan_rebuild(stage.context, mended).id
    source = stage.context.source
    assert isinstance(source, KafkaSource)

    class MadeAgain(KafkaSource):
        """Records are read when the chunk is written, behind this."""

        def read(self, *asked: Any, **more: Any) -> DataFrame:
            found = super().read(*asked, **more)
            stage.make(range(100, 120))
            return found

    with pytest.raises(BackfillError, match=MADE_AGAIN):
        backfill.run(replace(stage.context, source=MadeAgain(stage.bootstrap)), chunked, mended)
    assert backfill.status(stage.home, chunked)["chunks_done"] == 0
    with pytest.raises(BackfillError, match=MADE_AGAIN):
        backfill.run(stage.context, chunked, mended)

    stage.renew(before)
    stage.run(before)
    verified, _ = stage.verified(mended)
    with pytest.raises(BackfillError, match=MADE_AGAIN):
        backfill.verify(replace(stage.context, source=MadeAgain(stage.bootstrap)), verified, mended)
    with pytest.raises(BackfillError, match=MADE_AGAIN):
        backfill.run(stage.context, rebuild, mended)
    assert stage.rows() == [*rows, *[(2, n) for n in range(100, 120) if n % 5 != 1]]


def test_rebuild_whose_topic_is_made_again_while_it_runs_is_refused(stage: Stage) -> None:
    job = clean("n >= 0")
    stage.make(range(10))
    stage.run(job)
    rebuild = backfill.plan_rebuild(stage.context, job).id

    def step(_job: str, what: str, batch: int) -> None:
        if (what, batch) == ("shadow started", -1):
            stage.make(range(100, 120))

    with pytest.raises(BackfillError, match=MADE_AGAIN):
        backfill.run(replace(stage.context, step=step), rebuild, job)
    for again in (
        lambda: backfill.run(stage.context, rebuild, job),
        lambda: backfill.verify(stage.context, rebuild, job),
    ):
        with pytest.raises(BackfillError, match=MADE_AGAIN):
            again()
    assert stage.rows() == [(1, n) for n in range(10)]


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


class Killed(BaseException):
    """The process died here."""


def test_swap_that_has_begun_is_ended_though_the_topic_was_made_again(stage: Stage) -> None:
    before, mended = clean("n % 5 <> 1"), clean("n >= 0")
    stage.make(range(10))
    stage.run(before)
    backfill_id, _ = stage.verified(mended)

    def step(_job: str, what: str, batch: int) -> None:
        if what == "after quarantine swap":
            raise Killed

    with pytest.raises(Killed):
        backfill.swap(replace(stage.context, step=step), backfill_id)
    stage.make(range(100, 120))
    backfill.swap(stage.context, backfill_id)
    assert stage.rows() == [(1, n) for n in range(10)]
    assert stage.findings() == []


def test_rollback_loses_nothing_that_the_job_read_since_of_a_topic_made_again(stage: Stage) -> None:
    job = clean("n >= 0")
    stage.make(range(10))
    stage.run(job)

    def swapped_in(backfill_id: str) -> str:
        backfill.run(stage.context, backfill_id, job)
        assert backfill.verify(stage.context, backfill_id, job).passed
        backfill.swap(stage.context, backfill_id)
        return backfill_id

    first = swapped_in(backfill.plan_rebuild(stage.context, job).id)
    backfill.rollback(stage.context, first)
    second = swapped_in(backfill.plan_rebuild(stage.context, job).id)
    stage.send(range(10, 15))
    stage.run(job)
    rows = stage.rows()
    rewound = backfill.plan_rewind(
        stage.context, job, version=backfill.versions(stage.home, job)[0].version
    ).id
    stage.make(range(100, 120))
    with pytest.raises(
        DataLossError, match=r"has read clicks 0 \[10, 15\) since .* made again.*jobs renew clean"
    ):
        hw.backfill.rollback(second, home=stage.home.root, bootstrap=stage.bootstrap)
    assert stage.rows() == rows
    with pytest.raises(BackfillError, match=MADE_AGAIN):
        backfill.verify(stage.context, rewound, job)
    stage.renew(job)
    stage.run(job)
    assert [n for _, n in stage.rows()] == [*range(15), *range(100, 120)]
    assert stage.findings() == []


def test_rewind_is_taken_back_though_the_topic_was_made_again_since(stage: Stage) -> None:
    job = clean("n >= 0")
    stage.make(range(10))
    stage.run(job)
    stage.send(range(10, 15))
    stage.run(job)
    rewound = backfill.plan_rewind(stage.context, job, version=1).id
    assert backfill.verify(stage.context, rewound, job).passed
    backfill.swap(stage.context, rewound)
    assert [n for _, n in stage.rows()] == [*range(10)]
    stage.make(range(100, 120))
    backfill.rollback(stage.context, rewound)
    assert [n for _, n in stage.rows()] == [*range(15)], "these rows are in no topic any more"
    with pytest.raises(IncompatibleStateError, match=r"made again.*jobs renew clean"):
        stage.run(job)
    stage.renew(job)
    stage.run(job)
    assert [n for _, n in stage.rows()] == [*range(15), *range(100, 120)]
    assert stage.findings() == []
    # Back to before it was made again, where nothing of the old topic would be lost, and not farther.
    last, *_ = (each for each in reversed(backfill.versions(stage.home, job)) if each.why_not is None)
    assert last.batch == 1
    with pytest.raises(BackfillError, match="cannot be read again, for it was deleted and made again since"):
        backfill.plan_rewind(stage.context, job, version=1)
    backfill.plan_rewind(stage.context, job, version=last.version)


clacks = hw.topic("clacks", schema="n INT, at TIMESTAMP", event_time="at", watermark="1 hour")


@hw.job(target=hw.delta("silver.both"), dedup=hw.by_offset())
@hw.check("wanted", "n % 5 <> 1")
def pairs(clicks: DataFrame, clacks: DataFrame) -> DataFrame:
    clicks = clicks.withColumnRenamed("at", "clicked_at")
    return hw.join(clicks, clacks, on=["n"], left_time="clicked_at", right_time="at", within="1 hour")


def test_join_one_of_whose_topics_was_made_again_names_it(stage: Stage) -> None:
    job = bind(pairs)
    stage.make(range(10))
    stage.make(range(10), "clacks")
    stage.run(job)
    stage.make(range(10), "clacks")
    for plan in (
        lambda: backfill.plan(stage.context, job),
        lambda: backfill.plan_rebuild(stage.context, job),
    ):
        with pytest.raises(
            IncompatibleStateError, match=r"the topic clacks: .*made again.*renew pairs"
        ) as refused:
            plan()
        assert "topic clicks" not in str(refused.value)
