"""Records that become several rows: order lines of orders, each with its record's coordinates and its place in it.

orders        0: [x 2, y 1]   1: []     2: NULL   3: no JSON    4: [z 1]    5: [x 3, x 3]
explode       (0, 0) (0, 1)                                     (4, 0)      (5, 0) (5, 1)
explode_outer (0, 0) (0, 1)   (1, 0)    (2, 0)                  (4, 0)      (5, 0) (5, 1)
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError, LookupKeyError
from headwater_streams.operators.exploding import LEVEL
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.streaming_sql import load_sql
from headwater_streams.testing import JobDriver, SimulatedCrash

LINE = "STRUCT<sku: STRING, n: INT>"
SCHEMA = f"id STRING, at TIMESTAMP, lines ARRAY<{LINE}>"
orders = hw.topic("orders", schema=SCHEMA, event_time="at", watermark="1 hour")
returns = hw.topic("returns", schema=SCHEMA, event_time="at", watermark="1 hour")
lines = hw.table("silver.lines", event_time="at", watermark="1 hour")
products = hw.lookup("dim.products")
AT = "2013-01-05T12:00:00Z"
ORDERS: list[list[tuple[str, int]] | str | None] = [
    [("x", 2), ("y", 1)], [], None, "no JSON", [("z", 1)], [("x", 3), ("x", 3)],
]  # fmt: skip
INNER = [(0, 0, "x", 2), (0, 1, "y", 1), (4, 0, "z", 1), (5, 0, "x", 3), (5, 1, "x", 3)]
OUTER = sorted([*INNER, (1, 0, None, None), (2, 0, None, None)], key=repr)
Function = Callable[[DataFrame], DataFrame]
NAMED = ("line.sku", "line.n")

INNER_WAYS: dict[str, Function] = {
    "explode": lambda orders: orders.select("id", F.explode("lines").alias("line")).select("id", *NAMED),
    "posexplode": lambda orders: orders.select("id", F.posexplode("lines").alias("pos", "line")).select("id", *NAMED),
    "posexplode, kept": lambda orders: (
        orders.select(F.posexplode("lines").alias("sku", "line")).select(*NAMED)
    ),
    "inline": lambda orders: orders.select("id", F.inline("lines")),
    "with a column": lambda orders: (
        orders.withColumn("line", F.explode("lines")).select(*NAMED)
    ),
    "a map": lambda orders: (
        orders.select(F.explode(F.map_from_entries(F.transform("lines", lambda x, i: F.struct(i, x)))))
        .select("value.sku", "value.n")
    ),
}  # fmt: skip
OUTER_WAYS: dict[str, Function] = {
    "explode_outer": lambda orders: orders.select(F.explode_outer("lines").alias("line")).select(*NAMED),
    "posexplode_outer": lambda orders: orders.select(F.posexplode_outer("lines").alias("pos", "line")).select(
        *NAMED
    ),
    "inline_outer": lambda orders: orders.select("id", F.inline_outer("lines")),
}
VIEWS = {
    "explode": ("LATERAL VIEW explode(o.lines) t AS line", "t.line.sku, t.line.n"),
    "posexplode": ("LATERAL VIEW posexplode(lines) t AS pos, line", "line.sku, line.n"),
    "inline": ("LATERAL VIEW inline(lines) t AS sku, n", "t.sku, t.n"),
    "two views": ("LATERAL VIEW explode(array(lines)) a AS every LATERAL VIEW inline(a.every) t", "sku, n"),
}


def exploding(function: Function, **more: Any) -> Any:
    @hw.job(name="lines", target=hw.delta("silver.lines"), **{"dedup": hw.by_offset(), **more})
    def of_orders(orders: DataFrame) -> DataFrame:
        return function(orders)

    return bind(of_orders)


def value(n: int, order: list[tuple[str, int]] | str | None) -> Any:
    if isinstance(order, str):
        return order.encode()
    each = None if order is None else [{"sku": sku, "n": count} for sku, count in order]
    return {"id": f"o{n}", "at": f"2013-01-05T10:{n % 60:02}:00Z", "lines": each}


def send(driver: JobDriver, *, topic: str = "orders", begin: int = 0, end: int = len(ORDERS)) -> None:
    driver.send(topic, *[value(n, ORDERS[n]) for n in range(begin, end)], timestamp=AT)


def found(driver: JobDriver, table: str = "silver.lines") -> list[tuple[Any, ...]]:
    return driver.rows(table, "_offset", "_row", "sku", "n")


@pytest.mark.parametrize("way", [pytest.param("explode", marks=pytest.mark.story), *[*INNER_WAYS][1:]])
def test_each_row_has_the_coordinates_of_its_record_and_its_place_in_it(
    drive: Callable[..., JobDriver], way: str
) -> None:
    driver = drive(exploding(INNER_WAYS[way]))
    send(driver, end=3)
    driver.run()
    send(driver, begin=3)
    driver.run()
    assert found(driver) == INNER
    assert driver.accounting("silver.lines") == {
        "read": 6, "exploded": 3, "written": 5, "filtered": 2, "quarantined": 1,
    }  # fmt: skip
    assert driver.audit() == []


@pytest.mark.parametrize("way", [*OUTER_WAYS])
def test_record_without_elements_has_a_row_of_its_own_where_outer_makes_one(
    drive: Callable[..., JobDriver], way: str
) -> None:
    driver = drive(exploding(OUTER_WAYS[way]))
    send(driver)
    driver.run()
    assert sorted(found(driver), key=repr) == OUTER
    assert driver.accounting("silver.lines") == {"read": 6, "exploded": 5, "written": 7, "quarantined": 1}
    assert driver.audit() == []


@pytest.mark.parametrize("view", [*VIEWS])
def test_lateral_view_of_sql_does_the_same(
    drive: Callable[..., JobDriver], tmp_path: Path, view: str
) -> None:
    text, columns = VIEWS[view]
    path = tmp_path / "lines.sql"
    path.write_text(
        f"CREATE STREAMING TABLE silver.lines AS SELECT {columns} FROM topic('orders', schema => '{SCHEMA}', "
        f"event_time => 'at', watermark => '1 hour') o {text}"
    )
    (job,) = load_sql(path)
    driver = drive(job)
    send(driver)
    driver.run()
    places = {row[0]: row for row in found(driver)}
    assert [(offset, sku, n) for offset, _, sku, n in found(driver)] == [
        (offset, sku, n) for offset, _, sku, n in INNER
    ]
    assert set(places) == {0, 4, 5}
    assert driver.accounting("silver.lines")["exploded"] == 3
    assert driver.audit() == []


def test_filter_leaves_the_places_as_they_are(drive: Callable[..., JobDriver]) -> None:
    driver = drive(exploding(lambda orders: INNER_WAYS["inline"](orders).filter("sku <> 'x' AND n = 1")))
    send(driver)
    driver.run()
    assert found(driver) == [(0, 1, "y", 1), (4, 0, "z", 1)]
    assert driver.accounting("silver.lines") == {
        "read": 6, "exploded": 2, "written": 2, "filtered": 3, "quarantined": 1,
    }  # fmt: skip
    assert driver.audit() == []


@pytest.mark.parametrize("step", ["before commit", "after commit"])
def test_crash_writes_each_row_once_with_its_place(drive: Callable[..., JobDriver], step: str) -> None:
    driver = drive(exploding(INNER_WAYS["explode"]))
    send(driver, end=3)
    driver.run()
    send(driver, begin=3)
    driver.crash_at(step)
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()
    assert found(driver) == INNER
    assert driver.audit() == []


def test_record_that_comes_again_is_one_duplicate(drive: Callable[..., JobDriver]) -> None:
    driver = drive(exploding(INNER_WAYS["explode"]))
    send(driver)
    driver.run()
    driver.resend("orders", 0)
    driver.resend("orders", 4)
    driver.run()
    assert found(driver) == INNER
    assert driver.accounting("silver.lines")["duplicate"] == 2
    assert driver.audit() == []


def test_order_that_has_a_known_key_is_one_duplicate(drive: Callable[..., JobDriver]) -> None:
    driver = drive(exploding(INNER_WAYS["explode"], dedup=hw.by_key(["id"], within="1 day")))
    send(driver)
    driver.run()
    driver.send("orders", value(0, [("x", 2), ("y", 1)]), value(7, [("w", 1)]), timestamp=AT)
    driver.run()
    assert found(driver) == sorted([*INNER, (7, 0, "w", 1)], key=repr)
    assert driver.accounting("silver.lines") == {
        "read": 8, "exploded": 4, "written": 6, "filtered": 2, "duplicate": 1, "quarantined": 1,
    }  # fmt: skip
    assert driver.audit() == []


def test_nested_explode_has_places_of_two_levels(drive: Callable[..., JobDriver]) -> None:
    def halves(orders: DataFrame) -> DataFrame:
        each = INNER_WAYS["inline"](orders)
        return each.withColumn("half", F.explode(F.sequence(F.lit(1), "n"))).select("sku", "n", "half")

    driver = drive(exploding(halves))
    send(driver, end=1)
    driver.run()
    rows = driver.rows("silver.lines", "_row", "sku", "half")
    assert rows == [(0, "x", 1), (1, "x", 2), (LEVEL, "y", 1)]
    assert driver.accounting("silver.lines") == {"read": 1, "exploded": 1, "written": 3}
    assert driver.audit() == []


def test_look_up_behind_explode_and_one_that_doubles_a_row(drive: Callable[..., JobDriver]) -> None:
    @hw.job(name="lines", target=hw.delta("silver.lines"))
    def named(orders: DataFrame, products: DataFrame) -> DataFrame:
        lines = INNER_WAYS["inline"](orders)
        return lines.join(products, F.col("sku") == F.col("code")).select("sku", "n", "name")

    driver = drive(named)
    names = [("x", "ex"), ("y", "why"), ("z", "zed")]
    driver.put("dim.products", "code STRING, name STRING", *names)
    send(driver)
    driver.run()
    assert found(driver) == INNER
    driver.put("dim.products", "code STRING, name STRING", *names, ("y", "twice"))
    send(driver, end=1)
    with pytest.raises(LookupKeyError, match=r"of one row of a record \(orders 0 offset 6 row 1: 2\)"):
        driver.run()
    assert found(driver) == INNER
    assert driver.audit() == []


def test_rows_keep_their_places_through_hw_enrich_and_are_exploded_behind_it(
    drive: Callable[..., JobDriver],
) -> None:
    def each(rows: DataFrame, products: DataFrame) -> DataFrame:
        named = hw.enrich(rows, products, on=["sku"], how="inner")
        return named.withColumn("piece", F.explode(F.sequence(F.lit(1), "n"))).select("sku", "n", "name")

    @hw.job(name="lines", target=hw.delta("silver.lines"))
    def of_orders(orders: DataFrame) -> DataFrame:
        return orders.select("at", F.inline("lines"))

    @hw.job(name="at_once", target=hw.delta("silver.at_once"))
    def at_once(orders: DataFrame, products: DataFrame) -> DataFrame:
        return each(INNER_WAYS["inline"](orders), products)

    @hw.job(name="behind", target=hw.delta("silver.behind"))
    def behind(lines: DataFrame, products: DataFrame) -> DataFrame:
        return each(lines, products)

    driver = drive(of_orders, at_once, behind)
    driver.put("dim.products", "sku STRING, name STRING", ("x", "ex"), ("y", "why"))
    send(driver)
    driver.run()
    expected = [(o, r * LEVEL + i, sku, n) for o, r, sku, n in INNER if sku != "z" for i in range(n)]
    assert found(driver, "silver.at_once") == found(driver, "silver.behind") == sorted(expected, key=repr)
    assert driver.accounting("silver.at_once") == {
        "read": 6, "exploded": 2, "written": 9, "filtered": 3, "quarantined": 1,
    }  # fmt: skip
    assert driver.accounting("silver.behind") == {"read": 5, "exploded": 4, "written": 9, "filtered": 1}
    assert driver.audit() == []


def test_orders_and_their_lines_in_two_tables_of_one_job(drive: Callable[..., JobDriver]) -> None:
    @hw.job(
        targets={"orders": hw.delta("silver.orders"), "lines": hw.delta("silver.lines")}, dedup=hw.by_offset()
    )
    def split(orders: DataFrame) -> Mapping[str, DataFrame]:
        return {"orders": orders.select("id"), "lines": INNER_WAYS["inline"](orders).select("sku", "n")}

    driver = drive(split)
    send(driver)
    driver.run()
    assert found(driver) == INNER
    assert driver.rows("silver.orders", "_offset") == [(0,), (1,), (2,), (4,), (5,)]
    assert "_row" not in driver.table("silver.orders").columns
    assert driver.accounting("silver.orders") == {"read": 6, "written": 5, "quarantined": 1}
    assert driver.accounting("silver.lines") == {
        "read": 6, "exploded": 3, "written": 5, "filtered": 2, "quarantined": 1,
    }  # fmt: skip
    assert driver.audit() == []


def test_union_of_topics_accounts_for_the_records_of_each(drive: Callable[..., JobDriver]) -> None:
    @hw.job(name="lines", target=hw.delta("silver.lines"))
    def both(orders: DataFrame, returns: DataFrame) -> DataFrame:
        back = returns.select(F.lit("back").alias("sku"), F.lit(-1).alias("n"))
        return hw.union(INNER_WAYS["inline"](orders).select("sku", "n"), back)

    driver = drive(both)
    send(driver)
    send(driver, topic="returns", end=2)
    driver.run()
    (entry,) = driver.ledger("silver.lines")
    some = ("read", "exploded", "written", "filtered", "quarantined")
    assert {name: [terms[term] for term in some] for name, terms in entry.accounting.items()} == {
        "orders": [6, 3, 5, 2, 1],
        "returns": [2, 2, 2, 0, 0],
    }
    rows = driver.rows("silver.lines", "_topic", "_offset", "_row")
    assert [row for row in rows if row[0] == "returns"] == [("returns", 0, 0), ("returns", 1, 0)]
    assert driver.audit() == []


def test_job_behind_a_table_of_lines_keeps_their_places(drive: Callable[..., JobDriver]) -> None:
    @hw.job(name="lines", target=hw.delta("silver.lines"))
    def of_orders(orders: DataFrame) -> DataFrame:
        return orders.select("at", F.inline("lines"))

    @hw.job(name="loud", target=hw.delta("silver.loud"))
    def loud(lines: DataFrame) -> DataFrame:
        return lines.filter("sku <> 'z'").withColumn("sku", F.upper("sku"))

    @hw.job(name="pieces", target=hw.delta("silver.pieces"))
    def pieces(lines: DataFrame) -> DataFrame:
        return lines.withColumn("piece", F.explode(F.sequence(F.lit(1), "n")))

    @hw.job(target=hw.delta("gold.by_sku", keys=["sku", "window_start"], mode="update"))
    def by_sku(lines: DataFrame) -> DataFrame:
        return hw.tumbling(lines, "at", "1 hour", by=["sku"]).agg(F.sum("n").alias("n"))

    driver = drive(of_orders, loud, pieces, by_sku)
    send(driver)
    driver.run()
    assert found(driver, "silver.loud") == [
        (offset, row, sku.upper(), n) for offset, row, sku, n in INNER if sku != "z"
    ]
    assert driver.accounting("silver.loud") == {"read": 5, "written": 4, "filtered": 1}
    expected = [(o, r * LEVEL + i) for o, r, _, n in INNER for i in range(n)]
    assert driver.rows("silver.pieces", "_offset", "_row") == sorted(expected, key=repr)
    assert driver.accounting("silver.pieces") == {"read": 5, "exploded": 5, "written": 10}
    assert driver.rows("gold.by_sku", "sku", "n") == [("x", 8), ("y", 1), ("z", 1)]
    assert driver.audit() == []


def test_record_for_which_an_element_cannot_be_computed_goes_to_quarantine(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(
        exploding(lambda orders: INNER_WAYS["inline"](orders).withColumn("n", F.expr("6 div (n - 1)")))
    )
    send(driver)
    driver.run()
    assert driver.rows("silver.lines", "_offset", "_row", "n") == [(5, 0, 3), (5, 1, 3)]
    assert driver.accounting("silver.lines") == {
        "read": 6, "exploded": 1, "written": 2, "filtered": 2, "quarantined": 3,
    }  # fmt: skip
    assert driver.audit() == []


def test_job_that_begins_to_explode_and_ceases_keeps_its_table(drive: Callable[..., JobDriver]) -> None:
    plain = exploding(lambda orders: orders.select("id", F.lit("all").alias("sku"), F.lit(0).alias("n")))
    driver = drive(plain)
    send(driver, end=3)
    driver.run()
    driver._jobs[0] = exploding(lambda orders: orders.select("id", F.inline("lines")))
    send(driver)
    driver.run()
    driver._jobs[0] = plain
    send(driver, end=1)
    driver.run()
    old = [(offset, None, "all", 0) for offset in (0, 1, 2, 9)]
    new = [(offset + 3, row, sku, n) for offset, row, sku, n in INNER]
    assert found(driver) == sorted([*old, *new], key=repr)
    assert driver.accounting("silver.lines")["read"] == 10
    assert driver.audit() == []


@hw.job(target=hw.delta("silver.stacked"))
def stacked(orders: DataFrame) -> DataFrame:
    return orders.selectExpr("stack(2, id, 'x') AS what")


@hw.job(target=hw.scd1("dim.skus", keys=["sku"], sequence_by="at"))
def skus(orders: DataFrame) -> DataFrame:
    return orders.select("at", F.inline("lines"))


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (stacked, "cannot use stack, whose rows have no place in their record"),
        (skus, "change events are applied one by one, and explode makes several of a record"),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(
    drive: Callable[..., JobDriver], job: Any, told: str
) -> None:
    with pytest.raises(JobDefinitionError, match=told):
        plan_jobs(drive().context, [bind(job)])


def test_by_offset_over_a_table_of_lines_is_refused(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.loud"), dedup=hw.by_offset())
    def loud(lines: DataFrame) -> DataFrame:
        return lines

    @hw.job(name="lines", target=hw.delta("silver.lines"))
    def of_orders(orders: DataFrame) -> DataFrame:
        return orders.select("at", F.inline("lines"))

    with pytest.raises(
        JobDefinitionError, match="several to a record and share its coordinates, so by_offset"
    ):
        plan_jobs(drive().context, [bind(of_orders), bind(loud)])


def test_places_are_the_same_however_the_rows_are_spread(spark: SparkSession) -> None:
    from headwater_streams.operators.exploding import reveal_rows
    from headwater_streams.spark.hidden_columns import hide

    rows = spark.createDataFrame(
        [("t", 0, n, [f"{n}.{i}" for i in range(n % 4)]) for n in range(40)],
        "_topic STRING, _partition INT, _offset BIGINT, words ARRAY<STRING>",
    )
    hidden = ["_topic", "_partition", "_offset"]

    def placed(cut: DataFrame) -> list[tuple[Any, ...]]:
        made = hide(cut, hidden).select(F.explode("words").alias("word")).filter("word NOT LIKE '%.1'")
        return sorted(tuple(row) for row in reveal_rows(made.repartition(3), hidden).collect())

    expected = sorted((f"{n}.{i}", "t", 0, n, i) for n in range(40) for i in range(n % 4) if i != 1)
    assert placed(rows) == placed(rows.repartition(7)) == expected
