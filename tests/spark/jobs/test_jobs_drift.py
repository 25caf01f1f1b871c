"""A job's columns change between two runs of it, or its input's do: what merges, what is refused, in which words."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import IncompatibleTableError
from headwater_streams.plan.analysis import analyse
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.tables import table_problems
from headwater_streams.testing import JobDriver

clicks = hw.topic(
    "clicks",
    schema="id STRING, n INT, at TIMESTAMP",
    event_time="at",
    watermark="1 hour",
    max_ahead="9999 days",
)
silver_clicks = hw.table("silver.clicks", event_time="at", watermark="1 hour")


def job_of(function: Callable[..., DataFrame], target: hw.DeltaTarget) -> Job:
    """The job as one version of its module declares it."""
    return bind(hw.job(target=target, dedup=hw.by_offset(), name="clicks")(function))


def first(clicks: DataFrame) -> DataFrame:
    return clicks


def longer(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("twice", F.col("n") * 2).withColumn("who", F.struct(F.col("id").alias("name")))


def shorter(clicks: DataFrame) -> DataFrame:
    return clicks.select("id", "at")


def as_text(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("n", F.col("n").cast("string"))


def as_short(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("n", F.col("n").cast("smallint"))


def as_long(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("n", F.col("n") + F.lit(3_000_000_000))


SILVER = hw.delta("silver.clicks")


def click(n: int) -> dict[str, object]:
    return {"id": f"c{n}", "n": n, "at": f"2013-01-01T10:{n:02d}:00Z"}


def one_click(driver: JobDriver) -> None:
    driver.send("clicks", click(0), offset=0)
    driver.run()


@pytest.fixture
def run(drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]) -> Callable[..., JobDriver]:
    """Runs versions of a job, where the first one has run already, one after the other, each over one more click."""
    begun = ready(one_click, job_of(first, SILVER))
    sent = 1

    def go(*versions: Job) -> JobDriver:
        nonlocal sent
        driver = begun
        for version in versions:
            driver = drive(version)
            driver.send("clicks", click(sent), offset=sent)
            sent += 1
            driver.run()
        return driver

    return go


@pytest.mark.story
def test_drift_added_columns_are_null_in_what_was_there(run: Callable[..., JobDriver]) -> None:
    driver = run(job_of(longer, SILVER))
    assert driver.rows("silver.clicks", "id", "n", "twice", "who.name") == [
        ("c0", 0, None, None),
        ("c1", 1, 2, "c1"),
    ]


def test_drift_removed_columns_stay_and_are_null(run: Callable[..., JobDriver]) -> None:
    driver = run(job_of(shorter, SILVER), job_of(first, SILVER))
    assert driver.rows("silver.clicks", "id", "n") == [("c0", 0), ("c1", None), ("c2", 2)]


def test_drift_narrower_column_is_written_as_the_table_has_it(run: Callable[..., JobDriver]) -> None:
    driver = run(job_of(as_short, SILVER))
    assert driver.table("silver.clicks").schema["n"].dataType.simpleString() == "int"
    assert driver.rows("silver.clicks", "id", "n") == [("c0", 0), ("c1", 1)]


@pytest.mark.story
def test_drift_changed_type_is_refused_before_anything_is_written(run: Callable[..., JobDriver]) -> None:
    driver = run()
    for changed in (as_text, as_long):
        with pytest.raises(
            IncompatibleTableError, match=r"silver\.clicks: the column 'n' is int in the table"
        ) as refused:
            run(job_of(changed, SILVER))
        assert "cast it there, or give it another name" in str(refused.value), changed.__name__
        assert driver.rows("silver.clicks", "id", "n") == [("c0", 0)], changed.__name__
    # With the type put back it goes on, and nothing is lost.
    assert run(job_of(first, SILVER)).rows("silver.clicks", "id") == [("c0",), ("c1",), ("c2",), ("c3",)]


def test_drift_is_told_by_a_plan_without_a_run(run: Callable[..., JobDriver]) -> None:
    driver = run()
    for function, told in ((first, 0), (longer, 0), (shorter, 0), (as_short, 0), (as_text, 1), (as_long, 1)):
        plan = analyse(job_of(function, SILVER), driver.context.spark, {})
        assert len(table_problems(driver.context, plan)) == told, function.__name__
        kept = [each for each in since_last_run(driver.context, plan) if each.what.startswith("column ")]
        assert len(kept) == (function is as_short), "not what is refused: that it goes on is not so"


GOLD = hw.delta("gold.clicks", keys=["id", "window_start"], mode="update")


def counted(silver_clicks: DataFrame) -> DataFrame:
    return hw.tumbling(silver_clicks, "at", "1 day", by=["id"]).agg(
        F.count("*").alias("clicks"), F.max("n").alias("most")
    )


def test_drift_input_table_that_gains_a_column_is_read_on(spark: SparkSession, tmp_path: Path) -> None:
    """The table's new column comes between two batches of the job that reads it."""
    reader = bind(hw.job(target=GOLD, name="gold")(counted))
    for n, function in enumerate((first, longer, longer)):
        driver = JobDriver(spark, tmp_path, [job_of(function, SILVER), reader])
        driver.send("clicks", click(1), offset=n)
        driver.run()
    assert driver.rows("gold.clicks", "id", "clicks", "most") == [("c1", 3, 1)]


def test_drift_fields_that_the_schema_does_not_name_are_left_out(run: Callable[..., JobDriver]) -> None:
    driver = run()
    driver.send("clicks", {**click(1), "new": {"deep": [1]}}, {**click(2), "n": "two"}, offset=1)
    driver.run()
    assert driver.rows("silver.clicks", "id") == [("c0",), ("c1",)]
    assert driver.rows("silver.clicks__quarantine", "_reason") == [('n is not INT: "two"',)]
