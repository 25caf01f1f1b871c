"""How a function names the hidden columns of its records."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

AT = "2013-01-05T12:00:00Z"
clicks = hw.topic("clicks", schema="page STRING")


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
