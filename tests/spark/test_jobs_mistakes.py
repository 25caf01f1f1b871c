"""What is easily got wrong in a job's function is refused when the job is planned, in a sentence, and not by Spark in a
batch: there it would be a stack trace, or a column that nobody finds again."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.errors import JobDefinitionError
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

clicks = hw.topic(
    "clicks",
    schema="k STRING, at TIMESTAMP, tags MAP<STRING, INT>",
    event_time="at",
    watermark="1 hour",
)
buys = hw.topic(
    "buys",
    schema="k INT, bought_at TIMESTAMP, tags MAP<STRING, INT>",
    event_time="bought_at",
    watermark="1 hour",
)
prices = hw.lookup("dim.prices")
BY_MAP = hw.delta("gold.counts", keys=["tags"], mode="update")


@hw.job(target=BY_MAP)
def grouped_by_map(clicks: DataFrame) -> DataFrame:
    return hw.grouped(clicks, by=["tags"], state="unbounded").agg(F.count("*").alias("n"))


@hw.job(target=BY_MAP)
def windows_by_map(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 hour", by=["tags"]).agg(F.count("*").alias("n"))


@hw.job(target=hw.delta("gold.pairs"))
def joined_by_map(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    return hw.join(
        clicks, buys.drop("k"), on=["tags"], left_time="at", right_time="bought_at", within="1 hour"
    )


@hw.job(target=hw.delta("gold.pairs"))
def joined_across_types(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    buys = buys.drop("tags")
    return hw.join(clicks, buys, on=["k"], left_time="at", right_time="bought_at", within="1 hour")


@hw.job(target=hw.delta("gold.pairs"))
def as_of_across_types(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    return hw.as_of(clicks, buys.drop("tags"), by=["k"], left_time="at", right_time="bought_at")


@hw.job(target=hw.delta("silver.clicks"))
def enriched_across_types(clicks: DataFrame, prices: DataFrame) -> DataFrame:
    return hw.enrich(clicks, prices, on={"k": "code"})


@hw.job(target=hw.delta("silver.clicks"))
def reserved_name(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("_batch", F.lit(1))


@hw.job(target=hw.delta("silver.clicks"))
def one_name_to_spark(clicks: DataFrame) -> DataFrame:
    return clicks.select("k", F.upper("k").alias("K"))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (grouped_by_map, "grouped: 'tags' holds a map, and maps cannot be compared"),
        (windows_by_map, "tumbling: 'tags' holds a map, and maps cannot be compared"),
        (joined_by_map, "join: 'tags' holds a map, and maps cannot be compared"),
        (joined_across_types, "join: 'k' is STRING on the left side, and 'k' is INT on the right; cast"),
        (as_of_across_types, "as_of: 'k' is STRING on the left side, and 'k' is INT on the right; cast"),
        (enriched_across_types, "enrich: 'k' is STRING on the left side, and 'code' is INT on the right"),
        (reserved_name, "the column '_batch' of the result begins with '_', which is reserved; rename it"),
        (one_name_to_spark, "the result has two columns named 'k'; rename one"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_jobs_mistakes_are_told_when_planned(
    drive: Callable[..., JobDriver], job: Callable[..., DataFrame], message: str
) -> None:
    driver = drive(job)
    driver.put("dim.prices", "code INT, price DOUBLE", (1, 2.0))
    with pytest.raises(JobDefinitionError) as error:
        plan_jobs(driver.context, driver._jobs)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
