"""Spark's batches without rows come where they write something, and are left out where they only clear state."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

AT = "2013-01-10T00:00:00+00:00"
departures = hw.topic(
    "departures", schema="flight STRING, left_at TIMESTAMP", event_time="left_at", watermark="1 hour"
)
arrivals = hw.topic(
    "arrivals", schema="flight STRING, landed_at TIMESTAMP", event_time="landed_at", watermark="1 hour"
)


def _joining(how: str) -> Job:
    @hw.job(name=how, target=hw.delta(f"gold.{how}"), dedup=hw.by_offset(), late="count")
    def flights(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
        times = {"left_time": "left_at", "right_time": "landed_at"}
        return hw.join(departures, arrivals, on=["flight"], within="2 hours", how=how, **times)

    return bind(flights)


def _windowed(mode: str) -> Job:
    target = hw.delta(f"gold.{mode}", keys=["window_start"], mode=mode)

    @hw.job(name=mode, target=target, dedup=hw.by_offset(), late="count")
    def hours(departures: DataFrame) -> DataFrame:
        return hw.tumbling(departures, "left_at", "1 hour").agg(F.count("*").alias("n"))

    return bind(hours)


def _batches(driver: JobDriver, job: str, kind: str) -> list[str]:
    return sorted(path.name for path in (driver.home.checkpoint(job, 1) / kind).glob("[0-9]*"))


def test_job_runs_a_batch_without_rows_only_where_it_may_write_something(
    spark: SparkSession, closing_batches: None, drive: Callable[..., JobDriver]
) -> None:
    batches = {"inner": 1, "semi": 1, "left": 2, "full": 2, "update": 1, "append": 2}
    joins = [_joining(how) for how in ("inner", "semi", "left", "full")]
    driver = drive(*joins, _windowed("update"), _windowed("append"))
    driver.send(
        "departures",
        {"flight": "a", "left_at": "2013-01-01T10:00:00Z"},
        {"flight": "b", "left_at": "2013-01-02T10:00:00Z"},
        timestamp=AT,
    )
    driver.send(
        "arrivals",
        {"flight": "c", "landed_at": "2013-01-01T10:00:00Z"},
        {"flight": "b", "landed_at": "2013-01-02T11:00:00Z"},
        timestamp=AT,
    )
    driver.run()
    ran = {job: _batches(driver, job, "offsets") for job in batches}
    assert ran == {job: [str(n) for n in range(count)] for job, count in batches.items()}
    assert driver.audit() == []
    assert spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "true"


@hw.job(target=hw.delta("gold.hours", keys=["window_start"]), dedup=hw.by_offset())
def _hours_of_one(departures: DataFrame) -> DataFrame:
    one = departures.where("flight = 'a'")
    return hw.tumbling(one, "left_at", "1 hour").agg(F.count("*").alias("n"))


@hw.job(target=hw.delta("gold.flights"), dedup=hw.by_offset())
def _one_flight(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    times = {"left_time": "left_at", "right_time": "landed_at"}
    one = departures.where("flight = 'a'")
    return hw.join(one, arrivals.where("flight = 'a'"), on=["flight"], within="2 hours", how="left", **times)


def test_rows_that_the_function_filters_move_the_watermark_as_others_do(
    closing_batches: None, drive: Callable[..., JobDriver]
) -> None:
    driver = drive(_hours_of_one, _one_flight)
    for flight, time in (("a", "2013-01-01T10:00:00Z"), ("b", "2013-01-02T10:00:00Z")):
        driver.send("departures", {"flight": flight, "left_at": time}, timestamp=AT)
        driver.send("arrivals", {"flight": "b", "landed_at": time}, timestamp=AT)
        driver.run()
    for table in ("gold.hours", "gold.flights"):
        assert len(driver.rows(table)) == 1, table
    assert driver.audit() == []


def test_job_that_ended_before_spark_closed_what_it_could_closes_it_when_it_is_started_again(
    setting: Callable[[str, str], None], drive: Callable[..., JobDriver]
) -> None:
    jobs = ("append", "left")
    driver, allowed = (
        drive(_windowed("append"), _joining("left")),
        "spark.sql.streaming.noDataMicroBatches.enabled",
    )
    times = ("2013-01-01T10:00:00Z", "2013-01-02T10:00:00Z")
    driver.send("departures", *[{"flight": time, "left_at": time} for time in times], timestamp=AT)
    driver.send("arrivals", *[{"flight": "c", "landed_at": time} for time in times], timestamp=AT)
    rows: dict[str, list[int]] = {job: [] for job in jobs}
    for closes in ("false", "false", "true", "true"):  # as if the first run had been killed just then
        setting(allowed, closes)
        driver.run()
        for job in jobs:
            rows[job].append(len(driver.rows(f"gold.{job}")))
    assert rows == {job: [0, 0, 1, 1] for job in jobs}
    assert driver.audit() == []
    for job in jobs:
        assert _batches(driver, job, "commits") == ["0", "1"], job
