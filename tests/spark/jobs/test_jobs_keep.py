"""Rows that are older than their table keeps them go, and come back by nothing.

record      0    1    2     3     4           5
day         1    1    50    99    1 (late)    120     of 2013; keep="60 days"
batch       |--- 0 ---|     |---- 1 ----|     2
horizon     (none)          day 39            day 60
"""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError, BackfillPlan
from headwater_streams.base.extra import Extra
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.generations import begin_generation
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

TABLE = "silver.events"
FIRST = datetime(2013, 1, 1, 12, tzinfo=UTC)
events = hw.topic("events", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="1 day")
kept = hw.table(TABLE, event_time="at", watermark="1 day")


def job(*, factor: int = 1, **layout: Any) -> Job:
    @hw.job(name="clean", target=hw.delta(TABLE, keep="60 days", **layout), dedup=hw.by_offset())
    def clean(events: DataFrame) -> DataFrame:
        return events.withColumn("n", F.col("n") * F.lit(1))

    @hw.job(name="clean", target=hw.delta(TABLE, keep="60 days", **layout), dedup=hw.by_offset())
    def multiplied(events: DataFrame) -> DataFrame:
        return events.withColumn("n", F.col("n") * F.lit(100))

    return bind(clean if factor == 1 else multiplied)


@hw.job(target=hw.delta("gold.daily", keys=["who", "window_start"], mode="update", keep="60 days"))
def daily(kept: DataFrame) -> DataFrame:
    return hw.tumbling(kept, "at", "1 day", by=["who"]).agg(F.sum("n").alias("n"))


def event(day: int, n: int) -> dict[str, Any]:
    at = FIRST + timedelta(days=day - 1)
    return {"who": "x", "n": n, "at": at.isoformat()}


def at(day: int) -> str:
    return (FIRST + timedelta(days=day)).isoformat()


def three_batches(driver: JobDriver) -> None:
    driver.send("events", event(1, 0), event(1, 1), event(50, 2), timestamp=at(50))
    driver.run()
    assert driver.rows(TABLE, "n") == [(0,), (1,), (2,)]
    driver.send("events", event(99, 3), event(1, 4), timestamp=at(99))
    driver.run()


@pytest.mark.story
@pytest.mark.parametrize("partition_by", [[], ["days(at)"]], ids=["one folder", "days"])
def test_old_rows_go_with_the_newest_event_and_no_backfill_brings_them_back(
    spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    driver = JobDriver(spark, tmp_path, [job(partition_by=partition_by)])
    three_batches(driver)
    assert driver.rows(TABLE, "n") == [(2,), (3,)]
    driver.send("events", event(120, 5), timestamp=at(120))
    driver.run()
    assert driver.rows(TABLE, "n") == [(3,), (5,)]
    assert driver.audit() == []
    (audit,) = [each for each in audit_home(driver.home) if each.table == TABLE]
    assert audit.notes == [f"{TABLE}: 4 rows whose at is before 2013-03-01T00:00:00Z have expired"]
    assert driver.accounting(TABLE) == {"read": 6, "written": 6, "expired": 4}
    driver.run()
    expiries = [e for e in driver.ledger(TABLE) if e.kind == "expiry"]
    assert [Extra.EXPIRED.of(e) for e in expiries][-1] == [[1, 0, 1]]

    mended, context = job(factor=100, partition_by=partition_by), driver.context
    planned = backfill.plan(context, mended, offsets={"events": {0: (0, 5)}})
    assert "rows whose at is before 2013-03-01T00:00:00Z have expired and do not come back" in planned.notes
    backfill.run(context, planned.id, mended)
    verdict = backfill.verify(context, planned.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    assert (verdict.accounting["written"], verdict.accounting["expired"]) == (1, 4)
    backfill.swap(context, planned.id)
    assert driver.rows(TABLE, "n") == [(300,), (5,)]
    assert driver.audit() == []
    backfill.rollback(context, planned.id)
    assert driver.rows(TABLE, "n") == [(3,), (5,)]
    assert driver.audit() == []

    rebuilt = backfill.plan_rebuild(context, mended)
    backfill.run(context, rebuilt.id, mended)
    verdict = backfill.verify(context, rebuilt.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(context, rebuilt.id)
    assert driver.rows(TABLE, "n") == [(300,), (500,)]
    assert driver.audit() == []


def test_windows_expire_by_their_end_and_are_left_out_of_repairs(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [job(), bind(daily)])
    three_batches(driver)
    driver.send("events", event(120, 5), timestamp=at(120))
    driver.run()
    days = _days(driver)
    assert date(2013, 1, 1) not in days
    assert days >= {date(2013, 2, 19), date(2013, 4, 30)}, "the 50th and the 120th day"
    assert driver.audit() == []
    with pytest.raises(BackfillError, match=r"expired|range"):
        backfill.plan(driver.context, bind(daily), event_time=("2013-01-01", "2013-01-02"))
    # The rows of the 50th day have expired in silver.events, and the window that was made of them stays.
    planned = backfill.plan(driver.context, bind(daily))
    backfill.run(driver.context, planned.id, bind(daily))
    verdict = backfill.verify(driver.context, planned.id, bind(daily))
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    assert _days(driver) == days
    assert driver.audit() == []


lefts = hw.topic("lefts", schema="who STRING, came_at TIMESTAMP", event_time="came_at", watermark="1 day")
left_rows = hw.table("silver.lefts", event_time="came_at", watermark="1 day")


@hw.job(target=hw.delta("silver.lefts"), dedup=hw.by_offset())
def keep_lefts(lefts: DataFrame) -> DataFrame:
    return lefts


@hw.job(target=hw.delta("gold.pairs"))
def pairs(left_rows: DataFrame, kept: DataFrame) -> DataFrame:
    """Each left row with the events of the day behind it, which its table does not keep as long."""
    return hw.join(left_rows, kept, on=["who"], left_time="came_at", right_time="at", within="1 day")


def test_join_is_not_repaired_where_its_partners_have_expired(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [job(), bind(keep_lefts), bind(pairs)])
    for day in (1, 99, 120, 121):
        driver.send("lefts", {"who": "x", "came_at": event(day, 0)["at"]}, timestamp=at(day))
        driver.send("events", event(day, day), timestamp=at(day))
        driver.run()
    assert {*driver.rows(TABLE, "n")} == {(99,), (120,), (121,)}
    assert (1,) in driver.rows("gold.pairs", "n"), "what was made of it stays"
    with pytest.raises(BackfillError, match=r"rows of silver.events before .* had partners among them"):
        backfill.plan(driver.context, bind(pairs), offsets={"lefts": {0: (0, 2)}})
    planned = backfill.plan(driver.context, bind(pairs), offsets={"lefts": {0: (1, 2)}})
    backfill.run(driver.context, planned.id, bind(pairs))
    verdict = backfill.verify(driver.context, planned.id, bind(pairs), recompute="all")
    assert verdict.passed, verdict.findings


def _days(driver: JobDriver) -> set[date]:
    return {row["window_start"].date() for row in driver.table("gold.daily").collect()}


def test_a_crash_around_an_expiry_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [job()])
    driver.send("events", event(1, 0), event(50, 2), timestamp=at(50))
    driver.run()
    driver.send("events", event(99, 3), timestamp=at(99))
    for step in ("before expiry", "after expiry"):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            driver.run()
    driver.run()
    assert driver.rows(TABLE, "n") == [(2,), (3,)]
    assert driver.audit() == []


@pytest.mark.parametrize("partition_by", [[], ["days(at)"]], ids=["one folder", "days"])
def test_a_repair_that_keeps_no_row_of_an_expired_table_accounts_for_all(
    spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    @hw.job(
        name="clean", target=hw.delta(TABLE, keep="60 days", partition_by=partition_by), dedup=hw.by_offset()
    )
    def none(events: DataFrame) -> DataFrame:
        return events.where("1 = 2")  # Spark sees that it is empty

    driver = JobDriver(spark, tmp_path, [job(partition_by=partition_by)])
    three_batches(driver)
    context = driver.context
    for mended, written, rows in ((bind(none), 0, []), (job(partition_by=partition_by), 2, [(2,), (3,)])):
        planned = backfill.plan(context, mended, offsets={"events": {0: (0, 5)}})
        backfill.run(context, planned.id, mended)
        verdict = backfill.verify(context, planned.id, mended, recompute="all")
        assert verdict.passed, verdict.findings
        assert verdict.accounting["written"] == written
        backfill.swap(context, planned.id)
        assert driver.rows(TABLE, "n") == rows
        assert driver.audit() == []


def loud(*, factor: int = 1) -> Job:
    @hw.job(name="loud", target=hw.delta("silver.loud"))
    def copied(kept: DataFrame) -> DataFrame:
        return kept

    @hw.job(name="loud", target=hw.delta("silver.loud"))
    def multiplied(kept: DataFrame) -> DataFrame:
        return kept.withColumn("n", F.col("n") * F.lit(factor))

    return bind(copied if factor == 1 else multiplied)


def swap(driver: JobDriver, planned: BackfillPlan, job: Job) -> None:
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    assert driver.audit() == []


@pytest.mark.parametrize("partition_by", [[], ["days(at)"]], ids=["one folder", "days"])
def test_what_was_not_made_of_expired_rows_is_repaired_beside_it(
    spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    """Of the batch with the records 0 to 2 the last alone is kept, of that with 3 and 4 the first."""
    driver = JobDriver(spark, tmp_path, [job(partition_by=partition_by), loud()])
    three_batches(driver)
    context, mended = driver.context, loud(factor=100)
    assert driver.rows("silver.loud", "_offset", "n") == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]
    with pytest.raises(
        BackfillError,
        match=r"3 rows of silver.loud in the range were made of rows of silver.events before 2013-02-08T00:00:00Z, "
        r"which have expired, and cannot be made again: give a range without the offsets events 0 \[0, 5\)",
    ):
        backfill.plan(context, mended)
    with pytest.raises(BackfillError, match=r"1 row of silver.loud in the range was made of .* 0 \[1, 2\)"):
        backfill.plan(context, mended, offsets={"events": {0: (1, 4)}})
    swap(driver, backfill.plan(context, mended, event_time=(event(50, 0)["at"], event(100, 0)["at"])), mended)
    assert driver.rows("silver.loud", "_offset", "n") == [(0, 0), (1, 1), (2, 200), (3, 300), (4, 4)]


def test_a_repair_follows_one_of_a_table_that_has_expired_in_part(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.job(name="clean", target=hw.delta(TABLE, keep="60 days"), dedup=hw.by_offset())
    def fewer(events: DataFrame) -> DataFrame:
        return events.filter("n <> 2")

    driver = JobDriver(spark, tmp_path, [job(), loud()])
    three_batches(driver)
    for mended in (bind(fewer), loud()):
        swap(driver, backfill.plan(driver.context, mended, offsets={"events": {0: (2, 4)}}), mended)
    assert driver.rows("silver.loud", "_offset", "n") == [(0, 0), (1, 1), (3, 3), (4, 4)]


def _unlimited(*, factor: int = 1) -> Job:
    @hw.job(name="clean", target=hw.delta(TABLE), dedup=hw.by_offset())
    def clean(events: DataFrame) -> DataFrame:
        return events.withColumn("n", F.col("n") * F.lit(1))

    @hw.job(name="clean", target=hw.delta(TABLE), dedup=hw.by_offset())
    def multiplied(events: DataFrame) -> DataFrame:
        return events.withColumn("n", F.col("n") * F.lit(100))

    return bind(clean if factor == 1 else multiplied)


@pytest.mark.story
def test_rows_that_came_after_keep_was_taken_out_stand_and_a_job_rebuild_brings_back_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = JobDriver(spark, tmp_path, [job()])
    three_batches(before)
    assert before.rows(TABLE, "n") == [(2,), (3,)]
    driver, mended = JobDriver(spark, tmp_path, [_unlimited()]), _unlimited(factor=100)
    driver.send("events", event(120, 5), event(2, 6), timestamp=at(120))
    driver.run()
    assert driver.rows(TABLE, "n") == [(2,), (3,), (5,), (6,)], "of day 2, and it stands"
    context = driver.context

    planned = backfill.plan(context, mended, offsets={"events": {0: (0, 7)}})
    swap(driver, planned, mended)
    assert driver.rows(TABLE, "n") == [(200,), (300,), (500,), (600,)]
    backfill.rollback(context, planned.id)

    rebuilt = backfill.plan_rebuild(context, mended)
    backfill.run(context, rebuilt.id, mended)
    verdict = backfill.verify(context, rebuilt.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(context, rebuilt.id)
    assert driver.audit() == []
    assert driver.rows(TABLE, "n") == [(200,), (300,), (500,), (600,)]
    planned = backfill.plan(context, _unlimited(), offsets={"events": {0: (0, 7)}})
    swap(driver, planned, _unlimited())
    assert driver.rows(TABLE, "n") == [(2,), (3,), (5,), (6,)]

    (plan,) = plan_jobs(context, [mended])
    begin_generation(context, plan, "rebuild")
    driver = JobDriver(spark, tmp_path, [mended])
    driver.run()
    everything = [(n * 100,) for n in range(7)]
    assert driver.rows(TABLE, "n") == everything
    planned = backfill.plan(driver.context, mended, offsets={"events": {0: (0, 7)}})
    swap(driver, planned, mended)
    assert driver.rows(TABLE, "n") == everything
