"""Windowed jobs: late rows kept apart, sources of every window, updating targets, exactly once.

departed_at   10:00      10:30      11:00      11:30      12:00      12:30
delay 30 min    |----- window 10 -----|----- window 11 -----|----- window 12
seen until 11:31 -> watermark 11:01 -> window 10 is closed, window 11 is open
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
    event_time="departed_at",
    watermark="30 minutes",
)


@hw.job(target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"), dedup=hw.by_offset())
@hw.check("has_carrier", "carrier IS NOT NULL")
def delays(departures: DataFrame) -> DataFrame:
    return hw.tumbling(departures, "departed_at", "1 hour", by=["carrier"]).agg(
        F.count(F.lit(1)).alias("departures"), F.avg("delay_minutes").alias("avg_delay")
    )


AT = "2013-01-01T13:00:00+00:00"


def event(time: str, carrier: str | None = "UA", delay: int = 10) -> dict[str, object]:
    return {"carrier": carrier, "departed_at": f"2013-01-01T{time}:00Z", "delay_minutes": delay}


def windows(driver: JobDriver) -> list[tuple[str, int, int]]:
    found = driver.table("gold.delays").collect()
    return sorted((row["carrier"], row["window_start"].hour, row["departures"]) for row in found)


def test_window_job_late_row_goes_to_the_late_table(drive: Callable[..., JobDriver]) -> None:
    driver = drive(delays)
    driver.send("departures", event("10:00"), event("10:59"), event("11:31"), timestamp=AT)
    driver.run()
    driver.send("departures", event("10:30"), event("11:10"), event("11:20", None), timestamp=AT)
    driver.run()
    assert windows(driver) == [("UA", 10, 2), ("UA", 11, 2)]
    (late,) = driver.table("gold.delays__late").collect()
    assert (late["departed_at"].minute, late["_offset"], late["_input"]) == (30, 3, "departures")
    assert driver.rows("gold.delays__quarantine", "_offset") == [(5,)]
    first, second = driver.ledger("gold.delays")
    assert first.accounting["departures"] == {
        "read": 3, "folded": 3, "filtered": 0, "late": 0, "quarantined": 0,
    }  # fmt: skip
    assert second.accounting["departures"] == {
        "read": 2, "folded": 1, "filtered": 0, "late": 1, "quarantined": 0,
    }  # fmt: skip
    (open_window,) = [row for row in driver.table("gold.delays").collect() if row["window_start"].hour == 11]
    assert [tuple(r) for r in open_window["_sources"]] == [("departures", 0, 2, 5)]
    assert open_window["_rows"] == 2


@pytest.mark.parametrize("late", ["table", "count"])
def test_window_job_rows_of_1970_and_before_count_like_any_others(
    drive: Callable[..., JobDriver], late: Literal["table", "count"]
) -> None:
    """Spark's watermark begins at 1970: it dropped them without a trace, counted as folded."""
    driver = drive(replace(bind(delays), late=late))

    def send(*times: str) -> None:
        events = [event("10:00") | {"departed_at": f"{time}:00Z"} for time in times]
        driver.send("departures", *events, timestamp="1970-01-01T05:00:00+00:00")
        driver.run()

    send("1969-12-31T22:30", "1969-12-31T23:30", "1970-01-01T00:00")
    send("1969-12-31T23:31", "1969-12-31T22:59")  # the watermark is 23:30: the first one is in time
    assert windows(driver) == [("UA", 0, 1), ("UA", 22, 1), ("UA", 23, 2)]
    send("1970-01-01T00:30")
    send("1969-12-31T23:59", "1970-01-01T00:01")  # the watermark is 1970 itself: the first one is late
    assert windows(driver) == [("UA", 0, 3), ("UA", 22, 1), ("UA", 23, 2)]
    assert driver.late("gold.delays", "_offset") == ([(4,), (6,)] if late == "table" else [])
    assert driver.accounting("gold.delays")["late"] == 2
    watermarks_ms = [entry.watermark_ms for entry in driver.ledger("gold.delays")]
    assert watermarks_ms == [NO_WATERMARK_MS, -1_800_000, -1_800_000, 0]
    assert driver.audit() == []


page_views = hw.topic("views", schema="who STRING, at TIMESTAMP", event_time="at", watermark="10 minutes")


@pytest.mark.parametrize("late", ["table", "count"])
def test_session_job_row_at_the_watermark_and_at_a_session_s_end_is_in_it(
    drive: Callable[..., JobDriver], closing_batches: None, late: Literal["table", "count"]
) -> None:
    @hw.job(target=hw.delta("gold.visits"), late=late)
    def visits(page_views: DataFrame) -> DataFrame:
        return hw.session(page_views, "at", "30 minutes", by=["who"]).agg(F.count("*").alias("n"))

    driver = drive(visits)

    def send(who: str, at: str) -> None:
        driver.send("views", {"who": who, "at": f"2013-01-01T{at}Z"}, timestamp=AT)
        driver.run()

    send("a", "10:00:00")
    send("b", "10:40:00")  # the watermark is 10:30, where the session of a would end
    send("a", "10:30:00")
    send("b", "11:10:00.001")  # a millisecond past 11:00
    (visit,) = driver.table("gold.visits").collect()
    assert (visit["who"], visit["window_start"].hour, visit["window_end"].hour, visit["n"]) == (
        "a",
        10,
        11,
        2,
    )
    assert driver.accounting("gold.visits").get("late", 0) == 0
    assert driver.audit() == []


def test_window_job_accounts_for_commits_of_its_input_that_brought_no_row(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(delays)
    driver.send("departures", event("10:00"), timestamp=AT)
    driver.run()
    driver.send(
        "departures", event("10:10", None), timestamp=AT
    )  # all that this batch has goes to quarantine
    driver.run()
    ingest = driver.home.table("gold.delays__ingest_departures")
    spark.sql(f"OPTIMIZE delta.`{ingest}`")
    driver.send("departures", event("10:20"), timestamp=AT)
    driver.run()
    assert windows(driver) == [("UA", 10, 2)]
    assert driver.audit() == []
    read = [source.ranges["departures"][0] for e in driver.ledger("gold.delays") for source in e.sources]
    assert (read[0][0], read[-1][1]) == (0, 3)
    assert all(before[1] == after[0] for before, after in pairwise(read)), read


def test_window_job_sources_stand_in_the_order_of_their_partitions(drive: Callable[..., JobDriver]) -> None:
    driver = drive(delays)
    for partition in (1, 0, 1):
        driver.send("departures", event("11:15"), partition=partition, timestamp=AT)
        driver.run()
    (window,) = driver.rows("gold.delays", "_sources", "_rows")
    assert [tuple(source) for source in window[0]] == [("departures", 0, 0, 1), ("departures", 1, 0, 2)]
    assert window[1] == 3


def test_window_job_row_whose_window_is_open_is_not_late(drive: Callable[..., JobDriver]) -> None:
    driver = drive(delays)
    driver.send("departures", event("11:15"), timestamp=AT)
    driver.run()
    driver.send(
        "departures", event("10:20"), timestamp=AT
    )  # 25 minutes behind the watermark; window 10 is open
    driver.run()
    assert windows(driver) == [("UA", 10, 1), ("UA", 11, 1)]
    assert driver.rows("gold.delays__late") == []


def test_window_job_crash_gives_the_same_tables(drive: Callable[..., JobDriver]) -> None:
    driver = drive(delays)
    driver.send("departures", event("10:00"), event("11:31"), timestamp=AT)
    driver.run()
    late: list[tuple[int]] = []
    for step in ("before late", "before commit", "after commit"):
        late.append((2 + 2 * len(late),))
        driver.send("departures", event("10:30"), event("11:10"), timestamp=AT)
        driver.crash_at(step, "delays")
        with pytest.raises(SimulatedCrash):
            driver.run()
        driver.run()
        assert windows(driver) == [("UA", 10, 1), ("UA", 11, 1 + len(late))], step
        assert driver.rows("gold.delays__late", "_offset") == late, step


def test_window_function_on_plain_rows_gives_the_streamed_result(
    spark: SparkSession, drive: Callable[..., JobDriver]
) -> None:
    events = [
        event("10:00", "UA", 5),
        event("10:10", "DL", 7),
        event("11:00", "UA", 9),
        event("10:59", "UA", 1),
    ]
    driver = drive(delays)
    for one in events:
        driver.send("departures", one, timestamp=AT)
    driver.run()
    rows = spark.createDataFrame([(e["carrier"], e["departed_at"], e["delay_minutes"]) for e in events]).toDF(
        "carrier", "departed_at", "delay_minutes"
    )
    batch = delays(rows.withColumn("departed_at", F.to_timestamp("departed_at")))
    assert batch.columns == ["carrier", "window_start", "window_end", "departures", "avg_delay"]
    assert sorted(map(tuple, batch.collect())) == driver.rows("gold.delays", *batch.columns)


@hw.job(target=hw.delta("gold.counts", keys=["carrier", "window_start"], mode="update"))
def counts(departures: DataFrame) -> DataFrame:
    return hw.tumbling(departures, "departed_at", "1 hour", by=["carrier"]).count()


def test_window_count_is_the_column_count_as_in_spark(drive: Callable[..., JobDriver]) -> None:
    driver = drive(counts)
    driver.send("departures", event("10:00", "UA", 5), event("10:10", "UA", 7), event("11:00", "UA", 9))
    driver.run()
    assert driver.rows("gold.counts", "carrier", "count") == [("UA", 1), ("UA", 2)]
    assert driver.audit() == []


def test_window_job_unknown_column_is_one_sentence(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.wrong", keys=["carrier"], mode="update"))
    def wrong(departures: DataFrame) -> DataFrame:
        return hw.tumbling(departures, "departed_at", "1 hour", by=["airline"]).agg(F.count("*").alias("n"))

    with pytest.raises(JobDefinitionError, match=r"job 'wrong'.*no column 'airline'; there are carrier"):
        plan_jobs(drive().context, [bind(wrong)])
