"""What is streamed, in any deliveries within the watermark, is what the function gives over all rows in one go.

Hypothesis draws the deliveries, small ones; each is a batch:

    delivery 1     10:05 a    10:50 b                     from the start on
    delivery 2     10:31 b    11:20 a                     at most 30 minutes behind the greatest before, 10:50
    the last one                              ten days    closes all windows

Larger random deliveries, with late rows, kills and accounts, have files of their own, an operator each.
The default run looks at three windows. HEADWATER_EXAMPLES=N looks at all operators, N examples each, and makes smaller
what fails, which takes minutes; each failure prints how to draw it again.
"""

import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

LONG = "HEADWATER_EXAMPLES" in os.environ
DELAY_MINUTES = 30
MINUTE = timedelta(minutes=1)
START = datetime(2013, 1, 1, 10, tzinfo=UTC)
END = START + timedelta(days=10)
Row = tuple[str | None, datetime, int]
Drawn = list[list[tuple[str | None, int, int]]]

one = hw.topic("one", schema="key STRING, at TIMESTAMP, value INT", event_time="at",
               watermark="30 minutes", max_ahead="400 days")  # fmt: skip
other = hw.topic("other", schema="key STRING, seen_at TIMESTAMP, mark INT", event_time="seen_at",
                 watermark="30 minutes", max_ahead="400 days")  # fmt: skip
UPDATED = {"keys": ["key", "window_start"], "mode": "update"}


@hw.job(target=hw.delta("gold.tumbling"), late="count")
def tumbling(one: DataFrame) -> DataFrame:
    return hw.tumbling(one, "at", "20 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.tumbling_updated", **UPDATED))
def tumbling_updated(one: DataFrame) -> DataFrame:
    return hw.tumbling(one.filter("value <> 7"), "at", "20 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.hopping"), late="count")
def hopping(one: DataFrame) -> DataFrame:
    return hw.hopping(one, "at", "50 minutes", "20 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.cumulative"), late="count")
def cumulative(one: DataFrame) -> DataFrame:
    return hw.cumulative(one, "at", "1 hour", "20 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.session"), late="count")
def session(one: DataFrame) -> DataFrame:
    return hw.session(one, "at", "15 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.counted"))
def counted(one: DataFrame) -> DataFrame:
    return hw.count_window(one, "at", 3, by=["key"]).agg(F.sum("value").alias("total"))


@hw.job(target=hw.delta("gold.grouped", keys=["key"], mode="update"))
def grouped(one: DataFrame) -> DataFrame:
    return hw.grouped(one, by=["key"], state="unbounded").agg(*measures())


@hw.job(target=hw.delta("gold.best", keys=["window_start"], mode="update"))
def best(one: DataFrame) -> DataFrame:
    return hw.tumbling(one, "at", "1 hour").agg(hw.top(2, "value", ["key"]).alias("best"))


def joined(how: Any) -> Job:
    @hw.job(name=f"join_{how}", target=hw.delta(f"gold.join_{how}"), late="count")
    def pairs(one: DataFrame, other: DataFrame) -> DataFrame:
        return hw.join(
            one, other, on=["key"], left_time="at", right_time="seen_at", within="40 minutes", how=how
        )

    return bind(pairs)


@hw.job(target=hw.delta("gold.nearest"))
def nearest(one: DataFrame, other: DataFrame) -> DataFrame:
    return hw.as_of(
        one, other, by=["key"], left_time="at", right_time="seen_at", direction="nearest", tolerance="1 hour"
    )


FAMILIES: dict[str, list[Job]] = {
    "windows": [bind(job) for job in (tumbling, tumbling_updated, hopping)],
    "chains": [bind(job) for job in (cumulative, session, counted)],
    "aggregates": [bind(job) for job in (grouped, best)],
    "joins": [joined(how) for how in ("inner", "left", "full", "semi")],
    "as of": [bind(nearest)],
}


def measures() -> list[Any]:
    return [F.count("*").alias("n"), F.sum("value").alias("total"), F.max("at").alias("newest")]


def deliveries() -> st.SearchStrategy[Drawn]:
    """Rows as (key, minutes after the earliest that is in time, value)."""
    row = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 90), st.integers(0, 9))
    return st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=3)


def placed(drawn: Drawn) -> list[list[Row]]:
    """The rows with their times, none at or behind the greatest of those before less the delay."""
    made: list[list[Row]] = []
    earliest = START
    for delivery in drawn:
        made.append([(key, earliest + minutes * MINUTE, value) for key, minutes, value in delivery])
        newest = max(at for rows in made for _, at, _ in rows)
        earliest = max(START, newest - (DELAY_MINUTES - 1) * MINUTE)
    return made


SIDES = {"one": ("at", "value"), "other": ("seen_at", "mark")}


def streamed(driver: JobDriver, sent: dict[str, list[list[Row]]]) -> None:
    most = max(map(len, sent.values()))
    for place in range(most + 1):
        for topic, made in sent.items():
            rows = (
                made[place] if place < len(made) else [(f"end of {topic}", END, 0)] if place == most else []
            )
            time, number = SIDES[topic]
            values = [{"key": key, time: at.isoformat(), number: n} for key, at, n in rows]
            if values:
                driver.send(topic, *values, timestamp=START)
        driver.run()


def batch(spark: SparkSession, job: Job, sent: dict[str, list[list[Row]]]) -> list[tuple[Any, ...]]:
    frames = {}
    for name in job.inputs:
        (time, number), rows = SIDES[name], [row for delivery in sent[name] for row in delivery]
        if job.target.mode == "update":
            rows = [*rows, (f"end of {name}", END, 0)]
        frames[name] = spark.createDataFrame(rows, f"key STRING, {time} TIMESTAMP, {number} INT").coalesce(1)
    return as_sorted(job.function(**frames).collect())


def as_sorted(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


@pytest.mark.parametrize("family", FAMILIES if LONG else ["windows"])
@settings(
    max_examples=int(os.environ.get("HEADWATER_EXAMPLES", "2")),
    phases=set(Phase) if LONG else {Phase.generate},
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(drawn=st.tuples(deliveries(), deliveries()))
def test_streamed_result_equals_batch_result(
    spark: SparkSession, closing_batches: None, family: str, drawn: tuple[Drawn, Drawn]
) -> None:
    jobs = FAMILIES[family]
    topics = {topic for job in jobs for topic in job.inputs}
    sent = {topic: placed(made) for topic, made in zip(SIDES, drawn, strict=True) if topic in topics}
    with tempfile.TemporaryDirectory() as home:
        driver = JobDriver(spark, Path(home), jobs)
        streamed(driver, sent)
        for job in jobs:
            table = driver.table(job.target.name)
            found = table.select([name for name in table.columns if not name.startswith("_")]).collect()
            assert as_sorted(found) == batch(spark, job, sent), job.name
        assert [finding for audit in audit_home(driver.home) for finding in audit.findings] == []
