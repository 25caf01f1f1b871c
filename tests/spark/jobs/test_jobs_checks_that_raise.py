"""A check that cannot be worked out for a row, or for a batch: nothing stops, the row is told with its check."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import CheckFailedError
from headwater_streams.testing import JobDriver

SCHEMA = "id INT, qty INT, word STRING, list ARRAY<INT>, at TIMESTAMP"
sales = hw.topic("sales", schema=SCHEMA, event_time="at", watermark="1 hour")
GOOD = {"id": 1, "qty": 2, "word": "3", "list": [1, 2], "at": "2026-01-01T10:00:00Z"}
RAISING = {
    "division": ("id / qty < 100", GOOD | {"qty": 0}),
    "remainder": ("id % qty < 100", GOOD | {"qty": 0}),
    "cast": ("cast(word AS INT) > 0", GOOD | {"word": "x"}),
    "implicit cast": ("word > 0", GOOD | {"word": ""}),
    "index": ("list[1] > 0", GOOD | {"list": [1]}),
    "element": ("element_at(list, 2) > 0", GOOD | {"list": [1]}),
    "time": ("to_timestamp(word, 'd') IS NOT NULL", GOOD | {"word": "soon"}),
    "overflow": ("id + 2147483646 > 0", GOOD | {"id": 2}),
    "inside a list": ("exists(list, x -> 1 / x > 0)", GOOD | {"list": [0]}),
    "raised": ("if(qty = 0, raise_error('no'), true)", GOOD | {"qty": 0}),
    "commented": ("id / qty < 100 -- a share", GOOD | {"qty": 0}),
}


def rows_job(*checks: tuple[str, str, str]) -> object:
    def kept(sales: DataFrame) -> DataFrame:
        return sales.select("id", (F.col("id") + F.col("qty")).alias("sum"))

    for name, condition, action in checks:
        kept = hw.check(name, condition, action=action, on="input")(kept)
    return hw.job(target=hw.delta("silver.kept"))(kept)


@pytest.mark.story
def test_row_check_that_raises_takes_the_row_aside_with_its_check(
    spark: SparkSession, tmp_path: Path
) -> None:
    checks = [(f"c{i}", condition, "quarantine") for i, (condition, _) in enumerate(RAISING.values())]
    driver = JobDriver(spark, tmp_path, [rows_job(*checks)])
    driver.send("sales", GOOD, *(row for _, row in RAISING.values()), GOOD)
    driver.run()
    assert driver.rows("silver.kept", "id") == [(1,), (1,)]
    found = dict(driver.rows("silver.kept__quarantine", "_offset", "_reason"))
    for place, (condition, _) in enumerate(RAISING.values()):
        assert f"c{place}: {condition} cannot be worked out" in found[place + 1]
    assert driver.audit() == []


def test_row_check_that_raises_and_warns_or_fails_counts_the_row(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = JobDriver(spark, tmp_path / "warns", [rows_job(("share", "id / qty < 100", "warn"))])
    driver.send("sales", GOOD, GOOD | {"qty": 0}, GOOD | {"id": 10_000})
    driver.run()
    assert driver.rows("silver.kept", "id") == [(1,), (1,), (10_000,)]
    assert "2 rows fail the check 'share' (id / qty < 100)" in caplog.text
    driver = JobDriver(spark, tmp_path / "fails", [rows_job(("share", "id / qty < 100", "fail"))])
    driver.send("sales", GOOD, GOOD | {"qty": 0})
    with pytest.raises(CheckFailedError, match="1 row fails the check 'share'"):
        driver.run()


BATCH = {
    "result": "sum(id) / sum(qty - qty) < 0.5",
    "argument": "avg(id / qty) > 0",
    "overflow": "sum(id + 2147483647) > 0",
    "cast": "max(cast(word AS INT)) > 0",
    "literal": "count(*) / 0 > 1",
}


@pytest.mark.story
def test_batch_check_that_raises_is_told_and_nothing_waits(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def kept(sales: DataFrame) -> DataFrame:
        return sales

    for name, condition in (BATCH | {"good": "avg(id) < 0", "null": "max(cast(NULL AS INT)) > 1"}).items():
        kept = hw.check(name, condition, level="batch", action="warn")(kept)
    windows = hw.delta("gold.sums", keys=["window_start"], mode="update")

    @hw.check("share", BATCH["argument"], level="batch", action="warn", on="input")
    @hw.check("closed", "sum(total) / sum(total - total) > 1", level="batch", action="warn")
    @hw.job(target=windows, late="count")
    def sums(sales: DataFrame) -> DataFrame:
        return hw.tumbling(sales, "at", "1 hour", by=[]).agg(F.sum("id").alias("total"))

    driver = JobDriver(spark, tmp_path, [hw.job(target=hw.delta("silver.kept"))(kept), sums])
    driver.send("sales", GOOD, GOOD | {"qty": 0, "word": "x"})
    driver.run()
    assert driver.rows("silver.kept", "id") == [(1,), (1,)]
    for name, condition in BATCH.items():
        assert f"the check '{name}' ({condition}) cannot be worked out for the batch" in caplog.text
    assert "the batch fails the check 'good' (avg(id) < 0)" in caplog.text
    assert "'null'" not in caplog.text
    for name in ("share", "closed"):
        assert f"the check '{name}'" in caplog.text
    assert driver.rows("gold.sums", "total") == [(2,)]


def test_batch_check_that_raises_and_fails_stops_the_job_in_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.check("share", "sum(id) / sum(qty) < 100", level="batch", action="fail")
    @hw.job(target=hw.delta("silver.kept"))
    def kept(sales: DataFrame) -> DataFrame:
        return sales

    driver = JobDriver(spark, tmp_path, [kept])
    driver.send("sales", b"not JSON")
    driver.run()  # a share of no rows breaks nothing
    driver.send("sales", GOOD | {"qty": 0})
    with pytest.raises(
        CheckFailedError, match="cannot be worked out for the batch; nothing of the batch was"
    ):
        driver.run()


@pytest.mark.parametrize("condition", ["1 = 2", "NULL > 3", "id IS NULL AND id IS NOT NULL"])
def test_function_that_keeps_no_row_commits_its_batches(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    @hw.job(target=hw.delta("silver.none"))
    def none(sales: DataFrame) -> DataFrame:
        return sales.where(condition)

    driver = JobDriver(spark, tmp_path, [none])
    driver.send("sales", GOOD, b"not JSON", GOOD)
    driver.run()
    driver.send("sales", GOOD)
    driver.run()
    assert driver.rows("silver.none", "id") == []
    assert driver.rows("silver.none__quarantine", "_offset") == [(1,)]
    assert driver.audit() == []
