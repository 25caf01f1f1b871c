"""Columns that a job does not look at are not made: which these are, and that no row is judged otherwise for it."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import headwater as hw
from amount import drawn_seed
from headwater_streams.plan.analysis import analyse
from headwater_streams.plan.chain import empty
from headwater_streams.plan.job import bind
from headwater_streams.plan.unused import unused_texts
from headwater_streams.sources.coordinates import OFFSET, PARTITION
from headwater_streams.sources.decode import BAD, RAW, RecordDecoder
from headwater_streams.sources.problems import PROBLEMS
from headwater_streams.testing import JobDriver

visits = hw.topic(
    "visits", schema="who STRING, page STRING, agent STRING, `a.b` STRING, at TIMESTAMP, n INT", event_time="at",
    watermark="1 hour",
)  # fmt: skip
orders = hw.topic("orders", schema="who STRING, what STRING, note STRING, bought TIMESTAMP", event_time="bought",
                  watermark="1 hour")  # fmt: skip
lines = hw.topic("lines", schema="who STRING, n INT", format="csv")
RAW_SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
TEXTS = {"who", "page", "agent", "a.b"}
USED: dict[str, tuple[Callable[[DataFrame], DataFrame], set[str]]] = {
    "all": (lambda visits: visits, TEXTS),
    "none": (lambda visits: visits.select("n"), set()),
    "selected": (lambda visits: visits.select("who", "n"), {"who"}),
    "filtered by": (lambda visits: visits.filter("page LIKE '/%'").select("n"), {"page"}),
    "filtered by, then dropped": (
        lambda visits: visits.filter("page > ''").drop("page", "agent"), {"who", "page", "a.b"},
    ),
    "made of": (lambda visits: visits.withColumn("n", F.length("agent")).select("n"), {"agent"}),
    "made of, and not taken": (lambda visits: visits.withColumn("m", F.length("agent")).select("n"), set()),
    "renamed": (lambda visits: visits.withColumnRenamed("who", "name").select("name"), {"who"}),
    "with a dot": (lambda visits: visits.select(F.upper("`a.b`").alias("b")), {"a.b"}),
    "in a struct": (lambda visits: visits.select(F.struct("who", "agent").alias("s")), {"who", "agent"}),
    "in a struct of which one is taken": (
        lambda visits: visits.select(F.struct("who", "agent").alias("s")).select("s.who"), {"who", "agent"},
    ),
    "exploded": (lambda visits: visits.select("n", F.explode(F.split("page", "/")).alias("part")), {"page"}),
    "united with": (
        lambda visits: visits.select("n", "who").union(visits.select("n", "agent")), {"who", "agent"}
    ),
    "joined by": (
        lambda visits: visits.join(F.broadcast(visits.sparkSession.range(3).withColumn("k", F.lit("x"))),
                                   F.col("page") == F.col("k"), "left").select("n"), {"page"}
    ),
    "in a window": (lambda visits: hw.tumbling(visits, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("n")), {"who"}),
    "in several windows": (
        lambda visits: hw.hopping(visits, "at", "1 hour", every="10 minutes").agg(F.count_distinct("page").alias("n")),
        {"page"},
    ),
}  # fmt: skip


@pytest.mark.story
@pytest.mark.parametrize("name", USED)
def test_unused_texts_are_seen_in_the_plan(spark: SparkSession, name: str) -> None:
    function, used = USED[name]
    job = bind(hw.job(target=hw.delta("gold.t"))(_named(function)))
    schema = T.StructType.fromDDL(str(visits.schema))
    rows = empty(spark, schema, mark="visits")
    assert unused_texts(job, {"visits": schema}, [function(rows)]) == {"visits": frozenset(TEXTS - used)}


def _named(function: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
    def job(visits: DataFrame) -> DataFrame:
        return function(visits)

    return job


def test_unused_texts_of_joins_checks_keys_and_other_formats(spark: SparkSession) -> None:
    @hw.job(target=hw.delta("gold.joined"), late="count")
    @hw.check("what", "WHAT <> ''", on="input", action="warn")
    def joined(visits: DataFrame, orders: DataFrame) -> DataFrame:
        found = hw.join(visits, orders, on=["who"], left_time="at", right_time="bought", within="1 hour")
        return found.select("n", "who")

    @hw.job(target=hw.delta("silver.once"), dedup=hw.by_key(["who"], within="1 hour"))
    @hw.check("page", "page LIKE '/%'")
    def once(visits: DataFrame) -> DataFrame:
        return visits.select("at")

    @hw.job(target=hw.delta("silver.csv"))
    def of_csv(lines: DataFrame) -> DataFrame:
        return lines.select("n")

    @hw.job(targets={"one": hw.delta("silver.one"), "other": hw.delta("silver.other")})
    def apart(visits: DataFrame) -> dict[str, DataFrame]:
        return {"one": visits.select("n"), "other": visits.select("n")}

    unused = {job.__name__: analyse(bind(job), spark, {}).unused for job in (joined, once, of_csv, apart)}
    assert unused == {
        "joined": {"visits": {"page", "agent", "a.b"}, "orders": {"note"}},
        "once": {"visits": {"agent", "a.b"}},
        "of_csv": {},
        "apart": {},
    }


@pytest.mark.story
def test_unused_text_that_is_looked_at_all_the_same_is_there(drive: Callable[..., JobDriver]) -> None:
    wanted = ["n"]

    @hw.job(target=hw.delta("silver.fickle"))
    def fickle(visits: DataFrame) -> DataFrame:
        return visits.select("n", (F.col("page") if "page" in wanted else F.lit("-")).alias("page"))

    driver = drive(fickle)
    at = "2026-01-01T00:00:00Z"
    driver.send("visits", {"who": "ann", "page": "/a", "at": at, "n": 1})
    driver.run()
    wanted.append("page")
    driver.send(
        "visits", {"who": "ann", "page": "/b", "at": at, "n": 2}, {"at": at, "n": 3}, {"at": at, "n": "x"}
    )
    driver.run()
    found = driver.table("silver.fickle").select("n", "page").collect()
    assert sorted(map(tuple, found)) == [(1, "-"), (2, "/b"), (3, None)]
    assert driver.audit() == []


SEED = drawn_seed()
_PIECES = [
    '"who"', '"page"', '"agent"', '"a.b"', '"at"', '"n"', ":", ",", "{", "}", "[", "]", '"x"', "1", "01", "1e999", "-",
    "null", "true", "NaN", '"\\ud800"', '"\\q"', '"\\u12"', '"a\tb"', '"tail', "'", '"2026-01-01T00:00:00Z"', " ", "\n",
    "é", "\x00", '{"deep": {"er": [1, {"x": "}"}]}}', "9" * 1001, "1." + "0" * 1001, "[" * 1001 + "]" * 1001,
]  # fmt: skip


def _value(rng: random.Random) -> bytes:
    whole: dict[str, Any] = {
        name: rng.choice(["x", "", "}", "é\\", '"', 1, 1.5, None, True, {"y": [1, "}"]}, ["z"]])
        for name in rng.sample(["who", "page", "agent", "a.b", "else"], rng.randrange(6))
    }
    whole["at"] = rng.choice(["2026-01-01T00:00:00Z"] * 9 + [1])
    whole |= rng.choice([{"n": 1}, {"n": None}, {}, {"n": "x"}, {"n": 2}])
    text = json.dumps(whole, ensure_ascii=rng.random() < 0.5)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        at, cut = rng.randrange(len(text) + 1), rng.choice([0, 0, 1, 3])
        text = text[:at] + rng.choice([*_PIECES, ""]) + text[at + cut :]
    value = text.encode()
    if rng.random() < 0.05:
        at = rng.randrange(len(value) + 1)
        value = value[:at] + bytes([rng.randrange(128, 256)]) + value[at:]
    return value


@pytest.mark.parametrize("unused", [TEXTS, {"page", "agent"}], ids=["all", "some"])
def test_unused_texts_change_no_row_and_no_reason(spark: SparkSession, unused: set[str]) -> None:
    rng = random.Random(SEED)
    print("HEADWATER_SEED", SEED)
    values = [*{_value(rng): None for _ in range(4000)}, None]
    rows = [("visits", 0, offset, None, None, value, None) for offset, value in enumerate(values)]
    frame = spark.createDataFrame(rows, RAW_SCHEMA).repartition(2).persist()
    found = []
    for left in ((), unused):
        decoder = RecordDecoder(visits, [], origin=False, unused=left)
        decoded = decoder.decode(decoder.locate(frame))
        told = decoded.rejected(decoded.frame).orderBy(PARTITION, OFFSET)
        found.append(
            told.select(
                RAW, BAD, PROBLEMS, F.when(~F.col(BAD), F.to_json(F.struct(*decoded.columns.values())))
            ).collect()
        )
    whole, short = found
    assert sum(row[BAD] for row in whole) > 500 < sum(not row[BAD] for row in whole), "some of each"
    different = [(a, b) for a, b in zip(whole, short, strict=True) if a != b]
    assert not different, different[:3]


def test_unused_texts_are_not_parsed(drive: Callable[..., JobDriver], spark: SparkSession) -> None:
    @hw.job(target=hw.delta("silver.narrow"))
    def narrow(visits: DataFrame) -> DataFrame:
        return visits.select("n", "who")

    plan = analyse(bind(narrow), spark, {})
    decoder = RecordDecoder(visits, [], origin=False, unused=plan.unused["visits"])
    decoded = decoder.decode(decoder.locate(spark.createDataFrame([], RAW_SCHEMA)))
    parsed = decoded.frame.schema["_value"].dataType
    assert isinstance(parsed, T.StructType)
    assert parsed.fieldNames() == ["who", "at", "n", "_corrupt_record"]
    assert [*decoded.columns] == ["who", "page", "agent", "a.b", "at", "n"]
