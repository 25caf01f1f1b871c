"""Running jobs over a real broker that goes away, loses records, or has another topic of the same name."""

import json
import logging
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater_broker.testing import RunningBroker, broker
from headwater_streams.base.errors import DataLossError, IncompatibleStateError
from headwater_streams.ledger.audit import audit_table
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.positions import records_gone
from headwater_streams.runtime.renewal import begin_generations, gone_since_read
from headwater_streams.runtime.restarts import BackOff, Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from support.watching import watch_until

clicks = hw.topic("clicks", schema="n INT")

# A broker that is away is given up after 2 s instead of 15, so that the test need not wait.
IMPATIENT = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
SOON = Restarts(BackOff(0.1, 0.5))


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


both = hw.topic("clicks", "taps", schema="n INT")


@hw.job(target=hw.delta("silver.clicks"), name="clean", dedup=hw.by_offset())
def clean_both(both: DataFrame) -> DataFrame:
    return both


JOB, JOB_OF_BOTH = bind(clean), bind(clean_both)


class Stage:
    """A home and a broker's topic."""

    def __init__(self, spark: SparkSession, home: Path, running: RunningBroker) -> None:
        self.home = Home(home)
        self.context = StageContext(spark, self.home, KafkaSource(running.bootstrap, IMPATIENT))
        self._settings = {"bootstrap.servers": running.bootstrap, "log_level": 0}  # the broker comes and goes
        self.admin = AdminClient(self._settings)

    def make(self, partitions: int = 1, topic: str = "clicks") -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)

    def remove(self, topic: str = "clicks") -> None:
        self.admin.delete_topics([topic])[topic].result(10)

    def send(self, *numbers: int, partition: int = 0, topic: str = "clicks") -> None:
        producer = Producer(self._settings)
        for n in numbers:
            producer.produce(topic, json.dumps({"n": n}).encode(), partition=partition)
        assert producer.flush(10) == 0

    def run_once(self, job: Job = JOB) -> None:
        JobRunner(self.context, [job]).run_once()

    def renew(self, job: Job = JOB) -> dict[str, dict[int, list[int]]]:
        (entry,) = begin_generations(self.context, [job], "renew", lambda _: NoLease())
        lost: dict[str, dict[int, list[int]]] = entry.extra["lost"]
        return lost

    def numbers(self) -> list[int]:
        path = self.home.table("silver.clicks")
        if not (path / "_delta_log").exists():
            return []
        found: list[int] = DeltaTable(str(path)).to_pyarrow_table(columns=["n"]).column("n").to_pylist()
        return sorted(found)

    def audit(self) -> tuple[list[str], list[str]]:
        found = audit_table(self.home, "silver.clicks")
        assert found is not None
        return found.findings, found.notes


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path, broker: RunningBroker) -> Stage:
    return Stage(spark, tmp_path / "home", broker)


@pytest.mark.story
def test_job_broker_away_and_back_goes_on_by_itself(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headwater_streams.runtime.runner")
    with broker(tmp_path / "data") as first:
        stage = Stage(spark, tmp_path / "home", first)
        stage.make(2)
        stage.send(*range(50))
        runner = JobRunner(stage.context, [JOB], restarts=SOON)
        runner.start(interval_s=0.1)
        watch_until(runner, lambda: len(stage.numbers()) == 50)
    watch_until(runner, lambda: "it is started again in" in caplog.text)
    with broker(tmp_path / "data", port=first.port) as again:
        stage = Stage(spark, tmp_path / "home", again)
        stage.send(*range(50, 100), partition=1)
        watch_until(runner, lambda: len(stage.numbers()) == 100)
        runner.stop()
    assert stage.numbers() == list(range(100))
    assert stage.audit() == ([], [])


class EndingLease(NoLease):
    """A lease whose session ends when the test says so."""

    def __init__(self) -> None:
        self.is_over = self.is_released = False

    def is_held(self) -> bool:
        return not self.is_over

    def release(self) -> None:
        self.is_released = True


@pytest.mark.story
def test_job_whose_session_is_lost_claims_its_partitions_anew_and_goes_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    leases: list[EndingLease] = []

    def lease(_: str) -> EndingLease:
        leases.append(EndingLease())
        return leases[-1]

    stage.make()
    stage.send(*range(10))
    runner = JobRunner(stage.context, [JOB], lease=lease, restarts=SOON)
    runner.start(interval_s=0.1)
    watch_until(runner, lambda: len(stage.numbers()) == 10)
    leases[0].is_over = True
    stage.send(*range(10, 20))
    watch_until(runner, lambda: len(stage.numbers()) == 20)
    runner.stop()
    assert "its session with the coordinator may be over" in caplog.text
    assert [each.is_released for each in leases] == [True, True]
    assert stage.numbers() == [*range(20)]
    assert stage.audit() == ([], [])


def test_job_broker_away_without_restarts_says_why(spark: SparkSession, tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        stage = Stage(spark, tmp_path / "home", running)
        stage.make()
        stage.send(1)
        runner = JobRunner(stage.context, [JOB])
        runner.start(interval_s=0.1)
        watch_until(runner, lambda: stage.numbers() == [1])
    with pytest.raises(Exception, match=r"TimeoutException|does not answer"):
        watch_until(runner, lambda: False)
    runner.stop()


@pytest.mark.story
def test_job_retention_overtakes_stopped_job_names_the_range_and_renewed_goes_on(stage: Stage) -> None:
    stage.make()
    stage.send(*range(10))
    stage.run_once()
    stage.send(*range(10, 30))
    (gone,) = stage.admin.delete_records([TopicPartition("clicks", 0, 25)]).values()
    gone.result(10)
    with pytest.raises(
        DataLossError, match=r"of clicks that it has not read are gone.*partition 0 offsets \[10, 25\)"
    ):
        stage.run_once()
    assert stage.numbers() == list(range(10))
    told = records_gone(stage.context, JOB, 1)
    assert told is not None
    assert "partition 0 offsets [10, 25)" in told
    assert stage.renew() == {"clicks": {0: [10, 25]}}
    assert records_gone(stage.context, JOB, 2) is None
    stage.run_once()
    assert records_gone(stage.context, JOB, 2) is None
    assert stage.numbers() == [*range(10), *range(25, 30)]
    findings, (note,) = stage.audit()
    assert not findings
    assert "never read: clicks 0 offsets [10, 25)" in note


@pytest.mark.story
def test_job_topic_made_again_and_longer_is_refused_and_renewed_is_read_whole(stage: Stage) -> None:
    stage.make()
    stage.send(*range(5))
    stage.run_once()
    stage.remove()
    stage.make()
    stage.send(*range(100, 120))  # Spark would go on at offset 5 and say nothing
    with pytest.raises(IncompatibleStateError, match=r"the topic clicks.*deleted and made again.*jobs renew"):
        stage.run_once()
    assert stage.numbers() == list(range(5))
    assert stage.renew() == {}
    stage.run_once()
    assert stage.numbers() == [*range(5), *range(100, 120)]
    assert stage.audit() == ([], [])
    told = {"silver.clicks": ["the topic clicks before it was made again"]}
    assert gone_since_read(stage.context, [JOB]) == told


def test_job_topic_made_again_before_a_generation_has_read_of_it_is_refused_and_renewed_is_read_whole(
    stage: Stage,
) -> None:
    stage.make()
    stage.send(*range(5))
    stage.run_once()
    assert stage.renew() == {}
    stage.remove()
    stage.make()
    stage.send(*range(100, 120))  # the new generation would go on at offset 5
    with pytest.raises(IncompatibleStateError, match=r"the topic clicks.*deleted and made again.*jobs renew"):
        stage.run_once()
    assert stage.renew() == {}
    stage.run_once()
    assert stage.numbers() == [*range(5), *range(100, 120)]
    assert stage.audit() == ([], [])


@pytest.mark.story
def test_job_is_told_what_a_rebuild_does_not_make_again(stage: Stage) -> None:
    stage.make()
    stage.send(*range(10))
    stage.run_once()
    assert gone_since_read(stage.context, [JOB]) == {}
    (deleted,) = stage.admin.delete_records([TopicPartition("clicks", 0, 4)]).values()
    deleted.result(10)
    assert gone_since_read(stage.context, [JOB]) == {"silver.clicks": ["clicks 0 [0, 4)"]}
    stage.remove()
    assert gone_since_read(stage.context, [JOB]) == {
        "silver.clicks": ["the topic clicks, which is not there"]
    }


def test_job_of_several_topics_one_made_again_is_named_and_renewed_the_others_go_on(stage: Stage) -> None:
    stage.make(2)
    stage.make(topic="taps")
    stage.send(*range(5))
    stage.send(*range(200, 210), topic="taps")
    stage.run_once(JOB_OF_BOTH)
    assert stage.numbers() == [*range(5), *range(200, 210)]
    stage.remove("taps")
    stage.make(topic="taps")
    stage.send(*range(300, 320), topic="taps")
    stage.send(5, 6, partition=1)
    with pytest.raises(IncompatibleStateError, match=r"the topic taps: .*deleted and made again") as refused:
        stage.run_once(JOB_OF_BOTH)
    assert "topic clicks" not in str(refused.value)
    assert stage.renew(JOB_OF_BOTH) == {}
    # Partitions that the last generation did not know are named when the next one starts, each topic's own.
    stage.admin.create_partitions([NewPartitions("clicks", 3)])["clicks"].result(10)
    stage.send(7, partition=2)
    stage.run_once(JOB_OF_BOTH)
    assert stage.numbers() == [*range(8), *range(200, 210), *range(300, 320)]
    found = audit_table(stage.home, "silver.clicks")
    assert found is not None
    assert (found.findings, found.notes) == ([], [])
    newest = {(p.topic, p.partition): (p.start, p.end) for p in found.partitions if p.topic == "clicks"}
    assert newest == {("clicks", 0): (5, 5), ("clicks", 1): (0, 2), ("clicks", 2): (0, 1)}


def test_job_that_gains_a_topic_is_renewed_and_reads_it_whole(stage: Stage) -> None:
    stage.make()
    stage.make(topic="taps")
    stage.send(*range(5))
    stage.run_once()
    stage.send(*range(200, 203), topic="taps")
    stage.send(5)
    with pytest.raises(
        IncompatibleStateError, match=r"inputs: topic clicks before, topic clicks, topic taps now"
    ):
        stage.run_once(JOB_OF_BOTH)
    stage.renew(JOB_OF_BOTH)
    stage.run_once(JOB_OF_BOTH)
    assert stage.numbers() == [*range(6), *range(200, 203)]
    assert stage.audit() == ([], [])


def test_job_of_several_topics_overtaken_by_retention_names_the_topic_and_the_range(stage: Stage) -> None:
    stage.make()
    stage.make(topic="taps")
    stage.send(1)
    stage.send(*range(200, 205), topic="taps")
    stage.run_once(JOB_OF_BOTH)
    stage.send(*range(205, 220), topic="taps")
    (gone,) = stage.admin.delete_records([TopicPartition("taps", 0, 12)]).values()
    gone.result(10)
    with pytest.raises(DataLossError, match=r"of taps that it has not read are gone.*offsets \[5, 12\)"):
        stage.run_once(JOB_OF_BOTH)
    assert stage.renew(JOB_OF_BOTH) == {"taps": {0: [5, 12]}}
    stage.run_once(JOB_OF_BOTH)
    assert stage.numbers() == [1, *range(200, 205), *range(212, 220)]


@pytest.mark.story
def test_job_topic_made_again_under_a_running_job_stops_it(stage: Stage) -> None:
    stage.make()
    stage.send(*range(5))
    runner = JobRunner(stage.context, [JOB], restarts=SOON)
    runner.start(interval_s=0.1)
    watch_until(runner, lambda: len(stage.numbers()) == 5)
    stage.remove()
    stage.make()
    stage.send(*range(100, 120))
    with pytest.raises(
        Exception, match=r"clicks is not the topic that it has read|no topic 'clicks'|made again"
    ):
        watch_until(runner, lambda: False)
    runner.stop()
    assert stage.numbers() == list(range(5))


@pytest.mark.story
def test_job_partitions_added_while_running_are_read_from_their_beginning(stage: Stage) -> None:
    stage.make()
    stage.send(*range(5))
    runner = JobRunner(stage.context, [JOB])
    runner.start(interval_s=0.1)
    watch_until(runner, lambda: len(stage.numbers()) == 5)
    stage.admin.create_partitions([NewPartitions("clicks", 3)])["clicks"].result(10)
    stage.send(5, 6, partition=1)
    stage.send(7, partition=2)
    stage.send(8)
    watch_until(runner, lambda: len(stage.numbers()) == 9)
    runner.stop()
    assert stage.numbers() == list(range(9))
    assert stage.audit() == ([], [])
