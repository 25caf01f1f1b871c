"""The keyed diff of two sets of rows beside the same told in Python."""

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amount import drawn_seed
from headwater_streams.backfill.diff import keyed_diff

KEYS, COLUMNS = ("place", "number"), ("place", "number", "value")
Rows = dict[tuple[Any, Any], Any]


def _changed(rows: Rows, rng: random.Random) -> Rows:
    kept = {key: value for key, value in rows.items() if rng.random() > 0.05}
    changed = {key: value + rng.choice([0, 0, 0, 1]) for key, value in kept.items()}
    return changed | {(rng.choice(["a", "b", None]), rng.randrange(10**6)): 0 for _ in range(20)}


@pytest.mark.parametrize("number", ["INT", "BIGINT", "STRING"], ids="now {}".format)
def test_every_row_is_counted_once_whatever_became_of_its_keys_types(
    spark: SparkSession, number: str
) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    before: Rows = {(rng.choice(["a", "b", None]), n): rng.randrange(5) for n in [None, *range(500)]}
    after = _changed(before, rng)

    def frame(rows: Rows, kind: str) -> Any:
        told = [(place, None if n is None else str(n), value) for (place, n), value in rows.items()]
        given = spark.createDataFrame(told, "place STRING, number STRING, value INT")
        return given.selectExpr("place", f"CAST(number AS {kind}) AS number", "value")

    found = keyed_diff(frame(before, "INT"), frame(after, number), KEYS, COLUMNS)
    both = before.keys() & after.keys()
    same = sum(before[key] == after[key] for key in both)
    if number == "INT":
        assert (found.unchanged, found.changed) == (same, len(both) - same)
        assert (found.added, found.removed) == (len(after.keys() - both), len(before.keys() - both))
    assert found.unchanged + found.changed + found.added == len(after)
    assert found.unchanged + found.changed + found.removed == len(before)
    assert keyed_diff(frame(before, "INT"), frame(after, number), KEYS, COLUMNS).digest == found.digest


def test_equal_rows_have_no_diff(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr("CAST(id % 3 AS STRING) AS place", "id AS number", "id * 2 AS value")
    found = keyed_diff(rows, rows.orderBy("value", ascending=False), KEYS, COLUMNS)
    assert (found.unchanged, found.changed, found.added, found.removed) == (1000, 0, 0, 0)
    assert found.samples == {}
