"""Spark's batches without rows come where they write something, and are left out where they only clear state."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.testing import JobDriver

AT = "2013-01-10T00:00:00+00:00"
departures = hw.topic(
    "departures", schema="flight STRING, left_at TIMESTAMP", event_time="left_at", watermark="1 hour"
)
arrivals = hw.topic(
    "arrivals", schema="flight STRING, landed_at TIMESTAMP", event_time="landed_at", watermark="1 hour"
)


def _joining(how: str) -> Callable[..., DataFrame]:
    @hw.job(target=hw.delta("gold.flights"), dedup=hw.by_offset(), late="count")
    def flights(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
        times = {"left_time": "left_at", "right_time": "landed_at"}
        return hw.join(departures, arrivals, on=["flight"], within="2 hours", how=how, **times)

    return flights


def _windowed(mode: str) -> Callable[..., DataFrame]:
    @hw.job(
        target=hw.delta("gold.hours", keys=["window_start"], mode=mode), dedup=hw.by_offset(), late="count"
    )
    def hours(departures: DataFrame) -> DataFrame:
        return hw.tumbling(departures, "left_at", "1 hour").agg(F.count("*").alias("n"))

    return hours


@pytest.mark.parametrize(
    ("job", "batches"),
    [
        (_joining("inner"), 1),
        (_joining("semi"), 1),
        (_joining("left"), 2),
        (_joining("full"), 2),
        (_windowed("update"), 1),
        (_windowed("append"), 2),
    ],
    ids=["inner", "semi", "left", "full", "update", "append"],
)
def test_job_runs_a_batch_without_rows_only_where_it_may_write_something(
    spark: SparkSession,
    closing_batches: None,
    drive: Callable[..., JobDriver],
    job: Callable[..., DataFrame],
    batches: int,
) -> None:
    driver = drive(job)
    driver.send(
        "departures",
        {"flight": "a", "left_at": "2013-01-01T10:00:00Z"},
        {"flight": "b", "left_at": "2013-01-02T10:00:00Z"},
        timestamp=AT,
    )
    if len(driver._jobs[0].topics) > 1:
        driver.send(
            "arrivals",
            {"flight": "c", "landed_at": "2013-01-01T10:00:00Z"},
            {"flight": "b", "landed_at": "2013-01-02T11:00:00Z"},
            timestamp=AT,
        )
    driver.run()
    offsets = driver.context.home.checkpoint(job.__name__, 1) / "offsets"
    assert sorted(path.name for path in offsets.glob("[0-9]*")) == [str(n) for n in range(batches)]
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


@pytest.mark.parametrize("job", [_hours_of_one, _one_flight], ids=["window", "left join"])
def test_rows_that_the_function_filters_move_the_watermark_as_others_do(
    closing_batches: None, drive: Callable[..., JobDriver], job: Callable[..., DataFrame]
) -> None:
    driver = drive(job)
    for flight, time in (("a", "2013-01-01T10:00:00Z"), ("b", "2013-01-02T10:00:00Z")):
        driver.send("departures", {"flight": flight, "left_at": time}, timestamp=AT)
        if len(driver._jobs[0].topics) > 1:
            driver.send("arrivals", {"flight": "b", "landed_at": time}, timestamp=AT)
        driver.run()
    assert len(driver.rows(driver._jobs[0].target.name)) == 1
    assert driver.audit() == []


@pytest.mark.parametrize("job", [_windowed("append"), _joining("left")], ids=["append", "left"])
def test_job_that_ended_before_spark_closed_what_it_could_closes_it_when_it_is_started_again(
    setting: Callable[[str, str], None], drive: Callable[..., JobDriver], job: Callable[..., DataFrame]
) -> None:
    driver, allowed = drive(job), "spark.sql.streaming.noDataMicroBatches.enabled"
    times = ("2013-01-01T10:00:00Z", "2013-01-02T10:00:00Z")
    driver.send("departures", *[{"flight": time, "left_at": time} for time in times], timestamp=AT)
    if len(driver._jobs[0].topics) > 1:
        driver.send("arrivals", *[{"flight": "c", "landed_at": time} for time in times], timestamp=AT)
    table, rows = driver._jobs[0].target.name, list[int]()
    for closes in ("false", "false", "true", "true"):  # as if the first run had been killed just then
        setting(allowed, closes)
        driver.run()
        rows.append(len(driver.rows(table)))
    assert rows == [0, 0, 1, 1]
    assert driver.audit() == []
    batches = sorted(
        path.name for path in (driver.home.checkpoint(job.__name__, 1) / "commits").glob("[0-9]*")
    )
    assert batches == ["0", "1"]
