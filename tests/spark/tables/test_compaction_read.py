"""What Spark finds in a table of small files by a value, it finds once they are made one."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.delta.compaction import compact
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import DeltaTransaction

SCHEMA = "x DOUBLE, f FLOAT, wide DECIMAL(38,18), s STRING, at TIMESTAMP, inner STRUCT<x: DOUBLE>"
_LONG, _AT = "x" * 40, datetime(1960, 1, 1, tzinfo=UTC)
FRACTIONS = [math.nan, -0.0, 1.0]
WIDE = [Decimal("99999999999.123456789"), Decimal("99999999999.123456788"), Decimal(-1)]
TEXTS = [f"{_LONG}1", f"{_LONG}2", f"{_LONG}\U0010ffff"]
TIMES = [_AT + timedelta(microseconds=us) for us in (1, 2, 999)]
ROWS = [(x, x, wide, text, at, (x,)) for x, wide, text, at in zip(FRACTIONS, WIDE, TEXTS, TIMES, strict=True)]


@pytest.mark.parametrize("copies", [1, 300], ids="{} of each".format)
def test_compacted_table_has_every_row_for_each_condition(
    spark: SparkSession, tmp_path: Path, copies: int
) -> None:
    """Of many copies Spark itself writes a dictionary, too."""
    path, schema = tmp_path / "t", T._parse_datatype_string(SCHEMA)
    assert isinstance(schema, T.StructType)
    ensure_table(spark, path, "t", schema)
    for batch, row in enumerate(ROWS):
        transaction = DeltaTransaction(spark, path)
        rows = spark.createDataFrame([row] * copies, schema).coalesce(1)
        transaction.commit("test", batch, "", transaction.write(rows))
    conditions = {
        f"{column} {how} {value!r}": (getattr(F.col(column), operator)(F.lit(value).cast(kind)), count)
        for column, kind, values in (
            ("x", "double", FRACTIONS), ("f", "float", FRACTIONS), ("inner.x", "double", FRACTIONS),
            ("wide", "decimal(38,18)", WIDE), ("s", "string", TEXTS), ("at", "timestamp", TIMES),
        )
        for value in values
        for how, operator, count in (
            ("=", "__eq__", 1), (">", "__gt__", _greater(values, value)), (">=", "__ge__", _greater(values, value) + 1),
        )
    }  # fmt: skip
    conditions["x = 0"] = F.col("x") == 0, 1
    conditions["x IN (0, 7)"] = F.col("x").isin(0.0, 7.0), 1
    for state in ("small files", "compacted"):
        table = spark.read.format("delta").load(str(path))
        found = {told: table.filter(condition).count() for told, (condition, _) in conditions.items()}
        assert found == {told: count * copies for told, (_, count) in conditions.items()}, state
        compact(path)
    assert len(spark.read.format("delta").load(str(path)).inputFiles()) == 1


def _greater(values: list[Any], than: Any) -> int:
    """How many are greater; NaN is greater than every number."""

    def rank(value: Any) -> Any:
        return math.inf if isinstance(value, float) and math.isnan(value) else value

    return sum(rank(value) > rank(than) for value in values)
