"""Left, right, full and semi joins of two streams: the streamed tables are what a batch over all rows gives.

left    ---L1-----------L2---------------L3------------------>
right   -------R1---R2-------------------------------R3------>
           |<- 6 h ->|  |<- 6 h ->|      |<- 6 h ->|
left    L1-R1  L1-R2  L2-NULL  L3-NULL       right   L1-R1  L1-R2  NULL-R3       semi   L1

Left, full and semi joins are what the default run looks at, with HEADWATER_LONG set all of them.
"""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from amount import drawn_seed
from headwater_streams.ledger.audit import audit_table
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime import query
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.testing import JobDriver, SimulatedCrash

ordered = hw.topic("ordered", schema="k STRING, l INT, ordered_at TIMESTAMP", event_time="ordered_at")
paid = hw.topic("paid", schema="k STRING, r INT, paid_at TIMESTAMP", event_time="paid_at")
orders = hw.table("silver.orders", event_time="ordered_at", watermark="2 hours")
sent = hw.topic("sent", schema="k STRING, l INT, at TIMESTAMP", event_time="at", watermark="2 hours")
seen = hw.topic("seen", schema="k STRING, at TIMESTAMP", event_time="at", watermark="2 hours")
payments = hw.table("silver.payments", event_time="paid_at", watermark="2 hours")


@hw.job(target=hw.delta("silver.orders"))
def clean_orders(ordered: DataFrame) -> DataFrame:
    return ordered


@hw.job(target=hw.delta("silver.payments"))
def clean_payments(paid: DataFrame) -> DataFrame:
    return paid


def joined(how: Any, late: Any = "table") -> Job:
    @hw.job(name=f"join_{how}", target=hw.delta(f"gold.{how}"), late=late)
    def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
        return hw.join(
            orders,
            payments,
            on=["k"],
            left_time="ordered_at",
            right_time="paid_at",
            within="6 hours",
            how=how,
        )

    return bind(paid_orders)


LONG = "HEADWATER_LONG" in os.environ
# In Spark each is the full join; inner and right are what is left of it.
HOWS = ["inner", "left", "right", "full", "semi"] if LONG else ["left", "full", "semi"]
COUNTED = {"inner", "full"}  # those whose late rows are only counted
DAY = datetime(2013, 1, 1, tzinfo=UTC)
Order = tuple[str | None, int, datetime]


@pytest.fixture
def rng() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def random_rows(rng: random.Random) -> list[Order]:
    """Times by ten minutes, so that many are equal and many exactly at the bound; a few rows without a key."""
    keys = ["a", "b", "c", "d", "e", "f", None]
    return [(rng.choice(keys), n, DAY + timedelta(minutes=10 * rng.randrange(432))) for n in range(70)]


def in_time(rng: random.Random, rows: list[Order]) -> list[Order]:
    """An order in which no row is two hours behind one that came before it."""
    return sorted(rows, key=lambda row: row[2] + timedelta(minutes=rng.randrange(120)))


def send(driver: JobDriver, topic: str, *rows: Order, partition: int = 0) -> None:
    time, number = {"ordered": ("ordered_at", "l"), "paid": ("paid_at", "r")}[topic]
    values = [{"k": k, number: n, time: at.isoformat()} for k, n, at in rows]
    driver.send(topic, *values, partition=partition, timestamp=DAY + timedelta(days=90))


def run_killed_at(driver: JobDriver, step: str, job: str) -> None:
    driver.crash_at(step, job)
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()


def account(driver: JobDriver, table: str) -> dict[str, dict[str, int]]:
    audit = audit_table(driver.home, table)
    assert audit is not None
    assert audit.ok, audit.findings
    return audit.totals


def test_joins_random_rows_and_kills_streamed_result_equals_batch_result(
    drive: Callable[..., JobDriver], spark: SparkSession, deployed: None, rng: random.Random
) -> None:
    lefts, rights = random_rows(rng), random_rows(rng)
    came_left, came_right, cut = in_time(rng, lefts), in_time(rng, rights), rng.randrange(20, 50)
    jobs = [joined(how, "count" if how in COUNTED else "table") for how in HOWS]
    driver = drive(clean_orders, clean_payments, *jobs)
    send(driver, "ordered", *came_left[:cut], partition=rng.randrange(2))
    send(driver, "paid", *came_right[:cut], partition=rng.randrange(2))
    run_killed_at(driver, rng.choice(["before commit", "after commit"]), "join_semi")
    # Two hours behind what the first batch showed, and far ahead of all that waits: the next batch expires it, which is
    # Spark's own where rows without a partner are written.
    late = [
        ("a", 1000, max(at for *_, at in came[:cut]) - timedelta(hours=2)) for came in (came_left, came_right)
    ]
    end = DAY + timedelta(days=40)
    send(driver, "ordered", *came_left[cut:], late[0], ("no order", -1, end), partition=rng.randrange(2))
    send(driver, "paid", *came_right[cut:], late[1], ("no payment", -1, end), partition=rng.randrange(2))
    run_killed_at(driver, rng.choice(["before commit", "after commit"]), "join_full")
    for how in HOWS:
        assert (account(driver, f"gold.{how}")["orders"]["waiting"] == 1) == (how not in ("inner", "semi")), (
            how
        )
    send(driver, "ordered", ("no order", -2, end))
    send(driver, "paid", ("no payment", -2, end))
    driver.run()
    left = spark.createDataFrame(lefts, "k STRING, l INT, ordered_at TIMESTAMP")
    right = spark.createDataFrame(rights, "k STRING, r INT, paid_at TIMESTAMP")
    for how, job in zip(HOWS, jobs, strict=True):
        batch = job.function(left, right)
        found = batch.collect()
        assert driver.rows(f"gold.{how}", *batch.columns) == sorted(map(tuple, found), key=repr), how
        totals = account(driver, f"gold.{how}")
        of_left, of_right = totals["orders"], totals["payments"]
        assert of_left["late"] == of_right["late"] == 1
        assert len(driver.rows(f"gold.{how}__late", "k")) == (0 if how in COUNTED else 2)
        assert of_left["waiting"] == 2  # the rows that flushed
        assert of_left["read"] == 73 == of_left["matched"] + of_left["expired"] + 3
        assert of_right.get("kept", 72) == 72
        alone = {side: sum(side in row and row[side] is None for row in found) for side in ("l", "r")}
        assert alone["r"] == (of_left["expired"] if how in ("left", "full") else 0)
        assert alone["l"] == (of_right["expired"] if how in ("right", "full") else 0)
    for row in driver.table("gold.full").filter("l IS NULL").collect():
        left_place, right_place = row["_sources"]
        assert left_place is None
        assert tuple(right_place) == ("paid", row["_partition"], row["_offset"], row["_offset"] + 1)


def test_joins_over_the_topics_themselves_streamed_result_equals_batch_result(
    drive: Callable[..., JobDriver], spark: SparkSession, deployed: None, rng: random.Random
) -> None:
    """A join that only counts its late rows: they are behind the query's watermark, the lesser one of its sides."""
    lefts, rights = random_rows(rng), random_rows(rng)
    came_left, came_right, cut = in_time(rng, lefts), in_time(rng, rights), rng.randrange(20, 50)
    topics = {"orders": replace(ordered, watermark="2 hours"), "payments": replace(paid, watermark="2 hours")}
    driver = drive(replace(joined("full", "count"), inputs=topics))
    send(driver, "ordered", *came_left[:cut], partition=rng.randrange(2))
    send(driver, "paid", *came_right[:cut], partition=rng.randrange(2))
    run_killed_at(driver, rng.choice(["start", "before commit", "after commit", "end"]), "join_full")
    least = min(max(at for *_, at in came[:cut]) for came in (came_left, came_right)) - timedelta(hours=2)
    end = DAY + timedelta(days=40)
    send(driver, "ordered", *came_left[cut:], ("a", 1000, least), ("no order", -1, end))
    send(driver, "paid", *came_right[cut:], ("a", 1000, least), ("no payment", -1, end))
    driver.send("paid", b"not JSON")
    run_killed_at(driver, rng.choice(["before commit", "after commit"]), "join_full")
    left = spark.createDataFrame(lefts, "k STRING, l INT, ordered_at TIMESTAMP")
    right = spark.createDataFrame(rights, "k STRING, r INT, paid_at TIMESTAMP")
    batch = joined("full").function(left, right)
    assert driver.rows("gold.full", *batch.columns) == sorted(map(tuple, batch.collect()), key=repr)
    totals = account(driver, "gold.full")
    assert (totals["orders"]["read"], totals["orders"]["late"], totals["orders"]["waiting"]) == (72, 1, 1)
    assert (totals["payments"]["read"], totals["payments"]["late"]) == (73, 1)
    assert totals["payments"]["quarantined"] == 1
    assert [raw for _, raw in driver.quarantined("gold.full")] == [b"not JSON"]
    assert driver.late("gold.full") == []
    assert not driver.home.table("gold.full__ingest_orders").exists()


def sent_apart(rng: random.Random, came: dict[str, list[Order]]) -> list[dict[str, list[Order]]]:
    """The rows of both sides in runs, of which some bring rows of one side alone; the last two of those far ahead."""
    runs, left = [], {topic: list(rows) for topic, rows in came.items()}
    while any(left.values()):
        topics = rng.choice([["ordered"], ["paid"], ["ordered", "paid"]])
        some = {topic: rng.randrange(10, 30) for topic in topics}
        runs.append({topic: left[topic][:count] for topic, count in some.items() if left[topic]})
        left = {topic: rows[some.get(topic, 0) :] for topic, rows in left.items()}
    end = DAY + timedelta(days=40)
    ahead = [{"ordered": [("no order", -1, end)]}, {"paid": [("no payment", -1, end)]}]
    return [run for run in runs if run] + rng.sample(ahead, 2)


@pytest.mark.parametrize("over", ["tables", "topics"])
def test_joins_whose_sides_come_in_different_runs_end_as_one_run_over_all(
    drive: Callable[..., JobDriver], spark: SparkSession, closing_batches: None, rng: random.Random, over: str
) -> None:
    lefts, rights = random_rows(rng), random_rows(rng)
    came = {"ordered": in_time(rng, lefts), "paid": in_time(rng, rights)}
    hows = list(dict.fromkeys([*HOWS, "right"])) if over == "tables" else ["full"]
    jobs = [joined(how) for how in hows]
    driver = drive(clean_orders, clean_payments, *jobs)
    if over == "topics":
        topics = {
            "orders": replace(ordered, watermark="2 hours"),
            "payments": replace(paid, watermark="2 hours"),
        }
        jobs = [replace(joined("full", "count"), inputs=topics)]
        driver = drive(*jobs)
    for run in sent_apart(rng, came):
        for topic, rows in run.items():
            send(driver, topic, *rows, partition=rng.randrange(2))
        if rng.random() < 0.4:
            step = rng.choice(["start", "before commit", "after commit", "end"])
            driver.crash_at(step, rng.choice(jobs).name)
            with suppress(SimulatedCrash):  # a job that reads nothing new has no batch
                driver.run()
        driver.run()
    left = spark.createDataFrame(lefts, "k STRING, l INT, ordered_at TIMESTAMP")
    right = spark.createDataFrame(rights, "k STRING, r INT, paid_at TIMESTAMP")
    for how, job in zip(hows, jobs, strict=True):
        batch = job.function(left, right)
        expected = sorted(map(tuple, batch.collect()), key=repr)
        assert driver.rows(f"gold.{how}", *batch.columns) == expected, how
        totals = account(driver, f"gold.{how}")
        assert totals["orders"]["late"] == totals["payments"]["late"] == 0
        if how not in ("inner", "semi"):  # these let go of their rows with the next batch that has some
            assert totals["orders"]["waiting"] == 1, "that which is far ahead"


def test_joins_of_a_home_whose_ledger_does_not_tell_the_watermarks_of_the_sides_end_likewise(
    drive: Callable[..., JobDriver], closing_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older version left it: the checkpoint begins at 1970, and what a side showed stands in its table alone."""
    driver = drive(clean_orders, clean_payments, joined("left"))
    with monkeypatch.context() as before:
        before.setattr(query, "begin_before_history", lambda *_: None)
        before.setattr(InputWatermarks, "put_back", lambda *_: None)
        before.setattr(InputWatermarks, "after", lambda *_: {})
        send(driver, "ordered", ("a", 1, DAY), ("b", 2, DAY))
        send(driver, "paid", ("a", 1, DAY))
        driver.run()
        send(driver, "ordered", ("c", 3, DAY + timedelta(days=1)))
        driver.run()
    send(driver, "paid", ("c", 3, DAY + timedelta(days=1)))
    driver.run()
    assert driver.rows("gold.left", "l", "r") == [(1, 1), (2, None), (3, 3)]
    assert account(driver, "gold.left")["orders"]["expired"] == 1


def test_joins_begun_anew_know_what_each_side_had_shown(
    drive: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = drive(clean_orders, clean_payments, joined("left"))
    send(driver, "ordered", ("a", 1, DAY), ("b", 2, DAY))
    send(driver, "paid", ("a", 1, DAY))
    driver.run()
    # Not the newest time of the side, which the new generation does not read again.
    send(driver, "ordered", ("c", 3, DAY + timedelta(days=1)))
    driver.run()
    send(driver, "ordered", ("d", 4, DAY + timedelta(hours=23)))
    driver.run()
    before = driver.ledger("gold.left")[-1].input_watermarks_ms
    begin_generations(driver.context, [joined("left")], "renew", lambda _: NoLease())
    driver.run()
    send(driver, "paid", ("c", 3, DAY + timedelta(days=1)))
    driver.run()
    after = driver.ledger("gold.left")[-1].input_watermarks_ms
    assert before["orders"] == after["orders"]
    assert driver.rows("gold.left", "l", "r") == [(1, 1), (2, None), (3, 3)]
    assert account(driver, "gold.left")["orders"]["waiting"] == 1


@pytest.mark.story
def test_joins_semi_of_streams_that_call_their_time_alike_tells_each_left_row_once(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("gold.answered"), late="count")
    def answered(sent: DataFrame, seen: DataFrame) -> DataFrame:
        return hw.join(sent, seen, on=["k"], left_time="at", right_time="at", within="6 hours", how="semi")

    driver = drive(answered)
    at, later = DAY.isoformat(), (DAY + timedelta(hours=1)).isoformat()
    driver.send("sent", {"k": "a", "l": 1, "at": at}, {"k": "b", "l": 2, "at": at})
    driver.send("seen", {"k": "a", "at": at}, {"k": "a", "at": later})
    driver.run()
    driver.send("seen", {"k": "a", "at": later}, {"k": "b", "at": later})
    driver.run()
    assert driver.rows("gold.answered", "k", "l") == [("a", 1), ("b", 2)]
    assert account(driver, "gold.answered")["sent"]["matched"] == 2
