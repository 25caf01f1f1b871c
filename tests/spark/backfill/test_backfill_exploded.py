"""Backfills of jobs that make several rows of a record: records and rows are counted apart, and rows keep their places.

orders  offset 0: [a, b]   1: []   2: [c, d, e]   3: no JSON   | 4: [f]   5: [g, h]
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

AT = "2013-01-05T12:00:00Z"
orders = hw.topic("orders", schema="id STRING, lines ARRAY<STRING>")
bought = hw.table("silver.lines")
FIRST: list[Any] = [["a", "b"], [], ["c", "d", "e"], b"no JSON"]
SECOND: list[Any] = [["f"], ["g", "h"]]
ROWS = [
    (0, 0, "a"),
    (0, 1, "b"),
    (2, 0, "c"),
    (2, 1, "d"),
    (2, 2, "e"),
    (4, 0, "f"),
    (5, 0, "g"),
    (5, 1, "h"),
]


def exploding(line: str = "line", where: str = "true") -> Job:
    """Both are SQL."""

    @hw.job(name="lines", target=hw.delta("silver.lines"), dedup=hw.by_offset())
    def lines(orders: DataFrame) -> DataFrame:
        each = orders.select("id", F.explode("lines").alias("line"))
        return each.filter(where).withColumn("line", F.expr(line))

    return bind(lines)


def shouting(line: str = "upper(line)") -> Job:
    @hw.job(name="loud", target=hw.delta("silver.loud"))
    def loud(bought: DataFrame) -> DataFrame:
        return bought.withColumn("line", F.expr(line))

    return bind(loud)


def splitting(line: str = "line") -> Job:
    @hw.job(
        name="split",
        targets={"orders": hw.delta("silver.orders"), "lines": hw.delta("silver.lines")},
        dedup=hw.by_offset(),
    )
    def split(orders: DataFrame) -> Mapping[str, DataFrame]:
        each = orders.select(F.explode("lines").alias("line")).withColumn("line", F.expr(line))
        return {"orders": orders.select("id"), "lines": each}

    return bind(split)


def two_batches(driver: JobDriver) -> None:
    for n, lines in enumerate(FIRST):
        driver.send(
            "orders", lines if isinstance(lines, bytes) else {"id": f"o{n}", "lines": lines}, timestamp=AT
        )
    driver.run()
    for n, lines in enumerate(SECOND, len(FIRST)):
        driver.send("orders", {"id": f"o{n}", "lines": lines}, timestamp=AT)
    driver.run()


def found(driver: JobDriver, table: str = "silver.lines") -> list[tuple[Any, ...]]:
    return driver.rows(table, "_offset", "_row", "line")


def repair(driver: JobDriver, job: Job, **asked: Any) -> tuple[backfill.BackfillPlan, Any]:
    planned = backfill.plan(driver.context, job, rows_per_chunk=2, **asked)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    details = {finding.name: finding.detail for finding in verdict.findings}
    assert "as they are written" in details["recomputed"]
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert driver.audit() == []
    return planned, verdict


@pytest.mark.story
def test_repair_replaces_the_rows_of_its_records_and_counts_both(ready: Callable[..., JobDriver]) -> None:
    driver = ready(two_batches, exploding())
    assert found(driver) == ROWS
    planned, verdict = repair(driver, exploding("upper(line)"), offsets={"orders": {0: (1, 5)}})
    details = {finding.name: finding.detail for finding in verdict.findings}
    assert details["records and rows"] == "2 records became 4 rows, 2 and 4 were counted"
    assert (verdict.diff.keys, verdict.diff.changed) == (("_topic", "_partition", "_offset", "_row"), 4)
    (entry,) = [e for e in driver.ledger("silver.lines") if e.kind == "backfill"]
    assert {name: entry.totals[name] for name in ("read", "exploded", "written", "filtered", "before")} == {
        "read": 4, "exploded": 2, "written": 4, "filtered": 1, "before": 4,
    }  # fmt: skip
    loud = [(offset, row, line.upper() if 1 <= offset < 5 else line) for offset, row, line in ROWS]
    assert found(driver) == sorted(loud, key=repr)
    backfill.rollback(driver.context, planned.id)
    assert found(driver) == ROWS
    assert driver.audit() == []


def test_repair_that_filters_rows_leaves_the_places_of_the_others(ready: Callable[..., JobDriver]) -> None:
    driver = ready(two_batches, exploding())
    _, verdict = repair(driver, exploding(where="line NOT IN ('c', 'd', 'f')"))
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (0, 3, 0)
    assert found(driver) == [row for row in ROWS if row[2] not in ("c", "d", "f")]
    # A record of which no row is left is filtered.
    assert (verdict.accounting["exploded"], verdict.accounting["filtered"]) == (3, 2)


def test_repair_of_a_job_behind_a_table_of_lines(ready: Callable[..., JobDriver]) -> None:
    driver = ready(two_batches, exploding(), shouting())
    _, verdict = repair(driver, shouting("concat(line, '!')"), offsets={"orders": {0: (2, 6)}})
    assert verdict.diff.changed == 6
    assert found(driver, "silver.loud") == [
        (offset, row, line.upper() if offset < 2 else f"{line}!") for offset, row, line in ROWS
    ]


def test_repair_of_orders_and_lines_names_the_rows_of_each_by_their_own(
    ready: Callable[..., JobDriver],
) -> None:
    driver = ready(two_batches, splitting())
    planned, verdict = repair(driver, splitting("upper(line)"), offsets={"orders": {0: (0, 3)}})
    assert planned.parts["silver.orders"].keys == ("_topic", "_partition", "_offset")
    assert planned.parts["silver.lines"].keys == ("_topic", "_partition", "_offset", "_row")
    assert (verdict.diff.changed, verdict.beside["silver.lines"].diff.changed) == (0, 5)


def test_rebuild_is_row_by_row_what_was_there(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(two_batches, exploding()), exploding("concat(line, '.')")
    planned = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (0, 0, len(ROWS))
    backfill.swap(driver.context, planned.id)
    assert found(driver) == [(offset, row, f"{line}.") for offset, row, line in ROWS]
    assert driver.audit() == []


def test_rebuild_of_a_job_that_made_one_row_of_a_record_before(ready: Callable[..., JobDriver]) -> None:
    @hw.job(name="lines", target=hw.delta("silver.lines"), dedup=hw.by_offset())
    def plain(orders: DataFrame) -> DataFrame:
        return orders.select("id", F.get("lines", F.lit(0)).alias("line"))

    driver, job = ready(two_batches, bind(plain)), exploding()
    planned = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    # Of each record with lines the first one stays; the record without any had a row.
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.unchanged) == (4, 1, 4)
    backfill.swap(driver.context, planned.id)
    assert found(driver) == ROWS
    assert driver.audit() == []


def test_record_that_was_rejected_is_mended_to_all_of_its_rows(ready: Callable[..., JobDriver]) -> None:
    driver = ready(two_batches, exploding("IF(line = 'd', CAST(raise_error('no') AS STRING), line)"))
    assert [row[0] for row in found(driver)] == [0, 0, 4, 5, 5]
    _, verdict = repair(driver, exploding(), rows="quarantined")
    assert verdict.diff.added == 3
    assert found(driver) == ROWS
