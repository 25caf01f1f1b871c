"""What a topic's columns and checks let into a job's ingest table, once they are others: told, and made anew."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import IncompatibleStateError
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations, ingest_of_other_code
from headwater_streams.testing import JobDriver

COLUMNS = "at TIMESTAMP, page STRING, n INT"
web = hw.topic("web", schema=COLUMNS, event_time="at", watermark="10 minutes")
other = hw.topic(
    "other", schema="seen_at TIMESTAMP, page STRING, n2 INT", event_time="seen_at", watermark="10 minutes"
)
wider = hw.topic("web", schema=f"{COLUMNS}, amount INT", event_time="at", watermark="10 minutes")
INGEST = "gold.pages__ingest_web"
PAGES = hw.delta("gold.pages", keys=["page", "window_start"], mode="update")


def pages(most: int) -> Job:
    """A count of pages, of rows that a check lets in."""

    @hw.job(name="pages", target=PAGES, dedup=hw.by_offset())
    @hw.check("small", f"n < {most}")
    def counted(web: DataFrame) -> DataFrame:
        return hw.tumbling(web, "at", "1 hour", by=["page"]).agg(F.count("*").alias("n"))

    return bind(counted)


def with_amounts() -> Job:
    """The same, after its topic's column `amount` was declared."""

    @hw.job(name="pages", target=PAGES, dedup=hw.by_offset())
    @hw.check("small", "n < 10")
    def counted(web: DataFrame) -> DataFrame:
        windows = hw.tumbling(web, "at", "1 hour", by=["page"])
        return windows.agg(F.count("*").alias("n"), F.sum("amount").alias("total"))

    return replace(bind(counted), inputs={"web": wider})


def three_records(driver: JobDriver) -> None:
    values = [{"at": "2013-01-01T10:00:00Z", "page": "a", "n": n, "amount": n * 2} for n in (1, 5, 20)]
    driver.send("web", *values, timestamp="2013-01-01T12:00:00+00:00")
    driver.run()
    assert driver.rows("gold.pages", "page", "n") == [("a", 2)]


@pytest.fixture
def ran(ready: Callable[..., JobDriver]) -> JobDriver:
    """The job has read three records, of which its check let in two."""
    return ready(three_records, pages(10))


def made_anew(driver: JobDriver, job: Job) -> list[str]:
    """Rebuilds of the ingest table and of what is behind it, swapped in."""
    planned: list[str] = []
    for table in (INGEST, None):
        each = backfill.plan_rebuild(driver.context, job, table=table, behind=planned)
        assert not any("were others" in note for note in each.notes)
        backfill.run(driver.context, each.id, job)
        verdict = backfill.verify(driver.context, each.id, job)
        assert verdict.passed, verdict.findings
        assert "recomputed" in {finding.name for finding in verdict.findings}
        planned.append(each.id)
    for id_ in planned:
        backfill.swap(driver.context, id_)
    return planned


@pytest.mark.parametrize(("most", "pages_left"), [(30, 3), (3, 1)], ids=["looser", "tighter"])
def test_backfill_behind_a_check_that_was_changed_says_so_and_judges_the_topic_anew_where_asked(
    ran: JobDriver, drive: Callable[..., JobDriver], most: int, pages_left: int
) -> None:
    job = pages(most)
    told = rf"{INGEST} has rows of when .* checks were others, .*plan pages --rebuild --table {INGEST}"
    for planned in (backfill.plan(ran.context, job), backfill.plan_rebuild(ran.context, job)):
        (note,) = [note for note in planned.notes if "were others" in note]
        assert re.search(told, note)
        backfill.run(ran.context, planned.id, job)
        assert note in backfill.verify(ran.context, planned.id, job).notes
    drive(job).run()  # whoever has run the new code since hears the same
    assert backfill.plan_rebuild(ran.context, job).notes == (note,)

    planned_ids = made_anew(ran, job)
    assert ran.rows("gold.pages", "page", "n") == [("a", pages_left)]
    assert len(ran.quarantined("gold.pages")) == 3 - pages_left
    again = drive(job)
    again.send("web", {"at": "2013-01-01T10:30:00Z", "page": "b", "n": 2})
    again.run()
    assert ran.rows("gold.pages", "page", "n") == [("a", pages_left), ("b", 1)]
    assert ran.audit() == []
    for id_ in reversed(planned_ids):
        backfill.rollback(ran.context, id_)
    assert ran.rows("gold.pages", "page", "n") == [("a", 2)]
    assert len(ran.quarantined("gold.pages")) == 1


@pytest.mark.story
def test_backfill_behind_a_column_that_was_added_reads_it_from_the_topic(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    job = with_amounts()
    with pytest.raises(IncompatibleStateError, match="headwater backfill plan pages --rebuild"):
        drive(job).run()
    with pytest.raises(
        BackfillError,
        match=rf"{INGEST} was made without the column amount.* --rebuild --table {INGEST}, or .* --ingest$",
    ):
        backfill.plan_rebuild(ran.context, job)
    made_anew(ran, job)
    assert ran.rows("gold.pages", "page", "n", "total") == [("a", 2, 12)]
    drive(job).run()
    assert ran.audit() == []


def test_rebuild_keeps_the_ingest_table_or_empties_it_where_asked(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    context, job = ran.context, pages(30)
    assert ingest_of_other_code(context, [pages(10)]) == []
    assert ingest_of_other_code(context, [job]) == [INGEST]
    begun = begin_generations(context, [job], "rebuild", lambda _: NoLease())
    assert [entry.table for entry in begun] == ["gold.pages"]
    drive(job).run()
    assert ran.rows("gold.pages", "page", "n") == [("a", 2)], "of what the old check let in"
    begun = begin_generations(context, [job], "rebuild", lambda _: NoLease(), ingest=True)
    assert [entry.table for entry in begun] == [INGEST, "gold.pages"]
    drive(job).run()
    assert ran.rows("gold.pages", "page", "n") == [("a", 3)]
    assert ingest_of_other_code(context, [job]) == []
    assert ran.audit() == []


def seen(*, with_amount: bool) -> Job:
    @hw.job(name="seen", target=hw.delta("gold.seen"))
    def pairs(web: DataFrame, other: DataFrame) -> DataFrame:
        return hw.as_of(web, other.drop("amount"), left_time="at", right_time="seen_at", by=["page"])

    columns = ", amount INT" if with_amount else ""
    declared = {
        "web": hw.topic("web", schema=COLUMNS + columns, event_time="at", watermark="10 minutes"),
        "other": hw.topic(
            "other",
            schema=f"seen_at TIMESTAMP, page STRING, n2 INT{columns}",
            event_time="seen_at",
            watermark="10 minutes",
        ),
    }
    return replace(bind(pairs), inputs=declared)


def one_of_each_side(driver: JobDriver) -> None:
    driver.send("web", {"at": "2013-01-01T10:00:00Z", "page": "a", "n": 1})
    driver.send("other", {"seen_at": "2013-01-01T09:59:00Z", "page": "a", "n2": 2})
    driver.run()


def test_rebuild_of_one_side_of_a_join_asks_for_nothing_of_the_other(ready: Callable[..., JobDriver]) -> None:
    driver = ready(one_of_each_side, seen(with_amount=False))
    job, sides = seen(with_amount=True), ("gold.seen__ingest_web", "gold.seen__ingest_other")
    for table in sides:
        planned = backfill.plan_rebuild(driver.context, job, table=table)
        (note,) = planned.notes
        assert note.endswith("in this order: headwater backfill plan seen --rebuild")
    with pytest.raises(BackfillError, match=rf"{sides[0]} was made without the column amount"):
        backfill.plan_rebuild(driver.context, job)
