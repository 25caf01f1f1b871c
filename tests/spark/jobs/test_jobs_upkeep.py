"""Tables of running jobs are compacted, vacuumed and their logs cut, and nothing of it is seen in what they hold."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.log import commits, first_version
from headwater_streams.plan.job import bind
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.testing import JobDriver

clicks = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="10 minutes")
good = hw.table("silver.clicks", event_time="at", watermark="10 minutes")
AT = "2026-01-01T12:00:00+00:00"
ROUNDS = 4


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("gold.per_hour", keys=["who", "window_start"], mode="update"))
def per_hour(good: DataFrame) -> DataFrame:
    return hw.tumbling(good, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("total"))


def _click(n: int) -> dict[str, Any]:
    return {"who": "ab"[n % 2], "n": n, "at": f"2026-01-01T10:{n:02d}:00Z"}


@pytest.mark.story
def test_upkeep_between_batches_changes_no_row_and_no_account(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [clean, per_hour])
    upkeep = Upkeep(every=2, files_kept_h=1)
    for round_ in range(ROUNDS):
        driver.send("clicks", _click(2 * round_), _click(2 * round_ + 1), timestamp=AT)
        JobRunner(driver.context, [bind(clean), bind(per_hour)], upkeep=upkeep).run_once()
    assert driver.rows("silver.clicks", "n") == [
        (n,) for n in sorted(range(2 * ROUNDS), key=lambda n: repr((n,)))
    ]
    totals = dict(driver.rows("gold.per_hour", "who", "total"))
    assert totals == {"a": sum(range(0, 2 * ROUNDS, 2)), "b": sum(range(1, 2 * ROUNDS, 2))}
    assert not any(audit.findings for audit in audit_home(driver.home))
    for table in ("silver.clicks", "gold.per_hour"):
        made = list(commits(driver.home.table(table)))
        assert any(c.operation == "OPTIMIZE" for c in made) or table == "gold.per_hour"
    assert len(DeltaTable(str(driver.home.table("silver.clicks"))).file_uris()) < ROUNDS
    progress = spark.read.format("delta").load(str(driver.home.table("headwater.progress")))
    batches = (
        progress.filter("event = 'batch'").select("job", "batch", "rows", "watermark", "behind").collect()
    )
    assert sorted({(row["job"], row["batch"]) for row in batches}) == [
        (job, batch) for job in ("clean", "per_hour") for batch in range(ROUNDS)
    ]
    assert all(row["rows"] for row in batches)
    assert any(row["watermark"] is not None for row in batches if row["job"] == "per_hour")


def test_log_cut_under_a_job_that_goes_on_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    from headwater_streams.ledger.cleaning import clean_log

    driver = JobDriver(spark, tmp_path, [clean, per_hour])
    for round_ in range(4):
        driver.send("clicks", _click(round_), timestamp=AT)
        driver.run()
    path = driver.home.table("silver.clicks")
    DeltaTable(str(path)).create_checkpoint()
    cut = clean_log(driver.home, "silver.clicks", older_than=datetime.now(UTC) + timedelta(days=1), kept=1)
    assert cut == 4 == first_version(path)
    driver.send("clicks", _click(4), timestamp=AT)
    driver.run()
    assert {row[0] for row in driver.rows("gold.per_hour", "total")} == {6, 4}
    assert not any(audit.findings for audit in audit_home(driver.home))
