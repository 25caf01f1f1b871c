"""What a person is told of a job whose rows cannot be computed: why, and where in their own code."""

import re
from collections.abc import Callable

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.plan.job import bind
from headwater_streams.runtime.query import explain
from headwater_streams.testing import JobDriver

counts = hw.topic("counts", schema="n INT, at TIMESTAMP", event_time="at", watermark="1 hour")
HERE = r"test_jobs_failures\.py, line \d+: "


@hw.job(target=hw.delta("silver.divided"), on_error="fail")
def divided(counts: DataFrame) -> DataFrame:
    return counts.withColumn("q", F.lit(10) / (F.col("n") - 2))


@hw.job(target=hw.delta("silver.plain"), on_error="fail")
def by_row(counts: DataFrame) -> DataFrame:
    return counts.withColumn("q", F.udf(lambda n: 1 // (n - 2), "int")("n"))


@hw.job(target=hw.delta("silver.pandas"), on_error="fail")
def by_column(counts: DataFrame) -> DataFrame:
    @F.pandas_udf("int")  # type: ignore[call-overload,untyped-decorator]
    def looked_up(n: pd.Series) -> pd.Series:
        raise KeyError("two")

    return counts.withColumn("q", looked_up("n"))


@hw.job(target=hw.delta("gold.raised", keys=["window_start"], mode="update"), on_error="fail")
def raised(counts: DataFrame) -> DataFrame:
    wrong = counts.withColumn("q", F.raise_error(F.lit("no such thing")).cast("string"))
    return hw.tumbling(wrong, "at", "1 hour").agg(F.max("q").alias("q"))


def test_job_failure_is_told_in_a_line(
    drive: Callable[..., JobDriver], capfd: pytest.CaptureFixture[str]
) -> None:
    driver = drive(divided)
    driver.send("counts", {"n": 2, "at": "2013-01-01T10:00:00Z"}, timestamp="2013-01-01T10:00:00Z")
    for job, told in (
        (divided, r"\[DIVIDE_BY_ZERO\] Division by zero\."),
        (by_row, HERE + "ZeroDivisionError: integer division or modulo by zero"),
        (by_column, HERE + "KeyError: 'two'$"),
        (raised, r"\[USER_RAISED_EXCEPTION\] no such thing$"),
    ):
        driver._jobs = [bind(job)]
        with pytest.raises(Exception) as failed:
            driver.run()
        where = f"job {job.__name__!r}, batch 0 of counts 0 [0, 1): "
        assert explain(failed.value).startswith(where)
        assert re.match(told, explain(failed.value).removeprefix(where)), explain(failed.value)
        assert "\n" not in explain(failed.value)
