"""How functions and checks name the hidden columns of their records."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

AT = "2013-01-05T12:00:00Z"
OLD = "2012-01-05T12:00:00Z"
clicks = hw.topic("clicks", schema="page STRING")
views = hw.topic("views", schema="page STRING")
stamped = hw.topic("stamped", schema="page STRING", event_time="_timestamp AS at")
left = hw.topic("left", schema="k STRING, at TIMESTAMP", event_time="at", watermark="1 hour")
right = hw.topic("right", schema="k STRING, seen_at TIMESTAMP", event_time="seen_at", watermark="1 hour")


@pytest.mark.parametrize("key", ["_KEY", "_key"])
def test_record_columns_are_named_in_capitals_as_well(drive: Callable[..., JobDriver], key: str) -> None:
    @hw.job(target=hw.delta("silver.clicks"))
    def traced(clicks: DataFrame) -> DataFrame:
        trace = F.col("_HEADERS")["trace"].cast("string").alias("trace")
        return clicks.select("page", F.col(key).cast("string").alias("who"), trace)

    driver = drive(traced)
    driver.send("clicks", {"page": "a"}, timestamp=AT, key="ann", headers={"trace": b"t1"})
    driver.run()
    assert driver.rows("silver.clicks", "page", "who", "trace") == [("a", "ann", "t1")]


def test_record_column_behind_a_dot_is_told_how_to_be_named(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.clicks"))
    def dotted(clicks: DataFrame) -> DataFrame:
        return clicks.withColumn("who", clicks._key.cast("string"))

    with pytest.raises(JobDefinitionError, match=r'_key.*; write F\.col\("_key"\)'):
        plan_jobs(drive().context, [bind(dotted)])


def test_check_of_coordinates_is_of_each_input_of_a_union(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.pages"))
    @hw.check("recent", "_timestamp >= TIMESTAMP '2013-01-01'")
    def pages(clicks: DataFrame, views: DataFrame) -> DataFrame:
        return hw.union(clicks, views)

    driver = drive(pages)
    for topic in ("clicks", "views"):
        driver.send(topic, {"page": f"old {topic}"}, timestamp=OLD)
        driver.send(topic, {"page": topic}, timestamp=AT)
    driver.run()
    assert driver.rows("silver.pages", "page") == [("clicks",), ("views",)]
    assert driver.accounting("silver.pages") == {"read": 4, "written": 2, "quarantined": 2}


def test_check_of_coordinates_is_of_each_side_of_a_join(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.pairs"))
    @hw.check("recent", "_timestamp >= TIMESTAMP '2012-06-01'")
    def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
        return hw.join(left, right, on=["k"], left_time="at", right_time="seen_at", within="1 hour")

    driver = drive(pairs)
    for timestamp in (OLD, AT):
        driver.send("left", {"k": "a", "at": "2012-01-05T10:00:00Z"}, timestamp=timestamp)
        driver.send("right", {"k": "a", "seen_at": "2012-01-05T10:10:00Z"}, timestamp=timestamp)
    driver.run()
    for name in ("left", "right"):
        assert driver.accounting(f"gold.pairs__ingest_{name}") == {"read": 2, "written": 1, "quarantined": 1}
    assert len(driver.rows("gold.pairs", "k")) == 1


def test_check_of_coordinates_holds_where_windows_read_their_topic(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.hourly", keys=["window_start"], mode="update"), late="count")
    @hw.check("recent", "_timestamp >= TIMESTAMP '2012-06-01'")
    def hourly(left: DataFrame) -> DataFrame:
        return hw.tumbling(left, "at", "1 hour").agg(F.count("*").alias("rows"))

    driver = drive(hourly)
    for timestamp in (OLD, AT):
        driver.send("left", {"k": "a", "at": "2012-01-05T10:00:00Z"}, timestamp=timestamp)
    driver.run()
    assert driver.rows("gold.hourly", "rows") == [(1,)]
    assert driver.rows("gold.hourly__quarantine", "_check") == [("recent",)]


def test_check_of_coordinates_that_warns_is_judged_in_a_repair_of_windows(
    drive: Callable[..., JobDriver],
) -> None:
    def hourly(times: int) -> Job:
        @hw.job(name="hourly", target=hw.delta("gold.hourly", keys=["window_start"], mode="update"))
        @hw.check("recent", "_timestamp >= TIMESTAMP '2013-01-01'", on="input", action="warn")
        def counts(left: DataFrame) -> DataFrame:
            return hw.tumbling(left, "at", "1 hour").agg((F.count("*") * times).alias("rows"))

        return bind(counts)

    driver, job = drive(hourly(1)), hourly(2)
    driver.send("left", {"k": "a", "at": "2013-01-05T10:00:00Z"}, timestamp=AT)
    driver.run()
    planned = backfill.plan(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert driver.rows("gold.hourly", "rows") == [(2,)]


def test_record_without_a_timestamp_has_no_event_time_of_it(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.stamped"))
    def pages(stamped: DataFrame) -> DataFrame:
        return stamped

    driver = drive(pages)
    driver.send("stamped", {"page": "a"}, timestamp=AT)
    driver.send("stamped", {"page": "b"}, timestamp="1969-12-31T23:59:59.999Z")
    driver.run()
    assert driver.rows("silver.stamped", "page") == [("a",)]
    assert driver.rows("silver.stamped__quarantine", "_reason") == [("the record has no timestamp",)]
