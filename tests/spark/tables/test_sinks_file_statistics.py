"""Statistics of data files as they are told from their footers, beside those that Delta works out itself."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import DeltaTransaction, WrittenFiles
from headwater_streams.spark.nullable import as_nullable

_ALIKE = (
    "CAST(id AS BYTE) AS b, CAST(id AS SHORT) AS s, CAST(id - 3 AS INT) AS i, id * 1000000007 AS l, "
    "CAST(id AS FLOAT) / 4 AS f, id / 3D - 1 AS d, concat('é', repeat(CAST(id AS STRING), 40)) AS long_text, "
    "CASE WHEN id > 1 THEN concat(id, ' \"\n') END AS text, CAST(NULL AS STRING) AS nothing, "
    "TIMESTAMP_MICROS(1357000000123456L + id * 86400000001L) AS at, "
    "CAST(TIMESTAMP_MICROS(id * 999) AS TIMESTAMP_NTZ) AS at_ntz, DATE_ADD(DATE'0001-01-01', CAST(id AS INT)) AS day, "
    "CAST(id / 8 - 1 AS DECIMAL(9, 3)) AS short_decimal, CAST(id * 123456789 AS DECIMAL(15, 2)) AS decimal, "
    "id % 2 = 0 AS flag, CAST(CAST(id AS STRING) AS BINARY) AS bytes, "
    "CASE WHEN id > 2 THEN NAMED_STRUCT('x', id, 'in', NAMED_STRUCT('at', TIMESTAMP_SECONDS(id))) END AS nested"
)


def _written(spark: SparkSession, path: Path, rows: DataFrame) -> WrittenFiles:
    ensure_table(spark, path, "t", as_nullable(rows.schema))
    return DeltaTransaction(spark, path).write(rows)


def _by_delta(path: Path, rows: DataFrame) -> dict[str, Any]:
    rows.write.format("delta").save(str(path))
    actions = [json.loads(line) for line in (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    (added,) = [action["add"] for action in actions if "add" in action]
    stats: dict[str, Any] = json.loads(added["stats"])
    return stats


@pytest.mark.story
def test_statistics_are_those_that_delta_works_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(f"SELECT {_ALIKE} FROM {{ids}}", ids=spark.range(0, 9, numPartitions=1))
    (action,) = _written(spark, tmp_path / "ours", rows).actions
    ours, delta = json.loads(action["add"]["stats"]), _by_delta(tmp_path / "delta", rows)
    # What follows a text that is cut, so that no value is greater, differs.
    last, of_delta = (told["maxValues"].pop("long_text") for told in (ours, delta))
    assert ours == delta
    assert last[:32] == of_delta[:32]


def test_what_json_cannot_say_has_no_bounds(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(
        "SELECT DOUBLE('nan') AS nan, DOUBLE('-inf') AS inf, TIMESTAMP_MICROS(253402300800000000L) AS year_10000, "
        "CAST(12345678901234567890.12 AS DECIMAL(30, 2)) AS wide, CAST(X'ff61' AS STRING) AS not_text, ARRAY(1) AS a, "
        "MAP('k', 1) AS m, 7 AS behind"
    )
    (action,) = _written(spark, tmp_path / "t", rows).actions
    told = json.loads(action["add"]["stats"])
    assert (told["numRecords"], told["minValues"], told["maxValues"]) == (1, {"behind": 7}, {"behind": 7})
    assert told["nullCount"].keys() == {"nan", "inf", "year_10000", "wide", "not_text", "behind"}


def test_rows_of_none_give_no_file_and_the_session_goes_on_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    written = _written(spark, tmp_path / "t", spark.range(3).filter("id > 5"))
    assert (written.actions, written.rows) == ([], 0)
    assert "minValues" in _by_delta(tmp_path / "beside", spark.range(1))


def test_writes_that_overlap_leave_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(1)
    ensure_table(spark, tmp_path / "t", "t", as_nullable(rows.schema))
    one, other = (DeltaTransaction(spark, tmp_path / "t")._without_statistics() for _ in range(2))
    with ExitStack() as second, one:
        second.enter_context(other)
    assert "minValues" in _by_delta(tmp_path / "beside", rows)


def test_reader_skips_the_files_that_the_bounds_rule_out(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for start in (0, 10, 20):
        rows = spark.range(start, start + 10, numPartitions=1).withColumn("at", F.timestamp_seconds("id"))
        ensure_table(spark, path, "t", as_nullable(rows.schema))
        transaction = DeltaTransaction(spark, path)
        transaction.commit("test", start, "", transaction.write(rows))
    found = spark.read.format("delta").load(str(path)).filter("at = TIMESTAMP_SECONDS(15)")
    assert [row["id"] for row in found.collect()] == [15]
    assert len(found.inputFiles()) == 1
