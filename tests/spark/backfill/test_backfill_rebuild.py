"""Rebuilds: a table made anew beside the live one, then swapped in with its checkpoint, and the way back."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.base.errors import IncompatibleStateError
from headwater_streams.delta.marks import last_batch
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.restarts import BackOff, Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing import JobDriver, SimulatedCrash
from support.watching import watch_until

departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
    event_time="departed_at",
    watermark="30 minutes",
)


@hw.job(target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"), dedup=hw.by_offset())
@hw.check("known", "carrier IS NOT NULL", on="input", action="quarantine")
def delays(departures: DataFrame) -> DataFrame:
    return hw.tumbling(departures, "departed_at", "1 hour", by=["carrier"]).agg(
        F.count("*").alias("departures")
    )


def by_half_hour() -> Job:
    """Another window and another aggregate: state that the old checkpoint cannot be."""

    @hw.job(
        name="delays",
        target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"),
        dedup=hw.by_offset(),
    )
    @hw.check("known", "carrier IS NOT NULL", on="input", action="quarantine")
    def delays(departures: DataFrame) -> DataFrame:
        return hw.tumbling(departures, "departed_at", "30 minutes", by=["carrier"]).agg(
            F.count("*").alias("departures"), F.max("delay_minutes").alias("max_delay")
        )

    return bind(delays)


AT = "2013-01-01T14:00:00Z"


def event(time: str, carrier: str | None, delay: int) -> dict[str, object]:
    return {"carrier": carrier, "departed_at": f"2013-01-01T{time}:00Z", "delay_minutes": delay}


def send(driver: JobDriver, *events: dict[str, object], offset: int | None = None) -> None:
    driver.send("departures", *events, timestamp=AT, offset=offset)


def windows(driver: JobDriver) -> list[tuple[Any, ...]]:
    found = driver.table("gold.delays").collect()
    names = [name for name in ("departures", "max_delay") if name in driver.table("gold.delays").columns]
    return sorted((r["carrier"], f"{r['window_start']:%H:%M}", *[r[n] for n in names]) for r in found)


OLD = [("DL", "10:00", 1), ("UA", "10:00", 2), ("UA", "12:00", 1)]
NEW = [("DL", "10:00", 1, 5), ("UA", "10:00", 1, 400), ("UA", "10:30", 1, 1), ("UA", "12:00", 1, 3)]


def three_batches(driver: JobDriver) -> None:
    send(driver, event("10:00", "UA", 400), event("10:05", "DL", 5), event("10:59", "UA", 1))
    driver.run()
    send(driver, event("12:01", "UA", 3), event("12:02", None, 0))
    driver.run()
    send(driver, event("10:30", "AA", 7))  # late
    driver.run()
    assert windows(driver) == OLD
    assert driver.audit() == []


def test_rebuild_of_a_window_takes_table_and_checkpoint_over_and_gives_them_back(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver, job = ready(three_batches, delays), by_half_hour()
    context = driver.context
    planned = backfill.plan_rebuild(context, job)
    assert backfill.plan_rebuild(context, job).id == planned.id
    assert (planned.generation, planned.rows) == (2, 5)
    with pytest.raises(BackfillError, match="has not caught up with the live job; run it first"):
        backfill.verify(context, planned.id, job)
    with pytest.raises(BackfillError, match="has not caught up with the live job; run it first"):
        backfill.preview(context, planned.id, job)
    done = backfill.run(context, planned.id, job)
    assert (done.state, done.rows_read) == ("done", 5)
    previewed = backfill.preview(context, planned.id, job, limit=2)
    assert (previewed.added, previewed.changed, len(previewed.samples["changed"])) == (1, 3, 2)
    assert windows(driver) == OLD, "the live table is as it was"
    assert backfill.status(driver.home, planned.id)["state"] == "done"
    with pytest.raises(BackfillError, match="is not verified as it is now; verify it first"):
        backfill.swap(context, planned.id)
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.added, verdict.diff.changed, verdict.diff.unchanged) == (1, 3, 0)
    assert verdict.diff.digest == previewed.digest
    assert verdict.ranges == {"departures": {0: (0, 6)}}
    assert verdict.notes == ("only one of the two has the column max_delay",)

    # The live job goes on meanwhile, and what it wrote is written by the new generation once more.
    send(driver, event("12:31", "UA", 9))
    driver.run()
    assert ("UA", "12:00", 2) in windows(driver)
    later = backfill.verify(context, planned.id, job)
    assert (later.passed, later.ranges) == (True, verdict.ranges)
    assert "the live job has read 1 offset since the rebuild ran" in " ".join(later.notes)
    assert Verdict.from_json(later.to_json()) == later
    swapped = backfill.swap(context, planned.id)
    assert swapped["held_s"] > 0
    assert backfill.swap(context, planned.id) == swapped
    with pytest.raises(BackfillError, match="was swapped in, so its tables are not what it would change"):
        backfill.preview(context, planned.id, job)
    assert windows(driver) == NEW
    print(f"the job was held for {swapped['held_s']} s")
    assert driver.audit() == []
    assert len(driver.late("gold.delays")) == 1
    assert len(driver.quarantined("gold.delays")) == 1
    assert backfill.status(driver.home, planned.id)["state"] == "swapped"

    after = drive(job)
    after.run()
    assert windows(after) == [*NEW, ("UA", "12:30", 1, 9)]
    send(after, event("12:40", "UA", 20), event("10:31", "UA", 7), offset=7)
    after.run()
    assert windows(after) == [*NEW, ("UA", "12:30", 2, 20)]
    assert len(after.late("gold.delays")) == 2
    assert after.audit() == []

    rolled = backfill.rollback(context, planned.id)
    assert backfill.rollback(context, planned.id) == rolled
    assert backfill.status(driver.home, planned.id)["state"] == "rolled back"
    assert windows(driver) == [*OLD[:2], ("UA", "12:00", 2)]
    assert driver.audit() == []
    again = drive(delays)
    again.run()
    assert windows(again) == [*OLD[:2], ("UA", "12:00", 3)]
    assert len(again.late("gold.delays")) == 2
    assert again.audit() == []


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset())
@hw.check("known", "carrier IS NOT NULL", action="quarantine")
def clean(departures: DataFrame) -> DataFrame:
    return departures


cleaned = hw.table("silver.departures", event_time="departed_at", watermark="30 minutes")


def cleaner() -> Job:
    @hw.job(name="clean", target=hw.delta("silver.departures"), dedup=hw.by_offset())
    @hw.check("known", "carrier <> 'DL'", action="quarantine")
    def clean(departures: DataFrame) -> DataFrame:
        return departures.withColumn("delay_hours", F.col("delay_minutes") / 60)

    return bind(clean)


SWAP_STEPS = {
    "before rebuild of another table": "verified",
    "after rebuild of another table": "swapping",
    "before rebuild of the table": "swapping",
    "after rebuild of the table": "swapped",
}


def test_rebuild_does_not_undo_what_others_did_to_the_table_since_it_was_verified(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver, job = ready(three_batches, delays), by_half_hour()
    context = driver.context
    planned = backfill.plan_rebuild(context, job)
    backfill.run(context, planned.id, job)
    backfill.verify(context, planned.id, job)
    send(driver, event("12:31", "UA", 9))
    driver.run()  # the job's own batches are foreseen
    DeltaTable(str(driver.home.table("gold.delays"))).delete("carrier = 'DL'")
    with pytest.raises(
        BackfillError, match=r"was changed by DELETE \(version \d+\) since .* verify it again"
    ):
        backfill.swap(context, planned.id)
    assert [row[:2] for row in windows(driver)] == [("UA", "10:00"), ("UA", "12:00")]
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.diff.added == 2, "the row that was deleted, and a half hour"
    backfill.swap(context, planned.id)
    driver = drive(job)
    driver.run()
    assert ("DL", "10:00", 1, 5) in windows(driver)


def one_batch(driver: JobDriver) -> None:
    send(driver, event("10:00", "UA", 60), event("10:05", "DL", 5), event("10:59", None, 1))
    driver.run()


def test_rebuild_that_is_killed_at_any_step_ends_as_one_that_is_not(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver, job = ready(one_batch, clean), cleaner()
    context = driver.context
    planned = backfill.plan_rebuild(context, job)
    driver.crash_at("shadow before commit")
    with pytest.raises(SimulatedCrash):
        backfill.run(context, planned.id, job)
    assert backfill.status(driver.home, planned.id)["state"] == "planned"
    backfill.run(context, planned.id, job)
    assert backfill.verify(context, planned.id, job).passed
    other = backfill.plan_rebuild(context, bind(clean))
    backfill.run(context, other.id, bind(clean))
    backfill.verify(context, other.id, bind(clean))
    send(driver, event("11:00", "AA", 30))
    for step, state in SWAP_STEPS.items():
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.swap(context, planned.id)
        assert backfill.status(driver.home, planned.id)["state"] == state
        done = state == "swapped"
        expected = [(0, "UA", 1.0)] if done else [(0, "UA"), (1, "DL")]
        columns = ("_offset", "carrier", "delay_hours") if done else ("_offset", "carrier")
        assert driver.rows("silver.departures", *columns) == expected
        if state == "swapping":
            with pytest.raises(BackfillError, match=r"another backfill of silver\.departures has changed"):
                backfill.swap(context, other.id)
            with pytest.raises(
                IncompatibleStateError, match=f"the backfill '{planned.id}' has changed silver"
            ):
                driver.run()
    backfill.swap(context, planned.id)
    assert driver.audit() == []
    reasons = [reason for reason, _ in driver.quarantined("silver.departures")]
    assert len(reasons) == 2

    after = drive(job)
    after.send("departures", event("11:05", "DL", 5), offset=4, timestamp=AT)
    after.run()
    assert after.rows("silver.departures", "_offset", "carrier") == [(0, "UA"), (3, "AA")]
    assert after.audit() == []
    with pytest.raises(BackfillError, match="is swapped in, in part or whole"):
        backfill.run(context, planned.id, job)
    for what in ("another table", "the table"):
        driver.crash_at(f"before restore of {what}")
        with pytest.raises(SimulatedCrash):
            backfill.rollback(context, planned.id)
    backfill.rollback(context, planned.id)
    again = drive(clean)
    again.run()
    assert again.rows("silver.departures", "_offset", "carrier") == [
        (0, "UA"),
        (1, "DL"),
        (3, "AA"),
        (4, "DL"),
    ]
    assert [offset for (offset,) in again.rows("silver.departures__quarantine", "_offset")] == [2]
    assert again.audit() == []


def test_rebuild_that_is_taken_back_half_way_leaves_the_job_as_it_was(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(one_batch, clean), cleaner()
    planned = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    backfill.verify(driver.context, planned.id, job)
    driver.crash_at("before rebuild of the table")
    with pytest.raises(SimulatedCrash):
        backfill.swap(driver.context, planned.id)
    assert len(driver.quarantined("silver.departures")) == 2
    backfill.rollback(driver.context, planned.id)
    assert [offset for (offset,) in driver.rows("silver.departures__quarantine", "_offset")] == [2]
    with pytest.raises(BackfillError, match="was rolled back; plan again"):
        backfill.swap(driver.context, planned.id)
    assert backfill.plan_rebuild(driver.context, job).id != planned.id
    # The next generation has the number of the one that was given up, and may have batches of the same numbers.
    assert last_batch(driver.home.table("silver.departures__quarantine"), "clean/2") == -1
    send(driver, event("11:00", None, 30))
    driver.run()
    assert len(driver.quarantined("silver.departures")) == 2
    assert driver.ledger("silver.departures")[-1].generation == 1
    assert driver.audit() == []
    again = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, again.id, job)
    assert backfill.verify(driver.context, again.id, job).passed
    assert backfill.swap(driver.context, again.id)["generation"] == 2
    assert driver.audit() == []

    # A side table is the ingest job's, too, which does not wait for this one's swap.
    quarantine, waiting = driver.home.table("silver.departures__quarantine"), [98, 99]

    def beside(_: str, step: str, __: int) -> None:
        if step == "before restore of another table" and waiting:
            row = DeltaTable(str(quarantine)).to_pyarrow_table().slice(0, 1)
            offset = pa.array([waiting.pop()], pa.int64())
            row = row.set_column(row.schema.get_field_index("_offset"), "_offset", offset)
            write_deltalake(str(quarantine), row, mode="append")

    backfill.rollback(replace(driver.context, step=beside), again.id)
    assert [at for (at,) in driver.rows("silver.departures__quarantine", "_offset")] == [2, 3, 98, 99]


def test_rebuild_is_followed_by_a_job_that_runs(
    drive: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(clean)
    send(driver, event("10:00", "UA", 60))
    runner = JobRunner(driver.context, [bind(clean)], progress_every_s=None)
    runner.start(interval_s=0.1)
    try:
        watch_until(runner, lambda: len(_offsets(driver)) == 1)
        planned = backfill.plan_rebuild(driver.context, bind(clean))
        backfill.run(driver.context, planned.id, bind(clean))
        assert backfill.verify(driver.context, planned.id, bind(clean)).passed
        backfill.swap(driver.context, planned.id)
        with monkeypatch.context() as patch:
            patch.setattr(StreamingQuery, "exception", _asked_just_before_it_ends(StreamingQuery.exception))
            send(driver, event("10:05", "DL", 5))
            watch_until(runner, lambda: runner.queries["clean"].generation == 2)
        watch_until(runner, lambda: len(_offsets(driver)) == 2)

        # Another code than the one that runs is not gone on with.
        other = backfill.plan_rebuild(driver.context, cleaner())
        backfill.run(driver.context, other.id, cleaner())
        backfill.verify(driver.context, other.id, cleaner())
        backfill.swap(driver.context, other.id)
        send(driver, event("10:06", "UA", 5))
        with pytest.raises(IncompatibleStateError, match=r"was built with other code .* start the job again"):
            watch_until(runner, lambda: False)
    finally:
        runner.stop()
    assert _offsets(driver) == [0], "nothing was written by the old code"
    assert driver.audit() == []


def _asked_just_before_it_ends(exception: Callable[[StreamingQuery], Any]) -> Callable[[StreamingQuery], Any]:
    def ask(query: StreamingQuery) -> Any:
        with suppress(StreamingQueryException):
            query.awaitTermination(30)
        return exception(query)

    return ask


def test_job_behind_a_rebuild_waits_for_its_own_beside_others_that_go_on(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("gold.copies"))
    def copies(cleaned: DataFrame) -> DataFrame:
        return cleaned.select("carrier")

    @hw.job(target=hw.delta("silver.others"), dedup=hw.by_offset())
    def others(departures: DataFrame) -> DataFrame:
        return departures.select("carrier")

    driver = drive(clean, others, copies)
    context, jobs = driver.context, [bind(clean), bind(others), bind(copies)]
    send(driver, event("10:00", "UA", 60))
    runner = JobRunner(context, jobs, progress_every_s=None, restarts=Restarts(BackOff(0.1, 0.5)))
    runner.start(interval_s=0.1)

    def has(table: str, rows: int) -> Callable[[], bool]:
        return lambda: table in driver.home.tables() and driver.table(table).count() == rows

    try:
        watch_until(runner, has("gold.copies", 1))
        first, second = _one_behind_another(driver, jobs[0], jobs[2])
        backfill.swap(context, first)
        with pytest.raises(BackfillError, match=r"is swapped in by now, .* is run and verified before that"):
            backfill.verify(context, second, jobs[2])
        send(driver, event("10:05", "DL", 5))
        watch_until(runner, lambda: "copies" not in runner.queries)
        watch_until(runner, has("silver.others", 2))
        watch_until(runner, has("silver.departures", 2))
        assert driver.table("gold.copies").count() == 1
        backfill.swap(context, second)
        watch_until(runner, has("gold.copies", 2))
    finally:
        runner.stop()
    with pytest.raises(IncompatibleStateError, match=r"the rows of silver\.departures"):
        _started_behind_a_rebuild(driver, jobs)
    assert driver.audit() == []


@pytest.mark.story
def test_job_that_waits_does_not_go_on_in_a_table_that_was_built_with_other_code(
    drive: Callable[..., JobDriver],
) -> None:
    def copies(least: int) -> Job:
        @hw.job(name="copies", target=hw.delta("gold.copies"))
        def copies(cleaned: DataFrame) -> DataFrame:
            return cleaned.select("carrier", F.lit(least).alias("least"))

        return bind(copies)

    driver = drive(clean, copies(1))
    send(driver, event("10:00", "UA", 60))
    driver.run()
    runner = JobRunner(
        driver.context, [bind(clean), copies(1)], progress_every_s=None, restarts=Restarts(BackOff(0.1, 0.5))
    )
    runner.start(interval_s=0.1)
    try:
        first, second = _one_behind_another(driver, bind(clean), copies(2))
        backfill.swap(driver.context, first)
        send(driver, event("10:05", "DL", 5))
        watch_until(runner, lambda: "copies" not in runner.queries)
        backfill.swap(driver.context, second)
        with pytest.raises(IncompatibleStateError, match=r"was built with other code .* start the job again"):
            watch_until(runner, lambda: driver.table("gold.copies").count() == 2)
    finally:
        runner.stop()
    assert driver.rows("gold.copies", "carrier", "least") == [("UA", 2)]
    drive(clean, copies(2)).run()
    assert driver.rows("gold.copies", "carrier", "least") == [("DL", 2), ("UA", 2)]
    assert driver.audit() == []


def _one_behind_another(driver: JobDriver, first: Job, second: Job) -> tuple[str, str]:
    """Rebuilds a table and the one that a job makes of it; both can be swapped in then."""
    one = backfill.plan_rebuild(driver.context, first)
    backfill.run(driver.context, one.id, first)
    other = backfill.plan_rebuild(driver.context, second, behind=[one.id])
    backfill.run(driver.context, other.id, second)
    for planned, job in ((other, second), (one, first)):
        assert backfill.verify(driver.context, planned.id, job).passed
    return one.id, other.id


def _started_behind_a_rebuild(driver: JobDriver, jobs: list[Job]) -> None:
    again = backfill.plan_rebuild(driver.context, jobs[0])
    backfill.run(driver.context, again.id, jobs[0])
    backfill.verify(driver.context, again.id, jobs[0])
    backfill.swap(driver.context, again.id)
    runner = JobRunner(driver.context, jobs, progress_every_s=None, restarts=Restarts(BackOff(0.1, 0.5)))
    try:
        runner.start(interval_s=0.1)
    finally:
        runner.stop()


def _offsets(driver: JobDriver) -> list[Any]:
    path = driver.home.table("silver.departures") / "_delta_log"
    return [o for (o,) in driver.rows("silver.departures", "_offset")] if path.exists() else []


arrivals = hw.topic(
    "arrivals",
    schema="carrier STRING, landed_at TIMESTAMP",
    event_time="landed_at",
    watermark="30 minutes",
)


def flights(within: str) -> Job:
    @hw.job(name="flights", target=hw.delta("gold.flights"))
    def join(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
        return hw.join(
            departures.drop("delay_minutes"),
            arrivals,
            on=["carrier"],
            left_time="departed_at",
            right_time="landed_at",
            within=within,
        )

    return bind(join)


def rows(known: str) -> Job:
    @hw.job(name="rows", target=hw.delta("silver.rows"), dedup=hw.by_offset())
    @hw.check("known", known, action="quarantine")
    def function(departures: DataFrame) -> DataFrame:
        return departures

    return bind(function)


def one_repaired_batch(driver: JobDriver) -> None:
    """The repair takes a row out of quarantine again."""
    one_batch(driver)
    better = rows("carrier IS NOT NULL")
    repair = backfill.plan(driver.context, better, offsets={"departures": {0: (0, 3)}})
    backfill.run(driver.context, repair.id, better)
    assert backfill.verify(driver.context, repair.id, better).passed
    backfill.swap(driver.context, repair.id)
    assert len(driver.quarantined("silver.rows")) == 1
    assert driver.audit() == []


@pytest.mark.parametrize("beside", [True, False])
def test_rebuild_leaves_no_account_of_a_repair_that_it_undid(
    ready: Callable[..., JobDriver], beside: bool
) -> None:
    job = rows("carrier IS NOT NULL AND carrier <> 'DL'")
    driver = ready(one_repaired_batch, job)
    if beside:
        rebuild = backfill.plan_rebuild(driver.context, job)
        backfill.run(driver.context, rebuild.id, job)
        assert backfill.verify(driver.context, rebuild.id, job).passed
        backfill.swap(driver.context, rebuild.id)
    else:
        begin_generations(driver.context, [job], "rebuild", lambda _: NoLease())
    driver.run()
    assert len(driver.quarantined("silver.rows")) == 2
    assert driver.audit() == []
    if beside:
        backfill.rollback(driver.context, rebuild.id)
        assert len(driver.quarantined("silver.rows")) == 1
        assert driver.audit() == []


def waiting_flights(driver: JobDriver) -> None:
    send(driver, event("10:00", "UA", 0), event("10:20", "DL", 0))
    driver.send("arrivals", {"carrier": "UA", "landed_at": "2013-01-01T11:30:00Z"}, timestamp=AT)
    driver.run()
    assert driver.rows("gold.flights", "carrier") == []


def test_rebuild_of_a_join_has_its_waiting_rows(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver, wider = ready(waiting_flights, flights("1 hour")), flights("2 hours")
    planned = backfill.plan_rebuild(driver.context, wider)
    backfill.run(driver.context, planned.id, wider)
    verdict = backfill.verify(driver.context, planned.id, wider)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.added, verdict.diff.removed) == (1, 0)
    backfill.swap(driver.context, planned.id)
    after = drive(wider)
    after.send("arrivals", {"carrier": "DL", "landed_at": "2013-01-01T12:00:00Z"}, offset=1, timestamp=AT)
    after.run()
    assert after.rows("gold.flights", "carrier") == [("DL",), ("UA",)]
    assert after.audit() == []


places = hw.topic("places", schema="id INT, name STRING, at INT")


def history_of(*columns: str) -> Job:
    @hw.job(name="places", target=hw.scd2("dim.places", keys=["id"], sequence_by="at"))
    def current(places: DataFrame) -> DataFrame:
        return places.select("id", "at", *columns)

    return bind(current)


@pytest.mark.story
def test_rebuild_of_a_dimension_takes_its_changes_with_it(drive: Callable[..., JobDriver]) -> None:
    driver, named = drive(history_of()), history_of("name")
    driver.send("places", {"id": 1, "name": "a", "at": 1}, {"id": 1, "name": "b", "at": 5})
    driver.run()
    planned = backfill.plan_rebuild(driver.context, named)
    assert "dim.places__changes" in planned.tables
    backfill.run(driver.context, planned.id, named)
    assert backfill.verify(driver.context, planned.id, named).passed
    backfill.swap(driver.context, planned.id)
    after = drive(named)
    after.send("places", {"id": 1, "name": "c", "at": 3}, offset=2)
    after.run()
    assert after.rows("dim.places", "valid_from", "name") == [(1, "a"), (3, "c"), (5, "b")]
    assert after.audit() == []
