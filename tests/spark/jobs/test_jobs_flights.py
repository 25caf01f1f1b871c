"""The flights' jobs, called as the plain functions that they are."""

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from headwater.config import shipped_dir
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import Job

_DEPARTURES = "flight_id STRING, carrier STRING, departed_at TIMESTAMP, delay_minutes INT"


def _jobs(module: str) -> dict[str, Job]:
    return {job.name: job for job in load_jobs([str(shipped_dir("jobs") / module)])}


def _departures() -> list[Row]:
    return [
        Row("a", "UA", datetime(2013, 1, 1, 10, 0), -5),
        Row("b", "UA", datetime(2013, 1, 1, 10, 59), 205),
        Row("c", "UA", datetime(2013, 1, 1, 11, 0), 7),
        Row("d", "B6", datetime(2013, 1, 1, 10, 30), 1),
    ]


@pytest.mark.story
def test_flights_module_four_jobs_write_four_tables() -> None:
    assert {name: job.target.name for name, job in _jobs("flights.py").items()} == {
        "clean_departures": "silver.departures",
        "clean_arrivals": "silver.arrivals",
        "delay_by_carrier": "gold.delay_by_carrier",
        "join_flights": "gold.flights",
    }


@pytest.mark.story
def test_delay_by_carrier_counts_averages_and_worst_by_hour(spark: SparkSession) -> None:
    rows = spark.createDataFrame(_departures(), _DEPARTURES)
    windows = _jobs("flights.py")["delay_by_carrier"].function(rows).orderBy("carrier", "window_start")
    assert [
        (r.carrier, r.window_start.hour, r.departures, r.avg_delay, r.max_delay) for r in windows.collect()
    ] == [
        ("B6", 10, 1, 1.0, 1),
        ("UA", 10, 2, 100.0, 205),
        ("UA", 11, 1, 7.0, 7),
    ]


@pytest.mark.story
def test_delay_by_carrier_first_version_cuts_at_three_hours(spark: SparkSession) -> None:
    rows = spark.createDataFrame(_departures(), _DEPARTURES)
    job = _jobs(str(Path("first_version") / "delay_by_carrier.py"))["delay_by_carrier"]
    worst = job.function(rows).orderBy("max_delay").collect()[-1]
    assert (worst.departures, worst.avg_delay, worst.max_delay) == (2, 87.5, 180)


@pytest.mark.story
def test_join_flights_pairs_landings_within_a_day(spark: SparkSession) -> None:
    left = spark.createDataFrame(_departures(), _DEPARTURES)
    landed = spark.createDataFrame(
        [
            Row("a", datetime(2013, 1, 1, 13, 0), 180),
            Row("b", datetime(2013, 1, 2, 11, 0), 1441),
            Row("x", datetime(2013, 1, 1, 13, 0), 60),
        ],
        "flight_id STRING, landed_at TIMESTAMP, air_time INT",
    )
    joined = _jobs("flights.py")["join_flights"].function(left, landed)
    assert joined.columns == ["flight_id", "carrier", "departed_at", "delay_minutes", "landed_at", "air_time"]
    assert [(row.flight_id, row.air_time) for row in joined.collect()] == [("a", 180)]
