"""Repairs of what stands in the side tables: records in quarantine after a mistake was mended, and late rows.

offset        0      1      2        3      4        5
partition 0   10:00  10:10  broken   10:20  early    12:40
partition 1   10:30  broken                                   then, at a watermark of 12:10:  10:50, which is late
"""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError, BackfillPlan, Verdict
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay INT",
    event_time="departed_at",
    watermark="30 minutes",
)
RULE, MENDED = "delay >= 0", "delay > -100"
AT = "2013-01-01T13:00:00Z"


def clean(rule: str) -> Job:
    @hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset())
    @hw.check("plausible", rule)
    def clean(departures: DataFrame) -> DataFrame:
        return departures

    return bind(clean)


def hourly(rule: str) -> Job:
    @hw.job(target=hw.delta("gold.hourly", keys=["carrier", "window_start"], mode="update"))
    @hw.check("plausible", rule, on="input", action="quarantine")
    def hourly(departures: DataFrame) -> DataFrame:
        return hw.tumbling(departures, "departed_at", "1 hour", by=["carrier"]).agg(
            F.count("*").alias("departures"), F.min("delay").alias("least")
        )

    return bind(hourly)


def event(time: str, delay: int = 1) -> dict[str, object]:
    return {"carrier": "UA", "departed_at": f"2013-01-01T{time}:00Z", "delay": delay}


def two_batches(driver: JobDriver) -> None:
    driver.send(
        "departures",
        *(event("10:00"), event("10:10"), b"broken", event("10:20"), event("10:40", -5), event("12:40")),
        timestamp=AT,
    )
    driver.send("departures", event("10:30"), b"broken", partition=1, timestamp=AT)
    driver.run()
    driver.send("departures", event("10:50"), partition=1, timestamp=AT)
    driver.run()


def swapped(driver: JobDriver, planned: BackfillPlan, job: Job) -> Verdict:
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    assert driver.audit() == []
    return verdict


@pytest.mark.story
def test_quarantined_records_are_read_again_with_what_lies_between_them(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(two_batches, clean(RULE)), clean(MENDED)
    planned = backfill.plan(driver.context, job, rows="quarantined")
    assert planned.asked == {"rows": "quarantined"}
    assert planned.ranges == {"departures": {0: (2, 5), 1: (1, 2)}}
    assert planned.notes[-1] == (
        "3 records are in quarantine; what lies between the first and the last of a partition is read again, too"
    )
    verdict = swapped(driver, planned, job)
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (1, 0, 0)
    assert driver.rows("silver.departures", "_partition", "_offset") == [
        *((0, 0), (0, 1), (0, 3), (0, 4), (0, 5)),
        *((1, 0), (1, 2)),
    ]
    assert driver.rows("silver.departures__quarantine", "_partition", "_offset") == [(0, 2), (1, 1)]
    with pytest.raises(BackfillError, match="'clean' has no windows, so no row of it is late"):
        backfill.plan(driver.context, job, rows="late")
    with pytest.raises(
        BackfillError, match="give one of offsets, timestamps, event time, since version and rows"
    ):
        backfill.plan(driver.context, job, rows="late", since_version=0)


def test_records_in_quarantine_that_the_topic_lost_stay_there(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(two_batches, clean(RULE)), clean(MENDED)
    driver._log.partitions = lambda _topic: {0: (3, 6), 1: (0, 3)}  # retention took the beginning
    planned = backfill.plan(driver.context, job, rows="quarantined")
    assert planned.ranges == {"departures": {0: (4, 5), 1: (1, 2)}}
    assert planned.notes[-1] == "1 more is gone from the topic, and stay in quarantine with their bytes"
    swapped(driver, planned, job)
    assert driver.rows("silver.departures__quarantine", "_partition", "_offset") == [(0, 2), (1, 1)]
    driver._log.partitions = lambda _topic: {0: (3, 6), 1: (2, 3)}
    with pytest.raises(
        BackfillError, match=r"can be read again \(2 are there that the topic does not hold any more"
    ):
        backfill.plan(driver.context, job, rows="quarantined")


def test_quarantined_records_of_windows_are_mended_in_the_ingest_table_and_then_in_the_windows(
    ready: Callable[..., JobDriver],
) -> None:
    as_it_runs, job = hourly(RULE), hourly(MENDED)
    driver = ready(two_batches, as_it_runs)
    counted = [("UA", 4, 1), ("UA", 1, 1)]
    assert sorted(driver.rows("gold.hourly", "carrier", "departures", "least")) == sorted(counted)
    planned = backfill.plan(driver.context, job, rows="quarantined")
    assert (planned.job, planned.target) == ("hourly__ingest_departures", "gold.hourly__ingest_departures")
    assert planned.feeds == ("hourly",)
    swapped(driver, planned, job)
    assert driver.rows("gold.hourly__quarantine", "_partition", "_offset") == [(0, 2), (1, 1)]
    assert sorted(driver.rows("gold.hourly", "carrier", "departures", "least")) == sorted(counted)

    # The repair was of the ingest table and of the quarantine, which is also the windows': they are whole for all that.
    rewound = backfill.plan_rewind(driver.context, as_it_runs, version=1)
    backfill.verify(driver.context, rewound.id, as_it_runs)
    backfill.swap(driver.context, rewound.id)
    driver.run()
    assert sorted(driver.rows("gold.hourly", "carrier", "departures", "least")) == sorted(counted)

    behind = backfill.plan(driver.context, job, offsets=planned.ranges)
    swapped(driver, behind, job)
    assert sorted(driver.rows("gold.hourly", "departures", "least")) == [(1, 1), (6, -5)]
    with pytest.raises(BackfillError, match=r"no late row of gold.* waits to be folded in"):
        backfill.plan(driver.context, job, rows="late")


def test_late_rows_are_folded_into_the_windows_that_lack_them_and_into_no_others(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(two_batches, hourly(RULE)), hourly(RULE)
    planned = backfill.plan(driver.context, job, rows="late")
    assert planned.asked == {"rows": "late"}
    (span,) = planned.windows
    assert [f"{us // 3_600_000_000 % 24}" for us in span] == ["10", "11"]
    verdict = swapped(driver, planned, job)
    assert verdict.accounting["late_folded"] == 1
    assert sorted(driver.rows("gold.hourly", "departures")) == [(1,), (5,)]
    with pytest.raises(BackfillError, match=r"no late row of gold.* waits to be folded in"):
        backfill.plan(driver.context, job, rows="late")
