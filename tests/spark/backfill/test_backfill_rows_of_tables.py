"""Repairs of row-by-row jobs that read a table: its rows in a range of offsets, at the version that it has read."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

AT = "2013-01-01T14:00:00Z"
clicks = hw.topic("clicks", schema="who STRING, at TIMESTAMP, pages INT", event_time="at", watermark="1 hour")
good = hw.table("silver.clicks", event_time="at", watermark="1 hour")


def cleaning(known: str) -> Job:
    """Fills the table that the other job reads; `known` is SQL."""

    @hw.job(name="clean", target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
    @hw.check("known", known, action="quarantine")
    def clean(clicks: DataFrame) -> DataFrame:
        return clicks

    return bind(clean)


def naming(who: str, few: str = "pages < 100") -> Job:
    """Reads that table row by row; both are SQL."""

    @hw.job(name="named", target=hw.delta("gold.named"))
    @hw.check("few", few, action="quarantine")
    def named(good: DataFrame) -> DataFrame:
        return good.filter("pages > 0").withColumn("who", F.expr(who))

    return bind(named)


def send(driver: JobDriver, *rows: tuple[str | None, str, int]) -> None:
    for who, time, pages in rows:
        at = f"2013-01-01T{time}:00Z"
        driver.send("clicks", {"who": who, "at": at, "pages": pages}, timestamp=at, partition=pages % 2)


def found(driver: JobDriver) -> list[tuple[Any, ...]]:
    return driver.rows("gold.named", "who", "pages")


def repair(driver: JobDriver, job: Job, **asked: Any) -> backfill.BackfillPlan:
    planned = backfill.plan(driver.context, job, rows_per_chunk=2, **asked)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    told = {finding.name: finding.detail for finding in verdict.findings}
    assert "as they are written" in told["recomputed"]
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert driver.audit() == []
    return planned


def three_batches(driver: JobDriver) -> None:
    send(driver, ("a", "10:01", 1), ("b", "10:02", 2), (None, "10:03", 3))
    driver.run()
    send(driver, ("c", "11:04", 4), ("d", "11:05", 0), ("e", "11:06", 600), ("f", "11:07", 7))
    driver.run()
    send(driver, ("g", "12:08", 8), ("h", "12:09", 9))
    driver.run()
    assert found(driver) == [("a", 1), ("b", 2), ("c", 4), ("f", 7), ("g", 8), ("h", 9)]


@pytest.fixture
def fed(ready: Callable[..., JobDriver]) -> JobDriver:
    """Two jobs, one behind the other, after three batches."""
    return ready(three_batches, cleaning("who IS NOT NULL"), naming("who"))


def test_repair_of_rows_that_come_of_a_table(fed: JobDriver) -> None:
    before, loud = found(fed), naming("upper(who)")
    ranges = {"clicks": {0: (1, 4), 1: (1, 3)}}
    planned = repair(fed, loud, offsets=ranges)
    assert planned.pinned is not None
    assert (planned.ranges, len(planned.chunks)) == (ranges, 2)
    # Of the offsets 1 to 3 and 1 to 2: None is in quarantine before, 0 pages are filtered, 600 are rejected.
    (entry,) = [e for e in fed.ledger("gold.named") if e.kind == "backfill"]
    assert {name: entry.totals[name] for name in ("read", "written", "filtered", "quarantined")} == {
        "read": 4, "written": 2, "filtered": 1, "quarantined": 1,
    }  # fmt: skip
    assert found(fed) == [("C", 4), ("F", 7), ("a", 1), ("b", 2), ("g", 8), ("h", 9)]
    fed._jobs[1] = loud
    send(fed, ("i", "12:10", 10))
    fed.run()
    assert found(fed)[2] == ("I", 10)
    backfill.rollback(fed.context, planned.id)
    assert found(fed) == [("I", 10), *before]
    assert fed.audit() == []


@pytest.mark.parametrize(
    ("asked", "ranges"),
    [
        ({"event_time": ("2013-01-01T11:00:00Z", "2013-01-01T12:00:00Z")}, {0: (1, 4), 1: (2, 3)}),
        ({"timestamps": ("2013-01-01T12:00:00Z", "2013-01-01T12:09:00Z")}, {0: (4, 5)}),
        ({"since_version": 2}, {0: (4, 5), 1: (3, 4)}),
        ({"rows": "quarantined"}, {0: (3, 4)}),
        ({}, {0: (0, 5), 1: (0, 4)}),
    ],
    ids=["event_time", "timestamps", "since_version", "quarantined", "all"],
)
def test_repair_of_rows_of_a_table_for_each_way_to_say_a_range(
    fed: JobDriver, asked: dict[str, Any], ranges: dict[int, tuple[int, int]]
) -> None:
    more = naming("who || '!'", few="pages < 1000")
    planned = repair(fed, more, **asked)
    assert planned.ranges == {"clicks": ranges}
    places = {2: (0, 0), 4: (0, 1), 600: (0, 3), 8: (0, 4), 1: (1, 0), 7: (1, 2), 9: (1, 3)}
    again = {
        pages
        for pages, (partition, offset) in places.items()
        if partition in ranges and ranges[partition][0] <= offset < ranges[partition][1]
    }
    assert {pages for who, pages in found(fed) if who.endswith("!")} == again
    assert {pages for who, pages in found(fed) if not who.endswith("!")} == {*places} - again - {600}
    assert len(fed.quarantined("gold.named")) == (600 not in again)


def test_repair_follows_one_of_the_table_that_it_reads(fed: JobDriver) -> None:
    everybody = cleaning("who IS NOT NULL OR pages = 3")
    first = repair(fed, everybody, rows="quarantined")
    assert first.feeds == ("named",)
    assert len(found(fed)) == 6, "a reader passes over the swap"
    again = repair(fed, naming("coalesce(who, 'nobody')"), offsets={"clicks": {1: (0, 4)}})
    assert again.pinned is not None
    assert again.pinned.was_rewritten
    assert ("nobody", 3) in found(fed)
    assert len(found(fed)) == 7
    fed._jobs = [everybody, naming("coalesce(who, 'nobody')")]
    send(fed, ("z", "13:00", 5))
    fed.run()
    assert ("z", 5) in found(fed)
    assert fed.audit() == []


buys = hw.topic("buys", schema="who STRING, bought_at TIMESTAMP", event_time="bought_at", watermark="1 hour")
pairs = hw.table("gold.pairs")


@hw.job(name="paired", target=hw.delta("gold.pairs"))
def paired(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    return hw.join(clicks, buys, on=["who"], left_time="at", right_time="bought_at", within="1 hour")


@hw.job(target=hw.delta("gold.long"))
def long(pairs: DataFrame) -> DataFrame:
    return pairs.filter("pages > 1")


def one_pair(driver: JobDriver) -> None:
    send(driver, ("a", "10:01", 2))
    driver.send("buys", {"who": "a", "bought_at": "2013-01-01T10:20:00Z"}, timestamp=AT)
    driver.run()
    driver.run()
    assert driver.rows("gold.long", "who", "pages") == [("a", 2)]


def test_rows_of_pairs_are_not_repaired_in_part(ready: Callable[..., JobDriver]) -> None:
    driver = ready(one_pair, paired, long)
    with pytest.raises(BackfillError, match=r"a row of gold\.pairs is made of several records.*--rebuild"):
        backfill.plan(driver.context, bind(long))


ended = hw.table("gold.hours", event_time="window_end")


@hw.job(name="hours", target=hw.delta("gold.hours"))
def hours(good: DataFrame) -> DataFrame:
    return hw.tumbling(good, "at", "1 hour", by=["who"]).agg(F.sum("pages").alias("pages"))


def busy(least: int) -> Job:
    @hw.job(name="busy", target=hw.delta("silver.busy"))
    @hw.check("few", "pages < 50", action="quarantine")
    def busy(ended: DataFrame) -> DataFrame:
        return ended.filter(F.col("pages") >= least)

    return bind(busy)


def two_closed_hours(driver: JobDriver) -> None:
    send(driver, ("a", "10:01", 1), ("a", "10:02", 2), ("b", "10:03", 1), ("c", "10:04", 60))
    for time in ("13:00", "13:30", "15:00", "17:00"):
        send(driver, ("a", time, 4))
        driver.run()
    assert driver.rows("silver.busy", "who", "pages") == [("a", 3), ("a", 8)]


def test_rows_of_windows_are_rebuilt(ready: Callable[..., JobDriver]) -> None:
    driver = ready(two_closed_hours, cleaning("who IS NOT NULL"), hours, busy(2))
    ((_, raw),) = driver.quarantined("silver.busy")
    assert b'"pages":60' in raw
    with pytest.raises(BackfillError, match=r"a row of gold\.hours is made of several records.*--rebuild"):
        backfill.plan(driver.context, busy(1))
    driver._jobs[2] = busy(1)
    planned = backfill.plan_rebuild(driver.context, busy(1))
    backfill.run(driver.context, planned.id, busy(1))
    verdict = backfill.verify(driver.context, planned.id, busy(1))
    assert verdict.passed, verdict.findings
    assert verdict.findings[-1].name == "recomputed"
    assert verdict.findings[-1].detail.startswith("3 rows from ")
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert driver.rows("silver.busy", "who", "pages") == [("a", 3), ("a", 8), ("b", 1)]
    send(driver, ("b", "19:00", 1))
    driver.run()
    assert driver.rows("silver.busy", "who", "pages") == [("a", 3), ("a", 4), ("a", 8), ("b", 1)]
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]
