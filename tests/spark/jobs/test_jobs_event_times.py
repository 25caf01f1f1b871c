"""Event times that are computed of each record, and the record's own key and headers as columns of every kind of job.

ts_ms, as a time   10:00      10:30      11:00      11:30      12:00
delay 30 min         |----- window 10 -----|----- window 11 ---|
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.loader import load_jobs
from headwater_streams.plan.analysis import analyse
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

AT = "2024-03-04T13:00:00+00:00"
clicks = hw.topic(
    "clicks",
    schema="page STRING, ts_ms BIGINT, text STRING",
    event_time="timestamp_millis(ts_ms)",
    watermark="30 minutes",
)
taps = hw.topic(
    "taps",
    schema="page STRING, text STRING",
    event_time="to_timestamp(text, 'dd.MM.yyyy HH:mm') AS tapped_at",
    watermark="30 minutes",
)
names = hw.lookup("dim.names")


def rows(driver: JobDriver, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in driver.table(table).selectExpr(*columns).collect()), key=repr)


def ms(time: str) -> int:
    return int(datetime.fromisoformat(f"2024-03-04T{time}:00Z").timestamp() * 1000)


def click(time: str, page: str = "a", **more: Any) -> dict[str, Any]:
    return {"page": page, "ts_ms": ms(time), **more}


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
def copied(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("gold.clicks", keys=["page", "window_start"], mode="update"), dedup=hw.by_offset())
def hourly(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "event_time", "1 hour", by=["page"]).agg(F.count("*").alias("n"))


def test_rows_have_the_time_that_is_computed(drive: Callable[..., JobDriver]) -> None:
    driver = drive(copied)
    driver.send("clicks", click("10:00"), click("10:30", "b"), timestamp=AT)
    driver.run()
    found = driver.table("silver.clicks").select("page", "ts_ms", "event_time", "_seen_until").collect()
    times = {row["page"]: (row["event_time"].replace(tzinfo=UTC), row["_seen_until"]) for row in found}
    assert times["b"] == (datetime.fromisoformat("2024-03-04T10:30Z"), None)
    (entry,) = driver.ledger("silver.clicks")
    assert entry.max_event_time_us == ms("10:30") * 1000
    assert driver.audit() == []


def test_rows_without_a_time_and_those_it_cannot_be_computed_of_are_quarantined_alone(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(bind(copied), replace(bind(copied), name="texts", target=hw.delta("silver.taps"), inputs={
        "clicks": taps,
    }))  # fmt: skip
    beyond = 2**62
    driver.send(
        "clicks", click("10:00"), {"page": "b"}, {"page": "c", "ts_ms": beyond}, "no json", timestamp=AT
    )
    driver.send("clicks", {"page": "d", "ts_ms": ms("10:00") * 1000}, timestamp=AT)
    driver.send("taps", {"page": "a", "text": "04.03.2024 10:00"}, {"page": "b", "text": "4th"}, timestamp=AT)
    driver.run()
    assert driver.rows("silver.clicks", "page") == [("a",)]
    reasons = [why for why, _ in driver.quarantined("silver.clicks")]
    assert reasons[0] == "event_time is missing: timestamp_millis(ts_ms) is NULL"
    assert reasons[1] == "event_time cannot be computed: timestamp_millis(ts_ms)"
    assert "event_time" not in reasons[2], (
        "what is missing in a value that could not be read follows from that"
    )
    assert reasons[3] == "event_time is more than 1 day ahead of the record's timestamp"
    assert driver.rows("silver.taps", "page") == [("a",)]
    assert driver.rows("silver.taps__quarantine", "_reason", "_check") == [
        ("tapped_at cannot be computed: to_timestamp(text, 'dd.MM.yyyy HH:mm')", "event_time")
    ]
    assert driver.accounting("silver.clicks") == {"read": 5, "written": 1, "quarantined": 4}
    assert driver.audit() == []


@pytest.mark.story
@pytest.mark.parametrize("late", ["table", "count"])
def test_windows_close_by_the_time_that_is_computed(
    drive: Callable[..., JobDriver], late: Literal["table", "count"]
) -> None:
    driver = drive(replace(bind(hourly), late=late))
    driver.send("clicks", click("10:00"), click("10:59"), click("11:31"), timestamp=AT)
    driver.run()
    driver.send("clicks", click("10:30"), click("11:10"), {"page": "a", "ts_ms": 2**62}, timestamp=AT)
    driver.run()
    assert rows(driver, "gold.clicks", "hour(window_start)", "n") == [(10, 2), (11, 2)]
    assert driver.rows("gold.clicks__quarantine", "_offset") == [(5,)]
    if late == "table":
        ((time, offset),) = driver.late("gold.clicks", "event_time", "_offset")
        assert (time.minute, offset) == (30, 3)
    assert driver.accounting("gold.clicks").get("late") == 1
    assert driver.audit() == []


def test_driver_moves_a_time_that_is_computed(drive: Callable[..., JobDriver]) -> None:
    driver = drive(hourly)
    driver.send("clicks", click("10:00"), timestamp=AT)
    driver.run()
    driver.advance("clicks", "2024-03-04T12:00:00Z", page="b")
    driver.run()
    driver.send("clicks", click("10:01"), timestamp=AT)
    driver.run()
    assert driver.accounting("gold.clicks")["late"] == 1


sent = hw.topic(
    "sent",
    schema="page STRING",
    event_time="to_timestamp(CAST(_headers['sent'] AS STRING)) AS sent_at",
    watermark="30 minutes",
)


@hw.job(target=hw.delta("silver.sent"), dedup=hw.by_offset())
@hw.check("has_key", "_key IS NOT NULL AND _headers['sent'] IS NOT NULL")
def of_records(sent: DataFrame) -> DataFrame:
    return sent.select(
        "page",
        "sent_at",
        F.col("_key").cast("string").alias("customer"),
        F.col("_headers")["trace"].cast("string").alias("trace"),
        F.col("_timestamp").alias("came_at"),
    )


@pytest.mark.story
def test_time_key_and_headers_are_of_the_record_itself(drive: Callable[..., JobDriver]) -> None:
    driver = drive(of_records)
    at = {"sent": b"2024-03-04T10:00:00Z"}
    driver.send("sent", {"page": "a"}, key="c1", headers={**at, "trace": b"t1"}, timestamp=AT)
    driver.send("sent", {"page": "b"}, key="c2", headers=at, timestamp=AT)
    driver.send("sent", {"page": "c"}, headers=at, timestamp=AT)
    driver.send("sent", {"page": "d"}, key="c4", timestamp=AT)
    driver.run()
    assert driver.rows("silver.sent", "page", "customer", "trace") == [("a", "c1", "t1"), ("b", "c2", None)]
    quarantined = rows(driver, "silver.sent__quarantine", "_offset", "_check", "CAST(_key AS STRING)")
    assert quarantined == [(2, "has_key", None), (3, "event_time, has_key", "c4")]
    columns = driver.table("silver.sent").columns
    assert not {"_key", "_headers"} & {*columns}


def keyed(late: Literal["table", "count"]) -> Any:
    @hw.job(
        name="keyed", target=hw.delta("gold.keyed", keys=["who", "window_start"], mode="update"), late=late
    )
    def keyed(clicks: DataFrame) -> DataFrame:
        by_key = clicks.withColumn("who", F.col("_key").cast("string")).filter(
            F.col("_headers")["bot"].isNull()
        )
        return hw.tumbling(by_key, "event_time", "1 hour", by=["who"]).agg(F.count("*").alias("n"))

    return keyed


@pytest.mark.parametrize("late", ["table", "count"])
def test_windows_are_grouped_by_keys_and_filtered_by_headers(
    drive: Callable[..., JobDriver], late: Literal["table", "count"]
) -> None:
    driver = drive(keyed(late))
    driver.send("clicks", click("10:00"), click("10:10"), key="x", timestamp=AT)
    driver.send("clicks", click("10:20"), key="y", timestamp=AT)
    driver.send("clicks", click("10:30"), key="y", headers={"bot": b"yes"}, timestamp=AT)
    driver.run()
    assert driver.rows("gold.keyed", "who", "n") == [("x", 2), ("y", 1)]
    driver.send("clicks", click("11:31"), key="x", timestamp=AT)
    driver.run()
    driver.send("clicks", click("10:40"), key="y", timestamp=AT)
    driver.run()
    assert driver.accounting("gold.keyed")["late"] == 1
    if late == "table":
        ingest = driver.table("gold.keyed__ingest_clicks")
        assert {"_key", "_headers", "event_time"} <= {*ingest.columns}
        assert rows(driver, "gold.keyed__late", "CAST(_key AS STRING)") == [("y",)]
    assert driver.audit() == []


def test_key_goes_through_unions_look_ups_and_joins(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.both"))
    def both(clicks: DataFrame, taps: DataFrame) -> DataFrame:
        united = hw.union(clicks.select("page"), taps.select("page"))
        return united.withColumn("who", F.col("_key").cast("string"))

    @hw.job(target=hw.delta("silver.named"))
    def named(clicks: DataFrame, names: DataFrame) -> DataFrame:
        return hw.enrich(clicks, names, on=["page"]).withColumn("who", F.col("_key").cast("string"))

    @hw.job(target=hw.delta("silver.pairs"))
    def pairs(clicks: DataFrame, taps: DataFrame) -> DataFrame:
        left = clicks.select("event_time", F.col("_key").cast("string").alias("who"))
        right = taps.select("tapped_at", F.col("_key").cast("string").alias("who"))
        return hw.join(
            left, right, on=["who"], left_time="event_time", right_time="tapped_at", within="1 hour"
        )

    driver = drive(both, named, pairs)
    driver.put("dim.names", "page STRING, title STRING", ("a", "Home"))
    driver.send("clicks", click("10:00"), key="x", timestamp=AT)
    driver.send("taps", {"page": "b", "text": "04.03.2024 10:30"}, key="x", timestamp=AT)
    driver.run()
    assert driver.rows("silver.both", "page", "who") == [("a", "x"), ("b", "x")]
    assert driver.rows("silver.named", "title", "who") == [("Home", "x")]
    assert driver.rows("silver.pairs", "who") == [("x",)]
    assert driver.audit() == []


def test_copies_are_found_by_the_records_keys(drive: Callable[..., JobDriver]) -> None:
    driver = drive(replace(bind(copied), dedup=hw.by_key(["_key"], within="1 hour")))
    driver.send("clicks", click("10:00"), click("10:01", "b"), key="x", timestamp=AT)
    driver.send("clicks", click("10:02", "c"), key="y", timestamp=AT)
    driver.run()
    assert driver.rows("silver.clicks", "page") == [("a",), ("c",)]


def test_last_header_of_a_name_is_taken(spark: SparkSession) -> None:
    from headwater_streams.sources.headers import header_map

    rows = spark.sql(
        "SELECT array(named_struct('key', 'a', 'value', X'01'), named_struct('key', 'b', 'value', X'02'), "
        "named_struct('key', 'a', 'value', CAST(NULL AS BINARY))) AS h UNION ALL SELECT NULL"
    )
    found = [row[0] for row in rows.select(header_map(F.col("h"))).collect()]
    assert found == [{"b": bytearray(b"\x02"), "a": None}, None]


SQL = """
CREATE STREAMING TABLE silver.clicks WITH (name = 'copied') AS
SELECT page, event_time, CAST(_key AS STRING) AS who, CAST(_headers['trace'] AS STRING) AS trace
FROM topic('clicks', schema => 'page STRING, ts_ms BIGINT', event_time => timestamp_millis(ts_ms));

CREATE STREAMING TABLE gold.clicks (CONSTRAINT keyed EXPECT (_key IS NOT NULL) ON INPUT)
WITH (name = 'counted', mode = 'update') AS
SELECT CAST(_key AS STRING) AS who, window_start, count(*) AS n
FROM topic('clicks', schema => 'page STRING, ts_ms BIGINT', event_time => timestamp_millis(ts_ms) AS at,
           watermark => '30 minutes')
GROUP BY who, window(at, '1 hour');
"""


@pytest.mark.story
def test_sql_jobs_have_times_keys_and_headers_too(drive: Callable[..., JobDriver], tmp_path: Path) -> None:
    (tmp_path / "clicks.sql").write_text(SQL)
    driver = drive(*load_jobs([str(tmp_path / "clicks.sql")]))
    driver.send("clicks", click("10:00"), click("10:10"), key="x", headers={"trace": b"t"}, timestamp=AT)
    driver.send("clicks", click("10:20"), timestamp=AT)
    driver.run()
    assert rows(driver, "silver.clicks", "who", "trace", "minute(event_time)") == [
        ("x", "t", 0), ("x", "t", 10), (None, None, 20),
    ]  # fmt: skip
    assert rows(driver, "gold.clicks", "who", "n", "hour(window_start)") == [("x", 2, 10)]
    assert driver.rows("gold.clicks__quarantine", "_check") == [("keyed",)]
    assert driver.audit() == []


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("ts_ms", r"is BIGINT, and must be TIMESTAMP; write event_time=\"timestamp_millis\(ts_ms\)\""),
        ("ts_ms + 1", r"is BIGINT, and must be TIMESTAMP; write event_time=\"timestamp_millis\(ts_ms \+ 1\)\""),
        ("CAST(text AS DATE)", r"is DATE, and must be TIMESTAMP; write event_time=\"CAST\("),
        ("max(timestamp_millis(ts_ms))", "looks at more than one record"),
        ("timestamp_millis(ts_sm)", "ts_sm"),
        ("timestamp_millis(", "event_time 'timestamp_millis\\('"),
        ("timestamp_millis(_headers['x'])", r"_key and the values of _headers are BINARY"),
        ("timestamp_millis(ts_ms) AS PAGE", "the value has a column 'PAGE', and so would be the event time"),
        ("struct(ts_ms).*", "event_time"),
    ],
)  # fmt: skip
def test_time_that_cannot_be_one_is_refused_in_a_sentence(
    spark: SparkSession, time: str, reason: str
) -> None:
    topic = hw.topic("clicks", schema="page STRING, ts_ms BIGINT, text STRING", event_time=time)
    with pytest.raises(JobDefinitionError, match=reason) as refused:
        analyse(replace(bind(copied), inputs={"clicks": topic}), spark, {})
    assert "\n" not in str(refused.value)


def test_columns_of_records_are_refused_where_there_are_none(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.kept"))
    def kept(clicks: DataFrame) -> DataFrame:
        return clicks.select("page", "_key")

    @hw.job(target=hw.delta("gold.counts", keys=["who"], mode="update"))
    def behind(clicks: DataFrame) -> DataFrame:
        counts = hw.grouped(clicks, by=["page"], state="unbounded").agg(F.count("*").alias("n"))
        return counts.withColumn("who", F.col("_key"))

    @hw.job(target=hw.delta("silver.again"))
    def again(clicks: DataFrame) -> DataFrame:
        return clicks.select("page", F.col("_key").alias("who"))

    driver = drive(copied)
    driver.send("clicks", click("10:00"), timestamp=AT)
    driver.run()
    for function, reason in (
        (kept, "the column '_key' of the result begins with '_', which is reserved; rename it"),
        (behind, "_key is a column of the records of clicks until they are joined or grouped"),
    ):
        with pytest.raises(JobDefinitionError, match=re.escape(reason)):
            plan_jobs(driver.context, [bind(function)])
    of_table = replace(bind(again), inputs={"clicks": hw.table("silver.clicks")})
    with pytest.raises(
        JobDefinitionError, match="_key is a column of a topic's records, and this job reads tables"
    ):
        plan_jobs(driver.context, [of_table])


def test_jobs_that_use_no_key_are_planned_as_before(drive: Callable[..., JobDriver]) -> None:
    driver = drive(copied, hourly)
    for plan in plan_jobs(driver.context, [bind(copied), bind(hourly)]):
        assert all(not each.record for each in plan.job.inputs.values())
        assert not {"_key", "_headers"} & {name for s in plan.inputs.values() for name in s.fieldNames()}
