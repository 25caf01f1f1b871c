"""An updating target's commit: what it replaces, what it does not read, and what it does when another was first."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import DeltaTransaction
from headwater_streams.delta.marks import last_batch
from headwater_streams.delta.upsert import upsert_rows
from headwater_streams.spark.gateway import scala_object

SCHEMA = T.StructType(
    [
        T.StructField("carrier", T.StringType()),
        T.StructField("hour", T.IntegerType()),
        T.StructField("departures", T.LongType()),
    ]
)
Rows = list[tuple[str | None, int | None, int]]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Path:
    ensure_table(spark, tmp_path / "table", "gold.table", SCHEMA)
    return tmp_path / "table"


def _upsert(spark: SparkSession, table: Path, rows: Rows | DataFrame, batch: int) -> None:
    df = rows if isinstance(rows, DataFrame) else spark.createDataFrame(rows, SCHEMA)
    upsert_rows(
        df,
        lambda: DeltaTransaction(spark, table),
        keys=["carrier", "hour"],
        keyed=df.select("carrier", "hour").toArrow(),
        updates={"departures": "t.departures + s.departures"},
        app_id="job/1",
        batch=batch,
        user_metadata=json.dumps({"batch": batch}),
    )


def _rows(spark: SparkSession, table: Path) -> set[tuple[object, ...]]:
    return {tuple(row) for row in spark.read.format("delta").load(str(table)).collect()}


def _last_commit(table: Path) -> list[dict[str, object]]:
    newest = max((table / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text().splitlines()]


def test_new_table_tells_its_state_as_delta_finds_it(spark: SparkSession, table: Path) -> None:
    """Delta compares a version's checksum file with the state that it rebuilds from the log."""
    log = scala_object(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(
        spark._jsparkSession, str(table)
    )
    nothing = scala_object(spark, "scala.collection.immutable.Map").empty()
    told = log.update(False, scala_object(spark, "scala.None"), scala_object(spark, "scala.None"))
    assert (told.version(), told.checksumOpt().isDefined(), told.validateChecksum(nothing)) == (0, True, True)
    _upsert(spark, table, [("UA", 1, 10)], 0)
    told = log.update(False, scala_object(spark, "scala.None"), scala_object(spark, "scala.None"))
    assert (told.version(), told.checksumOpt().isDefined(), told.validateChecksum(nothing)) == (1, True, True)


@pytest.mark.story
def test_upsert_same_keys_are_updated_others_are_added(spark: SparkSession, table: Path) -> None:
    _upsert(spark, table, [("UA", 1, 10), (None, 1, 5), ("UA", None, 7)], 0)
    _upsert(spark, table, [("UA", 1, 1), (None, 1, 1), ("UA", None, 1), ("AA", 2, 2)], 1)
    assert _rows(spark, table) == {("UA", 1, 11), (None, 1, 6), ("UA", None, 8), ("AA", 2, 2)}


@pytest.mark.story
def test_upsert_same_batch_twice_is_committed_once(spark: SparkSession, table: Path) -> None:
    for _ in range(2):
        _upsert(spark, table, [("UA", 1, 10)], 0)
    assert _rows(spark, table) == {("UA", 1, 10)}
    assert last_batch(table, "job/1") == 0


def test_upsert_files_without_a_key_are_left_alone(spark: SparkSession, table: Path) -> None:
    _upsert(spark, table, [("UA", 1, 10), ("AA", 1, 10)], 0)
    _upsert(spark, table, [("UA", 9, 10)], 1)
    _upsert(spark, table, [("UA", 9, 1)], 2)
    actions = _last_commit(table)
    assert sum("remove" in action for action in actions) == 1
    assert sum("add" in action for action in actions) == 1
    assert _rows(spark, table) == {("UA", 1, 10), ("AA", 1, 10), ("UA", 9, 11)}


def test_upsert_two_rows_of_one_key_are_refused(spark: SparkSession, table: Path) -> None:
    with pytest.raises(
        JobDefinitionError, match="do not name a row: 2 rows of a batch have 1 different keys"
    ):
        _upsert(spark, table, [("UA", 1, 10), ("UA", 1, 11)], 0)
    assert _rows(spark, table) == set()


def test_upsert_another_commit_came_first_is_put_into_what_that_left(
    spark: SparkSession, table: Path
) -> None:
    _upsert(spark, table, [("UA", 1, 10), ("AA", 1, 20)], 0)
    where = str(table)

    def delete_meanwhile(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from deltalake import DeltaTable

        for frame in frames:
            if len(frame):
                DeltaTable(where).delete("carrier = 'UA'")
            yield frame

    df = spark.createDataFrame([("UA", 1, 1)], SCHEMA).coalesce(1).mapInPandas(delete_meanwhile, SCHEMA)
    _upsert(spark, table, df, 1)
    assert _rows(spark, table) == {("AA", 1, 20), ("UA", 1, 1)}


def test_upsert_column_that_rows_no_longer_have_is_null_in_them_alone(
    spark: SparkSession, table: Path
) -> None:
    _upsert(spark, table, [("UA", 1, 10), ("AA", 1, 10)], 0)
    rows = spark.createDataFrame([("UA", 1), ("DL", 2)], "carrier STRING, hour INT")
    _upsert(spark, table, rows, 1)
    assert _rows(spark, table) == {("UA", 1, None), ("AA", 1, 10), ("DL", 2, None)}
