"""What a backfill wrote beside what is recomputed from the raw topic: a wrong value that nothing else sees is found.

offset       0      1      2      3      4      5      6      7
departed_at  10:00  10:05  10:59  12:01  bad    12:40  10:30  11:55    the watermark is 12:10 when 6 and 7 come:
                                                       late   late, but for a window from 11:30 to 12:30
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import Finding, Verdict
from headwater_streams.backfill.rebuild.running import shadow_context
from headwater_streams.backfill.recompute import (
    Recompute,
    Recomputed,
    recompute_rebuild,
    recompute_repair,
    sampling,
)
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.base.errors import UnavailableError
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay DOUBLE",
    event_time="departed_at",
    watermark="30 minutes",
)


@hw.job(target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"))
@hw.check("known", "carrier IS NOT NULL", on="input", action="quarantine")
def delays(departures: DataFrame) -> DataFrame:
    late = departures.filter("delay > 0")
    return hw.tumbling(late, "departed_at", "1 hour", by=["carrier"]).agg(F.sum("delay").alias("total"))


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset(origin=True))
@hw.check("known", "carrier IS NOT NULL", action="quarantine")
def clean(departures: DataFrame) -> DataFrame:
    return departures.filter("delay > 0").withColumn("draw", F.rand())


@hw.job(target=hw.delta("gold.hops", keys=["window_start"], mode="update"))
def hops(departures: DataFrame) -> DataFrame:
    return hw.hopping(departures, "departed_at", "1 hour", "30 minutes").agg(F.sum("delay").alias("total"))


AT = "2013-01-01T14:00:00Z"
OF_THE_DAY = "a job whose rows depend on the day they are made is verified with --recompute none"


def event(time: str, carrier: str | None, delay: float) -> dict[str, object]:
    return {"carrier": carrier, "departed_at": f"2013-01-01T{time}:00Z", "delay": delay}


def two_batches(driver: JobDriver) -> None:
    def send(*events: dict[str, object], origin: int) -> None:
        driver.send("departures", *events, timestamp=AT, origin=("east", "dep", 0, origin))
        driver.run()

    first = [event("10:00", "UA", 0.1), event("10:05", "DL", 5), event("10:59", "UA", 0.2)]
    send(*first, event("12:01", "UA", 3), event("12:02", None, 0), event("12:40", "UA", -1), origin=0)
    send(event("10:30", "UA", 0.3), event("11:55", "UA", 7), origin=6)


def recomputed(verdict: Verdict) -> Finding:
    (found,) = [finding for finding in verdict.findings if finding.name == "recomputed"]
    return found


def broken(verdict: Verdict) -> list[str]:
    return [finding.name for finding in verdict.findings if not finding.ok]


def table_at(driver: JobDriver, path: Path) -> DataFrame:
    return driver.context.spark.read.format("delta").load(str(path))


def tamper(table: Path, column: str, value: str, where: str) -> None:
    """Another value in a row, by a commit that says nothing."""
    changed = DeltaTable(str(table)).update(updates={column: value}, predicate=where)
    assert changed["num_updated_rows"] == 1


def test_recompute_of_windows_finds_a_changed_sum_in_a_repair(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(two_batches, delays), bind(delays)
    context = driver.context
    planned = backfill.plan(context, job)
    backfill.run(context, planned.id, job)
    shadow = BackfillFolder(driver.home, planned.id).shadow
    part = plan_jobs(context, [job])[-1]
    (found,) = recompute_repair(context, job, part, planned, table_at(driver, shadow), "sample").findings
    detail = "4 of 4 windows from 8 of 8 offsets of departures"
    assert (found.ok, found.detail) == (True, f"{detail}, as they are written")
    tamper(shadow, "total", "0.7", "carrier = 'UA' AND window_start < '2013-01-01T11:00:00Z'")
    verdict = backfill.verify(context, planned.id, job, recompute="none")
    assert verdict.passed, "nothing else sees it"
    assert (
        "nothing was recomputed from the raw topic: it was not asked for (--recompute none)" in verdict.notes
    )
    verdict = backfill.verify(context, planned.id, job, recompute="all")
    assert broken(verdict) == ["recomputed"]
    assert recomputed(verdict).detail.startswith(
        f"{detail}: rows differ: total of 1; for example carrier=UA, window_start=2013-01-01T10:00:00.000000Z: total "
        "0.7 is written, 0.6"
    )
    with pytest.raises(backfill.BackfillError, match=r"did not pass \(recomputed: 4 of 4 windows"):
        backfill.swap(context, planned.id)

    # Late rows are folded in by a repair, and left out by a rebuild.
    rebuilt = backfill.plan_rebuild(context, job)
    backfill.run(context, rebuilt.id, job)
    home = shadow_context(context, BackfillFolder(driver.home, rebuilt.id), rebuilt).home
    made = table_at(driver, home.table("gold.delays"))
    (found,) = recompute_rebuild(context, home, job, part, rebuilt, made, "sample").findings
    assert (found.ok, found.detail[:6]) == (True, "3 of 3"), found


def test_recompute_of_rows_leaves_copies_and_bad_records_out_and_finds_a_changed_value(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(two_batches, clean), bind(clean)
    driver.resend("departures", 1, as_new=True)
    driver.run()
    context = driver.context
    planned = backfill.plan(context, job, offsets={"departures": {0: (1, 9)}})
    backfill.run(context, planned.id, job)
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    detail = "5 rows from 8 of 8 offsets of departures"
    assert recomputed(verdict).detail == f"{detail}, as they are written"
    assert verdict.accounting["duplicate"] == 1, "in the last of three batches, the only one that has any"
    drawn = "recomputed, but not compared, since it comes out otherwise each time: draw"
    assert verdict.notes[-1] == drawn
    shadow = BackfillFolder(driver.home, planned.id).shadow
    tamper(shadow, "delay", "0.30000000001", "_offset = 6")
    DeltaTable(str(shadow)).delete("_offset = 7")
    verdict = backfill.verify(context, planned.id, job)
    assert broken(verdict) == ["recomputed"]
    place = "for example _topic=departures, _partition=0, _offset=6: delay 0.30000000001 is written, 0.3 recomputed"
    assert recomputed(verdict).detail == (
        f"{detail}: 1 recomputed row not written; rows differ: delay of 1; {place}; {OF_THE_DAY}"
    )

    (found,) = plan_jobs(context, [job])

    def again(how: Recompute = "sample") -> Recomputed:
        return recompute_repair(context, job, found, planned, table_at(driver, shadow), how)

    nothing = "nothing was recomputed from the raw topic"
    assert again("none").notes == (f"{nothing}: it was not asked for (--recompute none)",)

    # Retention has come since: what is still there is recomputed.
    driver._log.partitions = lambda topic: {0: (7, 9)}  # type: ignore[method-assign]
    rest = again()
    assert rest.notes[0] == "7 of 8 offsets are gone from departures; what came of them was not recomputed"
    assert rest.findings[0].detail == "0 rows from 1 of 8 offsets of departures, as they are written"

    def silent(topic: str) -> dict[int, tuple[int, int]]:
        raise UnavailableError("the broker does not answer")

    driver._log.partitions = silent  # type: ignore[method-assign]
    assert again().notes == (f"{nothing}: the broker does not answer",)


@pytest.mark.story
def test_recompute_of_overlapping_windows_leaves_late_rows_out_of_those_that_lack_them_in_a_rebuild(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, job = ready(two_batches, hops), bind(hops)
    context = driver.context
    planned = backfill.plan_rebuild(context, job)
    backfill.run(context, planned.id, job)
    home = shadow_context(context, BackfillFolder(driver.home, planned.id), planned).home
    part = plan_jobs(context, [job])[-1]
    rows = table_at(driver, home.table("gold.hops"))
    late = table_at(driver, home.table("gold.hops__late")).select("_offset", F.size("_missed")).collect()
    assert sorted(map(tuple, late)) == [(6, 2), (7, 1)]
    # A sample: whole windows that lie together.
    monkeypatch.setattr(sampling, "LEAST", 5)
    (found,) = recompute_rebuild(context, home, job, part, planned, rows, "sample").findings
    assert found.ok, found
    assert re.match(r"[1-9] of \d+ windows from [1-5] of 8 offsets of departures, as", found.detail), found

    tamper(home.table("gold.hops"), "total", "1e9", "window_start = '2013-01-01T11:30:00Z'")
    verdict = backfill.verify(context, planned.id, job, recompute="all")
    assert broken(verdict) == ["recomputed"]
    made = verdict.diff.unchanged + 1
    assert recomputed(verdict).detail == (
        f"{made} of {made} windows from 8 of 8 offsets of departures: rows differ: total of 1; for example "
        f"window_start=2013-01-01T11:30:00.000000Z: total 1000000000.0 is written, 10.0 recomputed; {OF_THE_DAY}"
    )
