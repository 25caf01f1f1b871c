"""Chains of stateful jobs over each other's tables: what cannot be accounted for is refused when jobs are planned, with
the way out. Chains in one function are in test_jobs_chained.py."""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

left = hw.topic("left", schema="k STRING, l_at TIMESTAMP", event_time="l_at", watermark="1 hour")
right = hw.topic("right", schema="k STRING, r_at TIMESTAMP", event_time="r_at", watermark="1 hour")
pairs_table = hw.table("gold.pairs", event_time="r_at", watermark="1 hour")
pairs_rows = hw.table("silver.pairs", event_time="r_at", watermark="1 hour")
counted = hw.table("gold.counts")


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return hw.join(left, right, on=["k"], left_time="l_at", right_time="r_at", within="1 hour")


def hourly(rows: DataFrame) -> DataFrame:
    return hw.tumbling(rows, "r_at", "1 hour", by=["k"]).agg(F.count("*").alias("n"))


AT = "2013-01-01T12:00:00+00:00"
COUNTS = hw.delta("gold.counts", keys=["k", "window_start"], mode="update")


@hw.job(target=hw.delta("gold.pairs"))
def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
    return joined(left, right)


@hw.job(target=COUNTS, name="counts")
def counts_of_pairs(pairs_table: DataFrame) -> DataFrame:
    return hourly(pairs_table)


@hw.job(target=hw.delta("silver.pairs"))
def kept_pairs(pairs_table: DataFrame) -> DataFrame:
    return pairs_table


@hw.job(target=hw.delta("silver.pairs"), dedup=hw.by_offset())
def pairs_once(pairs_table: DataFrame) -> DataFrame:
    return pairs_table


@hw.job(target=hw.delta("silver.pairs"), dedup=hw.by_key(["k", "r_at"], within="1 hour"))
def pairs_by_key(pairs_table: DataFrame) -> DataFrame:
    return pairs_table


@hw.job(target=hw.delta("gold.once"), dedup=hw.by_offset())
def rows_once(pairs_rows: DataFrame) -> DataFrame:
    return pairs_rows


@hw.job(target=COUNTS, name="counts")
def counts_of_rows(pairs_rows: DataFrame) -> DataFrame:
    return hourly(pairs_rows)


@hw.job(target=hw.delta("gold.after"))
def after_counts(counted: DataFrame) -> DataFrame:
    return counted


def hourly_job(mode: Any) -> Any:
    keys = ["k", "window_start"] if mode == "update" else []

    @hw.job(name="hours", target=hw.delta("gold.hours", keys=keys, mode=mode))
    def hours(left: DataFrame) -> DataFrame:
        return hw.tumbling(left, "l_at", "1 hour", by=["k"]).agg(F.count("*").alias("n"))

    return hours


hours_table = hw.table("gold.hours", event_time="window_start")
hours_there = hw.table("gold.hours", event_time="window_start", watermark="1 second")
busy_table = hw.table("silver.busy", event_time="window_start", watermark="1 second")


@hw.job(target=hw.delta("silver.busy"))
def busy_hours(hours_table: DataFrame) -> DataFrame:
    return hours_table.filter("n > 1")


@hw.job(target=hw.delta("gold.days"))
def days_of_hours(hours_there: DataFrame) -> DataFrame:
    return hw.tumbling(hours_there, "window_start", "1 day").agg(F.count("*").alias("hours"))


@hw.job(target=hw.delta("gold.days"))
def busy_days(busy_table: DataFrame) -> DataFrame:
    days = hw.tumbling(busy_table, "window_start", "1 day")
    return days.agg(F.count("*").alias("hours"), F.sum("n").alias("n"))


@pytest.fixture
def rng() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


@pytest.fixture
def planned(drive: Callable[..., JobDriver]) -> Callable[..., list[JobPlan]]:
    def plan(*jobs: Any) -> list[JobPlan]:
        return plan_jobs(drive().context, [bind(job) for job in jobs])

    return plan


Planned = Callable[..., Sequence[JobPlan]]


def test_chain_over_a_join_s_table_is_refused_and_a_row_job_between_helps(planned: Planned) -> None:
    with pytest.raises(JobDefinitionError, match=r"gold\.pairs is the table of a join, whose rows come when"):
        planned(pairs, counts_of_pairs)
    kinds = [plan.kind for plan in planned(pairs, kept_pairs, counts_of_rows)]
    assert kinds == ["row", "row", "join", "row", "window"]


def test_chain_of_a_join_a_row_job_and_windows_counts_every_pair(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(pairs, kept_pairs, counts_of_rows)
    driver.send("left", {"k": "a", "l_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    driver.send("right", *[{"k": "a", "r_at": f"2013-01-01T10:{n}0:00Z"} for n in (1, 2, 2)], timestamp=AT)
    driver.run()
    assert driver.rows("gold.counts", "k", "n") == [("a", 3)]
    assert driver.rows("silver.pairs", "k", "_topic", "_offset") == [("a", "left", 0)] * 3
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]
    path = driver.home.table("silver.pairs")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE r_at = '2013-01-01T10:10:00Z'")
    (audit,) = audit_home(driver.home, ["silver.pairs"])
    assert audit.findings == ["silver.pairs batch 0: 1 row is gone: left 0 offset 0"]


def test_chain_by_offset_over_a_join_s_table_is_refused_for_pairs_share_coordinates(planned: Planned) -> None:
    with pytest.raises(JobDefinitionError, match="made of several records and share their coordinates"):
        planned(pairs, pairs_once)


def test_chain_by_key_over_a_join_s_table_drops_repeated_keys_and_no_other_pair_of_their_row(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(pairs, pairs_by_key)
    driver.send("left", {"k": "a", "l_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    driver.send("right", *[{"k": "a", "r_at": f"2013-01-01T10:{n}0:00Z"} for n in (1, 2, 2)], timestamp=AT)
    driver.run()
    driver.send("right", *[{"k": "a", "r_at": f"2013-01-01T10:{n}0:00Z"} for n in (1, 3)], timestamp=AT)
    driver.run()
    assert [at.minute for (at,) in driver.rows("silver.pairs", "r_at")] == [10, 20, 30]
    (audit,) = audit_home(driver.home, ["silver.pairs"])
    assert (audit.findings, audit.totals["pairs_table"]["duplicate"]) == ([], 2)


def test_chain_by_offset_over_rows_of_pairs_is_refused_likewise(
    drive: Callable[..., JobDriver], planned: Planned
) -> None:
    refused = pytest.raises(JobDefinitionError, match=r"rows of silver\.pairs are made of several records")
    with refused:
        planned(pairs, kept_pairs, rows_once)
    driver = drive(pairs, kept_pairs)
    driver.send("left", {"k": "a", "l_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    driver.run()
    with refused:
        plan_jobs(driver.context, [bind(rows_once)])


def test_chain_over_windows_that_are_replaced_is_refused(planned: Planned) -> None:
    with pytest.raises(
        JobDefinitionError, match=r"the windows of gold\.counts are replaced as their rows come"
    ):
        planned(pairs, kept_pairs, counts_of_rows, after_counts)


@pytest.mark.parametrize("mode", ["update", "append"])
def test_chain_over_windows_of_a_table_that_is_there(drive: Callable[..., JobDriver], mode: str) -> None:
    driver = drive(hourly_job(mode))
    driver.send("left", {"k": "a", "l_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    driver.run()
    refused = pytest.raises(JobDefinitionError, match="are replaced as their rows come")
    with refused if mode == "update" else nullcontext():
        plan_jobs(driver.context, [bind(busy_hours)])


def test_chain_windows_over_windows_needs_a_row_job_between(planned: Planned) -> None:
    with pytest.raises(
        JobDefinitionError, match="a table of windows, which come when they are closed; read it"
    ):
        planned(hourly_job("append"), days_of_hours)


def test_chain_of_windows_over_windows_counts_every_window_whatever_is_killed(
    drive: Callable[..., JobDriver], rng: random.Random
) -> None:
    """Hours of random rows in random batches, the busy ones of each day: as if all were there at once."""
    driver = drive(hourly_job("append"), busy_hours, busy_days)
    starts = datetime(2013, 1, 1, tzinfo=UTC)
    rows = [(rng.choice("abc"), starts + timedelta(minutes=rng.randrange(72 * 60))) for _ in range(300)]
    rows = sorted(rows, key=lambda row: row[1] + timedelta(minutes=rng.randrange(60)))
    end = starts + timedelta(days=30)
    batches = [
        [("end", end + timedelta(days=day))] * 2 for day in range(4)
    ]  # what a batch closes comes with the next
    while rows:
        some, rows = rows[: (size := rng.randrange(20, 120))], rows[size:]
        batches.insert(-4, some)
    for some in batches:
        driver.send(
            "left",
            *[{"k": k, "l_at": at.isoformat()} for k, at in some],
            partition=rng.randrange(2),
            timestamp="2013-03-01T00:00:00+00:00",
        )
        if rng.random() < 0.7:
            job, step = (
                rng.choice(["hours", "busy_hours", "busy_days"]),
                rng.choice(["before commit", "after commit"]),
            )
            driver.crash_at(step, job)
            with suppress(SimulatedCrash):
                driver.run()
        driver.run()
    hours = driver.table("gold.hours")
    busy = hours.filter("n > 1 AND k <> 'end'").groupBy(
        F.date_trunc("day", "window_start").alias("window_start")
    )
    wanted = busy.agg(F.count("*").alias("hours"), F.sum("n").alias("n")).collect()
    days = driver.table("gold.days").filter(F.col("window_start") < end)
    assert sorted(days.select("window_start", "hours", "n").collect()) == sorted(wanted)
    assert len(wanted) == 3
    assert hours.filter("k <> 'end'").agg(F.sum("n")).first()[0] == 300
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]
    place = driver.table("silver.busy").select("_topic", "_partition", "_offset", "_timestamp").distinct()
    assert {row["_topic"] for row in place.collect()} == {"left"}


def test_chain_over_a_table_without_coordinates_is_refused(
    drive: Callable[..., JobDriver], planned: Planned
) -> None:
    drive().put("gold.counts", "k STRING", ("a",))
    with pytest.raises(JobDefinitionError, match="not written by a job that keeps its records' coordinates"):
        planned(after_counts)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP_NTZ", "STRING"])
def test_chain_over_a_table_whose_event_time_is_no_timestamp_is_refused(planned: Planned, kind: str) -> None:
    @hw.job(target=hw.delta("silver.pairs"))
    def cast_pairs(pairs_table: DataFrame) -> DataFrame:
        return pairs_table.withColumn("r_at", F.col("r_at").cast(kind))

    with pytest.raises(
        JobDefinitionError, match=f"the event_time 'r_at' of silver.pairs is {kind}, and must be"
    ):
        planned(pairs, cast_pairs, counts_of_rows)
