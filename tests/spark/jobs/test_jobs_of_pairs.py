"""Jobs over rows of pairs, which share their left row's coordinates: none of them is lost, and the accounts hold."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

AT = "2013-01-05T12:00:00+00:00"
left = hw.topic("left", schema="k STRING, l_at TIMESTAMP", event_time="l_at", watermark="1 hour")
right = hw.topic("right", schema="k STRING, r INT, r_at TIMESTAMP", event_time="r_at", watermark="1 hour")
seen = hw.topic("seen", schema="k STRING, s INT, s_at TIMESTAMP", event_time="s_at", watermark="1 hour")
pairs_table = hw.table("gold.pairs", event_time="r_at", watermark="1 hour")
pairs_rows = hw.table("silver.pairs", event_time="r_at", watermark="1 hour")


@hw.job(target=hw.delta("gold.pairs"))
def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
    return hw.join(left, right, on=["k"], left_time="l_at", right_time="r_at", within="5 hours")


def kept(times: int) -> Job:
    @hw.job(name="kept", target=hw.delta("silver.pairs"))
    def kept(pairs_table: DataFrame) -> DataFrame:
        return pairs_table.withColumn("r", F.col("r") * times)

    return bind(kept)


def joined(how: Any) -> Job:
    @hw.job(name=f"{how}_join", target=hw.delta("gold.joined"))
    def joined(pairs_rows: DataFrame, seen: DataFrame) -> DataFrame:
        times = {"left_time": "r_at", "right_time": "s_at"}
        return hw.join(pairs_rows, seen, on=["k"], **times, within="5 hours", how=how)

    return bind(joined)


@hw.job(target=hw.delta("gold.as_of_rows"))
def as_of_rows(pairs_rows: DataFrame, seen: DataFrame) -> DataFrame:
    return hw.as_of(pairs_rows, seen, by=["k"], left_time="r_at", right_time="s_at")


@hw.job(target=hw.delta("gold.as_of_pairs"))
def as_of_pairs(pairs_table: DataFrame, seen: DataFrame) -> DataFrame:
    return hw.as_of(pairs_table, seen, by=["k"], left_time="r_at", right_time="s_at")


@hw.job(target=hw.delta("gold.twos"))
def twos(pairs_rows: DataFrame) -> DataFrame:
    return hw.count_window(pairs_rows, "r_at", 2, by=["k"]).agg(F.sum("r").alias("total"))


@hw.job(target=hw.scd2("dim.r", keys=["k"], sequence_by="r_at"))
def dimension(pairs_rows: DataFrame) -> DataFrame:
    return pairs_rows.select("k", "r", "r_at")


def feed(driver: JobDriver) -> None:
    """Four pairs of one left row in two batches, and batches in which the left row of others comes later."""
    driver.send("left", {"k": "a", "l_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    sees = any("seen" in job.topic_names for job in driver._jobs)
    for n in (1, 2):
        rows = [{"k": "a", "r": 10 * n + m, "r_at": f"2013-01-01T1{n}:{m}0:00Z"} for m in (0, 1)]
        driver.send("right", *rows, timestamp=AT)
        if sees:
            driver.send("seen", {"k": "a", "s": n, "s_at": f"2013-01-01T1{n}:30:00Z"}, timestamp=AT)
        driver.run()
    for day, k in ((3, "z"), (4, "y")):
        driver.send("left", {"k": k, "l_at": f"2013-01-0{day}T10:00:00Z"}, timestamp=AT)
        driver.send("right", {"k": k, "r": 0, "r_at": f"2013-01-0{day}T10:30:00Z"}, timestamp=AT)
        if sees:
            driver.send("seen", {"k": k, "s": 0, "s_at": f"2013-01-0{day}T10:20:00Z"}, timestamp=AT)
        driver.run()


def test_jobs_of_pairs_lose_none_of_them(drive: Callable[..., JobDriver]) -> None:
    driver = drive(pairs, kept(1), joined("full"), as_of_rows, as_of_pairs, twos, dimension)
    feed(driver)
    full = [(10, 1), (10, 2), (11, 1), (11, 2), (20, 2), (21, 2)]
    assert driver.rows("gold.joined", "r", "s") == full
    for table in ("gold.as_of_rows", "gold.as_of_pairs"):
        assert driver.rows(table, "r", "s") == [(0, 0), (10, None), (11, None), (20, 1), (21, 1)]
    assert driver.rows("gold.twos", "k", "total") == [("a", 21), ("a", 41)]
    assert [r for (r,) in driver.rows("dim.r", "r")] == [0, 0, 10, 11, 20, 21]
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]


def test_jobs_of_pairs_semi_join_is_refused_planned_at_once_or_alone(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    refused = pytest.raises(
        JobDefinitionError, match=r"rows of silver\.pairs are made of several.*hw\.by_key"
    )
    with refused:
        plan_jobs(drive().context, [bind(pairs), kept(1), joined("semi")])
    driver = ready(feed, pairs, kept(1))
    with refused:
        plan_jobs(driver.context, [joined("semi")])


def test_jobs_of_pairs_rebuilt_are_compared_row_by_row(ready: Callable[..., JobDriver]) -> None:
    driver = ready(feed, pairs, kept(1))
    planned = backfill.plan_rebuild(driver.context, kept(2))
    backfill.run(driver.context, planned.id, kept(2))
    verdict = backfill.verify(driver.context, planned.id, kept(2))
    assert verdict.passed, verdict.findings
    diff = verdict.diff
    assert diff is not None
    assert (diff.added, diff.removed, diff.changed, diff.unchanged) == (0, 0, 4, 2)
    samples = diff.samples["changed"]
    assert [(each["key"]["_number"], each["before"]["r"], each["after"]["r"]) for each in samples] == [
        (n, r, 2 * r) for n, r in enumerate((10, 11, 20, 21), 1)
    ]


def hourly(times: int) -> Job:
    @hw.job(name="hourly", target=hw.delta("gold.hourly", keys=["k", "window_start"], mode="update"))
    def hourly(pairs_rows: DataFrame) -> DataFrame:
        windows = hw.tumbling(pairs_rows, "r_at", "1 hour", by=["k"])
        return windows.agg((F.sum("r") * times).alias("total"))

    return bind(hourly)


@hw.job(target=hw.delta("gold.long"))
def long(pairs_rows: DataFrame) -> DataFrame:
    return pairs_rows.filter("r > 10")


def test_jobs_of_pairs_windows_are_repaired_and_rewound_and_rows_only_as_a_whole(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(pairs, kept(1), hourly(1), long)
    feed(driver)
    with pytest.raises(BackfillError, match=r"a row of silver\.pairs is made of several records.*--rebuild"):
        backfill.plan(driver.context, bind(long))
    driver._jobs[2] = hourly(3)
    planned = backfill.plan(driver.context, hourly(3))
    swapped_in(driver, planned.id, hourly(3))
    assert driver.rows("gold.hourly", "k", "total") == [("a", 123), ("a", 63), ("y", 0), ("z", 0)]
    version = backfill.versions(driver.home, bind(long))[0].version
    swapped_in(driver, backfill.plan_rewind(driver.context, bind(long), version=version).id, bind(long))
    driver._jobs[2] = hourly(1)  # the open windows are those of the live job's code
    driver.run()
    assert driver.rows("gold.hourly", "k", "total") == [("a", 123), ("a", 63), ("y", 0), ("z", 0)]
    assert [r for (r,) in driver.rows("gold.long", "r")] == [11, 20, 21]
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]


def swapped_in(driver: JobDriver, backfill_id: str, job: Job) -> None:
    backfill.run(driver.context, backfill_id, job)
    verdict = backfill.verify(driver.context, backfill_id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, backfill_id, accept_diff=verdict.digest)
