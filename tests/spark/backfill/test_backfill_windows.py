"""Backfills of a windowed job: whole windows folded again, late rows folded in, one commit there and one back.

departed_at   10:00      11:00      12:00      13:00
               |-- 10 ----|-- 11 ----|-- 12 ----|
first run      a b                     d           watermark 11:31 closes window 10
second run       L          c                      L is late: gold.delays__late
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
    event_time="departed_at",
)
departed = hw.table("silver.departures", event_time="departed_at", watermark="30 minutes")


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset())
def clean(departures: DataFrame) -> DataFrame:
    return departures


@hw.job(target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"))
def delays(departed: DataFrame) -> DataFrame:
    return hw.tumbling(departed, "departed_at", "1 hour", by=["carrier"]).agg(
        F.count("*").alias("departures"), F.max(F.least("delay_minutes", F.lit(100))).alias("max_delay")
    )


def mended() -> Job:
    @hw.job(name="delays", target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"))
    @hw.check("counts", "departures > 0", on="output", action="fail")
    def delays(departed: DataFrame) -> DataFrame:
        return hw.tumbling(departed, "departed_at", "1 hour", by=["carrier"]).agg(
            F.count("*").alias("departures"), F.max("delay_minutes").alias("max_delay")
        )

    return bind(delays)


def by_half_hour() -> Job:
    @hw.job(name="delays", target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"))
    def delays(departed: DataFrame) -> DataFrame:
        return hw.tumbling(departed, "departed_at", "30 minutes", by=["carrier"]).agg(
            F.count("*").alias("departures"), F.max("delay_minutes").alias("max_delay")
        )

    return bind(delays)


AT = "2013-01-01T13:00:00+00:00"
CUT = [("DL", 10, 1, 5), ("UA", 10, 2, 100), ("UA", 11, 1, 9), ("UA", 12, 1, 100)]
STILL_OPEN = "headwater backfill plan delays --event-time 2013-01-01T11:00:00Z 2013-01-01T13:00:00Z"
MENDED = [("DL", 10, 1, 5), ("UA", 10, 3, 500), ("UA", 11, 1, 9), ("UA", 12, 1, 300)]


def event(time: str, carrier: str, delay: int) -> dict[str, object]:
    return {"carrier": carrier, "departed_at": f"2013-01-01T{time}:00Z", "delay_minutes": delay}


def two_batches(driver: JobDriver) -> None:
    first = [event("10:00", "UA", 400), event("10:05", "DL", 5), event("10:59", "UA", 1)]
    driver.send("departures", *first, event("12:01", "UA", 300), timestamp=AT)
    driver.run()
    driver.send("departures", event("10:30", "UA", 500), event("11:31", "UA", 9), timestamp=AT)
    driver.run()
    assert windows(driver) == CUT
    assert len(driver.rows("gold.delays__late")) == 1


def windows(driver: JobDriver) -> list[tuple[Any, ...]]:
    found = driver.table("gold.delays").collect()
    return sorted((r["carrier"], r["window_start"].hour, r["departures"], r["max_delay"]) for r in found)


def test_window_backfill_of_everything_folds_late_rows_in_and_rolls_back(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(two_batches, clean, delays), mended()
    context, home = driver._context, driver.home
    with pytest.raises(
        BackfillError, match=r"operator: Tumbling.*stand in gold.delays; .* plan JOB --rebuild"
    ):
        backfill.plan(context, by_half_hour())
    planned = backfill.plan(context, job)
    assert backfill.plan(context, job).id == planned.id, "the same plan is the same backfill"
    halts = planned.notes[0]
    assert halts.startswith(
        "the repair does not change that job 'delays' cannot go on from its last run: state: "
    )
    assert halts.endswith("--rebuild, or from empty with headwater jobs rebuild delays")
    previewed = backfill.preview(context, planned.id, job)
    assert (previewed.added, previewed.removed, previewed.changed, previewed.unchanged) == (0, 0, 2, 2)
    assert len(previewed.samples["changed"]) == 2
    fewer = backfill.preview(context, planned.id, job, limit=1)
    assert fewer.samples == {"changed": previewed.samples["changed"][:1]}
    assert fewer.digest == previewed.digest
    assert not (home.root / "backfills" / planned.id / "shadow").exists()
    with pytest.raises(BackfillError, match=r"0 of 1 chunk; run it first"):
        backfill.swap(context, planned.id)
    assert backfill.run(context, planned.id, job).state == "done"
    with pytest.raises(BackfillError, match="is not verified as it is now; verify it first"):
        backfill.swap(context, planned.id)
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert verdict.diff.digest == previewed.digest
    assert verdict.accounting == {
        "read": 6, "folded": 6, "filtered": 0, "quarantined": 0, "late_folded": 1, "before": 5,
    }  # fmt: skip
    assert windows(driver) == CUT, "nothing has changed yet"
    with pytest.raises(BackfillError, match=f"has the digest {verdict.diff.digest}, and 0123 was accepted"):
        backfill.swap(context, planned.id, accept_diff="0123")
    assert verdict.notes[1].endswith(f"once they are closed, repair them again: {STILL_OPEN}")
    swapped = backfill.swap(context, planned.id, accept_diff=verdict.diff.digest)
    assert swapped["open"] == ["2013-01-01T11:00:00Z", "2013-01-01T13:00:00Z"]
    assert windows(driver) == MENDED
    assert swapped["proof"] == {"rows_outside": 0, "outside_unchanged": True, "inside_is_the_shadow": True}
    assert backfill.swap(context, planned.id) == swapped
    assert backfill.verify(context, planned.id, job) == verdict
    entry = driver.ledger("gold.delays")[-1]
    assert (entry.kind, entry.accounting["departed"]) == ("backfill", dict(verdict.accounting))
    assert sum(row["_rows"] for row in driver.table("gold.delays").collect()) == 6

    # The live job runs on behind the swap, in the same generation.
    driver.send("departures", event("12:30", "UA", 310), event("10:31", "UA", 7), timestamp=AT)
    driver.run()
    assert len(driver.rows("gold.delays__late")) == 2
    assert windows(driver)[-1] == ("UA", 12, 2, 100), "of an open window it has the old code's state"
    (audited,) = audit_home(home, ["gold.delays"])
    assert audited.ok
    (note,) = audited.notes[1:]
    assert note.startswith("gold.delays: 1 row of windows that were open at the swap of backfill ")
    assert note.endswith(f"once they are closed, repair them again: {STILL_OPEN}")
    again = backfill.plan(context, job, event_time=("2013-01-01T10:10:00Z", "2013-01-01T10:20:00Z"))
    assert "aligned outwards to whole windows: [2013-01-01T10:00:00Z, 2013-01-01T11:00:00Z)" in again.notes[1]
    backfill.run(context, again.id, job)
    second = backfill.verify(context, again.id, job)
    assert second.accounting["late_folded"] == 1, "what the first backfill folded in is not late again"
    assert second.accounting["before"] == 4
    backfill.swap(context, again.id)
    assert windows(driver)[1] == ("UA", 10, 4, 500)
    backfill.rollback(context, again.id)
    assert windows(driver)[1] == ("UA", 10, 3, 500)
    assert [b["state"] for b in backfill.list_backfills(home)] == ["swapped", "rolled back"]
    undone = driver.ledger("gold.delays")[-1].accounting["departed"]
    assert undone == {"folded": 4, "before": 5, "late_folded": -1}
    with pytest.raises(BackfillError, match=r"was rolled back; plan again"):
        backfill.swap(context, again.id)
    with pytest.raises(BackfillError, match="in the affected range changed between version"):
        backfill.rollback(context, planned.id)


def test_window_backfill_of_offsets_over_a_rewritten_input_survives_kill_and_concurrent_writer(
    ready: Callable[..., JobDriver],
) -> None:
    @hw.job(name="clean", target=hw.delta("silver.departures"), dedup=hw.by_offset())
    def doubled(departures: DataFrame) -> DataFrame:
        return departures.withColumn("delay_minutes", F.col("delay_minutes") * 2)

    driver, job = ready(two_batches, clean, delays), mended()
    context, home = driver._context, driver.home
    first = backfill.plan(context, bind(doubled), offsets={"departures": {0: (0, 1)}})
    assert first.feeds == ("delays",)
    backfill.run(context, first.id, bind(doubled))
    assert backfill.verify(context, first.id, bind(doubled)).passed
    swapped_first = backfill.swap(context, first.id)
    assert (swapped_first["feeds"], swapped_first["ranges"]) == (["delays"], {"departures": {"0": [0, 1]}})
    assert driver.rows("silver.departures", "delay_minutes")[-1] == (9,)

    # Offsets 0 to 3 are in the windows of 10 and of 12 o'clock; that of 11 stays as it is.
    planned = backfill.plan(context, job, offsets={"departures": {0: (0, 4)}}, rows_per_chunk=1)
    assert [hours(span) for span in planned.windows] == [(10, 11), (12, 13)]
    assert [hours(chunk.span) for chunk in planned.chunks] == [(10, 12), (12, 13)]
    assert planned.pinned is not None
    assert (planned.pinned.version, planned.pinned.was_rewritten) == (3, True)
    for step in ("before chunk", "after chunk"):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.run(context, planned.id, job)
    assert backfill.run(context, planned.id, job).rows_read == 5
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert verdict.accounting == {
        "read": 5, "folded": 5, "filtered": 0, "quarantined": 0, "late_folded": 1, "before": 4,
    }  # fmt: skip

    updates = [f"UPDATE delta.`{home.table('gold.delays')}` SET max_delay = 77 WHERE hour(window_start) = 11"]

    def somebody_comes_first(_job: str, step: str, _number: int) -> None:
        if step == "before swap" and updates:
            context.spark.sql(updates.pop())

    swapped = backfill.swap(replace(context, step=somebody_comes_first), planned.id)
    repaired = [("DL", 10, 1, 5), ("UA", 10, 3, 800), ("UA", 11, 1, 77), ("UA", 12, 1, 300)]
    assert windows(driver) == repaired
    assert swapped["proof"]["rows_outside"] == 1
    (audited,) = audit_home(home, ["gold.delays"])
    moved = "it accounts for +1 rows, +1 of them late ones"
    assert audited.notes == [f"gold.delays: since the swap of backfill {planned.id} {moved}"]
    driver.send("departures", event("13:30", "UA", 3), timestamp=AT)
    driver.run()
    assert windows(driver) == [*repaired, ("UA", 13, 1, 3)], "the live jobs run on over both swaps"


def hours(span: tuple[int, int] | None) -> tuple[int, int]:
    assert span is not None
    return span[0] // 3_600_000_000 % 24, span[1] // 3_600_000_000 % 24


@pytest.mark.story
def test_window_backfill_mends_a_window_that_stands_twice(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(two_batches, clean, delays), bind(delays)
    table = driver.home.table("gold.delays")
    doubled = (
        driver.table("gold.delays").filter("hour(window_start) = 10 AND carrier = 'UA'").localCheckpoint()
    )
    doubled.write.format("delta").mode("append").save(str(table))
    assert len(windows(driver)) == len(CUT) + 1
    planned = backfill.plan(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    assert [row[:2] for row in windows(driver)] == [row[:2] for row in CUT]
    assert driver.audit() == []


def test_window_backfill_that_keeps_no_row_takes_the_windows_out(ready: Callable[..., JobDriver]) -> None:
    @hw.job(name="delays", target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"))
    def none(departed: DataFrame) -> DataFrame:
        kept = departed.where("1 = 2")  # Spark sees that it is empty
        return hw.tumbling(kept, "departed_at", "1 hour", by=["carrier"]).agg(
            F.count("*").alias("departures"), F.max("delay_minutes").alias("max_delay")
        )

    driver = ready(two_batches, clean, delays)
    planned = backfill.plan(driver.context, bind(none))
    backfill.run(driver.context, planned.id, bind(none))
    verdict = backfill.verify(driver.context, planned.id, bind(none))
    assert verdict.passed, verdict.findings
    assert (verdict.accounting["folded"], verdict.accounting["filtered"]) == (0, 6)
    backfill.swap(driver.context, planned.id)
    assert windows(driver) == []
