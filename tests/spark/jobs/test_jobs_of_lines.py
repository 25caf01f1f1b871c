"""Jobs over a table whose rows are several to a record, `silver.lines`: rows of one record share their coordinates, and
often their time, and are told apart by their places."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

AT = "2013-01-05T12:00:00Z"
orders = hw.topic(
    "orders",
    schema="id STRING, at TIMESTAMP, lines ARRAY<STRUCT<sku: STRING, n: INT>>",
    event_time="at",
    watermark="1 hour",
)
seen = hw.topic("seen", schema="sku STRING, seen_at TIMESTAMP", event_time="seen_at", watermark="1 hour")
lines = hw.table("silver.lines", event_time="at", watermark="1 hour")
products = hw.lookup("dim.products")
aliases = hw.lookup("dim.aliases")


@hw.job(name="lines", target=hw.delta("silver.lines"))
def of_orders(orders: DataFrame) -> DataFrame:
    return orders.select("id", "at", F.inline("lines"))


def send(driver: JobDriver, n: int, at: str, *ordered: tuple[str, int]) -> None:
    each = [{"sku": sku, "n": count} for sku, count in ordered]
    driver.send("orders", {"id": f"o{n}", "at": at, "lines": each}, timestamp=AT)


@hw.job(name="first", target=hw.delta("gold.first", keys=["window_start"], mode="update"))
def first_in_windows(lines: DataFrame) -> DataFrame:
    return hw.tumbling(lines.filter("_row = 0"), "at", "1 hour").agg(F.sum("n").alias("n"))


@hw.job(name="last", target=hw.delta("gold.last", keys=["window_start"], mode="update"))
def last_place(lines: DataFrame) -> DataFrame:
    return hw.tumbling(lines, "at", "1 hour").agg(F.max("_row").alias("place"))


@hw.job(name="counted", target=hw.delta("gold.counted"))
def in_count_windows(lines: DataFrame) -> DataFrame:
    return hw.count_window(lines.withColumn("place", F.col("_row")), "at", 2).agg(F.max("place").alias("n"))


@hw.job(name="joined", target=hw.delta("gold.joined"))
def in_a_join(lines: DataFrame, seen: DataFrame) -> DataFrame:
    first = lines.filter("_row = 0")
    return hw.join(first, seen, on=["sku"], left_time="at", right_time="seen_at", within="1 hour")


@pytest.mark.parametrize("job", [first_in_windows, last_place, in_count_windows, in_a_join])
def test_place_that_is_named_on_the_way_to_an_operator_is_refused(
    drive: Callable[..., JobDriver], job: Any
) -> None:
    with pytest.raises(
        JobDefinitionError, match=r"_row, the place of a row of silver\.lines in its record.*name"
    ):
        plan_jobs(drive().context, [bind(of_orders), bind(job)])


def test_place_is_at_hand_where_rows_are_looked_up_before_their_window(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(name="by_kind", target=hw.delta("gold.by_kind", keys=["kind", "window_start"], mode="update"))
    def by_kind(lines: DataFrame, products: DataFrame) -> DataFrame:
        named = hw.enrich(lines.filter("_row = 0"), products, on=["sku"], how="inner")
        return hw.tumbling(named, "at", "1 hour", by=["kind"]).agg(F.sum("n").alias("n"))

    driver = drive(of_orders, by_kind)
    driver.put("dim.products", "sku STRING, kind STRING", ("x", "tea"), ("y", "pot"))
    send(driver, 0, "2013-01-05T10:00:00Z", ("x", 1), ("y", 7))
    send(driver, 1, "2013-01-05T10:10:00Z", ("x", 2), ("x", 9))
    driver.run()
    assert driver.rows("gold.by_kind", "kind", "n") == [("tea", 3)]
    assert driver.audit() == []


def test_exploded_look_up_gives_rows_no_places(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.named"))
    def named(seen: DataFrame, aliases: DataFrame, products: DataFrame) -> DataFrame:
        of_aliases = aliases.select("product", F.explode("skus").alias("sku"))
        by_sku = hw.enrich(seen, of_aliases, on=["sku"], how="left")
        return hw.enrich(by_sku, products.select("sku", "kind"), on=["sku"], how="left")

    driver = drive(named)
    driver.put("dim.aliases", "product STRING, skus ARRAY<STRING>", ("tea", ["x", "y"]))
    driver.put("dim.products", "sku STRING, kind STRING", ("x", "leaf"))
    driver.send("seen", {"sku": "x", "seen_at": "2013-01-05T10:00:00Z"}, timestamp=AT)
    driver.run()
    assert driver.rows("silver.named", "sku", "product", "kind") == [("x", "tea", "leaf")]
    assert "_row" not in driver.table("silver.named").columns
    assert driver.audit() == []


def test_count_windows_have_the_lines_of_a_record_in_an_order_of_their_own(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("gold.twos"))
    def twos(lines: DataFrame) -> DataFrame:
        return hw.count_window(lines, "at", 2, by=["sku"]).agg(F.sum("n").alias("n"))

    driver = drive(of_orders, twos)
    send(driver, 0, "2013-01-05T10:00:00Z", ("x", 8), ("x", 1), ("x", 4), ("x", 2))
    driver.run()
    for n in (1, 2):
        send(driver, n, f"2013-01-05T1{n + 2}:00:00Z", (f"y{n}", 1))
        driver.run()
    # All of one time and one record: the lesser ones come first, in whatever order they are read.
    assert driver.rows("gold.twos", "sku", "window_index", "n") == [("x", 0, 3), ("x", 1, 12)]
    assert driver.audit() == []


def once_per_sku(times: int = 1) -> Job:
    @hw.job(name="once", target=hw.delta("silver.once"), dedup=hw.by_key(["sku"], within="1 day"))
    def once(lines: DataFrame) -> DataFrame:
        return lines.withColumn("n", (F.col("n") * times).alias("n"))

    return bind(once)


def test_first_line_of_a_key_stays_live_and_in_a_rebuild(drive: Callable[..., JobDriver]) -> None:
    driver = drive(of_orders, once_per_sku())
    send(driver, 0, "2013-01-05T10:00:00Z", ("x", 9), ("y", 2), ("x", 1), ("y", 1))
    driver.run()
    send(driver, 1, "2013-01-05T10:10:00Z", ("x", 5), ("z", 3))
    driver.run()
    expected = [(0, 0, "x", 9), (0, 1, "y", 2), (1, 1, "z", 3)]
    assert driver.rows("silver.once", "_offset", "_row", "sku", "n") == expected
    assert driver.accounting("silver.once") == {"read": 6, "written": 3, "duplicate": 3}
    verdict = rebuilt(driver, once_per_sku(2))
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (0, 0, 3)
    assert driver.audit() == []


def rebuilt(driver: JobDriver, job: Job) -> Any:
    """Builds a job's table beside the live one, all of it recomputed."""
    planned = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    details = {finding.name: finding.detail for finding in verdict.findings}
    assert "as they are written" in details["recomputed"]
    backfill.swap(driver.context, planned.id)
    return verdict


@hw.job(name="lines", target=hw.delta("silver.lines"))
def of_times_of_their_own(orders: DataFrame) -> DataFrame:
    """A line happened `n` hours before its order."""
    return orders.select("id", "at", F.inline("lines")).withColumn("at", F.expr("timestampadd(HOUR, -n, at)"))


def in_windows(every: str | None, times: int = 1) -> Job:
    @hw.job(name="by_sku", target=hw.delta("gold.by_sku", keys=["sku", "window_start"], mode="update"))
    def by_sku(lines: DataFrame) -> DataFrame:
        windows = (
            hw.tumbling(lines, "at", "1 hour", by=["sku"])
            if every is None
            else hw.hopping(lines, "at", "1 hour", every, by=["sku"])
        )
        return windows.agg((F.count("*") * times).alias("rows"))

    return bind(by_sku)


@pytest.mark.parametrize("every", [None, "30 minutes"])
def test_line_in_time_is_recomputed_beside_late_ones_of_its_record(
    drive: Callable[..., JobDriver], every: str | None
) -> None:
    driver = drive(of_times_of_their_own, in_windows(every))
    send(driver, 0, "2013-01-05T09:40:00Z", ("x", 0), ("y", 0))
    driver.run()
    # The windows until 8:40 are closed: two lines are late, at 7:10 for all windows, and one is for one at most.
    send(driver, 1, "2013-01-05T12:10:00Z", ("x", 0), ("y", 5), ("z", 5), ("z", 4))
    driver.run()
    late = driver.rows("gold.by_sku__late", "_offset", "sku", "at")
    assert [(offset, sku) for offset, sku, at in late if at.hour == 7] == [(1, "y"), (1, "z")]
    verdict = rebuilt(driver, in_windows(every, times=2))
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.unchanged) == (0, 0, 0)
    assert driver.audit() == []


def test_check_of_the_place_is_about_the_lines_of_a_union(drive: Callable[..., JobDriver]) -> None:
    def named(times: int) -> Job:
        @hw.job(name="skus", target=hw.delta("silver.skus"))
        @hw.check("first", "_row < 1")
        def skus(lines: DataFrame, seen: DataFrame) -> DataFrame:
            return hw.union(
                lines.select("sku", (F.col("n") * times).alias("n")), seen.select("sku"), allow_missing=True
            )

        return bind(skus)

    driver = drive(of_orders, named(1))
    send(driver, 0, "2013-01-05T10:00:00Z", ("x", 9), ("y", 2), ("z", 1))
    driver.send("seen", {"sku": "w", "seen_at": "2013-01-05T10:00:00Z"}, timestamp=AT)
    driver.run()
    assert sorted(driver.rows("silver.skus", "sku")) == [("w",), ("x",)]
    assert driver.rows("silver.skus__quarantine", "_topic", "_offset") == [("orders", 0), ("orders", 0)]
    assert rebuilt(driver, named(2)).accounting["quarantined"] == 2
    assert driver.audit() == []
