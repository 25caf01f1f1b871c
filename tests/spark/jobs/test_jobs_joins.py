"""Joining jobs: pairs within the bound, what waits, what expired, what was late.

departed_at   10:00 a      10:30 b                      landed_at   12:00 a
within 24 hours; delay 8 hours: a row waits until no partner can come any more.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from headwater_streams.base.errors import CheckFailedError
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="flight_id STRING, departed_at TIMESTAMP",
    event_time="departed_at",
    watermark="8 hours",
)
arrivals = hw.topic(
    "arrivals", schema="flight_id STRING, landed_at TIMESTAMP", event_time="landed_at", watermark="8 hours"
)


@hw.job(target=hw.delta("gold.flights"), dedup=hw.by_offset())
def flights(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    return hw.join(
        departures,
        arrivals,
        on=["flight_id"],
        left_time="departed_at",
        right_time="landed_at",
        within="24 hours",
    )


AT = "2013-01-10T00:00:00+00:00"


def departure(flight: str, time: str) -> dict[str, str]:
    return {"flight_id": flight, "departed_at": f"2013-01-{time}:00Z"}


def ms(time: str) -> int:
    return round(datetime.fromisoformat(f"{time}+00:00").timestamp() * 1000)


def arrival(flight: str, time: str) -> dict[str, str]:
    return {"flight_id": flight, "landed_at": f"2013-01-{time}:00Z"}


def test_join_job_accounts_for_commits_of_its_inputs_that_brought_no_row(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(flights)
    driver.send("departures", departure("a", "01T10:00"), timestamp=AT)
    driver.run()
    driver.send("departures", {"departed_at": "no time"}, timestamp=AT)
    driver.run()
    driver.send("departures", departure("b", "01T10:30"), timestamp=AT)
    driver.send("arrivals", arrival("b", "01T12:00"), timestamp=AT)
    driver.run()
    assert driver.rows("gold.flights", "flight_id") == [("b",)]
    assert driver.audit() == []


def test_join_job_pairs_waiting_expired_and_late_rows_add_up(drive: Callable[..., JobDriver]) -> None:
    driver = drive(flights)
    driver.send("departures", departure("a", "01T10:00"), departure("b", "01T10:30"), timestamp=AT)
    driver.send("arrivals", arrival("a", "01T12:00"), timestamp=AT)
    driver.run()
    (entry,) = [e for e in driver.ledger("gold.flights") if e.accounting["departures"]["read"]]
    assert entry.accounting["departures"] == {
        "read": 2, "matched": 1, "waiting": 1, "expired": 0, "filtered": 0, "late": 0, "quarantined": 0,
    }  # fmt: skip
    # Four days on, b's partner can no longer come; c departs so late that its state is gone.
    driver.send("departures", departure("d", "05T10:00"), timestamp=AT)
    driver.send("arrivals", arrival("d", "05T12:00"), timestamp=AT)
    driver.run()
    driver.send("departures", departure("c", "01T11:00"), departure("e", "05T11:00"), timestamp=AT)
    driver.send("arrivals", arrival("e", "05T13:00"), timestamp=AT)
    driver.run()
    assert driver.rows("gold.flights", "flight_id", "_offset") == [("a", 0), ("d", 2), ("e", 4)]
    (pair,) = [row for row in driver.table("gold.flights").collect() if row["flight_id"] == "d"]
    assert [tuple(r) for r in pair["_sources"]] == [("departures", 0, 2, 3), ("arrivals", 0, 1, 2)]
    assert driver.rows("gold.flights__late", "flight_id", "_input") == [("c", "departures")]
    entries = driver.ledger("gold.flights")
    assert not [sentence for entry in entries for sentence in entry.imbalances()]
    totals = {
        term: sum(e.accounting["departures"][term] for e in entries)
        for term in ("read", "matched", "waiting", "expired", "late")
    }
    assert totals == {"read": 5, "matched": 3, "waiting": 0, "expired": 1, "late": 1}


def test_join_job_crash_gives_each_pair_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(flights)
    pairs: list[tuple[str]] = []
    for flight, step in (("a", "before commit"), ("b", "after commit")):
        driver.send("departures", departure(flight, "01T10:00"), timestamp=AT)
        driver.send("arrivals", arrival(flight, "01T12:00"), timestamp=AT)
        driver.crash_at(step, "flights")
        with pytest.raises(SimulatedCrash):
            driver.run()
        driver.run()
        pairs.append((flight,))
        assert driver.rows("gold.flights", "flight_id") == pairs, step


@pytest.mark.parametrize("late", ["table", "count"])
def test_join_job_takes_aside_what_a_check_of_one_side_rejects(
    drive: Callable[..., JobDriver], late: Literal["table", "count"]
) -> None:
    @hw.job(target=hw.delta("gold.flights"), late=late)
    @hw.check("departed_in_2013", "departed_at >= '2013-01-01'")
    @hw.check("landed_in_2013", "landed_at >= '2013-01-01'")
    @hw.check("named", "flight_id IS NOT NULL")
    def of_2013(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
        return flights(departures, arrivals)

    driver = drive(of_2013)
    old = {"flight_id": "o", "departed_at": "2012-12-31T23:00:00Z", "landed_at": "2012-12-31T23:30:00Z"}
    nobody = {"departed_at": "2013-01-01T10:00:00Z", "landed_at": "2013-01-01T10:30:00Z"}
    driver.send("departures", departure("a", "01T10:00"), old, nobody, timestamp=AT)
    driver.send("arrivals", arrival("a", "01T12:00"), old, nobody, timestamp=AT)
    driver.run()
    assert driver.rows("gold.flights", "flight_id") == [("a",)]
    assert driver.rows("gold.flights__quarantine", "_check", "_topic", "_offset") == [
        ("departed_in_2013", "departures", 1), ("landed_in_2013", "arrivals", 1),
        ("named", "arrivals", 2), ("named", "departures", 2),
    ]  # fmt: skip
    assert driver.audit() == []


@pytest.mark.story
def test_join_job_whose_sides_come_in_different_runs_ends_as_one_run_over_all(
    drive: Callable[..., JobDriver], closing_batches: None
) -> None:
    """Spark forgets each side's watermark when a query ends, and a side without rows then counts as 1970."""

    @hw.job(target=hw.delta("gold.flights"), late="count")
    def landed(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
        return hw.join(
            departures, arrivals, on=["flight_id"], how="left", left_time="departed_at", right_time="landed_at",
            within="24 hours",
        )  # fmt: skip

    driver = drive(landed)
    driver.send("departures", departure("a", "01T10:00"), departure("b", "01T10:30"), timestamp=AT)
    driver.send("arrivals", arrival("a", "01T12:00"), timestamp=AT)
    driver.run()
    driver.send("departures", departure("c", "03T10:00"), timestamp=AT)
    driver.run()
    assert driver.rows("gold.flights", "flight_id") == [("a",)]
    told = driver.ledger("gold.flights")[-1].input_watermarks_ms
    assert told == {"departures": ms("2013-01-03T02:00"), "arrivals": ms("2013-01-01T04:00")}
    driver.send("arrivals", arrival("c", "03T11:00"), timestamp=AT)
    driver.run()
    found = driver.table("gold.flights").selectExpr("flight_id", "landed_at IS NULL").collect()
    assert sorted(map(tuple, found)) == [("a", False), ("b", True), ("c", False)]
    assert driver.audit() == []


offers = hw.topic("offers", schema="k STRING, at TIMESTAMP", event_time="at", watermark="8 hours")
bids = hw.topic("bids", schema="k STRING, at TIMESTAMP", event_time="at", watermark="8 hours")


@hw.job(target=hw.delta("gold.offered"))
def offered(offers: DataFrame, bids: DataFrame) -> DataFrame:
    opened = offers.withColumnRenamed("at", "opened_at")
    return hw.join(opened, bids, on=["k"], left_time="opened_at", right_time="at", within="24 hours")


def test_join_job_whose_inputs_call_their_time_alike_accounts_for_each_on_its_side(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(offered)
    driver.send("offers", *[{"k": k, "at": "2013-01-01T10:00:00Z"} for k in "abc"], timestamp=AT)
    driver.send("bids", *[{"k": "a", "at": f"2013-01-01T1{hour}:00:00Z"} for hour in "12"], timestamp=AT)
    driver.run()
    (entry,) = [e for e in driver.ledger("gold.offered") if e.accounting["bids"]["read"]]
    assert entry.extra["sides"] == {"offers": "left", "bids": "right"}
    matched = {name: (terms["matched"], terms["waiting"]) for name, terms in entry.accounting.items()}
    assert matched == {"bids": (2, 0), "offers": (1, 2)}
    assert entry.imbalances() == []


@hw.job(target=hw.delta("gold.checked"), dedup=hw.by_offset())
@hw.check("no_test_flights", "departed_at < '2013-02-01'", on="input", action="fail")
@hw.check("early", "landed_at < '2013-01-03'", on="input", action="warn")
@hw.check("short", "landed_at < departed_at + INTERVAL 3 HOURS", action="warn")
def checked(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    return flights(departures, arrivals)


def test_join_job_judges_the_rows_of_the_input_that_a_check_names(drive: Callable[..., JobDriver]) -> None:
    driver = drive(checked)
    driver.send("departures", departure("a", "05T10:00"), timestamp=AT)
    driver.send("arrivals", arrival("a", "05T14:00"), timestamp=AT)
    driver.run()
    warnings = [told for entry in driver.ledger("gold.checked") for told in entry.extra.get("warnings", [])]
    assert [told.partition(" the check ")[2] for told in warnings] == [
        "'early' (landed_at < '2013-01-03')",
        "'short' (landed_at < departed_at + INTERVAL 3 HOURS)",
    ]
    driver.send(
        "departures",
        {"flight_id": "t", "departed_at": "2013-02-02T10:00:00Z"},
        timestamp="2013-02-03T00:00:00Z",
    )
    with pytest.raises(CheckFailedError, match="1 row fails the check 'no_test_flights'"):
        driver.run()
    assert driver.rows("gold.checked", "flight_id") == [("a",)]
