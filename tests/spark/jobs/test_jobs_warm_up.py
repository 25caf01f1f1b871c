"""A new generation of a stateful job reads again what its state is made of: its tables are those of an undisturbed run.

    event time   10:00      11:00      12:00      13:00
    windows      |----A-----|----B-----|----C-----|
    versions        1: a     2: b  3: a (late), b, c | 4: c
                            P0                       P1: renewed here

The watermark, 10 minutes behind what has come, stands behind A, so B and C are open, and P0 is behind the last commit
of which all before it is older than B: versions 2 and 3 are read again, in one batch that commits nothing.
"""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_broker.testing import RunningBroker
from headwater_streams.base.errors import DataLossError, IncompatibleStateError, StreamsError
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS, LedgerEntry
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import why_not_renewed
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home
from headwater_streams.testing import JobDriver, SimulatedCrash

DELAY = "10 minutes"
SENT_AT = "2026-01-01T20:00:00+00:00"
clicks = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark=DELAY)
buys = hw.topic(
    "buys", schema="who STRING, paid INT, bought_at TIMESTAMP", event_time="bought_at", watermark=DELAY
)
good = hw.table("silver.clicks", event_time="at", watermark=DELAY)
paid = hw.table("silver.buys", event_time="bought_at", watermark=DELAY)


@hw.job(target=hw.delta("silver.clicks"))
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("silver.buys"))
def bought(buys: DataFrame) -> DataFrame:
    return buys


def _per_hour(rows: DataFrame) -> DataFrame:
    windows = hw.tumbling(rows, "at", "1 hour", by=["who"])
    return windows.agg(F.count("*").alias("clicks"), F.sum("n").alias("total"))


_HOURLY = hw.delta("gold.hourly", keys=["who", "window_start"], mode="update")


@hw.job(target=_HOURLY, name="hourly")
def hourly(good: DataFrame) -> DataFrame:
    return _per_hour(good.filter("n % 7 != 0"))


@hw.job(target=_HOURLY, name="hourly")
def other_filter(good: DataFrame) -> DataFrame:
    return _per_hour(good.filter("n % 2 != 0"))


@hw.job(target=hw.delta("gold.hopping"))
def hopping(good: DataFrame) -> DataFrame:
    return hw.hopping(good, "at", "1 hour", every="20 minutes", by=["who"]).agg(F.sum("n").alias("total"))


@hw.job(target=hw.delta("gold.either"))
def either(paid: DataFrame, good: DataFrame) -> DataFrame:
    return hw.join(
        good, paid, on=["who"], left_time="at", right_time="bought_at", within="30 minutes", how="full"
    )


_GROWING = hw.delta("gold.growing", keys=["who", "window_start", "window_end"], mode="update")


@hw.job(target=_GROWING, late="count")
def growing(clicks: DataFrame) -> DataFrame:
    return hw.cumulative(clicks, "at", "1 hour", step="30 minutes", by=["who"]).agg(F.sum("n").alias("total"))


@hw.job(target=hw.delta("gold.final"), late="count")
def final(clicks: DataFrame) -> DataFrame:
    return _per_hour(clicks)


@hw.job(target=hw.delta("gold.counted"), late="count")
def counted_join(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    return hw.join(clicks, buys, on=["who"], left_time="at", right_time="bought_at", within="1 hour")


@hw.job(target=hw.delta("gold.visits"), late="count")
def visits(clicks: DataFrame) -> DataFrame:
    return hw.session(clicks, "at", "5 minutes", by=["who"]).agg(F.count("*").alias("clicks"))


@hw.job(target=hw.delta("gold.sums", keys=["who"], mode="update"), late="count")
def sums(clicks: DataFrame) -> DataFrame:
    return hw.grouped(clicks, by=["who"], state="unbounded").agg(F.sum("n").alias("total"))


STATEFUL = (hourly, hopping, either)
COLUMNS = {
    "gold.hourly": ("who", "window_start", "clicks", "total", "_rows", "_sources"),
    "gold.hourly__late": ("who", "n", "_offset"),
    "gold.hopping": ("who", "window_start", "total", "_rows", "_sources"),
    "gold.hopping__late": ("who", "n", "_offset", "_missed"),
    "gold.either": ("who", "n", "at", "paid", "bought_at", "_sources"),
    "gold.either__late": ("who", "n", "paid", "_offset"),
}


def _time(minute: float) -> str:
    hours, ms = divmod(round(minute * 60_000), 3_600_000)
    return f"2026-01-01T{10 + hours:02}:{ms // 60_000:02}:{ms % 60_000 / 1000:06.3f}Z"


def _rows(rng: random.Random, minute: float, time: str = "at", number: str = "n") -> list[dict[str, Any]]:
    """Rows around a minute, of which one holds the watermark, and sometimes one that is far behind."""
    minutes = [minute + rng.uniform(-15, 5) for _ in range(rng.randrange(3, 8))]
    if rng.random() < 0.5:
        minutes.append(minute - rng.uniform(30, 120))
    rows = [{"who": rng.choice("abc"), number: rng.randrange(100), time: _time(m)} for m in minutes]
    return [*rows, {"who": "a", number: 1, time: _time(minute + 5)}]


def _renew(context: StageContext, *jobs: Any) -> list[LedgerEntry]:
    return begin_generations(context, [bind(job) for job in jobs], "renew", lambda _: NoLease())


def _begun(entries: Sequence[LedgerEntry]) -> WarmUp:
    (entry,) = entries
    again = WarmUp.of(entry)
    assert again is not None
    return again


@pytest.fixture
def rng() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def test_warm_up_in_the_middle_of_open_windows_gives_the_tables_of_an_undisturbed_run(
    spark: SparkSession, tmp_path: Path, setting: Callable[[str, str], None], rng: random.Random
) -> None:
    jobs = (clean, bought, *STATEFUL)
    setting("spark.sql.streaming.noDataMicroBatches.enabled", rng.choice(("true", "false")))
    deliveries = [
        {"clicks": _rows(rng, minute), "buys": _rows(rng, minute, "bought_at", "paid")}
        for minute in (60, 140, 200, 220, 400)
    ]

    def deliver(driver: JobDriver, place: int) -> None:
        for topic, rows in deliveries[place].items():
            offset = sum(len(before[topic]) for before in deliveries[:place])
            driver.send(topic, *rows, timestamp=SENT_AT, offset=offset)

    driver = JobDriver(spark, tmp_path / "one", jobs)
    for place in range(len(deliveries)):
        if place == 3:
            shutil.copytree(tmp_path / "one", tmp_path / "other")
        deliver(driver, place)
        driver.run()
    other = JobDriver(spark, tmp_path / "other", jobs)
    setting("spark.sql.shuffle.partitions", "3")
    warmed = {job.__name__: _begun(_renew(other.context, job)) for job in STATEFUL}
    for again in warmed.values():
        assert all(s.versions is not None and s.versions[0] > 0 for s in again.sources), (
            "only the tail is read"
        )
    assert _begun(_renew(other.context, hopping)) == warmed["hopping"], "twice, before it has run"
    deliver(other, 3)
    for step, job in [("warm", "hourly"), ("end", "hopping"), ("after commit", "either")]:
        other.crash_at(step, job)  # in the middle of a warm-up, at its end, and in the first batch after it
        with pytest.raises(SimulatedCrash):
            other.run()
    other.run()
    _renew(other.context, either)
    deliver(other, 4)
    other.run()
    for table, names in COLUMNS.items():
        assert other.rows(table, *names) == driver.rows(table, *names), table
    assert other.audit() == driver.audit() == []
    assert (
        '"spark.sql.shuffle.partitions":"3"'
        in (tmp_path / "other/checkpoints/hourly/2/offsets/1").read_text()
    )
    generations = {entry.generation for entry in other.ledger("gold.either") if entry.is_batch}
    assert generations == {1, 2, 3}


@pytest.mark.story
def test_warm_up_after_a_lost_checkpoint_proves_the_state_and_refuses_another(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    driver = JobDriver(spark, tmp_path, [clean, hourly])
    driver.send("clicks", *_rows(rng, 60), {"who": "d", "n": 8, "at": _time(62)}, timestamp=SENT_AT)
    driver.run()
    shutil.rmtree(driver.home.checkpoint("hourly", 1))
    with pytest.raises(DataLossError, match=r"put the checkpoint back, or .* headwater jobs renew hourly"):
        driver.run()
    (gone,) = since_last_run(driver.context, plan_jobs(driver.context, [bind(hourly)])[0])
    assert (gone.what, gone.now, gone.remedy) == ("the checkpoint", "gone", "renew")
    again = _begun(_renew(driver.context, hourly))
    assert again.watermark_ms == NO_WATERMARK_MS, "the only batch had none, so all is read again"
    before = driver.rows("gold.hourly")
    with pytest.raises(
        IncompatibleStateError, match=r"open windows would count other rows.*jobs rebuild hourly"
    ):
        JobDriver(spark, tmp_path, [clean, other_filter]).run()
    assert driver.rows("gold.hourly") == before
    driver.run()
    assert driver.rows("gold.hourly") == before, "what is read again is not written"
    driver.send("clicks", {"who": "d", "n": 9, "at": _time(63)}, timestamp=SENT_AT)
    driver.run()
    assert ("d", 17, 2) in driver.rows("gold.hourly", "who", "total", "clicks")
    assert driver.audit() == []


def empty_tables(driver: JobDriver) -> None:
    driver.run()


@pytest.mark.parametrize(
    "times",
    [("1969-12-31T20:30", "1969-12-31T21:30"), ("1969-12-31T23:30", "1970-01-01T00:10", "1970-01-01T00:05")],
    ids=["before 1970", "at 1970"],
)
def test_warm_up_of_state_of_1970_and_before_is_refused_in_a_sentence(
    drive: Callable[..., JobDriver], times: Sequence[str]
) -> None:
    driver = drive(clean, bought, hourly, either)
    for time in times:
        driver.send("clicks", {"who": "a", "n": 1, "at": f"{time}:00Z"}, timestamp=SENT_AT)
        driver.send("buys", {"who": "a", "paid": 1, "bought_at": f"{time}:00Z"}, timestamp=SENT_AT)
        driver.run()
    for job in (hourly, either):
        with pytest.raises(
            StreamsError, match=rf"its state is made of rows of 1970 or before.*jobs rebuild {job.__name__}"
        ):
            _renew(driver.context, job)
    driver.run()
    assert driver.audit() == []


def test_warm_up_that_cannot_give_the_state_is_refused_in_a_sentence(ready: Callable[..., JobDriver]) -> None:
    driver = ready(empty_tables, clean, bought)
    told: dict[Callable[..., DataFrame], str | None] = {
        counted_join: "only counts its late rows, which, read again, cannot be told from those in time",
        visits: "keeps sessions, and an open one may reach back any time",
        sums: "keeps state that no watermark ends, which would take all of its input",
        growing: None,
        either: None,
    }
    plans = {job: plan_jobs(driver.context, [bind(job)])[-1] for job in told}
    assert {job: why_not_renewed(plan) for job, plan in plans.items()} == told
    with pytest.raises(StreamsError, match=r"has not run: there is no table gold\.visits"):
        _renew(driver.context, visits)


def test_warm_up_of_windows_that_read_a_topic_gives_the_tables_of_an_undisturbed_run(
    spark: SparkSession, tmp_path: Path, broker: RunningBroker, rng: random.Random
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("clicks", 2, 1)])["clicks"].result(10)
    jobs = [bind(growing), bind(final)]
    one, other = (
        StageContext(spark, Home(tmp_path / name), KafkaSource(broker.bootstrap)) for name in ("one", "other")
    )

    def deliver(*rows: dict[str, Any]) -> None:
        producer = Producer(settings)
        for place, row in enumerate(rows):
            producer.produce("clicks", json.dumps(row).encode(), partition=place % 2, timestamp=1767297600000)
        assert producer.flush(10) == 0

    for minute in (60, 140, 200):
        deliver(*_rows(rng, minute))
        JobRunner(one, jobs).run_once()
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for job in (growing, final):
        (begun,) = _renew(other, job)
        again = WarmUp.of(begun)
        assert again is not None
        spans = again.sources[0].ranges["clicks"]
        assert all(start > 0 for start, _ in spans.values()), "only the tail is read"
        assert begun.extra["starts"] == {"clicks": {p: end for p, (_, end) in spans.items()}}
    for minute in (220, 400):
        deliver(*_rows(rng, minute))
        for context in (one, other):
            JobRunner(context, jobs).run_once()
    for table, names in {
        "gold.growing": ["who", "window_start", "window_end", "total", "_rows", "_sources"],
        "gold.final": ["who", "window_start", "clicks", "total", "_rows"],
    }.items():
        found, expected = (dataset_of(c.home.table(table)).to_table(names).to_pylist() for c in (other, one))
        assert sorted(found, key=repr) == sorted(expected, key=repr), table
    assert [audit.findings for context in (one, other) for audit in audit_home(context.home)] == [[]] * 4
