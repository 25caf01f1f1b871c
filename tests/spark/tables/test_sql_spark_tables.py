"""DuckDB over tables that Spark wrote: the types, partitions and commits that jobs produce."""

import datetime as dt
from decimal import Decimal

import pytest

from headwater.sql import Result, SqlSession
from headwater.sql.spark_engine import arrow_of
from headwater_streams.storage.home import Home

UTC = dt.UTC


@pytest.fixture
def write(spark, tmp_path):
    def write_table(rows, schema, name, **options):
        writer = spark.createDataFrame(rows, schema).write.format("delta").mode("append")
        for option, value in options.items():
            writer = writer.partitionBy(value) if option == "partition_by" else writer.option(option, value)
        writer.save(str(Home(tmp_path).table(name)))

    return write_table


def answer(home, statement):
    with SqlSession(home) as session:
        return list(session.run(statement).objects())


@pytest.mark.story
def test_every_type_that_jobs_write_is_read_as_spark_meant_it(write, tmp_path):
    schema = (
        "seen TIMESTAMP, naive TIMESTAMP_NTZ, day DATE, n BIGINT, small SMALLINT, price DECIMAL(12,3), ratio FLOAT,"
        " _origin STRUCT<cluster: STRING, offset: BIGINT>, _sources ARRAY<STRUCT<p: INT, start: BIGINT>>,"
        " _headers MAP<STRING, BINARY>, _raw BINARY"
    )
    moment = dt.datetime(2013, 1, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    row = (
        *(moment, dt.datetime(2013, 1, 1, 10), dt.date(2013, 1, 1), 2**53 + 1, -7, Decimal("1.500"), 0.5),
        *(("c", 3), [(0, 1)], {"k": bytearray(b"\xff")}, bytearray(b"{")),
    )
    write([row, (None,) * 11], schema, "silver.types")
    rows = answer(tmp_path, "SELECT * FROM silver.types ORDER BY seen")
    assert rows[0] == {
        "seen": "2013-01-01T10:00:00.250000Z",
        "naive": "2013-01-01T10:00:00Z",
        "day": "2013-01-01",
        "n": 2**53 + 1,
        "small": -7,
        "price": "1.500",
        "ratio": 0.5,
        "_origin": {"cluster": "c", "offset": 3},
        "_sources": [{"p": 0, "start": 1}],
        "_headers": {"k": "/w=="},
        "_raw": "ew==",
    }
    assert set(rows[1].values()) == {None}
    assert answer(tmp_path, "SELECT n FROM silver.types WHERE seen > TIMESTAMPTZ '2013-01-01 10:00:00Z'") == [
        {"n": 2**53 + 1}
    ]


@pytest.mark.story
def test_partitions_with_awkward_values_are_found(write, tmp_path):
    moments = [dt.datetime(2013, 1, 1, 10, tzinfo=UTC), None]
    values = ["a b", "c/d=e", "100%", "ü", None]
    rows = [(value, moment, n) for n, (value, moment) in enumerate((v, m) for v in values for m in moments)]
    write(rows, "p STRING, seen TIMESTAMP, n INT", "gold.parts", partition_by=("p", "seen"))
    read = answer(tmp_path, "SELECT p, seen IS NULL AS no_time, n FROM gold.parts ORDER BY n")
    assert [(row["p"], row["no_time"], row["n"]) for row in read] == [(p, at is None, n) for p, at, n in rows]
    assert [
        row["n"] for row in answer(tmp_path, "SELECT n FROM gold.parts WHERE p = 'c/d=e' ORDER BY n")
    ] == [2, 3]
    utc = "SELECT count(*) AS n FROM gold.parts WHERE seen = TIMESTAMPTZ '2013-01-01 10:00:00Z'"
    assert answer(tmp_path, utc) == [{"n": 5}]


def test_merge_delete_and_new_columns_are_followed(spark, write, tmp_path):
    write([(1, "a"), (2, "b")], "id INT, v STRING", "gold.t")
    write([(3, "c", 0.5)], "id INT, v STRING, w DOUBLE", "gold.t", mergeSchema="true")
    path = Home(tmp_path).table("gold.t")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    spark.createDataFrame([(2, "B"), (4, "d")], "id INT, v STRING").createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING changes s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    assert answer(tmp_path, "SELECT id, v, w FROM gold.t ORDER BY id") == [
        {"id": 2, "v": "B", "w": None},
        {"id": 3, "v": "c", "w": 0.5},
        {"id": 4, "v": "d", "w": None},
    ]
    with SqlSession(tmp_path, at=0) as past:
        assert [row["v"] for row in past.run("SELECT v FROM gold.t ORDER BY id").objects()] == ["a", "b"]
    with SqlSession(tmp_path) as session:
        (listed,) = session.tables().objects()
    assert (listed["table"], listed["version"], listed["rows"]) == ("gold.t", 3, 3)


def test_variants_of_any_depth_are_read_as_what_they_hold(spark, write, tmp_path):
    path = Home(tmp_path).table("silver.loose")
    columns = "id INT, v VARIANT, l ARRAY<VARIANT>, s STRUCT<x: VARIANT, y: INT>, m MAP<STRING, VARIANT>"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
    spark.sql(
        f"""INSERT INTO delta.`{path}` VALUES
            (1, parse_json('{{"a": [1, 2.5, null, "x", true], "d": 1e300}}'), array(parse_json('1'), NULL),
             named_struct('x', parse_json('"t"'), 'y', 1), map('k', parse_json('{{}}'))),
            (2, NULL, NULL, NULL, NULL),
            (3, parse_json('null'), array(), named_struct('x', NULL, 'y', NULL), map('k', NULL))"""
    )
    expected = [
        {
            "id": 1,
            "v": {"a": [1, 2.5, None, "x", True], "d": 1e300},
            "l": [1, None],
            "s": {"x": "t", "y": 1},
            "m": {"k": {}},
        },
        {"id": 2, "v": None, "l": None, "s": None, "m": None},
        {"id": 3, "v": None, "l": [], "s": {"x": None, "y": None}, "m": {"k": None}},
    ]
    statement = "SELECT * FROM silver.loose ORDER BY id"
    assert answer(tmp_path, statement) == expected
    frame = spark.read.format("delta").load(str(path)).orderBy("id")
    assert list(Result.from_arrow(arrow_of(frame)).objects()) == expected
    assert answer(tmp_path, "SELECT v.a[2] AS second FROM silver.loose WHERE id = 1") == [{"second": 2.5}]


def test_spark_variants_under_names_that_repeat_keep_them(spark):
    frame = spark.sql("SELECT parse_json('1') AS a, 2 AS a, CAST(NULL AS VARIANT) AS `b.c`")
    assert list(Result.from_arrow(arrow_of(frame)).objects()) == [{"a": 1, "a_1": 2, "b.c": None}]
