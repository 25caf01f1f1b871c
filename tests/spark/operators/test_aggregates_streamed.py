"""Aggregates without windows: what is streamed, in any order, is what the function gives in one go.

seen        10:00    10:10    10:20    10:30
N1           EWR               JFK               latest: JFK, in whatever order the three arrive
N1                    LGA
"""

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

SCHEMA = "key STRING, at TIMESTAMP, place STRING, value INT"
sightings = hw.topic("sightings", schema=SCHEMA)  # no event_time: none is needed
seen = hw.table("silver.seen", event_time="at", watermark="2 hours")
AT = "2013-01-01T10:00:00+00:00"
START = datetime(2013, 1, 1, 10, tzinfo=UTC)


@hw.job(target=hw.delta("gold.totals", keys=["key"], mode="update"), dedup=hw.by_offset())
@hw.check("has_place", "place IS NOT NULL")
def totals(sightings: DataFrame) -> DataFrame:
    """Named topic: the library puts an ingest table before it."""
    good = sightings.filter("value >= 0")
    return hw.grouped(good, by=["key"], state="unbounded").agg(
        F.count("*").alias("n"), F.sum("value").alias("sum")
    )


@hw.job(target=hw.delta("gold.last_seen", keys=["key"], mode="update"), dedup=hw.by_offset())
def last_seen(sightings: DataFrame) -> DataFrame:
    return hw.latest(sightings, by=["key"], order="at", state="unbounded")


timed = hw.topic("timed", schema=SCHEMA, event_time="at", watermark="2 hours")


@hw.job(target=hw.delta("gold.best", keys=["window_start"], mode="update"), dedup=hw.by_offset())
def best(timed: DataFrame) -> DataFrame:
    return hw.tumbling(timed, "at", "30 minutes").agg(hw.top(2, "value", ["key", "place"]).alias("best"))


@pytest.fixture
def rng() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def rows(rng: random.Random, count: int) -> list[tuple[str | None, datetime | None, str, int]]:
    """Sightings with ties: few keys, times and values."""
    times = [START + timedelta(minutes=10 * n) for n in range(8)]
    return [
        (rng.choice(["N1", "N2", None]), rng.choice(times), rng.choice(["EWR", "JFK"]), rng.randrange(-1, 4))
        for _ in range(count)
    ]


def send(driver: JobDriver, topic: str, some: list[Any]) -> None:
    values = [
        {"key": k, "at": at.isoformat() if at else None, "place": p, "value": v} for k, at, p, v in some
    ]
    driver.send(topic, *values, timestamp=AT)


def in_order(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_aggregates_in_any_order_give_the_batch_result(
    spark: SparkSession, drive: Callable[..., JobDriver], rng: random.Random
) -> None:
    driver = drive(totals, last_seen, best)
    given = rows(rng, 60)
    unplaced = ("N1", START, None, 1)  # quarantined by `totals` alone
    for part in (given[:25], [*given[25:], unplaced]):
        send(driver, "sightings", part)
        send(driver, "timed", part)
        driver.run()
    good, every = (spark.createDataFrame(part, SCHEMA) for part in (given, [*given, unplaced]))
    for job, frame in ((totals, good), (last_seen, every), (best, every)):
        batch = job(frame.coalesce(1))
        assert in_order(driver.table(f"gold.{job.__name__}").select(*batch.columns)) == in_order(batch)
    assert [finding for audit in audit_home(driver.home) for finding in audit.findings] == []
    (terms,) = (entry.accounting for entry in driver.ledger("gold.totals")[-1:])
    negative = sum(value < 0 for *_, value in given[25:])
    assert terms["sightings"] == {
        "read": 35, "folded": 35 - negative, "filtered": negative, "late": 0, "quarantined": 0,
    }  # fmt: skip
    assert driver.rows("gold.totals__quarantine", "_offset") == [(60,)]
    ranges = (
        driver.table("gold.last_seen").select(F.explode("_sources").alias("s")).select("s.start", "s.end")
    )
    offsets = {
        key: [n for n, row in enumerate([*given, unplaced]) if row[0] == key] for key in ("N1", "N2", None)
    }
    assert in_order(ranges) == sorted(((o[0], o[-1] + 1) for o in offsets.values()), key=repr)


def test_grouped_crash_counts_each_row_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(totals)
    send(driver, "sightings", [("N1", START, "EWR", 1)])
    driver.run()
    send(driver, "sightings", [("N1", START, "JFK", 2), ("N2", START, "JFK", 3)])
    driver.crash_at("after commit", "totals")
    with pytest.raises(SimulatedCrash):
        driver.run()
    send(driver, "sightings", [("N1", START, "LGA", 3)])
    driver.run()
    assert driver.rows("gold.totals", "key", "n", "sum") == [("N1", 3, 6), ("N2", 1, 3)]
    with pytest.raises(
        backfill.BackfillError,
        match=r"'totals' is an aggregation by key, and only windows of times.* --rebuild",
    ):
        backfill.plan(driver.context, bind(totals))


@pytest.mark.story
def test_combinations_that_cannot_be_are_refused_with_the_reason(drive: Callable[..., JobDriver]) -> None:
    updating = hw.delta("gold.wrong", keys=["key", "window_start"], mode="update")

    @hw.job(target=updating)
    def updated_session(timed: DataFrame) -> DataFrame:
        return hw.session(timed, "at", "5 minutes", by=["key"]).agg(F.count("*").alias("n"))

    @hw.job(target=hw.delta("gold.wrong"))
    def final_groups(sightings: DataFrame) -> DataFrame:
        return hw.grouped(sightings, by=["key"], state="unbounded").agg(F.count("*").alias("n"))

    @hw.job(target=updating)
    def no_watermark(sightings: DataFrame) -> DataFrame:
        return hw.hopping(sightings, "at", "1 hour", "5 minutes", by=["key"]).agg(F.count("*").alias("n"))

    other = hw.delta("gold.wrong", keys=["window_start"], mode="update")

    @hw.job(target=other)
    def too_few_keys(timed: DataFrame) -> DataFrame:
        return hw.tumbling(timed, "at", "1 hour", by=["key"]).agg(F.count("*").alias("n"))

    @hw.job(target=other)
    def other_time(timed: DataFrame) -> DataFrame:
        moved = timed.withColumn("moved", F.col("at"))
        return hw.tumbling(moved, "moved", "1 hour").agg(F.count("*").alias("n"))

    @hw.job(target=other)
    def having(timed: DataFrame) -> DataFrame:
        return hw.tumbling(timed, "at", "1 hour").agg(F.count("*").alias("n")).filter("n > 1")

    @hw.job(target=other)
    def distinct(timed: DataFrame) -> DataFrame:
        return hw.tumbling(timed, "at", "1 hour").agg(F.count_distinct("place").alias("places"))

    @hw.job(target=other)
    def first_only(timed: DataFrame) -> DataFrame:
        return hw.tumbling(timed.limit(5), "at", "1 hour").agg(F.count("*").alias("n"))

    for job, reason in (
        (
            distinct,
            "'distinct': Spark cannot stream this: Distinct aggregations are not supported.*approx_count_dist",
        ),
        (first_only, "rows on their way to a window or a join cannot use limit"),
        (
            updated_session,
            "a session window has no updating result, as Spark gives it once, when it is closed",
        ),
        (final_groups, "an aggregation by key has no final result; write mode='update'"),
        (no_watermark, "the input 'sightings' feeds state, so it needs event_time= and watermark="),
        (too_few_keys, "the keys window_start do not name a row: there is one for each key, too"),
        (other_time, "a tumbling window over 'moved', and the input's event_time, .* is 'at'; make them one"),
        (having, "only select and withColumn may follow"),
    ):
        with pytest.raises(JobDefinitionError) as refused:
            plan_jobs(drive().context, [bind(job)])
        assert re.search(reason, str(refused.value)), job.__name__
