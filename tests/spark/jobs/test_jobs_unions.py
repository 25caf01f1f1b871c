"""Unions: several inputs as one table, each row with its coordinates, each input accounted for by itself."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import CheckFailedError, JobDefinitionError
from headwater_streams.ledger.audit import audit_table
from headwater_streams.operators.dedup import Dedup
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.streaming_sql import load_sql
from headwater_streams.testing import JobDriver, SimulatedCrash

web = hw.topic("web", schema="user STRING, at TIMESTAMP, page STRING", event_time="at")
shop = hw.topic("shop", schema="at TIMESTAMP, user STRING, amount INT", event_time="at")
old = hw.topic("old", schema="user STRING, at TIMESTAMP, page STRING", event_time="at")
archive = hw.table("silver.archive", event_time="at")
visits = hw.table("silver.visits", event_time="at", watermark="30 minutes")
people = hw.lookup("dim.people")
moves = hw.lookup("dim.moves")
AT = "2013-01-01T10:00:00+00:00"


@hw.job(target=hw.delta("silver.archive"), dedup=hw.by_offset())
def keep(old: DataFrame) -> DataFrame:
    return old


@hw.job(target=hw.delta("silver.visits"), dedup=hw.by_offset(origin=True))
@hw.check("has_user", "user IS NOT NULL")
@hw.check("positive", "amount > 0")
@hw.check("few", "count(*) < 6", on="output", level="batch", action="fail")
def unite(web: DataFrame, shop: DataFrame, archive: DataFrame) -> DataFrame:
    bought = shop.filter("amount <> 7").withColumn("kind", F.lit("bought"))
    return hw.union(web.filter("page <> '/health'"), bought, archive, allow_missing=True)


@hw.job(target=hw.delta("gold.by_hour", keys=["window_start"], mode="update"))
def by_hour(visits: DataFrame) -> DataFrame:
    return hw.tumbling(visits, "at", "1 hour").agg(F.count("*").alias("n"))


def visit(at: str, user: str | None = "u", page: str = "/") -> dict[str, Any]:
    return {"user": user, "at": f"2013-01-01T{at}:00Z", "page": page}


def sale(at: str, amount: int, user: str | None = "u") -> dict[str, Any]:
    return {"user": user, "at": f"2013-01-01T{at}:00Z", "amount": amount}


def test_union_of_plain_frames_is_by_name_and_refuses_what_is_missing(spark: SparkSession) -> None:
    one = spark.createDataFrame([("a", 1)], "k STRING, n INT")
    other = spark.createDataFrame([(2, "b")], "n INT, k STRING")
    assert [tuple(row) for row in hw.union(one, other, other).collect()] == [("a", 1), ("b", 2), ("b", 2)]
    wide = other.withColumn("more", F.lit(True))
    with pytest.raises(
        JobDefinitionError, match="'n' is INT in the first frame and STRING in the second; cast one"
    ):
        hw.union(one, other.withColumn("n", F.col("n").cast("string")))
    with pytest.raises(JobDefinitionError, match="the first frame has no column 'more'; it has k, n; add it"):
        hw.union(one, wide)
    with pytest.raises(JobDefinitionError, match="the 4th frame has no column 'n'; it has k"):
        hw.union(one, one, one, one.select("k"))
    united = hw.union(one, wide, allow_missing=True)
    assert [tuple(row) for row in united.collect()] == [("a", 1, None), ("b", 2, True)]


def test_union_of_topics_and_a_table_keeps_coordinates_and_books_whatever_is_killed(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(keep, unite, by_hour)
    origin = ("east", "web", 0, 0)
    driver.send("web", visit("10:00"), visit("10:10", page="/health"), timestamp=AT, origin=origin)
    driver.resend("web", 0, as_new=True)
    driver.send(
        "shop", sale("10:20", 5), sale("10:20", 7), sale("10:20", 0), b"no sale", timestamp=AT, partition=1
    )
    driver.run()  # the archive is empty
    columns = ("_topic", "_partition", "_offset", "user", "page", "kind", "amount")
    first = [("shop", 1, 0, "u", None, "bought", 5), ("web", 0, 0, "u", "/", None, None)]
    assert driver.rows("silver.visits", *columns) == first
    assert driver.table("silver.visits").columns[:5] == ["user", "at", "page", "amount", "kind"]
    assert [reason for reason, _ in driver.quarantined("silver.visits")] == [
        "positive: amount > 0", "the value is not one JSON object",
    ]  # fmt: skip

    driver.send("old", visit("09:00"), visit("11:40"), timestamp=AT)
    driver.send("web", visit("10:50"), visit("10:55", None), timestamp=AT)
    for step in ("before quarantine", "before commit", "after commit"):
        driver.crash_at(step, "unite")
        with pytest.raises(SimulatedCrash):
            driver.run()
    driver.run()
    driver.send("shop", sale("10:59", 1), sale("12:00", 2), timestamp=AT)  # one input alone; 10:59 is late
    driver.run()
    added = [
        ("old", 0, 0, "u", "/", None, None), ("old", 0, 1, "u", "/", None, None),
        ("shop", 0, 0, "u", None, "bought", 1), ("shop", 0, 1, "u", None, "bought", 2),
        ("web", 0, 3, "u", "/", None, None),
    ]  # fmt: skip
    assert driver.rows("silver.visits", *columns) == sorted([*first, *added], key=repr)
    audit = audit_table(driver.home, "silver.visits")
    assert audit is not None
    nothing = {"written": 0, "filtered": 0, "duplicate": 0, "quarantined": 0}
    assert audit.totals == {
        "web": nothing | {"read": 5, "written": 2, "filtered": 1, "duplicate": 1, "quarantined": 1},
        "shop": nothing | {"read": 6, "written": 3, "filtered": 1, "quarantined": 2},
        "archive": nothing | {"read": 2, "written": 2},
    }
    places = {(p.topic, p.partition): (p.start, p.end, p.terms["written"]) for p in audit.partitions}
    assert places == {
        ("web", 0): (0, 5, 2),
        ("shop", 0): (0, 2, 2),
        ("shop", 1): (0, 4, 1),
        ("old", 0): (0, 2, 2),
    }
    last = driver.ledger("silver.visits")[-1]
    assert [(s.input, s.topic, s.table) for s in last.sources if s.input == "shop"] == [
        ("shop", "shop", None)
    ]
    # The windows over it: one stream, late by the greatest time of all its inputs.
    hours = driver.table("gold.by_hour").select(F.date_format("window_start", "HH:mm"), "n")
    assert sorted(map(tuple, hours.collect())) == [("09:00", 1), ("10:00", 3), ("11:00", 1), ("12:00", 1)]
    assert driver.late("gold.by_hour", "_topic", "_offset") == [("shop", 0)]
    assert driver.audit() == []
    with pytest.raises(
        BackfillError, match="'unite' reads web, shop, archive; row-by-row jobs with one input"
    ):
        backfill.plan(driver.context, bind(unite))

    driver.send("web", *[visit("12:00")] * 3, timestamp=AT)
    driver.send("shop", *[sale("12:00", 1)] * 3, timestamp=AT)
    with pytest.raises(CheckFailedError, match="the batch fails the check 'few'"):
        driver.run()
    assert len(driver.rows("silver.visits", "_offset")) == 7
    spark.sql(f"DELETE FROM delta.`{driver.home.table('silver.visits')}` WHERE page IS NULL AND amount = 2")
    assert any("1 row is gone: shop 0 offset 1" in finding for finding in driver.audit())


@hw.job(target=hw.delta("silver.placed"), dedup=hw.by_offset())
def placed(web: DataFrame, shop: DataFrame, people: DataFrame, moves: DataFrame) -> DataFrame:
    every = hw.enrich(hw.union(web.select("user", "at"), shop.select("user", "at")), people, on=["user"])
    return hw.as_of(every, moves, by=["user"], left_time="at", right_time="moved_at", how="left")


def test_union_is_looked_up_like_the_rows_of_one_input(drive: Callable[..., JobDriver]) -> None:
    driver = drive(placed)
    driver.put("dim.people", "user STRING, name STRING", ("u", "Una"))
    to_rome, to_oslo = (datetime.fromisoformat(f"2013-01-01T{hour}:30:00Z") for hour in ("09", "10"))
    moved = [("u", to_rome, "Rome"), ("u", to_oslo, "Oslo")]
    driver.put("dim.moves", "user STRING, moved_at TIMESTAMP, city STRING", *moved)
    driver.send("web", visit("10:00"), visit("11:00"), timestamp=AT)
    driver.send("shop", sale("10:10", 1), sale("10:10", 1, "v"), timestamp=AT)
    driver.run()
    assert driver.rows("silver.placed", "_topic", "_offset", "name", "city") == [
        ("shop", 0, "Una", "Rome"), ("shop", 1, None, None), ("web", 0, "Una", "Rome"), ("web", 1, "Una", "Oslo"),
    ]  # fmt: skip
    (entry,) = driver.ledger("silver.placed")
    assert {name: terms["written"] for name, terms in entry.accounting.items()} == {"web": 2, "shop": 2}
    assert driver.audit() == []


@pytest.mark.story
def test_union_in_sql_and_into_several_tables(drive: Callable[..., JobDriver], tmp_path: Path) -> None:
    script = tmp_path / "all.sql"
    script.write_text(
        "CREATE STREAMING TABLE silver.everything WITH (dedup = by_offset()) AS\n"
        "SELECT user, page AS what FROM topic('web', schema => 'user STRING, at TIMESTAMP, page STRING')\n"
        "UNION ALL SELECT user, concat('for ', amount) FROM topic('shop', schema => 'user STRING, amount INT') AS s\n"
        "WHERE amount > 1;\n"
        "CREATE STREAMING TABLE gold.runs AS\n"
        "SELECT user, window_index AS run, count_window.start AS since, max(page) AS page\n"
        "FROM topic('web', schema => 'user STRING, at TIMESTAMP, page STRING', event_time => 'at',\n"
        "           watermark => '5 minutes')\n"
        "GROUP BY user, count_window(at, 2);\n"
    )

    @hw.job(targets={"good": hw.delta("silver.good"), "dear": hw.delta("silver.dear")}, dedup=hw.by_offset())
    def split(web: DataFrame, shop: DataFrame) -> dict[str, DataFrame]:
        every = hw.union(web.select("user"), shop.filter("amount <> 7").select("user"))
        return {"good": every, "dear": shop.filter("amount >= 5").select("amount")}

    everything, runs = load_sql(script)
    driver = drive(everything, split, runs)
    driver.send("web", visit("10:00", "a"), visit("10:03", "a", "/x"), visit("10:10", "z"), timestamp=AT)
    driver.send("shop", sale("10:00", 1, "b"), sale("10:00", 5, "c"), sale("10:00", 7, "d"), timestamp=AT)
    driver.crash_at("before commit", "split")
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()
    assert driver.rows("silver.everything", "user", "what") == [
        ("a", "/"), ("a", "/x"), ("c", "for 5"), ("d", "for 7"), ("z", "/"),
    ]  # fmt: skip
    assert driver.rows("silver.good", "user") == [("a",), ("a",), ("b",), ("c",), ("z",)]
    assert driver.rows("gold.runs", "user", "run", "page", "_rows") == [("a", 0, "/x", 2)]
    assert driver.rows("silver.dear", "amount") == [(5,), (7,)]
    of_dear = driver.ledger("silver.dear")[-1].accounting
    assert {n: (t["read"], t["written"], t["filtered"]) for n, t in of_dear.items()} == {
        "web": (3, 0, 3), "shop": (3, 2, 1),
    }  # fmt: skip
    assert driver.audit() == []


def test_unions_that_cannot_be_accounted_for_are_refused(
    drive: Callable[..., JobDriver], tmp_path: Path
) -> None:
    driver = drive()
    driver.put("dim.people", "user STRING, at TIMESTAMP, page STRING")
    # Planned with the others, a job finds their tables' columns: none of them need run.
    others = [bind(keep), bind(unite)]

    def refused(
        make: Callable[..., Any],
        dedup: Dedup | None = None,
        **options: Any,
    ) -> str:
        make.__globals__.update(globals())
        target = hw.delta("gold.refused", **options)
        declared = hw.job(name="refused", target=target, dedup=dedup)(make)
        with pytest.raises(JobDefinitionError) as error:
            plan_jobs(driver.context, [*others, bind(declared)])
        assert str(error.value).startswith("job 'refused': ")
        return str(error.value)

    assert "Spark's union loses the records' coordinates; use hw.union(a, b)" in refused(
        lambda web, archive: web.unionByName(archive)
    )
    assert "the first frame has no column 'amount'" in refused(lambda web, shop: hw.union(web, shop))
    assert "union: the second frame is not made of an input's rows" in refused(
        lambda web, people: hw.union(web, people)
    )
    assert "rows of 'web' come to the result by 2 ways" in refused(
        lambda web: hw.union(web.filter("user = 'a'"), web.filter("page = '/'"))
    )
    assert "the result has no rows of the input 'shop'; leave it out" in refused(lambda web, shop: web)
    assert "cannot join its inputs; use hw.join(...) or hw.as_of(...)" in refused(
        lambda web, shop: web.join(
            shop.select(F.col("user").alias("buyer")), F.col("user") == F.col("buyer"), "left_semi"
        )
    )
    assert "by_key over several inputs" in refused(
        lambda web, archive: hw.union(web, archive), hw.by_key(["user"], within="1 hour")
    )
    assert "the rows of silver.archive have none" in refused(
        lambda web, archive: hw.union(web, archive), hw.by_sequence()
    )
    script = tmp_path / "wrong.sql"
    script.write_text(
        "CREATE STREAMING TABLE a.b AS SELECT user FROM silver.visits\nUNION SELECT user FROM s.c;"
    )
    with pytest.raises(JobDefinitionError, match="line 2: rows are put under each other by UNION ALL"):
        load_sql(script)
    script.write_text(
        "CREATE STREAMING TABLE a.b AS SELECT user FROM silver.visits\n"
        "UNION ALL SELECT user, page FROM silver.archive;"
    )
    with pytest.raises(JobDefinitionError, match="line 2: UNION ALL of 1 columns and 2"):
        plan_jobs(driver.context, [*others, *load_sql(script)])
