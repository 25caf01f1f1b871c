"""Backfills of a row-by-row job: offsets rewound, the same rows with the same coordinates, kills, refusals.

offset   0    1    2    3    4     5    6        of partition 0; [1, 5) is repaired
         f1   f2   bad  f4   =f1   f5   f6       f2 and f5 were lost by a bug, f4 should have been rejected
         |- batch 0 -|  |- batch 1 -|   | 2
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import DataLossError
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="flight_id STRING, carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
    event_time="departed_at",
)


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset(origin=True))
@hw.check("has_carrier", "carrier IS NOT NULL")
def clean(departures: DataFrame) -> DataFrame:
    return departures.filter(F.col("delay_minutes") < 30)


def mended() -> Job:
    @hw.job(name="clean", target=hw.delta("silver.departures"), dedup=hw.by_offset(origin=True))
    @hw.check("has_carrier", "carrier IS NOT NULL")
    @hw.check("not_early", "delay_minutes >= 0")
    def clean(departures: DataFrame) -> DataFrame:
        return departures

    return bind(clean)


AT = "2013-01-01T13:00:00+00:00"
RANGE = {"departures": {0: (1, 5)}}
BROKEN = [("f1", 0, 0, None), ("f4", 3, 1, 2), ("f6", 6, 2, 5)]
REPAIRED = [("f1", 0, 0, None), ("f2", 1, 0, None), ("f6", 6, 2, 5)]


def event(n: int, delay: int, carrier: str | None = "UA") -> dict[str, object]:
    moment = f"2013-01-01T10:{n:02d}:00Z"
    return {"flight_id": f"f{n}", "carrier": carrier, "departed_at": moment, "delay_minutes": delay}


def three_batches(driver: JobDriver) -> None:
    def origin(offset: int) -> tuple[str, str, int, int]:
        return ("east", "dep", 0, offset)

    driver.send("departures", event(1, 5), event(2, 50), event(3, 5, None), timestamp=AT, origin=origin(0))
    driver.run()
    driver.send("departures", event(4, -5), timestamp=AT, origin=origin(3))
    driver.send("departures", event(1, 5), timestamp=AT, origin=origin(0))
    driver.send("departures", event(5, 60), timestamp=AT, origin=origin(4))
    driver.run()
    driver.send("departures", event(6, 6), timestamp=AT, origin=origin(5))
    driver.run()
    assert rows(driver) == BROKEN


def rows(driver: JobDriver) -> list[tuple[Any, ...]]:
    found = driver.table("silver.departures").collect()
    seen = {r["_offset"]: r["_seen_until"] for r in found}
    return sorted(
        (r["flight_id"], r["_offset"], r["_batch"], seen[r["_offset"]] and seen[r["_offset"]].minute)
        for r in found
    )


def rejected(driver: JobDriver) -> list[tuple[Any, ...]]:
    return driver.rows("silver.departures__quarantine", "_offset", "_check", "_batch")


def test_row_backfill_of_offsets_gives_the_rows_that_should_have_been(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(three_batches, clean), mended()
    context = driver._context
    planned = backfill.plan(context, job, offsets=RANGE, rows_per_chunk=1)
    assert (len(planned.chunks), planned.rows) == (2, 4)
    previewed = backfill.preview(context, planned.id, job)
    assert (previewed.added, previewed.removed, previewed.changed) == (1, 1, 0)
    assert previewed.samples["added"][0]["key"] == {"_topic": "departures", "_partition": 0, "_offset": 1}

    # Killed before its second chunk is committed, and right after: nothing is done twice, nothing is missing.
    for step in ("before chunk", "after chunk"):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.run(context, planned.id, job)
    backfill.pause(driver.home, planned.id)
    assert backfill.run(context, planned.id, job).state == "paused"
    assert backfill.status(driver.home, planned.id)["state"] == "paused"
    backfill.resume(driver.home, planned.id)
    assert backfill.run(context, planned.id, job).chunks_done == 2
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert verdict.diff.digest == previewed.digest
    assert verdict.accounting == {
        "read": 4, "written": 1, "filtered": 0, "duplicate": 1, "quarantined": 2, "before": 1,
        "quarantined_before": 1,
    }  # fmt: skip

    # The live job appends behind the range; killed between the side table and the table, the swap finishes later.
    driver.send("departures", event(7, 7), timestamp=AT)
    driver.run()
    behind = ("f7", 7, 3, 6)
    for step in ("after quarantine swap", "before swap", "after swap"):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.swap(context, planned.id)
        assert rows(driver) == ([*REPAIRED, behind] if step == "after swap" else [*BROKEN, behind])
        if step == "after quarantine swap":
            assert backfill.status(driver.home, planned.id)["state"] == "swapping"
            with pytest.raises(BackfillError, match="was swapped in; roll it back instead"):
                backfill.abort(driver.home, planned.id)
    swapped = backfill.swap(context, planned.id)
    assert rows(driver) == [*REPAIRED, behind]
    assert rejected(driver) == [(2, "has_carrier", 0), (3, "not_early", 1)]
    assert swapped["proof"]["outside_unchanged"]
    assert swapped["proof"]["rows_outside"] == 3

    driver.crash_at("after rollback")
    with pytest.raises(SimulatedCrash):
        backfill.rollback(context, planned.id)
    backfill.rollback(context, planned.id)
    assert rows(driver) == [*BROKEN, behind]
    assert rejected(driver) == [(2, "has_carrier", 0)]
    totals = [entry.accounting["departures"] for entry in driver.ledger("silver.departures")[-2:]]
    assert sum(t["written"] - t["before"] for t in totals) == 0
    assert backfill.status(driver.home, planned.id)["state"] == "rolled back"


@pytest.mark.story
def test_row_backfill_refusals_are_one_sentence_each(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(three_batches, clean), mended()
    context = driver._context
    with pytest.raises(
        BackfillError, match=r"offsets \[3, 40\) are asked for, and the job 'clean' has read \[0, 7\)"
    ):
        backfill.plan(context, job, offsets={"departures": {0: (3, 40)}})
    with pytest.raises(BackfillError, match="none \\(its topics are departures\\)"):
        backfill.plan(context, job, offsets={"arrivals": {0: (3, 4)}})
    with pytest.raises(BackfillError, match="the end is exclusive"):
        backfill.plan(context, job, timestamps=("2013-01-02", "2013-01-02"))
    with pytest.raises(BackfillError, match="no record of departures is in the range"):
        backfill.plan(context, job, timestamps=("2014-01-01", "2014-01-02"))
    with pytest.raises(BackfillError, match="there is no backfill 'x'; there are none"):
        backfill.status(driver.home, "x")

    with pytest.raises(BackfillError, match=r"is at version \d+, so nothing was committed after version 99"):
        backfill.plan(context, job, since_version=99)

    whole = backfill.plan(context, job, timestamps=("2013-01-01", "2100-01-01"))
    assert whole.ranges == {"departures": {0: (0, 7)}}

    by_time = backfill.plan(context, job, event_time=("2013-01-01T10:02:00Z", "2013-01-01T10:05:00Z"))
    assert by_time.ranges == {"departures": {0: (1, 4)}}
    assert by_time.notes == (
        "what lies between the first and the last of a partition whose departed_at is in the range is read again, too",
    )
    since = backfill.plan(context, job, since_version=1)
    assert since.ranges == {"departures": {0: (3, 7)}}
    with pytest.raises(
        BackfillError, match=r"planned for the job 'clean', code \w+, and this is .* plan again"
    ):
        backfill.run(context, since.id, bind(clean))
    backfill.run(context, since.id, job)
    assert backfill.verify(context, since.id, job).passed
    context.spark.sql(
        f"UPDATE delta.`{driver.home.table('silver.departures')}` SET carrier = 'XX' WHERE flight_id = 'f6'"
    )
    with pytest.raises(BackfillError, match=r"in the affected range changed between .* plan again"):
        backfill.swap(context, since.id)
    verdict = backfill.verify(context, since.id, job)
    assert [finding.name for finding in verdict.findings if not finding.ok] == ["target unmoved"]
    assert backfill.abort(driver.home, since.id)["state"] == "aborted"
    with pytest.raises(BackfillError, match="was aborted; plan again"):
        backfill.run(context, since.id, job)
    driver._log.partitions = lambda topic: {0: (2, 7)}  # retention took the beginning
    with pytest.raises(DataLossError, match=r"offsets \[0, 2\) of the range are gone from the topic"):
        backfill.plan(context, job, offsets=RANGE)


@hw.job(name="timed", target=hw.delta("silver.timed"), dedup=hw.by_offset())
def with_times(departures: DataFrame) -> DataFrame:
    return departures


@hw.job(name="timeless", target=hw.delta("silver.timeless"), dedup=hw.by_offset())
def without_times(departures: DataFrame) -> DataFrame:
    return departures.drop("departed_at")


def six_minutes(driver: JobDriver) -> None:
    for n in range(6):
        driver.send("departures", event(n, 5), timestamp=f"2013-01-01T12:0{n}:00Z")
    driver.run()


@pytest.mark.story
def test_row_backfill_of_times_tells_of_records_of_that_time_that_are_gone(
    ready: Callable[..., JobDriver],
) -> None:
    driver = ready(six_minutes, with_times, without_times)
    timed, timeless = bind(with_times), bind(without_times)
    driver._log.partitions = lambda topic: {0: (2, 6)}  # retention took the beginning
    context, gone = driver.context, r"offsets departures 0 \[0, 2\) are gone from the topic"
    for asked in (
        {"event_time": ("2013-01-01T10:01:00Z", "2013-01-01T10:04:00Z")},
        {"timestamps": ("2013-01-01T12:01:00Z", "2013-01-01T12:04:00Z")},
    ):
        with pytest.raises(DataLossError, match=f"{gone}, and silver.timed has rows of the range"):
            backfill.plan(context, timed, **asked)
    later = backfill.plan(context, timed, timestamps=("2013-01-01T12:02:00Z", "2013-01-01T12:04:00Z"))
    assert (later.ranges, later.notes) == ({"departures": {0: (2, 4)}}, ())
    span = ("2013-01-01T10:01:00Z", "2013-01-01T10:04:00Z")
    cannot_tell = backfill.plan(context, timeless, event_time=span)
    assert cannot_tell.ranges == {"departures": {0: (2, 4)}}
    assert "are gone from the topic; what was made of them stays as it is" in cannot_tell.notes[1]


coasts = hw.topic("east", "west", schema="flight_id STRING, delay_minutes INT, at TIMESTAMP", event_time="at")


@hw.job(target=hw.delta("silver.coasts"), dedup=hw.by_offset(origin=True))
def both_coasts(coasts: DataFrame) -> DataFrame:
    return coasts.filter("delay_minutes < 30")


def both_mended() -> Job:
    @hw.job(name="both_coasts", target=hw.delta("silver.coasts"), dedup=hw.by_offset(origin=True))
    def both_coasts(coasts: DataFrame) -> DataFrame:
        return coasts

    return bind(both_coasts)


def test_row_backfill_is_swapped_in_though_each_try_meets_a_batch(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(three_batches, clean), mended()
    planned = backfill.plan(driver.context, job, offsets=RANGE)
    backfill.run(driver.context, planned.id, job)
    assert backfill.verify(driver.context, planned.id, job).passed
    batches: list[threading.Thread] = []

    def batch_comes_first(_job: str, step: str, _batch: int) -> None:
        if step == "before swap":
            driver.send("departures", event(7, 7), timestamp=AT)
            batches.append(threading.Thread(target=driver.run))
            batches[-1].start()
            batches[-1].join(5)  # it has committed by then, unless the swap holds it

    backfill.swap(replace(driver.context, step=batch_comes_first), planned.id)
    for batch in batches:
        batch.join()
    assert len(batches) > 1
    assert rows(driver)[: len(REPAIRED)] == REPAIRED
    assert len(rows(driver)) == len(REPAIRED) + len(batches)
    assert driver.audit() == []


def three_of_two_topics(driver: JobDriver) -> None:
    for n, topic in enumerate(("east", "west", "east")):
        one = {"flight_id": f"f{n}", "delay_minutes": 20 * n, "at": "2013-01-01T10:00:00Z"}
        driver.send(topic, one, timestamp=AT)
        driver.run()
    assert driver.rows("silver.coasts", "flight_id", "_topic") == [("f0", "east"), ("f1", "west")]


@pytest.mark.parametrize(
    "asked", [{}, {"event_time": ("2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z")}], ids=["all", "event time"]
)
def test_row_backfill_of_two_topics_reads_both(
    ready: Callable[..., JobDriver], asked: dict[str, Any]
) -> None:
    driver, job = ready(three_of_two_topics, both_coasts), both_mended()
    planned = backfill.plan(driver.context, job, **asked)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    assert driver.rows("silver.coasts", "flight_id", "_topic", "_offset") == [
        ("f0", "east", 0),
        ("f1", "west", 0),
        ("f2", "east", 1),
    ]


def vacuumed(driver: JobDriver, name: str) -> None:
    table = DeltaTable(str(driver.home.table(name)))
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def test_row_backfill_whose_earlier_version_was_vacuumed_says_so(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(three_batches, clean), mended()
    context = driver.context
    planned = backfill.plan(context, job, offsets=RANGE)
    backfill.run(context, planned.id, job)
    assert backfill.verify(context, planned.id, job).passed
    driver.send("departures", event(7, 7), timestamp=AT)
    driver.run()
    vacuumed(driver, "silver.departures")
    told = f"^the backfill '{planned.id}' needs .*parquet, a file of an earlier version of the table that is gone: it"
    with pytest.raises(DataLossError, match=f"{told} was vacuumed since; plan again$"):
        backfill.swap(context, planned.id)
    again = backfill.plan(context, job, offsets=RANGE)
    backfill.run(context, again.id, job)
    assert backfill.verify(context, again.id, job).passed
    backfill.swap(context, again.id)
    vacuumed(driver, "silver.departures")
    with pytest.raises(DataLossError, match=f"{told} was vacuumed".replace(planned.id, again.id)):
        backfill.rollback(context, again.id)
