"""Repairs of windows that overlap, and of windows that are written once they are closed.

departed_at  10:00  10:05  10:25  10:59  11:40  12:30   the watermark is 12:00 when the next come:
             10:30 (late for all its windows)  11:50 (late for those that end by 12:00)  12:35  14:00
It is 13:30 when the last come: 10:31  14:10 (filtered)  15:20
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError, BackfillPlan, Verdict
from headwater_streams.ledger.log import next_commit
from headwater_streams.operators.windows.grouping import Windowed
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay INT",
    event_time="departed_at",
    watermark="30 minutes",
)
DAY = datetime(2013, 1, 1)
HOUR, STEP = timedelta(hours=1), timedelta(minutes=20)
Window = tuple[datetime, datetime]
Event = tuple[str, str, int]

FIRST: list[Event] = [
    ("10:00", "UA", 400), ("10:05", "DL", 5), ("10:25", "UA", 1), ("10:59", "UA", 300), ("11:40", "DL", 7),
    ("12:30", "UA", 2),
]  # fmt: skip
SECOND: list[Event] = [("10:30", "UA", 500), ("11:50", "DL", 200), ("12:35", "UA", 3), ("14:00", "UA", 4)]
THIRD: list[Event] = [("10:31", "UA", 9), ("14:10", "DL", 600), ("15:20", "UA", 1)]


def hopping(rows: DataFrame) -> Windowed:
    return hw.hopping(rows, "departed_at", "1 hour", "20 minutes", by=["carrier"])


def cumulative(rows: DataFrame) -> Windowed:
    return hw.cumulative(rows, "departed_at", "1 hour", "20 minutes", by=["carrier"])


def hopping_of(time: datetime) -> list[Window]:
    last = time - (time - DAY) % STEP
    return [(last - n * STEP, last - n * STEP + HOUR) for n in range(3)]


def cumulative_of(time: datetime) -> list[Window]:
    start = time - (time - DAY) % HOUR
    return [(start, start + n * STEP) for n in (1, 2, 3) if time < start + n * STEP]


KINDS: Mapping[str, tuple[Callable[[DataFrame], Windowed], Callable[[datetime], list[Window]]]] = {
    "hopping": (hopping, hopping_of),
    "cumulative": (cumulative, cumulative_of),
}


def job_of(kind: str, mode: Literal["append", "update"], delay: Callable[[], Column]) -> Job:
    windowed, keys = KINDS[kind][0], ["carrier", "window_start", "window_end"] if mode == "update" else []

    @hw.job(name="delays", target=hw.delta("gold.delays", keys=keys, mode=mode))
    def delays(departures: DataFrame) -> DataFrame:
        known = departures.filter("delay < 600")
        return windowed(known).agg(F.count("*").alias("departures"), F.max(delay()).alias("max_delay"))

    return bind(delays)


def cut(kind: str, mode: Literal["append", "update"]) -> Job:
    """The job with a mistake: no delay is longer than 100 minutes."""
    return job_of(kind, mode, lambda: F.least("delay", F.lit(100)))


def mended(kind: str, mode: Literal["append", "update"]) -> Job:
    return job_of(kind, mode, lambda: F.col("delay"))


def at(clock: str) -> datetime:
    return DAY + timedelta(hours=int(clock[:2]), minutes=int(clock[3:]))


def whole(kind: str, *events: Event) -> dict[tuple[str, Window], tuple[int, int]]:
    """The windows of events, by hand."""
    found: dict[tuple[str, Window], tuple[int, int]] = {}
    for clock, carrier, delay in events:
        for window in KINDS[kind][1](at(clock)) if delay < 600 else []:
            count, most = found.get((carrier, window), (0, 0))
            found[carrier, window] = (count + 1, max(most, delay))
    return found


def windows(driver: JobDriver) -> dict[tuple[str, Window], tuple[int, int]]:
    rows = driver.table("gold.delays").collect()
    found = {
        (r["carrier"], (r["window_start"], r["window_end"])): (r["departures"], r["max_delay"]) for r in rows
    }
    assert len(found) == len(rows), "no window stands there twice"
    return found


def send(driver: JobDriver, *events: Event) -> None:
    told = [{"carrier": c, "departed_at": f"2013-01-01T{t}:00Z", "delay": d} for t, c, d in events]
    driver.send("departures", *told, timestamp="2013-01-01T16:00:00Z")
    driver.run()


def repaired(driver: JobDriver, planned: BackfillPlan, job: Job) -> Verdict:
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    assert "recomputed" in [finding.name for finding in verdict.findings], verdict.notes
    backfill.swap(driver.context, planned.id, accept_diff=verdict.diff.digest)
    assert driver.audit() == []
    return verdict


def one_batch(driver: JobDriver) -> None:
    send(driver, *FIRST)


def two_batches(driver: JobDriver) -> None:
    send(driver, *FIRST)
    send(driver, *SECOND)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("cumulative", "update"), ("hopping", "append")],
)
def test_repaired_windows_are_those_of_all_their_rows(
    ready: Callable[..., JobDriver], kind: str, mode: Literal["append", "update"]
) -> None:
    driver, job = ready(one_batch, cut(kind, mode)), mended(kind, mode)
    if mode == "append":
        with pytest.raises(BackfillError, match="are not all closed yet, so they are not in"):
            backfill.plan(driver.context, job)
    send(driver, *SECOND)
    before, right = windows(driver), whole(kind, *FIRST, *SECOND)
    assert before != {name: right[name] for name in before}, "late rows are missing, and delays are cut"

    planned = backfill.plan(
        driver.context,
        job,
        event_time=("2013-01-01T10:10:00Z", "2013-01-01T10:45:00Z"),
        rows_per_chunk=2,
    )
    first = {"hopping": "09:20", "cumulative": "10:00"}[kind]
    (span,) = planned.windows
    assert span == (micros(at(first)), micros(at("11:00")))
    assert len(planned.chunks) == {"hopping": 5, "cumulative": 1}[kind]
    driver.crash_at("after chunk")
    with pytest.raises(SimulatedCrash):
        backfill.run(driver.context, planned.id, job)
    verdict = repaired(driver, planned, job)
    touched = {name for name in right if at(first) <= name[1][0] < at("11:00")}
    mixed = {name: right[name] if name in touched else before[name] for name in (*before, *touched)}
    assert windows(driver) == mixed
    assert verdict.accounting["read"] == 5, "each row once"
    assert verdict.accounting["late_folded"] == len(missed_of(kind, touched))

    # The live job goes on; what was folded in is not late again, and what came since is.
    send(driver, *THIRD)
    right = whole(kind, *FIRST, *SECOND, *THIRD)
    everything = backfill.plan(driver.context, job)
    verdict = repaired(driver, everything, job)
    assert verdict.accounting["filtered"] == (mode == "update"), (
        "of an open window of a closing job nothing is read"
    )
    expected = right if mode == "update" else {n: v for n, v in right.items() if n in windows(driver)}
    assert windows(driver) == expected
    if mode == "append":
        ends = {end for _, (_, end) in right}
        assert {end for _, (_, end) in expected} == {end for end in ends if end <= at("13:30")}
    send(driver, ("18:00", "UA", 1))
    send(driver, ("18:01", "UA", 1))
    assert {n: v for n, v in windows(driver).items() if n in expected} == expected
    assert driver.audit() == []


def micros(time: datetime) -> int:
    return round((time - datetime(1970, 1, 1)) / timedelta(microseconds=1))


def missed_of(kind: str, touched: set[tuple[str, Window]]) -> list[Any]:
    """The pairs of a late row and a window among these that was closed when it came: the watermark was 12:00."""
    pairs = [(carrier, window) for clock, carrier, _ in SECOND for window in KINDS[kind][1](at(clock))]
    return [pair for pair in pairs if pair in touched and pair[1][1] <= at("12:00")]


def test_windows_that_were_closed_since_a_version_hold_rows_of_before_it(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(one_batch, cut("cumulative", "append")), mended("cumulative", "append")
    version = next_commit(driver.home.table("gold.delays")) - 1
    send(driver, ("18:00", "UA", 1))
    send(driver, ("18:01", "UA", 1))
    planned = backfill.plan(driver.context, job, since_version=version)
    assert planned.windows[0][0] == micros(at("10:00"))
    repaired(driver, planned, job)
    assert windows(driver) == whole("cumulative", *FIRST)


def test_older_repair_of_windows_is_not_taken_back_from_under_a_newer_one(
    ready: Callable[..., JobDriver],
) -> None:
    """The late rows that it had folded in counted as those of the newer one, and no repair folded them in again."""
    job = mended("hopping", "update")
    driver = ready(two_batches, job)
    before, right = windows(driver), whole("hopping", *FIRST, *SECOND)
    older = backfill.plan(driver.context, job, rows="late")
    repaired(driver, older, job)
    assert windows(driver) == right
    newer = backfill.plan(driver.context, job, event_time=("2013-01-01T09:00:00Z", "2013-01-01T11:00:00Z"))
    repaired(driver, newer, job)
    with pytest.raises(BackfillError, match=f"roll '{newer.id}' back first"):
        backfill.rollback(driver.context, older.id)
    backfill.rollback(driver.context, newer.id)
    backfill.rollback(driver.context, older.id)
    assert windows(driver) == before
    repaired(driver, backfill.plan(driver.context, job, rows="late"), job)
    assert windows(driver) == right
