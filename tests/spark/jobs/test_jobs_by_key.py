"""Deduplication by key: what a producer wrote twice, under new offsets.

within 1 hour     10:00    10:30    11:00    11:30    12:00
K                   a        b                 c               b is a duplicate of a; c is more than an hour after a
"""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.testing import JobDriver, SimulatedCrash

orders = hw.topic(
    "orders",
    schema="shop STRING, number INT, at TIMESTAMP, cents INT",
    event_time="at",
    watermark="30 minutes",
)
people = hw.topic(
    "people",
    schema="tags ARRAY<ARRAY<INT>>, who STRUCT<first: STRING, last: STRING>, size ARRAY<DOUBLE>, at TIMESTAMP",
    event_time="at",
    watermark="30 minutes",
)
AT = "2013-01-01T13:00:00+00:00"


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_key(["shop", "number"], within="1 hour"))
@hw.check("paid", "cents > 0")
def clean(orders: DataFrame) -> DataFrame:
    return orders.filter("cents < 1000").select("at", "cents")  # the key need not be in the table


def order(time: str, shop: str | None, number: int | None, cents: int = 5) -> dict[str, Any]:
    return {"shop": shop, "number": number, "at": f"2013-01-01T{time}:00Z", "cents": cents}


def test_by_key_rows_of_one_key_within_the_bound_count_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(clean)
    first = [
        order("10:30", "a", 1),  # 0: after 2 in time, so a duplicate of it
        order("10:30", "a", 2),  # 1
        order("10:00", "a", 1),  # 2
        order("10:00", "a", None),  # 3
        order("10:00", None, None),  # 4: neither 3 nor 5
        order("10:00", None, 1),  # 5
        order("10:05", None, None),  # 6: NULL equals NULL, so a duplicate of 4
        order("10:00", "b", 1, 5000),  # 7: filtered by the function, known as a key all the same
        order("10:00", "c", 1, 0),  # 8: quarantined, so not known
    ]
    driver.send("orders", *first, timestamp=AT)
    driver.run()
    second = [
        order("11:00", "a", 1),  # 9: an hour after 2, the bound itself counts
        order("11:01", "a", 1),  # 10: 9 was not kept
        order("10:01", "b", 1),  # 11: a duplicate of 7
        order("10:01", "c", 1),  # 12
    ]
    driver.send("orders", *second, timestamp=AT)
    driver.crash_at("before commit")
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()
    driver.send("orders", order("11:02", "a", 1), order("11:02", "d", 1), timestamp=AT)  # 13, 14
    driver.crash_at("after commit")
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()
    assert driver.rows("silver.orders", "_offset") == sorted(
        [(n,) for n in (1, 2, 3, 4, 5, 10, 12, 14)], key=repr
    )
    assert [dict(entry.totals) for entry in driver.ledger("silver.orders")] == [
        {"read": 9, "written": 5, "filtered": 1, "duplicate": 2, "quarantined": 1},
        {"read": 4, "written": 2, "filtered": 0, "duplicate": 2, "quarantined": 0},
        {"read": 2, "written": 1, "filtered": 0, "duplicate": 1, "quarantined": 0},
    ]
    assert [finding for audit in audit_home(driver.home) for finding in audit.findings] == []
    with pytest.raises(
        backfill.BackfillError,
        match=r"'clean' removes duplicates by key, and which of them it kept.* --rebuild",
    ):
        backfill.plan(driver.context, bind(clean))
    assert backfill.plan_rebuild(driver.context, bind(clean)).tables == (
        "silver.orders__quarantine",
        "silver.orders",
    )
    files = sorted((driver.home.checkpoint("clean", 1) / "keys").iterdir())
    assert [file.name for file in files] == ["0.arrow", "1.arrow", "2.arrow"]

    # Far later the first three batches' keys are of no use but to put the job back; then one that is needed is lost.
    driver.send("orders", order("23:00", "a", 1), timestamp=AT)
    driver.run()
    driver.send("orders", order("23:01", "a", 1), timestamp=AT)
    driver.run()
    assert backfill.plan_rewind(driver.context, bind(clean), version=2).batch == 1, "its keys are kept"
    (driver.home.checkpoint("clean", 1) / "keys" / "3.arrow").unlink()
    driver.send("orders", order("23:02", "a", 1), timestamp=AT)
    with pytest.raises(
        DamagedFileError, match=r"3.arrow is gone, without which .*: headwater jobs rebuild clean"
    ):
        driver.run()


@pytest.mark.story
def test_by_key_that_cannot_be_is_refused(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.wrong"), dedup=hw.by_key(["shopp"], within="1 hour"))
    def wrong(orders: DataFrame) -> DataFrame:
        return orders

    with pytest.raises(
        JobDefinitionError, match="by_key: no column 'shopp' in the input; there are shop, number"
    ):
        plan_jobs(drive().context, [bind(wrong)])


def test_by_key_of_lists_and_structs_compares_all_that_is_in_them(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.people"), dedup=hw.by_key(["tags", "who", "size"], within="1 hour"))
    def once(people: DataFrame) -> DataFrame:
        return people

    keys: list[tuple[Any, Any, Any]] = [
        ([[1, 2]], None, None),
        ([[1], [2]], None, None),
        ([[1, None], [2]], None, None),
        ([[1, 2], []], None, None),
        ([[1, 2], None], None, None),
        ([], None, None),
        (None, None, None),
        (None, {"first": None, "last": None}, None),
        (None, {"first": "a", "last": None}, None),
        (None, {"first": None, "last": "a"}, None),
        (None, None, ["NaN", 0.0]),
        (None, None, [0.0, "NaN"]),
    ]
    again = [*keys[:-2], (None, None, ["NaN", -0.0]), (None, None, [-0.0, "NaN"])]
    driver = drive(once)
    for sent in (keys, again):
        rows = [
            {"tags": tags, "who": who, "size": size, "at": "2013-01-01T10:00:00Z"} for tags, who, size in sent
        ]
        driver.send("people", *rows, timestamp=AT)
        driver.run()
    assert [offset for (offset,) in driver.rows("silver.people", "_offset")] == sorted(
        range(len(keys)), key=lambda offset: repr((offset,))
    )


@pytest.mark.parametrize("kind", ["MAP<STRING, INT>", "ARRAY<MAP<STRING, INT>>", "VARIANT"])
def test_by_key_of_what_cannot_be_compared_is_refused(
    drive: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    declared = hw.topic("odd", schema=f"tags {kind}, at TIMESTAMP", event_time="at", watermark="30 minutes")
    monkeypatch.setitem(globals(), "odd", declared)

    @hw.job(target=hw.delta("silver.odd"), dedup=hw.by_key(["tags"], within="1 hour"))
    def wrong(odd: DataFrame) -> DataFrame:
        return odd

    with pytest.raises(
        JobDefinitionError, match=r"by_key: 'tags' is .*, and neither a MAP nor a VARIANT can be compared"
    ):
        plan_jobs(drive().context, [bind(wrong)])
