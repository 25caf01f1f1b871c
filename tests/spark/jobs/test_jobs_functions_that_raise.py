"""A job's function that raises for some records: these go to quarantine with the error, and the others are written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError, RowErrorsError
from headwater_streams.plan.job import bind
from headwater_streams.testing import JobDriver

SCHEMA = "id INT, qty INT, word STRING, digits STRING, list ARRAY<INT>"
sales = hw.topic("sales", schema=SCHEMA)
returns = hw.topic("returns", schema=SCHEMA)
GOOD = {"id": 1, "qty": 2, "word": "3", "digits": "4", "list": [1, 2]}


def _number(word: str) -> int:
    if word == "half":
        raise ValueError("half of a pair: \ud800")  # which PySpark itself does not write
    return int(word)


parsed = F.udf(lambda word: _number(word), T.IntegerType())


@F.pandas_udf(T.IntegerType())
def parsed_by_pandas(words: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for series in words:
        yield series.map(int)


RAISING = {
    "division": ("id / qty", GOOD | {"qty": 0}, "[DIVIDE_BY_ZERO]"),
    "cast": ("cast(word AS INT)", GOOD | {"word": "x"}, "[CAST_INVALID_INPUT] The value 'x'"),
    # What says that the broker is away, where Spark's client says it, and not a value that is quoted.
    "line of a log": (
        "cast(word AS BIGINT)",
        GOOD | {"word": "java.net.ConnectException: refused"},
        "[CAST_INVALID_INPUT] The value 'java.net.ConnectException: refused'",
    ),
    "index": ("list[1]", GOOD | {"list": [1]}, "[INVALID_ARRAY_INDEX]"),
    "overflow": ("id * 2147483647", GOOD | {"id": 2}, "[ARITHMETIC_OVERFLOW]"),
    "raised": ("if(word = '7', raise_error('no'), 1)", GOOD | {"word": "7"}, "[USER_RAISED_EXCEPTION] no"),
}


@pytest.mark.story
def test_records_for_which_the_function_raises_go_to_quarantine_with_the_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.job(target=hw.delta("silver.kept"), dedup=hw.by_offset(origin=True))
    def kept(sales: DataFrame) -> DataFrame:
        columns = [F.expr(sql).alias(f"c{i}") for i, (sql, _, _) in enumerate(RAISING.values())]
        return sales.filter("id > 0").select("id", parsed("digits").alias("number"), *columns)

    driver = JobDriver(spark, tmp_path, [kept])
    rows = [row for _, row, _ in RAISING.values()]
    driver.send("sales", GOOD, *rows, GOOD, GOOD | {"id": 0, "digits": "filtered"}, b"not JSON")
    driver.send("sales", GOOD, GOOD | {"digits": ""}, GOOD | {"digits": "half"}, partition=1)
    driver.run()
    assert driver.rows("silver.kept", "id") == [(1,)] * 3
    found = {
        (partition, offset): (check, reason)
        for partition, offset, check, reason in driver.rows(
            "silver.kept__quarantine", "_partition", "_offset", "_check", "_reason"
        )
    }
    for place, (_, _, told) in enumerate(RAISING.values()):
        check, reason = found[0, place + 1]
        assert check == "function"
        assert told in reason
    assert found[0, len(RAISING) + 3][0] == "value"
    assert "ValueError: invalid literal for int() with base 10: ''" in found[1, 1][1]
    assert "test_jobs_functions_that_raise.py, line" in found[1, 1][1]
    assert found[1, 2][1].endswith("ValueError: half of a pair: \\ud800")
    assert driver.audit() == []
    driver.send("sales", GOOD, GOOD)
    driver.run()
    assert driver.rows("silver.kept", "id") == [(1,)] * 5
    assert driver.audit() == []


def test_job_of_several_inputs_and_tables_sends_the_records_of_each_to_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.job(targets={"low": hw.delta("silver.low"), "high": hw.delta("silver.high")})
    def shares(sales: DataFrame, returns: DataFrame) -> dict[str, DataFrame]:
        both = hw.union(sales, returns).withColumn("share", F.expr("id / qty"))
        return {"low": both.filter("share < 1"), "high": both.filter("share >= 1")}

    driver = JobDriver(spark, tmp_path, [shares])
    driver.send("sales", GOOD, GOOD | {"qty": 0})
    driver.send("returns", GOOD | {"qty": 0}, GOOD | {"id": 5})
    driver.run()
    assert driver.rows("silver.low", "id") == [(1,)]
    assert driver.rows("silver.high", "id") == [(5,)]
    found = driver.rows("silver.low__quarantine", "_topic", "_offset", "_check")
    assert sorted(found) == [("returns", 0, "function"), ("sales", 1, "function")]
    assert driver.audit() == []


@pytest.mark.parametrize("target", [hw.scd1, hw.scd2])
def test_change_events_for_which_the_function_raises_go_to_quarantine(
    spark: SparkSession, tmp_path: Path, target: Callable[..., Any]
) -> None:
    @hw.job(target=target("dim.words", keys=["word"], sequence_by="id"))
    def words(sales: DataFrame) -> DataFrame:
        return sales.withColumn("share", F.expr("10 / qty"))

    driver = JobDriver(spark, tmp_path, [words])
    driver.send("sales", GOOD, GOOD | {"qty": 0, "id": 2}, GOOD | {"id": 3, "qty": 5})
    driver.run()
    newest = "is_current" if target is hw.scd2 else "true"
    assert [r["share"] for r in driver.table("dim.words").filter(newest).collect()] == [2.0]
    assert driver.rows("dim.words__quarantine", "_offset", "_check") == [(1, "function")]
    assert driver.audit() == []


def test_python_function_over_batches_of_rows_is_narrowed_down_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.job(target=hw.delta("silver.kept"))
    def kept(sales: DataFrame) -> DataFrame:
        return sales.select("id", parsed_by_pandas("digits").alias("number"))

    driver = JobDriver(spark, tmp_path, [kept])
    driver.send("sales", *[GOOD | {"id": i, "digits": "x" if i == 13 else str(i)} for i in range(30)])
    driver.run()
    assert sorted(driver.rows("silver.kept", "number")) == [(i,) for i in range(30) if i != 13]
    ((offset, reason),) = driver.rows("silver.kept__quarantine", "_offset", "_reason")
    assert offset == 13
    assert "ValueError: invalid literal for int() with base 10: 'x'" in reason


def test_function_that_tries_a_column_which_is_not_there_counts_as_any_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.job(target=hw.delta("silver.kept"))
    @hw.check("sold", "qty > 1", on="output", action="warn")
    def kept(sales: DataFrame) -> DataFrame:
        try:
            return sales.select("id", "amount")
        except AnalysisException:
            return sales.select("id", "qty").filter("qty > 0")

    driver = JobDriver(spark, tmp_path, [kept])
    driver.send("sales", GOOD, GOOD | {"qty": 1}, GOOD | {"qty": 0}, b"bad")
    driver.run()
    assert driver.rows("silver.kept", "_offset", "qty") == [(0, 2), (1, 1)]
    terms = {"read": 4, "written": 2, "filtered": 1, "quarantined": 1}
    assert driver.accounting("silver.kept") == terms
    assert driver.audit() == []


def test_job_stops_where_more_records_fail_than_it_allows_or_at_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    def share(sales: DataFrame) -> DataFrame:
        return sales.withColumn("share", F.expr("id / qty"))

    driver = JobDriver(spark, tmp_path / "few", [hw.job(target=hw.delta("silver.a"), max_errors=2)(share)])
    driver.send("sales", *[GOOD | {"qty": 0, "id": i} for i in range(4)], GOOD)
    with pytest.raises(
        RowErrorsError, match=r"raises for more than 2 of 5 records, such as sales 0 offset \d "
    ):
        driver.run()
    assert driver.rows("silver.a", "id") == []
    driver = JobDriver(spark, tmp_path / "half", [hw.job(target=hw.delta("silver.a"))(share)])
    driver.send("sales", *[GOOD | {"qty": 0 if i < 11 else 1} for i in range(20)])
    with pytest.raises(RowErrorsError, match="more than 10 of 20 records"):
        driver.run()
    driver = JobDriver(
        spark, tmp_path / "none", [hw.job(target=hw.delta("silver.a"), on_error="fail")(share)]
    )
    driver.send("sales", GOOD | {"qty": 0})
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        driver.run()


def test_repair_sends_the_records_for_which_the_new_code_raises_to_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    def before(sales: DataFrame) -> DataFrame:
        return sales.select("id", F.lit(0.0).alias("share"))

    def after(sales: DataFrame) -> DataFrame:
        return sales.select("id", F.expr("id / qty").alias("share"))

    declared = hw.job(target=hw.delta("silver.a"), name="shares")
    driver = JobDriver(spark, tmp_path, [declared(before)])
    driver.send("sales", GOOD, GOOD | {"qty": 0, "id": 2}, GOOD | {"id": 3})
    driver.run()
    mended = bind(hw.check("some", "count(*) > 0", level="batch", action="warn")(declared(after)))
    planned = backfill.plan(driver.context, mended)
    diff = backfill.preview(driver.context, planned.id, mended)
    assert (diff.added, diff.removed, diff.changed) == (0, 1, 2)
    backfill.run(driver.context, planned.id, mended)
    verdict = backfill.verify(driver.context, planned.id, mended)
    assert verdict.passed
    assert [f.detail for f in verdict.findings if f.name == "checks"] == ["1 check of the result holds"]
    backfill.swap(driver.context, planned.id)
    assert driver.rows("silver.a", "id", "share") == [(1, 0.5), (3, 1.5)]
    assert driver.rows("silver.a__quarantine", "_offset", "_check") == [(1, "function")]
    assert driver.audit() == []


@pytest.mark.parametrize(
    ("given", "told"),
    [(0, "no number"), (-1, "no number"), (True, "no number"), ("5", "no number"), (1.5, "no whole number")],
)
def test_bound_that_is_none_is_refused(given: Any, told: str) -> None:
    with pytest.raises(JobDefinitionError, match=told):
        hw.job(target=hw.delta("silver.a"), max_errors=given)
