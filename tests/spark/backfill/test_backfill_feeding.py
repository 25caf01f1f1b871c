"""Tables that feed jobs, rebuilt, rewound and put back: what the jobs behind them do, and those that begin later."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import IncompatibleStateError
from headwater_streams.ledger.cleaning import clean_log
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.turn import Turn
from headwater_streams.spark.checkpoint import last_planned
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
    event_time="departed_at",
    watermark="30 minutes",
)
cleaned = hw.table("silver.departures", event_time="departed_at", watermark="30 minutes")
delayed = hw.table("gold.long")


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset())
@hw.check("known", "carrier IS NOT NULL", action="quarantine")
def clean(departures: DataFrame) -> DataFrame:
    return departures


@hw.job(target=hw.delta("gold.long"))
def long(cleaned: DataFrame) -> DataFrame:
    return cleaned.filter("delay_minutes > 30")


@hw.job(target=hw.delta("gold.longest"))
def longest(delayed: DataFrame) -> DataFrame:
    return delayed.filter("delay_minutes > 90")


@hw.job(target=hw.delta("gold.hourly", keys=["carrier", "window_start"], mode="update"))
def hourly(cleaned: DataFrame) -> DataFrame:
    return hw.tumbling(cleaned, "departed_at", "1 hour", by=["carrier"]).agg(F.count("*").alias("departures"))


def in_seconds() -> Job:
    """As `clean`, after its bug was found: delays are ten times as long."""

    @hw.job(name="clean", target=hw.delta("silver.departures"), dedup=hw.by_offset())
    @hw.check("known", "carrier IS NOT NULL", action="quarantine")
    def clean(departures: DataFrame) -> DataFrame:
        return departures.withColumn("delay_minutes", F.col("delay_minutes") * 10)

    return bind(clean)


def event(time: str, carrier: str | None, delay: int) -> dict[str, object]:
    return {"carrier": carrier, "departed_at": f"2013-01-01T{time}:00Z", "delay_minutes": delay}


def rebuild(driver: JobDriver, job: Job, *behind: str, swap: bool = True) -> str:
    planned = backfill.plan_rebuild(driver.context, job, behind=behind)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    if swap:
        backfill.swap(driver.context, planned.id)
    return planned.id


def plan_batch(driver: JobDriver, job: str, version: int) -> None:
    """Plans a job's next batch up to a version of the table that it reads, as a query does that dies then."""
    checkpoint = max(driver.home.checkpoint(job, 0).parent.glob("[0-9]*"))
    batch = last_planned(checkpoint)
    assert batch is not None
    *lines, source = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    planned = json.loads(source) | {"reservoirVersion": version}
    text = "\n".join([*lines, json.dumps(planned)])
    (checkpoint / "offsets" / str(batch + 1)).write_text(text)


def hours(driver: JobDriver) -> list[tuple[Any, ...]]:
    rows = driver.table("gold.hourly").collect()
    return sorted((r["carrier"], f"{r['window_start']:%H:%M}", r["departures"]) for r in rows)


def make_aside(driver: JobDriver) -> list[str]:
    """Rebuilds of all jobs, each of what those before it have made, of which none is swapped in."""
    first = rebuild(driver, in_seconds(), swap=False)
    second = rebuild(driver, bind(long), first, swap=False)
    third = rebuild(driver, bind(longest), second, swap=False)
    return [first, second, third, rebuild(driver, bind(hourly), first, swap=False)]


HOURS = [("AA", "10:00", 1), ("DL", "10:00", 1), ("DL", "11:00", 1), ("UA", "10:00", 1), ("UA", "11:00", 2)]


def assert_made_anew(driver: JobDriver) -> None:
    """All tables are those of the mended job, with a record for each of the two hours more."""
    long_ones = [(0, 600), (1, 50), (3, 1000), (4, 40), (5, 100)]
    assert driver.rows("gold.long", "_offset", "delay_minutes") == long_ones
    assert driver.rows("gold.longest", "_offset") == [(0,), (3,), (5,)]
    assert hours(driver) == HOURS
    assert driver.audit() == []


def two_batches_and_one_of_the_first_job(driver: JobDriver) -> None:
    driver.send("departures", event("10:00", "UA", 60), event("10:05", "DL", 5), event("10:06", None, 5))
    driver.run()
    driver.send("departures", event("10:30", "AA", 100))
    driver.run()
    driver.send("departures", event("11:00", "UA", 4))
    JobDriver(driver.context.spark, driver.home.root, [clean]).run()


@pytest.fixture
def ran(ready: Callable[..., JobDriver]) -> JobDriver:
    """Four jobs after two batches of each, and a third that the first one alone has read."""
    return ready(two_batches_and_one_of_the_first_job, clean, long, longest, hourly)


def test_rebuild_of_a_table_names_the_jobs_behind_it_which_stop_until_they_are_rebuilt(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    planned = backfill.plan_rebuild(ran.context, in_seconds())
    assert planned.feeds == ("hourly", "long", "longest")
    assert backfill.plan_rebuild(ran.context, bind(long)).feeds == ("longest",)
    first = rebuild(ran, in_seconds())
    after = drive(in_seconds(), long, longest, hourly)
    ran.send("departures", event("11:30", "DL", 10))
    drive(in_seconds()).run()
    for job in (long, hourly):
        with pytest.raises(IncompatibleStateError, match=rf"rows of silver\.departures: .*{first}"):
            drive(job).run()
    assert after.rows("gold.long", "_offset", "delay_minutes") == [(0, 60), (3, 100)], "what it was"

    rebuild(after, bind(long))
    with pytest.raises(
        IncompatibleStateError, match=r"the rows of gold\.long: those that it has read before"
    ):
        drive(longest).run()
    rebuild(after, bind(longest))
    rebuild(after, bind(hourly))
    ran.send("departures", event("11:40", "UA", 1))
    after.run()
    assert_made_anew(after)


def test_rebuilds_of_what_others_have_made_are_swapped_in_one_after_the_other_and_taken_back(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    first, second, *others = planned = make_aside(ran)
    assert [backfill.status(ran.home, each)["state"] for each in planned] == ["verified"] * 4
    assert ran.rows("gold.long", "_offset", "delay_minutes") == [(0, 60), (3, 100)], "what it was"
    with pytest.raises(
        BackfillError, match=rf"'{first}' made, which is not swapped in yet; swap that one in first"
    ):
        backfill.swap(ran.context, second)
    ran.send("departures", event("11:30", "DL", 10))
    ran.run()  # with the code of before, while all is ready
    backfill.swap(ran.context, first)
    told = (
        f"'{first}' is swapped in by now, and '{second}', which reads what it made, is run and verified before that; "
        "plan again without it, to read the live table"
    )
    with pytest.raises(BackfillError, match=told):
        backfill.run(ran.context, second, bind(long))
    for step in ("before rebuild of the table", "after rebuild of the table"):
        ran.crash_at(step, "long")
        with pytest.raises(SimulatedCrash):
            backfill.swap(ran.context, second)
        drive(in_seconds()).run()
    for each in (second, *others):
        backfill.swap(ran.context, each)
    after = drive(in_seconds(), long, longest, hourly)
    ran.send("departures", event("11:40", "UA", 1))
    after.run()
    assert_made_anew(after)

    for each in reversed(planned):
        backfill.rollback(ran.context, each)
    ran.send("departures", event("11:50", "UA", 40))
    ran.run()
    assert ran.rows("gold.long", "_offset", "delay_minutes") == [(0, 60), (3, 100), (7, 40)]
    assert ran.rows("gold.longest", "_offset") == [(3,)]
    assert [row for row in hours(ran) if row[:2] == ("UA", "11:00")] == [("UA", "11:00", 3)]
    assert ran.audit() == []


@pytest.mark.story
def test_rebuild_behind_another_asks_for_one_that_is_ready_and_reads_all_of_it(ran: JobDriver) -> None:
    planned = backfill.plan_rebuild(ran.context, in_seconds())
    with pytest.raises(BackfillError, match="has not caught up with its live job; run it first"):
        backfill.plan_rebuild(ran.context, bind(long), behind=[planned.id])
    repair = backfill.plan(ran.context, bind(clean))
    with pytest.raises(BackfillError, match="is a repair; only a rebuild makes a table to read"):
        backfill.plan_rebuild(ran.context, bind(long), behind=[repair.id])
    backfill.run(ran.context, planned.id, in_seconds())
    behind = rebuild(ran, bind(long), planned.id, swap=False)
    ran.send("departures", event("11:30", "DL", 10))
    backfill.run(ran.context, planned.id, in_seconds())
    verdict = backfill.verify(ran.context, behind, bind(long))
    (found,) = [finding for finding in verdict.findings if not finding.ok]
    assert found.name == "tables aside"
    assert found.detail.startswith("silver.departures was read up to version ")
    backfill.run(ran.context, behind, bind(long))
    assert backfill.verify(ran.context, behind, bind(long)).passed


def test_rebuild_behind_another_passes_where_the_live_jobs_have_read_more_before_it_was_planned(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    first = rebuild(ran, in_seconds(), swap=False)
    ran.send("departures", event("11:10", "UA", 70))
    ran.run()  # both live jobs read what the first rebuild has not
    second = backfill.plan_rebuild(ran.context, bind(long), behind=[first]).id
    backfill.run(ran.context, second, bind(long))
    verdict = backfill.verify(ran.context, second, bind(long))
    assert verdict.passed, verdict.findings
    (covered,) = [finding.detail for finding in verdict.findings if finding.name == "offsets covered"]
    assert covered == (
        f"all 5 offsets that the live job had read when it was planned, but 1 that {first} had not read: they come "
        "after the swaps"
    )
    for planned in (first, second):
        backfill.swap(ran.context, planned)
    drive(in_seconds(), long).run()
    long_ones = [(0, 600), (1, 50), (3, 1000), (4, 40), (5, 700)]
    assert ran.rows("gold.long", "_offset", "delay_minutes") == long_ones
    assert ran.audit() == []


def test_rebuild_taken_back_lets_the_jobs_behind_it_go_on(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    first = rebuild(ran, in_seconds())
    ran.send("departures", event("11:10", "UA", 7))
    drive(in_seconds()).run()  # a batch that the rollback takes back
    second = rebuild(ran, bind(long))
    backfill.rollback(ran.context, first)
    with pytest.raises(
        IncompatibleStateError, match=r"rows of silver\.departures: those that it has read before"
    ):
        drive(long).run()
    backfill.rollback(ran.context, second)
    ran.send("departures", event("11:20", "DL", 45))
    ran.run()
    assert ran.rows("silver.departures", "_offset", "delay_minutes") == [
        *((0, 60), (1, 5), (3, 100), (4, 4), (5, 7), (6, 45))
    ]
    assert ran.rows("gold.long", "_offset", "delay_minutes") == [(0, 60), (3, 100), (6, 45)]
    assert ran.rows("gold.longest", "_offset") == [(3,)]
    assert hours(ran) == HOURS
    assert ran.audit() == []
    assert backfill.plan_rebuild(ran.context, bind(clean)).rows == 7, "whichever generation has read them"


def test_job_that_runs_goes_on_when_a_rebuild_before_it_was_taken_back_meanwhile(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    ran.run()
    runner = JobRunner(ran.context, [bind(long)], progress_every_s=None)
    runner.start(interval_s=0.1)
    try:
        with Turn(ran.home, "long").of_swap():
            ran.send("departures", event("11:10", "UA", 70))
            planned = rebuild(ran, in_seconds())
            drive(in_seconds()).run()
            backfill.rollback(ran.context, planned)
            drive(clean).run()
    except BaseException:
        runner.stop()
        raise
    until = datetime.now(UTC) + timedelta(seconds=60)
    try:
        while len(ran.rows("gold.long", "_offset")) < 3 and datetime.now(UTC) < until:
            runner.watch(0.5)
    finally:
        runner.stop()
    assert ran.rows("gold.long", "_offset", "delay_minutes") == [(0, 60), (3, 100), (5, 70)]
    assert ran.audit() == []


def test_job_whose_batch_ends_before_a_rollback_leaves_out_what_that_took_back_and_goes_on(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    ran.run()
    planned = rebuild(ran, in_seconds())
    ran.send("departures", event("11:10", "UA", 70))
    drive(in_seconds()).run()  # a batch that the rollback takes back
    plan_batch(ran, "long", DeltaTable(str(ran.home.table("silver.departures"))).version() + 1)
    backfill.rollback(ran.context, planned)
    ran.send("departures", event("11:20", "DL", 80))
    ran.run()
    left_out = [source.left_out for entry in ran.ledger("gold.long") for source in entry.sources]
    assert len([each for each in left_out if each]) == 1
    ran.send("departures", event("11:30", "DL", 90))
    ran.run()  # and after a new start
    assert ran.rows("gold.long", "_offset", "delay_minutes") == [(0, 60), (3, 100), (5, 70), (6, 80), (7, 90)]
    assert ran.audit() == []


def test_rewind_of_a_table_stops_those_behind_it_that_have_read_what_it_takes_back(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    last, before = [v.version for v in backfill.versions(ran.home, bind(clean))[::-1]][:2]
    planned = backfill.plan_rewind(ran.context, bind(clean), version=before)
    assert planned.feeds == ("hourly", "long", "longest")
    assert backfill.verify(ran.context, planned.id, bind(clean)).passed
    backfill.swap(ran.context, planned.id)
    ran.run()  # nobody but the job itself had read the batch that was taken back, and it reads it again
    assert ran.rows("silver.departures", "_offset") == [(0,), (1,), (3,), (4,)]
    counts = [("AA", "10:00", 1), ("DL", "10:00", 1), ("UA", "10:00", 1), ("UA", "11:00", 1)]
    assert hours(ran) == counts
    assert ran.audit() == []

    again = backfill.plan_rewind(ran.context, bind(clean), version=before)
    assert backfill.verify(ran.context, again.id, bind(clean)).passed
    backfill.swap(ran.context, again.id)
    drive(clean).run()
    with pytest.raises(
        IncompatibleStateError, match=r"rows of silver\.departures: those that it has read before"
    ):
        drive(long).run()
    assert last > before


def three_batches_of_one_job(driver: JobDriver) -> None:
    for carrier, minute in (("UA", 0), ("DL", 10), ("AA", 20)):
        driver.send("departures", event(f"10:{minute:02}", carrier, 60 + minute))
        driver.run()


@pytest.mark.parametrize("how", ["rebuilt", "rewound", "cut"])
def test_job_that_begins_behind_a_table_without_its_commits_reads_what_is_there_once(
    how: str, drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver = ready(three_batches_of_one_job, clean)
    if how == "rebuilt":
        rebuild(driver, bind(clean))
    elif how == "rewound":
        version = backfill.versions(driver.home, bind(clean))[0].version
        planned = backfill.plan_rewind(driver.context, bind(clean), version=version)
        backfill.verify(driver.context, planned.id, bind(clean))
        backfill.swap(driver.context, planned.id)
    else:
        driver.table("silver.departures").sparkSession.sql(
            f"ALTER TABLE delta.`{driver.home.table('silver.departures')}` SET TBLPROPERTIES "
            "('delta.checkpointInterval' = '1')"
        )
        driver.send("departures", event("10:21", "AA", 1))
        driver.run()
        assert clean_log(
            driver.home, "silver.departures", older_than=datetime.now(UTC) + timedelta(days=1), kept=1
        )
    driver.send("departures", event("11:30", "UA", 90))
    after = drive(clean, long, longest, hourly)
    for step in ("start", "after commit") if how == "rebuilt" else ():
        after.crash_at(step, "long")
        with pytest.raises(SimulatedCrash):
            after.run()
        after = drive(clean, long, longest, hourly)
    after.run()
    driver.send("departures", event("11:40", "UA", 95), event("09:00", "DL", 95))
    after.run()
    offsets = [(0,), (1,), (2,), *(((4,), (5,), (6,)) if how == "cut" else ((3,), (4,), (5,)))]
    assert after.rows("gold.long", "_offset") == offsets
    assert after.rows("gold.longest", "_offset") == offsets[-2:]
    assert [row for row in hours(after) if row[0] == "UA"] == [("UA", "10:00", 1), ("UA", "11:00", 2)]
    assert len(after.late("gold.hourly")) == 1
    assert after.audit() == []


@hw.job(target=hw.delta("gold.copied"))
def copied(cleaned: DataFrame) -> DataFrame:
    return cleaned


@hw.job(target=hw.delta("gold.total", keys=["window_start"], mode="update"))
def total(cleaned: DataFrame) -> DataFrame:
    return hw.tumbling(cleaned, "departed_at", "1 hour").agg(F.sum("delay_minutes").alias("minutes"))


@pytest.mark.parametrize("is_back", [False, True])
def test_job_that_begins_behind_a_repaired_table_reads_the_rows_that_are_there(
    ran: JobDriver, is_back: bool
) -> None:
    mended = in_seconds()
    planned = backfill.plan(ran.context, mended, offsets={"departures": {0: (0, 4)}})
    backfill.run(ran.context, planned.id, mended)
    assert backfill.verify(ran.context, planned.id, mended).passed
    backfill.swap(ran.context, planned.id)
    if is_back:
        backfill.rollback(ran.context, planned.id)
    after = JobDriver(ran.context.spark, ran.home.root, [clean, long, longest, hourly, copied, total])
    for more in ([], [event("11:05", "UA", 7)], [event("11:06", "UA", 8)]):
        if more:
            after.send("departures", *more)
        after.run()
        there = after.rows("silver.departures", "_offset", "delay_minutes")
        assert after.rows("gold.copied", "_offset", "delay_minutes") == there
        assert sum(minutes for (minutes,) in after.rows("gold.total", "minutes")) == sum(n for _, n in there)
    assert (there[0] == (0, 60)) == is_back, "the table is the repaired one"
    assert after.audit() == []
    rebuild(after, bind(hourly))
    rebuild(after, bind(long))
    assert after.rows("gold.long", "_offset", "delay_minutes") == [row for row in there if row[1] > 30]
    assert after.audit() == []
