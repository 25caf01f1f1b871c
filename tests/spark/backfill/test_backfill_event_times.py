"""Backfills of jobs whose event time is computed of each record: by that time, with the records' keys and headers.

ts_ms, as a time   10:00      11:00      12:00      13:00
                     |-- 10 ----|-- 11 ----|-- 12 ----|
"""

from collections.abc import Callable
from datetime import datetime

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

AT = "2024-03-04T13:00:00+00:00"
HOUR = ("2024-03-04T10:00:00Z", "2024-03-04T11:00:00Z")
clicks = hw.topic(
    "clicks",
    schema="n INT, ts_ms BIGINT",
    event_time="timestamp_millis(ts_ms) AS at",
    watermark="30 minutes",
)
taps = hw.topic(
    "taps",
    schema="m INT, ts_ms BIGINT",
    event_time="timestamp_millis(ts_ms) AS tapped_at",
    watermark="30 minutes",
)


def rows_of(most: int) -> Job:
    @hw.job(name="rows", target=hw.delta("silver.clicks"), dedup=hw.by_offset())
    @hw.check("keyed", "_key IS NOT NULL")
    def rows(clicks: DataFrame) -> DataFrame:
        return clicks.filter(F.col("n") < most).withColumn("who", F.col("_key").cast("string"))

    return bind(rows)


def windows_of(most: int) -> Job:
    @hw.job(name="windows", target=hw.delta("gold.clicks", keys=["who", "window_start"], mode="update"))
    def windows(clicks: DataFrame) -> DataFrame:
        some = clicks.filter(F.col("n") < most).withColumn("who", F.col("_headers")["who"].cast("string"))
        return hw.tumbling(some, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("n"))

    return bind(windows)


def click(time: str, n: int) -> dict[str, int]:
    return {"n": n, "ts_ms": int(datetime.fromisoformat(f"2024-03-04T{time}:00Z").timestamp() * 1000)}


def two_batches(driver: JobDriver) -> None:
    of = {"who": b"x"}
    driver.send("clicks", click("10:00", 1), click("10:30", 50), key="k", headers=of, timestamp=AT)
    driver.send("clicks", {"n": 7}, {"n": 8, "ts_ms": 2**62}, key="k", headers=of, timestamp=AT)
    driver.run()
    driver.send("clicks", click("11:00", 2), click("11:31", 60), key="k", headers=of, timestamp=AT)
    driver.run()
    driver.send("clicks", click("10:20", 3), key="k", headers=of, timestamp=AT)
    driver.run()


@pytest.mark.story
@pytest.mark.parametrize("kind", ["rows", "windows"])
def test_backfill_of_an_hour_takes_the_time_that_is_computed(
    drive: Callable[..., JobDriver], kind: str
) -> None:
    broken, mended = (rows_of(10), rows_of(100)) if kind == "rows" else (windows_of(10), windows_of(100))
    driver = drive(broken)
    two_batches(driver)
    context, table = driver.context, mended.target.name
    assert len(driver.quarantined(table)) == 2
    planned = backfill.plan(context, mended, event_time=HOUR)
    assert backfill.run(context, planned.id, mended).state != "failed"
    verdict = backfill.verify(context, planned.id, mended)
    assert verdict.passed, verdict.findings
    backfill.swap(context, planned.id)
    if kind == "rows":
        assert driver.rows(table, "n", "who") == [(n, "k") for n in (1, 2, 3, 50, 60)]
    else:
        found = driver.table(table).selectExpr("hour(window_start)", "who", "n").collect()
        assert sorted(map(tuple, found)) == [(10, "x", 54), (11, "x", 2)]
    assert driver.audit() == []
    backfill.rollback(context, planned.id)
    assert driver.audit() == []


@pytest.mark.parametrize("kind", ["rows", "windows"])
def test_rebuild_computes_the_time_anew(drive: Callable[..., JobDriver], kind: str) -> None:
    broken, mended = (rows_of(10), rows_of(100)) if kind == "rows" else (windows_of(10), windows_of(100))
    driver = drive(broken)
    two_batches(driver)
    planned = backfill.plan_rebuild(driver.context, mended)
    backfill.run(driver.context, planned.id, mended)
    verdict = backfill.verify(driver.context, planned.id, mended)
    assert verdict.passed, verdict.findings
    assert "recomputed" in {finding.name for finding in verdict.findings}
    backfill.swap(driver.context, planned.id)
    total = driver.table(mended.target.name).selectExpr("sum(n)").first()
    assert total is not None
    assert total[0] == (1 + 50 + 2 + 60 + (3 if kind == "rows" else 0))
    assert driver.audit() == []


def _by_header(rows: DataFrame) -> DataFrame:
    return rows.withColumn("who", F.col("_headers")["who"].cast("string"))


@hw.job(name="sessions", target=hw.delta("gold.clicks"))
def sessions(clicks: DataFrame) -> DataFrame:
    return hw.session(_by_header(clicks), "at", "40 minutes", by=["who"]).agg(F.sum("n").alias("n"))


@hw.job(name="pairs", target=hw.delta("gold.clicks"))
def pairs(clicks: DataFrame, taps: DataFrame) -> DataFrame:
    left = _by_header(clicks).select("who", "at", "n")
    right = taps.select(F.col("_key").cast("string").alias("who"), "tapped_at", "m")
    return hw.join(left, right, on=["who"], left_time="at", right_time="tapped_at", within="1 hour")


@hw.job(name="as_of", target=hw.delta("gold.clicks"))
def as_of(clicks: DataFrame, taps: DataFrame) -> DataFrame:
    left = _by_header(clicks).select("who", "at", "n")
    right = taps.select(F.col("_key").cast("string").alias("who"), "tapped_at", "m")
    return hw.as_of(left, right, by=["who"], left_time="at", right_time="tapped_at")


@pytest.mark.usefixtures("closing_batches")
@pytest.mark.parametrize("job", [sessions, pairs, as_of], ids=["sessions", "pairs", "as_of"])
def test_what_keys_and_headers_went_into_is_rebuilt_and_recomputed(
    drive: Callable[..., JobDriver], job: Callable[..., DataFrame]
) -> None:
    driver = drive(job)
    if "taps" in bind(job).inputs:
        tapped = [{"m": n, "ts_ms": click(time, n)["ts_ms"]} for n, time in ((1, "10:00"), (2, "13:00"))]
        driver.send("taps", *tapped, key="x", timestamp=AT)
    two_batches(driver)
    driver.send("clicks", click("14:00", 4), key="k", headers={"who": b"x"}, timestamp=AT)
    driver.run()
    bound, before = bind(job), driver.rows("gold.clicks", "n")
    assert before
    planned = backfill.plan_rebuild(driver.context, bound)
    backfill.run(driver.context, planned.id, bound)
    verdict = backfill.verify(driver.context, planned.id, bound)
    assert verdict.passed, verdict.findings
    assert "recomputed" in {finding.name for finding in verdict.findings}, verdict.notes
    backfill.swap(driver.context, planned.id)
    assert {*before} <= {*driver.rows("gold.clicks", "n")}
    assert driver.audit() == []
