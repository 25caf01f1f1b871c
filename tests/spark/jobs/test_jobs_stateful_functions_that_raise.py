"""A function that raises for rows on their way to a window or a join: they go to quarantine, the others stay."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.base.errors import NotComputableError, RowErrorsError
from headwater_streams.plan.job import bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.stages import stateful
from headwater_streams.runtime.stages.failing_rows import failing_to_come
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.testing import JobDriver, SimulatedCrash

SCHEMA = "id INT, qty INT, word STRING, at TIMESTAMP"
sales = hw.topic("sales", schema=SCHEMA, event_time="at", watermark="10 minutes")
returns = hw.topic("returns", schema=SCHEMA, event_time="at", watermark="10 minutes")
silver_sales = hw.table("silver.sales", event_time="at", watermark="10 minutes")
AT = "2024-03-01T12:00:00+00:00"

parsed = F.udf(lambda word: int(word), T.IntegerType())


def row(number: int, *, minute: int = 0, qty: int = 2, word: str = "3") -> dict[str, Any]:
    return {"id": number, "qty": qty, "word": word, "at": f"2024-03-01T10:{minute:02}:00Z"}


def shared(rows: DataFrame) -> DataFrame:
    return rows.withColumn("share", F.expr("id / qty")).withColumn("number", parsed("word"))


def delta(table: str, mode: Literal["append", "update"] = "append", *keys: str) -> hw.DeltaTarget:
    return hw.delta(table, keys=list(keys), mode=mode)


@hw.job(target=delta("gold.t", "update", "word", "window_start"), dedup=hw.by_offset())
def tumbling(sales: DataFrame) -> DataFrame:
    return hw.tumbling(shared(sales), "at", "5 minutes", by=["word"]).agg(F.sum("share").alias("s"))


@hw.job(target=delta("gold.t"), late="count")
def counted_late(sales: DataFrame) -> DataFrame:
    return hw.tumbling(shared(sales), "at", "5 minutes", by=["word"]).agg(F.sum("number").alias("s"))


@hw.job(target=delta("gold.t"), dedup=hw.by_offset())
def in_an_aggregate(sales: DataFrame) -> DataFrame:
    return hw.session(sales, "at", "5 minutes", by=["word"]).agg(F.sum(F.expr("id / qty")).alias("s"))


@hw.job(target=delta("gold.t"), dedup=hw.by_offset())
def by_count(sales: DataFrame) -> DataFrame:
    return hw.count_window(shared(sales), "at", 2, by=["id"]).agg(F.sum("share").alias("s"))


@hw.job(target=delta("gold.t"), dedup=hw.by_offset())
def by_count_in_an_aggregate(sales: DataFrame) -> DataFrame:
    # The windows are full in later batches than those in which their rows came.
    total = F.sum(F.expr("id / qty")) / F.sum("qty")
    return hw.count_window(sales, "at", 2, by=["word"]).agg(total.alias("s"))


@hw.job(target=delta("gold.t"))
def joined(sales: DataFrame, returns: DataFrame) -> DataFrame:
    right = shared(returns).select("id", F.col("number").alias("back"), F.col("at").alias("back_at"))
    times = {"left_time": "at", "right_time": "back_at"}
    return hw.join(shared(sales), right, on=["id"], **times, within="1 hour", how="left")


@hw.job(target=delta("gold.t"))
def as_of(sales: DataFrame, returns: DataFrame) -> DataFrame:
    right = shared(returns).select("id", "number", "at")
    left = shared(sales).select("id", "share", "at")
    return hw.as_of(left, right, by=["id"], left_time="at", right_time="at")


KINDS: dict[str, Callable[..., DataFrame]] = {
    "tumbling": tumbling,
    "counted late": counted_late,
    "in an aggregate": in_an_aggregate,
    "by count": by_count,
    "by count, in an aggregate": by_count_in_an_aggregate,
    "joined": joined,
    "as of": as_of,
}
BATCHES: Sequence[dict[str, Sequence[Any]]] = (
    {
        "sales": [row(1), row(2, qty=0), row(1, minute=1), row(3, word="x"), row(1, minute=2), b"not JSON"],
        "returns": [row(1, minute=3), row(2, minute=3), row(1, minute=4, word="y")],
    },
    {
        "sales": [row(4, minute=30), row(5, minute=31, qty=0), row(4, minute=32)],
        "returns": [row(4, minute=33), row(5, minute=34, qty=0)],
    },
    {"sales": [row(9, minute=59)], "returns": [row(9, minute=59)]},
)
RAISE_NUMBER = {("sales", 3), ("returns", 2)}
RAISE_SHARE = {("sales", 1), ("sales", 7), ("returns", 4)}


def raises(kind: str, topic: str, offset: int) -> bool:
    """Whether what the job makes of a record raises; what it does not use is not computed."""
    of_share, of_number = (topic, offset) in RAISE_SHARE, (topic, offset) in RAISE_NUMBER
    if kind in ("counted late", "by count", "by count, in an aggregate", "in an aggregate", "tumbling"):
        return topic == "sales" and (of_number if kind == "counted late" else of_share)
    if kind == "as of":
        return of_share if topic == "sales" else of_number
    return (of_share or of_number) if topic == "sales" else of_number


def run(driver: JobDriver, batches: Sequence[dict[str, Sequence[Any]]], topics: Sequence[str]) -> None:
    for batch in batches:
        for topic in topics:
            driver.send(topic, *batch[topic], timestamp=AT)
        driver.run()


def rows_of(driver: JobDriver) -> list[Any]:
    table = driver.table("gold.t")
    own = [name for name in table.columns if not name.startswith("_")]
    return sorted(map(tuple, table.select(*own).collect()), key=str)


@pytest.mark.parametrize(
    "kind", [pytest.param("tumbling", marks=pytest.mark.story), *(k for k in KINDS if k != "tumbling")]
)
def test_rows_for_which_the_function_raises_go_to_quarantine(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    topics = ["sales", "returns"] if kind in ("joined", "as of") else ["sales"]
    driver = JobDriver(spark, tmp_path / "all", [KINDS[kind]])
    run(driver, BATCHES, topics)
    expected, good, offsets = set(), list[dict[str, Sequence[Any]]](), dict.fromkeys(topics, 0)
    for batch in BATCHES:
        of_batch: dict[str, Sequence[Any]] = {}
        for topic in topics:
            first = offsets[topic]
            bad = {first + i for i in range(len(batch[topic])) if raises(kind, topic, first + i)}
            expected |= {(topic, offset) for offset in bad}
            of_batch[topic] = [r for i, r in enumerate(batch[topic]) if first + i not in bad]
            offsets[topic] += len(batch[topic])
        good.append(of_batch)
    found = driver.rows("gold.t__quarantine", "_topic", "_offset", "_check", "_reason")
    assert {(topic, offset) for topic, offset, check, _ in found if check == "function"} == expected
    assert all("[DIVIDE_BY_ZERO]" in r or "ValueError" in r for _, _, c, r in found if c == "function")
    oracle = JobDriver(spark, tmp_path / "good", [KINDS[kind]])
    run(oracle, good, topics)
    assert rows_of(driver) == rows_of(oracle)
    assert driver.audit() == []


def test_query_that_is_killed_when_it_knows_the_rows_goes_on_without_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [tumbling])
    driver.send("sales", row(1), row(2, qty=0), row(1, minute=1), timestamp=AT)
    for step in ("before quarantine", "before commit", "after commit"):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            driver.run()
    driver.run()
    assert rows_of(driver)[0][-1] == 1.0
    assert driver.rows("gold.t__quarantine", "_offset", "_check") == [(1, "function")]
    assert driver.audit() == []


def test_renewed_query_names_the_earlier_rows_for_its_first_batch_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, named = JobDriver(spark, tmp_path, [counted_late]), list[Any]()
    driver.send("sales", row(1), row(2, word="x"), timestamp=AT)
    driver.run()
    begin_generations(driver.context, [bind(counted_late)], "renew", lambda _: NoLease())

    def told(checkpoint: Path) -> dict[str, dict[Place, str]]:
        named.append(failing_to_come(checkpoint))
        return named[-1]

    monkeypatch.setattr(stateful, "failing_to_come", told)
    driver.send("sales", row(3, minute=1), row(9, minute=59), timestamp=AT)
    driver.run()
    assert [list(each.get("sales", ())) for each in named] == [[("sales", 0, 1)], []]
    driver.send("sales", row(9, minute=59), timestamp=AT)
    driver.run()
    assert [each[-1] for each in rows_of(driver)] == [6]
    assert driver.rows("gold.t__quarantine", "_offset", "_check") == [(1, "function")]
    assert driver.audit() == []


def test_job_over_a_table_sends_its_rows_to_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    @hw.job(target=hw.delta("silver.sales"), dedup=hw.by_offset())
    def kept(sales: DataFrame) -> DataFrame:
        return sales

    @hw.job(target=delta("gold.t", "update", "word", "window_start"))
    @hw.check("odd", "id <> 7", on="input", action="quarantine")
    def windows(silver_sales: DataFrame) -> DataFrame:
        return hw.tumbling(shared(silver_sales), "at", "5 minutes", by=["word"]).agg(
            F.sum("share").alias("s")
        )

    driver = JobDriver(spark, tmp_path, [kept, windows])
    driver.send("sales", row(1), row(7), row(2, qty=0), timestamp=AT)
    driver.run()
    assert [each[-1] for each in rows_of(driver)] == [0.5]
    found = driver.rows("gold.t__quarantine", "_offset", "_check")
    assert sorted(found) == [(1, "odd"), (2, "function")]
    assert driver.audit() == []


def test_job_stops_where_more_rows_fail_than_it_allows_or_at_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    def windows(sales: DataFrame) -> DataFrame:
        return hw.tumbling(shared(sales), "at", "5 minutes", by=["word"]).agg(F.sum("share").alias("s"))

    target = delta("gold.t", "update", "word", "window_start")
    driver = JobDriver(spark, tmp_path / "few", [hw.job(target=target, max_errors=2)(windows)])
    driver.send("sales", *[row(i, qty=0) for i in range(4)], row(1), timestamp=AT)
    with pytest.raises(
        RowErrorsError, match=r"raises for more than 2 of 5 records, such as sales 0 offset \d"
    ):
        driver.run()
    driver = JobDriver(spark, tmp_path / "none", [hw.job(target=target, on_error="fail")(windows)])
    driver.send("sales", row(1, qty=0), row(1), timestamp=AT)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        driver.run()


def test_row_that_expires_and_cannot_be_computed_is_told_and_the_mended_job_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    def pairs(by: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
        def joined(sales: DataFrame, returns: DataFrame) -> DataFrame:
            right = returns.select("id", F.col("qty").alias("back"), F.col("at").alias("back_at"))
            times = {"left_time": "at", "right_time": "back_at"}
            found = hw.join(sales, right, on=["id"], **times, within="1 hour", how="left")
            return found.select("id", F.expr(by).alias("share"))

        return joined

    target = delta("gold.t")
    driver = JobDriver(spark, tmp_path, [hw.job(target=target)(pairs("qty / coalesce(back, 0)"))])
    driver.send("sales", row(1), row(2), timestamp=AT)
    driver.send("returns", row(1, qty=4), timestamp=AT)
    driver.run()
    for number in (8, 9):  # the second one's batch has a watermark behind which the first rows expire
        driver.run()
        for topic in ("sales", "returns"):
            later = row(number) | {"at": f"2024-03-01T20:0{number}:00Z"}
            driver.send(topic, later, timestamp="2024-03-01T21:00:00+00:00")
    told = r"the function raises for .* rows of earlier batches \(\[DIVIDE_BY_ZERO\].* by try_divide"
    for _ in range(2):
        with pytest.raises(NotComputableError, match=told):
            driver.run()
    driver = JobDriver(spark, tmp_path, [hw.job(target=target)(pairs("try_divide(qty, coalesce(back, 0))"))])
    driver.run()
    assert rows_of(driver) == [(1, 0.5), (2, None), (8, 1.0), (9, 1.0)]
    assert driver.audit() == []


def test_sum_that_overflows_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def windows(sales: DataFrame) -> DataFrame:
        great = F.expr("id * 5000000000000000000L")
        return hw.tumbling(sales, "at", "5 minutes", by=["word"]).agg(F.sum(great).alias("s"))

    driver = JobDriver(
        spark, tmp_path, [hw.job(target=delta("gold.t", "update", "word", "window_start"))(windows)]
    )
    driver.send("sales", row(1), row(1, minute=1), timestamp=AT)
    with pytest.raises(NotComputableError, match=r"raises for a group, .*\[ARITHMETIC_OVERFLOW\]"):
        driver.run()
