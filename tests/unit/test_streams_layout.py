"""What a job says of its table's layout: partitions, clustering, properties, comments, age."""

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import types as T

import headwater as hw
from backfill_facts import columns
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.layout import (
    FILE_RETENTION,
    LOG_RETENTION,
    Partition,
    partitioned_by,
    partitioning_problem,
    retention,
)
from headwater_streams.plan.laid_out import age_column, computed_problem, keep_problems, layout_problems

ORDERS = columns(
    "order_id",
    "country",
    cents=T.LongType(),
    rate=T.DoubleType(),
    placed_at=T.TimestampType(),
    lines=T.ArrayType(T.IntegerType()),
    day=T.DateType(),
    short=T.VarcharType(3),
    _topic=T.StringType(),
)


def test_layout_of_a_target_is_what_was_said() -> None:
    layout = hw.delta(
        "silver.orders",
        partition_by=["country", "days(placed_at)", "hours(`at.time`)"],
        cluster_by=["order_id"],
        properties={
            "delta.logRetentionDuration": "60 days",
            "delta.enableChangeDataFeed": True,
            "team": "sales",
        },
        comment="all orders",
        comments={"cents": "gross"},
        keep="90 days",
    ).layout
    assert layout.partition_columns == ("country", "placed_at_day", "at_time_hour")
    assert [str(each) for each in layout.computed] == ["days(placed_at)", "hours(at.time)"]
    assert layout.keep_us == 90 * 24 * 3600 * 10**6
    assert layout.stored_properties == {
        "delta.logRetentionDuration": "interval 60 days",
        "delta.enableChangeDataFeed": "true",
        "team": "sales",
        "headwater.clusterBy": "order_id",
        "headwater.keep": "90 days",
    }


def test_layout_is_not_in_a_target_s_text_which_is_part_of_a_job_s_fingerprint() -> None:
    assert repr(hw.delta("silver.orders", comment="all")) == repr(hw.delta("silver.orders"))


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"partition_by": "day"}, "partition_by='day' is not a list; write ['day']"),
        ({"cluster_by": "day"}, "cluster_by='day' is not a list; write ['day']"),
        (
            {"partition_by": ["weeks(at)"]},
            "there is no weeks(...); write a column, or years(time), months(time)",
        ),
        ({"partition_by": ["days(at"]}, "partition_by='days(at' is no column"),
        ({"partition_by": ["_offset"]}, "partition_by has '_offset', a column of the library's own"),
        ({"partition_by": ["day", "DAY"]}, "partition_by has 'DAY' twice"),
        ({"partition_by": ["day"], "cluster_by": ["day"]}, "'day' is in partition_by and in cluster_by"),
        ({"cluster_by": list("abcde")}, "cluster_by has 5 columns and may have 4"),
        (
            {"cluster_by": ["id"], "properties": {"delta.autoOptimize.optimizeWrite": True}},
            "sorts the rows that a batch writes, and the property 'delta.autoOptimize.optimizeWrite' shuffles them",
        ),
        ({"keep": 90}, "keep=90 is not a duration; write a number and one of"),
        ({"keep": timedelta(days=90)}, "keep=datetime.timedelta(days=90) is not a duration"),
        ({"keep": "3 months"}, "keep='3 months' is not a duration"),
        (
            {"properties": {"delta.appendOnly": True}},
            "would refuse the commits by which a backfill replaces rows",
        ),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "readers of protocol 1 would not open it"),
        ({"properties": {"delta.enableDeletionVectors": "true"}}, "what reads by Arrow"),
        (
            {"properties": {"delta.feature.clustering": "supported"}},
            "tables stay at those that every reader opens",
        ),
        ({"properties": {"delta.logRetention": "1 day"}}, "is none that the library knows; there are"),
        ({"properties": {"delta.logRetentionDuration": "long"}}, "is no duration: 'long'"),
        ({"properties": {"delta.enableChangeDataFeed": "yes"}}, "is true or false, not 'yes'"),
        ({"properties": {"delta.autoOptimize.optimizeWrite": 1}}, "is true or false, not '1'"),
        ({"properties": {"delta.targetFileSize": "128mb"}}, "a number of bytes, as 134217728, not '128mb'"),
        ({"properties": {"delta.checkpointInterval": 0}}, "a number of commits, as 50, not '0'"),
        (
            {"properties": {"delta.setTransactionRetentionDuration": "7 days"}},
            "would forget how far a job that waits has come",
        ),
        ({"properties": {"headwater.keep": "1 day"}}, "begins with 'headwater.'"),
        ({"properties": {"team": None}}, "the property 'team' has no value; give it one, or leave it out"),
        (
            {"properties": {"delta.enableChangeDataFeed": True}, "mode": "update", "keys": ["id"]},
            "is for tables that only get rows",
        ),
    ],
)
def test_layout_that_no_table_can_have_is_refused(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(JobDefinitionError) as error:
        hw.delta("silver.orders", **declared)
    assert told in str(error.value)


def test_layout_takes_what_is_switched_off_anyway() -> None:
    hw.delta("a.b", properties={"delta.enableDeletionVectors": False, "delta.columnMapping.mode": "none"})
    hw.delta("a.b", properties={"delta.targetFileSize": 1 << 20, "delta.checkpointInterval": "10"})


def test_dimension_has_partitions_of_its_own_columns_only() -> None:
    target = hw.scd2("dim.c", keys=["id"], sequence_by="at", partition_by=["is_current"], comment="customers")
    assert (target.layout.partition_columns, target.layout.comment) == (("is_current",), "customers")
    with pytest.raises(JobDefinitionError, match="compute the column in the function"):
        hw.scd1("dim.c", keys=["id"], sequence_by="at", partition_by=["days(at)"])


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"partition_by": ["city"]}, "partition_by has 'city', which is no column of it; it has "),
        ({"partition_by": ["placed_at"]}, "each value of it would be a folder; partitions are by DATE"),
        ({"partition_by": ["rate"]}, "'rate', a DOUBLE"),
        ({"partition_by": ["short"]}, "write STRING"),
        ({"cluster_by": ["lines"]}, "cluster_by has 'lines', a ARRAY<INT>, which has no order"),
        ({"comments": {"city": "where"}}, "comments has 'city', which is no column of it"),
    ],
)
def test_layout_that_does_not_fit_the_columns_is_a_sentence(declared: dict[str, Any], told: str) -> None:
    layout = hw.delta("silver.orders", **declared).layout
    (problem,) = layout_problems("silver.orders", layout, ORDERS)
    assert told in problem


def test_layout_of_all_columns_or_without_a_time_is_a_sentence() -> None:
    layout = hw.delta("a.b", partition_by=["day"]).layout
    days = columns("_topic", day=T.DateType())
    assert [*layout_problems("a.b", layout, days)] == [
        "a.b: partition_by has all of its columns, and no data file would have any"
    ]
    kept = hw.delta("a.b", keep="9 days").layout
    (problem,) = layout_problems("a.b", kept, ORDERS, times=("day",))
    assert "keep='9 days' is by event time, and no column of the table is called so" in problem
    assert not [*layout_problems("a.b", kept, ORDERS, times=("gone", "placed_at"))]
    assert age_column(("gone", "placed_at"), ORDERS, kept) == "placed_at"


def test_age_is_by_the_column_that_is_named() -> None:
    named = hw.delta("a.b", keep="9 days", keep_by="placed_at").layout
    assert age_column(("timestamp_millis(ts)",), ORDERS, named) == "placed_at"
    assert not [*layout_problems("a.b", named, ORDERS, times=("timestamp_millis(ts)",))]
    assert named.description == "kept for 9 days by placed_at"
    (problem,) = layout_problems("a.b", hw.delta("a.b", keep="9 days", keep_by="day").layout, ORDERS)
    assert "keep_by has 'day', which is DATE, and no TIMESTAMP" in problem
    (problem,) = layout_problems("a.b", hw.delta("a.b", keep="9 days", keep_by="at").layout, ORDERS)
    assert "keep_by has 'at', which is no column of it; it has" in problem
    with pytest.raises(JobDefinitionError, match="write keep= with it"):
        hw.delta("a.b", keep_by="placed_at")


def test_age_without_an_event_that_is_the_newest_is_a_sentence() -> None:
    named = hw.delta("a.b", keep="9 days", keep_by="placed_at").layout
    (problem,) = layout_problems("a.b", named, ORDERS)
    assert "no input has an event time, so that no row would ever go; give one event_time=" in problem


def test_windows_go_by_their_ends_and_not_before_they_are_closed() -> None:
    kept = hw.delta("a.b", keep="2 days").layout
    assert not [*keep_problems("a.b", kept, "window", ["1 day"])]
    (problem,) = keep_problems("a.b", kept, "window", ["1 day", "2 days"])
    assert "keep='2 days' is not longer than the watermark of an input" in problem
    assert not [*keep_problems("a.b", kept, "row", ["2 days"])]
    (problem,) = keep_problems("a.b", kept, "join", [])
    assert "is for rows and for windows" in problem
    by = [hw.delta("a.b", keep="2 days", keep_by=name).layout for name in ("window_end", "window_start")]
    assert not [*keep_problems("a.b", by[0], "window", [])]
    (problem,) = keep_problems("a.b", by[1], "window", [])
    assert "keep_by='window_start' is for rows; windows go by their window_end" in problem


def test_partition_that_cannot_be_computed_is_a_sentence() -> None:
    assert "no column 'at' in the result" in str(computed_problem(Partition("at_day", "at", "days"), ORDERS))
    assert "a column 'day' already" in str(computed_problem(Partition("day", "placed_at", "days"), ORDERS))
    assert "'cents' is BIGINT" in str(computed_problem(Partition("cents_day", "cents", "days"), ORDERS))
    assert "'day' is DATE" in str(computed_problem(Partition("day_hour", "day", "hours"), ORDERS))
    assert computed_problem(Partition("day_month", "day", "months"), ORDERS) is None


def test_table_with_other_partitions_says_what_can_be_done() -> None:
    declared = hw.delta("silver.orders", partition_by=["days(placed_at)"]).layout
    assert partitioning_problem("silver.orders", ("placed_at_day",), declared) is None
    problem = str(partitioning_problem("silver.orders", (), declared))
    assert problem.startswith(
        "silver.orders: the table is not partitioned, and the job declares it partitioned by"
    )
    assert "headwater backfill plan JOB --rebuild" in problem
    assert partitioning_problem("silver.orders", ("a", "b"), partitioned_by(("a", "b"))) is None


def test_retention_reads_what_delta_writes() -> None:
    properties = {LOG_RETENTION: "interval 7 days", FILE_RETENTION: "interval 1 month"}
    assert retention(properties, LOG_RETENTION) == timedelta(days=7)
    assert retention(properties, FILE_RETENTION) is None
    assert retention({}, FILE_RETENTION) is None
