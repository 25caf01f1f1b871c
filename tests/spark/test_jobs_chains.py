"""Chains of stateful operators: what cannot be accounted for is refused when jobs are planned, with the way out."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.runtime.job import bind
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.runner import plan_jobs
from headwater_streams.testing import JobDriver

left = hw.topic("left", schema="k STRING, l_at TIMESTAMP", event_time="l_at", watermark="1 hour")
right = hw.topic("right", schema="k STRING, r_at TIMESTAMP", event_time="r_at", watermark="1 hour")
pairs_table = hw.table("gold.pairs", event_time="r_at", watermark="1 hour")
pairs_rows = hw.table("silver.pairs", event_time="r_at", watermark="1 hour")
counted = hw.table("gold.counts")


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return hw.join(left, right, on=["k"], left_time="l_at", right_time="r_at", within="1 hour")


def hourly(rows: DataFrame) -> DataFrame:
    return hw.tumbling(rows, "r_at", "1 hour", by=["k"]).agg(F.count("*").alias("n"))


AT = "2013-01-01T12:00:00+00:00"
COUNTS = hw.delta("gold.counts", keys=["k", "window_start"], mode="update")


@hw.job(target=COUNTS, name="counts")
def chained(left: DataFrame, right: DataFrame) -> DataFrame:
    return hourly(joined(left, right))


@hw.job(target=hw.delta("gold.pairs"))
def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
    return joined(left, right)


@hw.job(target=COUNTS, name="counts")
def counts_of_pairs(pairs_table: DataFrame) -> DataFrame:
    return hourly(pairs_table)


@hw.job(target=hw.delta("silver.pairs"))
def kept_pairs(pairs_table: DataFrame) -> DataFrame:
    return pairs_table


@hw.job(target=hw.delta("silver.pairs"), dedup=hw.by_offset())
def pairs_once(pairs_table: DataFrame) -> DataFrame:
    return pairs_table


@hw.job(target=COUNTS, name="counts")
def counts_of_rows(pairs_rows: DataFrame) -> DataFrame:
    return hourly(pairs_rows)


@hw.job(target=hw.delta("gold.after"))
def after_counts(counted: DataFrame) -> DataFrame:
    return counted


@pytest.fixture
def planned(drive: Callable[..., JobDriver]) -> Callable[..., list[JobPlan]]:
    def plan(*jobs: Any) -> list[JobPlan]:
        return plan_jobs(drive().context, [bind(job) for job in jobs])

    return plan


Planned = Callable[..., Sequence[JobPlan]]


def test_chain_in_one_function_is_refused_with_the_operators_named(planned: Planned) -> None:
    with pytest.raises(
        JobDefinitionError, match="a chain of stateful operators, IntervalJoin, then Tumbling"
    ):
        planned(chained)


def test_chain_over_a_join_s_table_is_refused_and_a_row_job_between_helps(planned: Planned) -> None:
    with pytest.raises(JobDefinitionError, match=r"gold\.pairs is the table of a join, whose rows come when"):
        planned(pairs, counts_of_pairs)
    kinds = [plan.kind for plan in planned(pairs, kept_pairs, counts_of_rows)]
    assert kinds == ["row", "row", "join", "row", "window"]


def test_chain_of_a_join_a_row_job_and_windows_counts_every_pair(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(pairs, kept_pairs, counts_of_rows)
    driver.send("left", {"k": "a", "l_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    driver.send("right", *[{"k": "a", "r_at": f"2013-01-01T10:{n}0:00Z"} for n in (1, 2, 2)], timestamp=AT)
    driver.run()
    assert driver.rows("gold.counts", "k", "n") == [("a", 3)]
    assert driver.rows("silver.pairs", "k", "_topic", "_offset") == [("a", "left", 0)] * 3
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]
    path = driver.home.table("silver.pairs")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE r_at = '2013-01-01T10:10:00Z'")
    (audit,) = audit_home(driver.home, ["silver.pairs"])
    assert audit.findings == ["silver.pairs batch 0: 1 rows are gone: left 0 offset 0"]


def test_chain_by_offset_over_a_join_s_table_is_refused_for_pairs_share_coordinates(planned: Planned) -> None:
    with pytest.raises(JobDefinitionError, match="the pairs of one row share its coordinates"):
        planned(pairs, pairs_once)


def test_chain_over_a_table_of_windows_is_refused(planned: Planned) -> None:
    with pytest.raises(
        JobDefinitionError, match=r"gold\.counts is a table of windows, whose rows are made of many records"
    ):
        planned(pairs, kept_pairs, counts_of_rows, after_counts)


def test_chain_over_a_table_without_coordinates_is_refused(
    drive: Callable[..., JobDriver], planned: Planned
) -> None:
    drive().put("gold.counts", "k STRING", ("a",))
    with pytest.raises(JobDefinitionError, match="not written by a job that keeps its records' coordinates"):
        planned(after_counts)
