"""The keyed diff of two sets of rows beside the same told in Python."""

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from amount import drawn_seed
from headwater_streams.backfill.diff import content, keyed_diff

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


_STRUCTS = (
    "NAMED_STRUCT('a', 1, 'b', CAST(NULL AS INT))",
    "NAMED_STRUCT('a', CAST(NULL AS INT), 'b', 1)",
)
_CHANGES = [
    ("ARRAY(1, NULL)", "ARRAY(1)"),
    ("ARRAY(NULL, 1)", "ARRAY(1, NULL)"),
    ("ARRAY(ARRAY(1), ARRAY(2))", "ARRAY(ARRAY(1, 2))"),
    (f"ARRAY({_STRUCTS[0]})", f"ARRAY({_STRUCTS[1]})"),
    _STRUCTS,
    ("MAP('a', 1)", "MAP('a', CAST(NULL AS INT))"),
    ("TIMESTAMP_NTZ'2024-01-01 00:00:00.123456'", "TIMESTAMP_NTZ'2024-01-01 00:00:00.123457'"),
    ("TIMESTAMP'2024-01-01 00:00:00.123456'", "TIMESTAMP'2024-01-01 00:00:00.123457'"),
    ("99999999999.123456789", "99999999999.123456788"),
    ("'a '", "'a'"),
    ("'\u00e9'", "'e\u0301'"),
    ("1.5D", "DOUBLE('NaN')"),
    ("0.0D", "CAST(NULL AS DOUBLE)"),
]
_EQUAL = [
    ("0.0D", "-(0.0D)"),
    ("DOUBLE('NaN')", "DOUBLE('Infinity') - DOUBLE('Infinity')"),
    ("ARRAY(0.0D)", "ARRAY(-(0.0D))"),
]


def test_values_that_differ_are_changes_and_those_that_are_equal_are_none(spark: SparkSession) -> None:
    """Of each row one value is another one: by its hash, or by the sums of its bucket, alone or beside others."""
    pairs = [*_CHANGES, *_EQUAL]
    names = [f"c{place}" for place in range(len(pairs))]

    def frame(*others: int) -> DataFrame:
        values = [
            f"IF(id % {len(pairs)} IN ({', '.join(map(str, others))}) AND id % {len(pairs)} = {place}, {other}, {one})"
            for place, (one, other) in enumerate(pairs)
        ]
        told = [f"{value} AS {name}" for name, value in zip(names, values, strict=True)]
        return spark.range(10 * len(pairs)).selectExpr("id", *told)

    before, after = frame(-1), frame(*range(len(pairs)))
    found = keyed_diff(before, after, ["id"], ["id", *names])
    assert (found.changed, found.unchanged) == (10 * len(_CHANGES), 10 * len(_EQUAL))
    hashed = before.select("id", content(before).alias("before")).join(
        after.select("id", content(after).alias("after")), "id"
    )
    same = {row["id"] % len(pairs) for row in hashed.filter("before = after").collect()}
    assert same == set(range(len(_CHANGES), len(pairs)))


def test_samples_show_a_decimal_with_all_its_digits(spark: SparkSession) -> None:
    digits = "123456789012345678901234567890"
    rows = spark.sql(f"SELECT {digits}.12BD AS key, struct({digits}.10BD AS d, 0.5D AS f) AS value")
    other = spark.sql(f"SELECT {digits}.12BD AS key, struct({digits}.11BD AS d, 0.5D AS f) AS value")
    found = keyed_diff(rows, other, ("key",), ("key", "value"))
    (sample,) = found.samples["changed"]
    assert sample["key"] == {"key": f"{digits}.12"}
    assert [sample[side]["value"] for side in ("before", "after")] == [
        {"d": f"{digits}.10", "f": 0.5},
        {"d": f"{digits}.11", "f": 0.5},
    ]
