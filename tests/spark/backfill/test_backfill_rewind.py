"""Rewinds: table, checkpoint and offsets back to an earlier commit, then forward again, to the same tables."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.cli.late import late
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.ledger.log import commits
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver, SimulatedCrash

clicks = hw.topic(
    "clicks",
    schema="who STRING, clicked_at TIMESTAMP, pages INT",
    event_time="clicked_at",
    watermark="30 minutes",
)
good = hw.table("silver.clicks", event_time="clicked_at", watermark="30 minutes")
AT = "2013-01-01T14:00:00Z"


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
@hw.check("known", "who IS NOT NULL", action="quarantine")
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("gold.pages", keys=["who", "window_start"], mode="update"))
def pages(good: DataFrame) -> DataFrame:
    return hw.tumbling(good, "clicked_at", "1 hour", by=["who"]).agg(F.sum("pages").alias("pages"))


def click(time: str, who: str | None, pages: int) -> dict[str, object]:
    return {"who": who, "clicked_at": f"2013-01-01T{time}:00Z", "pages": pages}


def send(driver: JobDriver, *clicks: dict[str, object], of: int | None = None) -> None:
    """Sends clicks, with the origin offsets from `of` on."""
    origin = None if of is None else ("far", "clicks", 0, of)
    driver.send("clicks", *clicks, timestamp=AT, origin=origin)


def put_back(driver: JobDriver, job: Job, version: int) -> backfill.RewindPlan:
    planned = backfill.plan_rewind(driver.context, job, version=version)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    return planned


def rows(driver: JobDriver) -> list[tuple[Any, ...]]:
    return driver.rows("silver.clicks", "who", "pages")


def version_of(driver: JobDriver, table: str, batch: int) -> int:
    """The version in which a batch of the first generation was committed."""
    made = [entry for entry in driver.ledger(table) if entry.is_batch and entry.generation == 1]
    return made[batch].batch + 1  # the table was made by version 0


def four_batches(driver: JobDriver) -> None:
    """A row each; the third is rejected."""
    for number in range(4):
        who = None if number == 2 else f"u{number}"
        send(driver, click("10:00", who, number), of=number)
        driver.run()
    assert rows(driver) == [("u0", 0), ("u1", 1), ("u3", 3)]


@pytest.mark.story
def test_rewind_of_rows_reads_them_again_and_can_be_taken_back(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(four_batches, clean), bind(clean)
    everything = rows(driver)
    with pytest.raises(BackfillError, match=r"silver\.clicks has no version 99; its newest is 4"):
        backfill.plan_rewind(driver.context, job, version=99)
    with pytest.raises(BackfillError, match=r"has written nothing to silver\.clicks after version 4"):
        backfill.plan_rewind(driver.context, job, version=4)
    with pytest.raises(
        BackfillError, match=r"oldest batch of the job 'clean' in silver\.clicks is version 1"
    ):
        backfill.plan_rewind(driver.context, job, version=0)

    planned = backfill.plan_rewind(driver.context, job, version=version_of(driver, "silver.clicks", 1))
    assert (planned.batch, planned.rows, planned.ranges) == (1, 2, {"clicks": {0: (2, 4)}})
    with pytest.raises(BackfillError, match="is not verified as it is now"):
        backfill.swap(driver.context, planned.id)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert (verdict.passed, verdict.diff.removed, verdict.diff.unchanged) == (True, 1, 2)
    for step, left in (
        ("before rewind of another table", 1),
        ("after rewind of another table", 0),
        ("before rewind of the table", 0),
    ):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.swap(driver.context, planned.id)
        assert rows(driver) == everything
        assert len(driver.quarantined("silver.clicks")) == left
    backfill.swap(driver.context, planned.id)
    assert backfill.status(driver.home, planned.id)["state"] == "swapped"
    assert rows(driver) == everything[:2]
    assert driver.audit() == []

    # Forward again: the same records, told from those that are sent once more.
    send(driver, click("10:00", "u3", 3), of=3)
    driver.run()
    assert rows(driver) == everything
    assert len(driver.quarantined("silver.clicks")) == 1
    assert driver.audit() == []
    assert driver.ledger("silver.clicks")[-1].generation == 2

    rolled = backfill.rollback(driver.context, planned.id)
    assert rolled["generation"] == 3
    driver.run()
    assert rows(driver) == everything
    assert driver.accounting("silver.clicks")["duplicate"] == 2, "the one sent again, in two generations"
    assert driver.audit() == []


def test_rewind_goes_to_any_batch_that_the_table_comes_from(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(four_batches, clean), bind(clean)
    everything = rows(driver)
    first = [(each.version, each.batch) for each in backfill.versions(driver.home, job)]
    assert [batch for _, batch in first] == [0, 1, 2, 3]
    versions = {batch: version for version, batch in first}

    # Back, forward in another generation, and back again to before that.
    rewound = put_back(driver, job, versions[2])
    assert rows(driver) == everything[:2]
    driver.run()
    send(driver, click("10:00", "u4", 4), of=4)
    driver.run()
    found = backfill.versions(driver.home, job)
    assert [(each.generation, each.batch) for each in found] == [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)]
    assert [each.why_not for each in found] == [None, None, None, None, "it is the last one"]
    assert [(each.read, each.written) for each in found] == [(1, 1), (1, 1), (1, 0), (1, 1), (1, 1)]
    with pytest.raises(BackfillError, match="was taken back by version"):
        backfill.plan_rewind(driver.context, job, version=versions[3])
    again = put_back(driver, job, versions[0])
    assert (again.origin, again.generation, again.rows) == (1, 3, 4)
    assert rows(driver) == everything[:1]
    assert driver.quarantined("silver.clicks") == []
    assert driver.audit() == []
    driver.run()
    assert rows(driver) == [*everything, ("u4", 4)]
    assert [offset for (offset,) in driver.rows("silver.clicks__quarantine", "_offset")] == [2]
    assert driver.audit() == []

    # The way back from that, and then to a batch of the first generation once more.
    backfill.rollback(driver.context, again.id)
    assert rows(driver) == [*everything, ("u4", 4)]
    assert [offset for (offset,) in driver.rows("silver.clicks__quarantine", "_offset")] == [2]
    assert driver.audit() == []
    assert put_back(driver, job, versions[1]).origin == 1
    assert rows(driver) == everything[:2]
    assert driver.audit() == []
    driver.run()
    assert rows(driver) == [*everything, ("u4", 4)]
    assert len(driver.quarantined("silver.clicks")) == 1
    assert driver.audit() == []
    with pytest.raises(BackfillError, match="plan again"):
        backfill.rollback(driver.context, rewound.id)


def version_at(driver: JobDriver, batch: int) -> int:
    """The version in which a batch was committed to a table that was repaired between."""
    made = commits(driver.home.table("silver.clicks"))
    return next(
        c.version for c in made if c.entry is not None and c.entry.is_batch and c.entry.batch == batch
    )


def test_rewind_leaves_what_repairs_did_to_the_quarantine(drive: Callable[..., JobDriver]) -> None:
    @hw.job(name="clean", target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
    @hw.check("known", "who <> 'u0'", action="quarantine")
    def clean_better(clicks: DataFrame) -> DataFrame:
        return clicks

    driver, job, better = drive(clean), bind(clean), bind(clean_better)

    def repaired(offsets: tuple[int, int]) -> str:
        planned = backfill.plan(driver.context, better, offsets={"clicks": {0: offsets}})
        backfill.run(driver.context, planned.id, better)
        assert backfill.verify(driver.context, planned.id, better).passed
        backfill.swap(driver.context, planned.id)
        return planned.id

    send(driver, click("10:00", "u0", 0), click("10:00", None, 1), of=0)
    driver.run()
    backfill.rollback(driver.context, repaired((0, 2)))
    for number in (2, 3):
        send(driver, click("10:00", f"u{number}", number), of=number)
        driver.run()
    everything = rows(driver)

    # A repair that came after the plan, in whole or half, would be undone unawares.
    version = version_at(driver, batch=1)
    planned = backfill.plan_rewind(driver.context, job, version=version)
    assert backfill.verify(driver.context, planned.id, job).passed
    half = backfill.plan(driver.context, better, offsets={"clicks": {0: (0, 3)}})
    backfill.run(driver.context, half.id, better)
    assert backfill.verify(driver.context, half.id, better).passed
    driver.crash_at("after quarantine swap")
    with pytest.raises(SimulatedCrash):
        backfill.swap(driver.context, half.id)
    with pytest.raises(
        BackfillError, match=r"has changed silver\.clicks__quarantine and not silver\.clicks yet"
    ):
        backfill.swap(driver.context, planned.id)
    other = backfill.plan(driver.context, better, offsets={"clicks": {0: (0, 2)}})
    backfill.run(driver.context, other.id, better)
    assert backfill.verify(driver.context, other.id, better).passed
    with pytest.raises(
        BackfillError, match=r"has changed silver\.clicks__quarantine and not silver\.clicks yet"
    ):
        backfill.swap(driver.context, other.id)
    backfill.swap(driver.context, half.id)
    with pytest.raises(BackfillError, match=r"was repaired by clean-\w+ since the backfill"):
        backfill.swap(driver.context, planned.id)
    backfill.rollback(driver.context, half.id)
    send(driver, click("10:00", "u4", 4), of=4)
    driver.run()
    send(driver, click("10:00", None, 5), of=5)
    driver.run()
    put_back(driver, job, version_at(driver, batch=3))
    assert rows(driver) == [*everything, ("u4", 4)]
    assert [offset for (offset,) in driver.rows("silver.clicks__quarantine", "_offset")] == [1]
    assert driver.audit() == []
    driver.run()
    assert [offset for (offset,) in driver.rows("silver.clicks__quarantine", "_offset")] == [1, 5]
    assert driver.audit() == []


def test_rewind_goes_back_behind_repairs_and_undoes_them(ready: Callable[..., JobDriver]) -> None:
    @hw.job(name="clean", target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
    @hw.check("late_enough", "pages > 1", action="quarantine")
    def clean_better(clicks: DataFrame) -> DataFrame:
        return clicks.withColumn("who", F.coalesce("who", F.lit("nobody")))

    driver, job, better = ready(four_batches, clean), bind(clean), bind(clean_better)

    def rejected() -> list[int]:
        return [offset for (offset,) in driver.rows("silver.clicks__quarantine", "_offset")]

    everything = rows(driver)
    assert (len(everything), rejected()) == (3, [2])
    planned = backfill.plan(driver.context, better, offsets={"clicks": {0: (0, 3)}})
    backfill.run(driver.context, planned.id, better)
    assert backfill.verify(driver.context, planned.id, better).passed
    backfill.swap(driver.context, planned.id)
    repaired = [("nobody", 2), ("u3", 3)]
    assert (rows(driver), rejected()) == (repaired, [0, 1])
    send(driver, click("10:00", None, 4), of=4)
    driver.run()
    assert (rows(driver), rejected()) == (repaired, [0, 1, 4])

    # Back to before the repair: of its rows and of its quarantine nothing is left.
    rewound = put_back(driver, job, version_at(driver, batch=2))
    (note,) = [note for note in rewound.notes if "repair" in note]
    assert note.startswith(f"the repair {planned.id}, swapped in with version ")
    assert note.endswith(", is undone, too")
    assert (rows(driver), rejected()) == (everything[:2], [2])
    assert driver.audit() == []
    driver.run()
    assert (rows(driver), rejected()) == (everything, [2, 4])
    assert driver.audit() == []

    backfill.rollback(driver.context, rewound.id)
    driver.run()
    assert (rows(driver), rejected()) == (repaired, [0, 1, 4])
    assert driver.audit() == []


def two_windows_and_a_late_row(driver: JobDriver) -> None:
    for number, time in enumerate(("10:00", "10:10", "10:20", "11:40")):
        send(driver, click(time, "a", 10**number))
        driver.run()
    driver.send("clicks", click("10:30", "a", 5), timestamp=AT)
    driver.run()
    assert driver.rows("gold.pages", "pages") == [(1000,), (111,)]
    assert len(driver.late("gold.pages")) == 1


def test_rewind_of_windows_goes_back_behind_a_repair_and_its_rollback(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(two_windows_and_a_late_row, clean, pages), bind(pages)
    everything = driver.rows("gold.pages", "pages")
    planned = backfill.plan(driver.context, job, rows="late")
    backfill.run(driver.context, planned.id, job)
    assert backfill.verify(driver.context, planned.id, job).passed
    backfill.swap(driver.context, planned.id)
    folded_in = driver.rows("gold.pages", "pages")
    assert folded_in != everything
    put_back(driver, job, version_of(driver, "gold.pages", 1))
    assert driver.rows("gold.pages", "pages") == [(11,)]
    assert driver.audit() == []
    driver.run()
    assert driver.rows("gold.pages", "pages") == everything
    assert len(driver.late("gold.pages")) == 1
    assert driver.audit() == []
    # The late row is of nobody's repair now.
    assert backfill.plan(driver.context, job, rows="late").id != planned.id


def test_rewind_of_a_window_has_the_state_of_that_time(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(two_windows_and_a_late_row, clean, pages), bind(pages)
    everything = driver.rows("gold.pages", "pages")
    planned = put_back(driver, job, version_of(driver, "gold.pages", 1))
    assert driver.rows("gold.pages", "pages") == [(11,)]
    assert driver.late("gold.pages") == []
    assert driver.audit() == []
    driver.run()
    assert driver.rows("gold.pages", "pages") == everything
    assert len(driver.late("gold.pages")) == 1
    assert driver.audit() == []
    backfill.rollback(driver.context, planned.id)
    assert driver.rows("gold.pages", "pages") == everything
    send(driver, click("11:50", "a", 1))
    driver.run()
    assert driver.rows("gold.pages", "pages") == [(1001,), (111,)]
    assert len(driver.late("gold.pages")) == 1
    assert driver.audit() == []


timed = replace(clicks, watermark="30 minutes")


@hw.job(target=hw.delta("gold.hours"), late="count")
def hours(timed: DataFrame) -> DataFrame:
    return hw.tumbling(timed, "clicked_at", "1 hour", by=["who"]).agg(F.sum("pages").alias("pages"))


def closed_hours(driver: JobDriver) -> list[tuple[Any, ...]]:
    rows = driver.table("gold.hours").select("pages", F.expr("_sources[0].start"), F.expr("_sources[0].end"))
    return sorted(map(tuple, rows.collect()))


def five_hours(driver: JobDriver) -> None:
    """The row of 10:20 is late."""
    for number, time in enumerate(("10:00", "10:10", "11:40", "10:20", "13:00")):
        send(driver, click(time, "a", 10**number))
        driver.run()
    assert closed_hours(driver) == [(11, 0, 3), (100, 2, 5)]


def test_windows_that_nothing_keeps_the_rows_of_are_put_back_and_rebuilt(
    ready: Callable[..., JobDriver], deployed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job reads the topic itself, so state and offsets are in one checkpoint, and no part can be repaired."""
    driver, job = ready(five_hours, hours), bind(hours)
    assert driver.accounting("gold.hours")["late"] == 1
    late("gold.hours", limit=20, json_output=False, home=driver.home.root)
    assert "late rows of gold.hours, whose job only counts them: 1" in capsys.readouterr().err
    with pytest.raises(
        BackfillError, match=r"only counts its late rows.*headwater backfill plan JOB --rebuild"
    ):
        backfill.plan(driver.context, job)
    put_back(driver, job, version_of(driver, "gold.hours", 1))
    assert closed_hours(driver) == []
    driver.run()
    assert [row[0] for row in closed_hours(driver)] == [11, 100]
    assert [row[1] for row in closed_hours(driver)] == [0, 2]
    assert driver.audit() == []
    rebuilt = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, rebuilt.id, job)
    verdict = backfill.verify(driver.context, rebuilt.id, job)
    assert verdict.passed, verdict.findings
    # One batch reads it all, and in it nothing is late.
    assert (verdict.diff.changed, verdict.diff.unchanged) == (1, 1)
    backfill.swap(driver.context, rebuilt.id, accept_diff=verdict.diff.digest)
    send(driver, click("15:00", "a", 7))
    driver.run()
    assert [row[0] for row in closed_hours(driver)] == [100, 1011, 10000]
    assert driver.audit() == []


@hw.job(target=hw.delta("silver.once"), dedup=hw.by_key(["who"], within="1 hour"))
def once(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("gold.pairs"))
def pairs(good: DataFrame) -> DataFrame:
    return hw.count_window(good, "clicked_at", 2, by=["who"]).agg(F.sum("pages").alias("pages"))


def four_hours_of_two(driver: JobDriver) -> None:
    for number, time in enumerate(("10:00", "10:10", "11:00", "12:00")):
        send(driver, click(time, "a", 10**number), click(time, f"b{number // 2}", 7))
        driver.run()


def test_rewind_of_remembered_keys_has_those_of_that_time(ready: Callable[..., JobDriver]) -> None:
    driver = ready(four_hours_of_two, clean, once, pairs)
    everything = driver.rows("silver.once", "who", "clicked_at")
    planned = put_back(driver, bind(once), version_of(driver, "silver.once", 1))
    assert planned.rows == 4
    assert driver.audit() == []
    driver.run()
    assert driver.rows("silver.once", "who", "clicked_at") == everything
    assert driver.audit() == []

    # The rows that waited for a count window then were written anew, with others, since; both are kept.
    whole = driver.rows("gold.pairs", "who", "window_index", "pages")
    part = driver.home.checkpoint("pairs", 1) / "open_rows" / "1"
    part.rename(part.with_name("away"))
    with pytest.raises(BackfillError, match="remembered after batch 1 is not kept any more; plan a rebuild"):
        backfill.plan_rewind(driver.context, bind(pairs), version=version_of(driver, "gold.pairs", 1))
    part.with_name("away").rename(part)
    put_back(driver, bind(pairs), version_of(driver, "gold.pairs", 1))
    assert driver.rows("gold.pairs", "who", "window_index", "pages") == []
    driver.run()
    assert driver.rows("gold.pairs", "who", "window_index", "pages") == whole
    assert driver.audit() == []
    planned = backfill.plan_rebuild(driver.context, bind(pairs))
    backfill.run(driver.context, planned.id, bind(pairs))
    verdict = backfill.verify(driver.context, planned.id, bind(pairs))
    assert (verdict.passed, verdict.diff.unchanged) == (True, 2), verdict
    backfill.swap(driver.context, planned.id)
    send(driver, click("12:10", "a", 5), click("14:00", "z", 5))
    driver.run()
    rows = driver.rows("gold.pairs", "who", "window_index", "pages")
    assert rows == [("a", 0, 11), ("a", 1, 1100), ("b0", 0, 14), ("b1", 0, 14)]
    assert driver.audit() == []


places = hw.topic("places", schema="id INT, op STRING, at INT, city STRING")
_CHANGES: dict[str, Any] = {
    "keys": ["id"], "sequence_by": "at", "apply_as_deletes": "op = 'd'", "except_columns": ["op"],
}  # fmt: skip


def as_of_type(scd_type: int, city: str) -> Job:
    """Keeps cities as a dimension; `city` is SQL."""
    target = (hw.scd1 if scd_type == 1 else hw.scd2)("dim.places", **_CHANGES)

    @hw.job(name="keep", target=target, dedup=hw.by_offset())
    @hw.check("spelled", "city IS NULL OR city <> '?'")
    def keep(places: DataFrame) -> DataFrame:
        return places.withColumn("city", F.expr(city))

    return bind(keep)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_rewind_of_a_dimension_puts_its_changes_back_too(
    drive: Callable[..., JobDriver], scd_type: int
) -> None:
    """What a delete keeps away for good, and any event that a late one may come before, is known as of then."""
    job, mended = as_of_type(scd_type, "city"), as_of_type(scd_type, "upper(city)")
    driver = drive(job)

    def found() -> list[tuple[Any, ...]]:
        names = ("id", "at", "city") if scd_type == 1 else ("id", "valid_from", "valid_to", "city")
        return driver.rows("dim.places", *names)

    def kept() -> list[tuple[Any, ...]]:
        return driver.rows("dim.places__changes", "id", "at", "_deleted")

    batches: list[list[dict[str, object]]] = [
        [{"id": 1, "op": "c", "at": 1, "city": "Rome"}, {"id": 2, "op": "c", "at": 1, "city": "Bern"}],
        [{"id": 1, "op": "d", "at": 5}, {"id": 3, "op": "c", "at": 1, "city": "?"}],
        [{"id": 2, "op": "u", "at": 7, "city": "Oslo"}],
        [{"id": 1, "op": "u", "at": 3, "city": "Wien"}, {"id": 2, "op": "d", "at": 9}],
    ]
    before = []
    for batch in batches:
        driver.send("places", *batch, timestamp=AT)
        driver.run()
        before.append((found(), kept()))
        assert driver.audit() == []
    versions = {each.batch: each.version for each in backfill.versions(driver.home, job)}
    assert [*versions] == [0, 1, 2, 3]

    planned = backfill.plan_rewind(driver.context, job, version=versions[1])
    assert planned.tables == ("dim.places__quarantine", "dim.places__changes", "dim.places")
    assert (planned.batch, planned.rows) == (1, 3)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert verdict.beside["dim.places__changes"].diff.removed == (1 if scd_type == 1 else 3)
    for step in (
        "before rewind of another table",
        "after rewind of another table",
        "before rewind of the table",
    ):
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
        assert found() == before[-1][0]
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert (found(), kept()) == before[1]
    assert len(driver.quarantined("dim.places")) == 1
    assert driver.audit() == []
    driver.run()
    assert (found(), kept()) == before[-1]
    assert driver.audit() == []

    # The way back; then, with other code, to before there was any delete, from a batch that only its changes have.
    backfill.rollback(driver.context, planned.id)
    assert (found(), kept()) == before[-1]
    assert driver.audit() == []
    driver.send("places", {"id": 4, "op": "d", "at": 2}, timestamp=AT)
    driver.crash_at("before commit")
    with pytest.raises(SimulatedCrash):
        driver.run()
    assert kept() == [*before[-1][1], (4, 2, True)]
    put_back(driver, mended, versions[0])
    assert (found(), kept()) == before[0]
    assert driver.quarantined("dim.places") == []
    assert driver.audit() == []
    driver._jobs = [mended]
    driver.run()
    assert [row[:-1] for row in found()] == [row[:-1] for row in before[-1][0]]
    assert kept() == [*before[-1][1], (4, 2, True)]
    assert {row[-1] for row in found()} <= {"Rome", "Bern", "OSLO", "WIEN"}
    assert len(driver.quarantined("dim.places")) == 1
    assert driver.audit() == []
