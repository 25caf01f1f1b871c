"""Orders as they come: epoch milliseconds, an array of lines, a key; the lines by day, for 60 days.

record      0        1     2      3         4
day         1        1     99     no JSON   120
lines       cup pot  none  cup              pot cup
batch       |-------- 0 --------|           1
horizon              day 39                 day 60
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.plan.job import Job, bind
from headwater_streams.streaming_sql import load_sql
from headwater_streams.testing import JobDriver

TABLE = "silver.lines"
FIRST = datetime(2013, 1, 1, 12, tzinfo=UTC)
SCHEMA = "ts_ms BIGINT, lines ARRAY<STRING>"
orders = hw.topic("orders", schema=SCHEMA, event_time="timestamp_millis(ts_ms)", watermark="1 day")
ROWS = [(2, 0, "cup", "ann"), (4, 0, "pot", "ben"), (4, 1, "cup", "ben")]
SQL = f"""
CREATE STREAMING TABLE {TABLE} PARTITIONED BY (days(event_time)) CLUSTER BY (sku)
WITH (name = 'lines', keep = '60 days', dedup = by_offset())
AS SELECT event_time, CAST(_key AS STRING) AS customer, sku
FROM topic('orders', schema => '{SCHEMA}', event_time => timestamp_millis(ts_ms), watermark => '1 day') o
LATERAL VIEW explode(o.lines) t AS sku
"""


def in_python(sku: str = "sku") -> Job:
    """Args: the article, in SQL."""

    @hw.job(
        name="lines",
        target=hw.delta(TABLE, partition_by=["days(event_time)"], cluster_by=["sku"], keep="60 days"),
        dedup=hw.by_offset(),
    )
    def lines(orders: DataFrame) -> DataFrame:
        customer = F.col("_key").cast("string").alias("customer")
        each = orders.select("event_time", customer, F.explode("lines").alias("sku"))
        return each.withColumn("sku", F.expr(sku))

    return bind(lines)


def in_sql(folder: Path) -> Job:
    (folder / "lines.sql").write_text(SQL)
    (job,) = load_sql(folder / "lines.sql")
    return job


def send(driver: JobDriver, day: int, *skus: str, key: str) -> None:
    at = FIRST + timedelta(days=day - 1)
    order = {"ts_ms": int(at.timestamp()) * 1000, "lines": [*skus]}
    driver.send("orders", order, key=key, timestamp=at)


def two_batches(driver: JobDriver) -> None:
    send(driver, 1, "cup", "pot", key="ann")
    send(driver, 1, key="ben")
    send(driver, 99, "cup", key="ann")
    driver.send("orders", b"no JSON", timestamp=FIRST)
    driver.run()
    send(driver, 120, "pot", "cup", key="ben")
    driver.run()


def found(driver: JobDriver) -> list[tuple[Any, ...]]:
    return driver.rows(TABLE, "_offset", "_row", "sku", "customer")


@pytest.mark.parametrize("language", [pytest.param("Python", marks=pytest.mark.story), "SQL"])
def test_lines_of_orders_are_partitioned_by_a_computed_day_and_expire(
    drive: Callable[..., JobDriver], tmp_path: Path, language: str
) -> None:
    driver = drive(in_python() if language == "Python" else in_sql(tmp_path))
    two_batches(driver)
    assert found(driver) == ROWS
    assert driver.accounting(TABLE) == {
        "read": 5, "exploded": 3, "written": 5, "filtered": 1, "quarantined": 1, "expired": 2,
    }  # fmt: skip
    assert {path.parent.name for path in driver.home.table(TABLE).glob("event_time_day=*/*.parquet")} >= {
        "event_time_day=2013-04-09",
        "event_time_day=2013-04-30",
    }
    assert driver.audit() == []


def test_repair_and_rebuild_of_lines_bring_no_expired_ones_back(drive: Callable[..., JobDriver]) -> None:
    driver, mended = drive(in_python()), in_python("upper(sku)")
    two_batches(driver)
    planned = backfill.plan(driver.context, mended, offsets={"orders": {0: (0, 4)}})
    backfill.run(driver.context, planned.id, mended)
    verdict = backfill.verify(driver.context, planned.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    terms = {
        name: verdict.accounting[name] for name in ("read", "exploded", "written", "filtered", "expired")
    }
    # Of the three that are good, one has no lines, and all lines of another one have expired.
    assert terms == {"read": 4, "exploded": 1, "written": 1, "filtered": 1, "expired": 1}
    backfill.swap(driver.context, planned.id)
    assert found(driver) == [(2, 0, "CUP", "ann"), *ROWS[1:]]
    assert driver.audit() == []
    rebuilt = backfill.plan_rebuild(driver.context, mended)
    backfill.run(driver.context, rebuilt.id, mended)
    verdict = backfill.verify(driver.context, rebuilt.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, rebuilt.id)
    assert found(driver) == [(offset, row, sku.upper(), customer) for offset, row, sku, customer in ROWS]
    assert driver.audit() == []
