"""What backfills of jobs with state wrote, beside what a batch makes of the raw topic, or of the table that is read.

sessions, gap 30 minutes         10:00     10:30     11:00     11:30
ann 10:00, then 10:15 and 10:20   a---------+
                                      a------a--------+           [10:00, 10:30) was written when they came
dan 11:00, then 11:15                                  d---------+
                                                            d---------+       still open
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill.rebuild.running import shadow_context
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.recompute import Recompute, Recomputed, recompute_rebuild, sampling
from headwater_streams.backfill.store import BackfillFolder, backfill_ids
from headwater_streams.delta.scd_target import ScdTarget
from headwater_streams.operators.joins.interval import How
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.storage.home import Home
from headwater_streams.testing import JobDriver

clicks = hw.topic(
    "clicks", schema="who STRING, at TIMESTAMP, value DOUBLE", event_time="at", watermark="1 minute"
)
bought = hw.topic(
    "bought", schema="who STRING, bought_at TIMESTAMP", event_time="bought_at", watermark="1 minute"
)


@hw.job(target=hw.delta("gold.sessions"))
@hw.check("positive", "value > 0", on="input", action="quarantine")
def sessions(clicks: DataFrame) -> DataFrame:
    grouped = hw.session(clicks.filter("value < 100"), "at", "30 minutes", by=["who"])
    return grouped.agg(F.sum("value").alias("total"), F.max("value").alias("highest"))


@hw.job(target=hw.delta("gold.pairs"), dedup=hw.by_offset(origin=True))
def pairs(clicks: DataFrame) -> DataFrame:
    return hw.count_window(clicks, "at", 2, by=["who"]).agg(F.sum("value").alias("total"))


def purchases(how: How) -> Callable[..., DataFrame]:
    @hw.job(name=f"purchases_{how}", target=hw.delta(f"gold.{how}"))
    @hw.check("named", "who IS NOT NULL", on="input", action="quarantine")
    def joined(clicks: DataFrame, bought: DataFrame) -> DataFrame:
        return hw.join(
            clicks, bought, on=["who"], left_time="at", right_time="bought_at", within="1 hour", how=how
        )

    return joined


@hw.job(target=hw.delta("gold.answers"))
@hw.check("named", "who IS NOT NULL", on="input", action="quarantine")
def answers(clicks: DataFrame, bought: DataFrame) -> DataFrame:
    return hw.as_of(
        clicks.filter("value < 100"), bought.withColumn("paid_at", F.col("bought_at")), by=["who"], left_time="at",
        right_time="bought_at", direction="nearest", tolerance="20 minutes",
    ).drop("bought_at")  # fmt: skip


silver_clicks = hw.table("silver.clicks", event_time="at", watermark="1 minute")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
def clean(clicks: DataFrame) -> DataFrame:
    return clicks.filter("value < 1000")


@hw.job(target=hw.delta("gold.hours"))
@hw.check("named", "who IS NOT NULL", on="input", action="quarantine")
def hours(silver_clicks: DataFrame) -> DataFrame:
    by_hour = hw.hopping(silver_clicks, "at", "1 hour", "30 minutes", by=["who"])
    return by_hour.agg(F.sum("value").alias("total"))


@hw.job(target=hw.delta("silver.once"), dedup=hw.by_key(["who", "value"], within="30 minutes"))
@hw.check("positive", "value > 0", on="input", action="quarantine")
def once(clicks: DataFrame) -> DataFrame:
    return clicks.filter("value <> 7")


@hw.job(target=hw.delta("gold.once"), dedup=hw.by_key(["who", "value"], within="30 minutes"))
@hw.check("positive", "value > 0", on="input", action="quarantine")
def once_by_hour(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 hour", by=["who"]).agg(F.sum("value").alias("total"))


again = hw.topic("clicks", schema="who STRING, at TIMESTAMP", event_time="at", watermark="20 minutes")


@hw.job(target=hw.delta("gold.next"))
@hw.check("positive", "value > 0", on="input", action="quarantine")
@hw.check("named", "who IS NOT NULL", on="input", action="quarantine")
def followed(clicks: DataFrame, again: DataFrame) -> DataFrame:
    later = again.withColumnRenamed("at", "then")
    return hw.join(clicks, later, on=["who"], left_time="at", right_time="then", within="30 minutes")


@hw.job(target=hw.delta("silver.both"), dedup=hw.by_offset(origin=True))
@hw.check("positive", "value > 0", on="input", action="quarantine")
@hw.check("named", "who IS NOT NULL", on="input", action="quarantine")
def both(clicks: DataFrame, bought: DataFrame) -> DataFrame:
    return hw.union(
        clicks.filter("value <> 7"), bought.withColumnRenamed("bought_at", "at"), allow_missing=True
    )


silver_bought = hw.table("silver.bought", event_time="bought_at", watermark="1 minute")


@hw.job(target=hw.delta("silver.bought"), dedup=hw.by_offset())
def paid_for(bought: DataFrame) -> DataFrame:
    return bought


@hw.job(target=hw.delta("gold.both"))
@hw.check("named", "who IS NOT NULL", on="input", action="quarantine")
def both_tables(silver_clicks: DataFrame, silver_bought: DataFrame) -> DataFrame:
    return hw.union(
        silver_clicks.filter("value <> 7"),
        silver_bought.withColumnRenamed("bought_at", "at"),
        allow_missing=True,
    )


@hw.job(target=hw.delta("gold.both_by_hour"))
def both_by_hour(silver_clicks: DataFrame, silver_bought: DataFrame) -> DataFrame:
    rows = hw.union(silver_clicks, silver_bought.withColumnRenamed("bought_at", "at"), allow_missing=True)
    return hw.tumbling(rows, "at", "1 hour", by=["who"]).agg(F.count("*").alias("events"))


def people(target: ScdTarget) -> Callable[..., DataFrame]:
    @hw.job(name="people", target=target, dedup=hw.by_offset(origin=True))
    @hw.check("moderate", "value < 1000", on="input", action="quarantine")
    def changes(clicks: DataFrame) -> DataFrame:
        return clicks.filter("value <> 7")

    return changes


@hw.job(target=hw.delta("gold.paid"))
def paid(silver_clicks: DataFrame) -> DataFrame:
    return silver_clicks.filter("value > 3").withColumn("twice", F.col("value") * 2)


AT = "2013-01-01T23:00:00Z"
Event = Mapping[str, object]
NOTHING = "nothing was recomputed from the raw topic"


def click(time: str, value: float, who: str | None = "ann") -> Event:
    return {"who": who, "at": f"2013-01-01T{time}:00Z", "value": value}


def buy(time: str, who: str | None = "ann") -> Event:
    return {"who": who, "bought_at": f"2013-01-01T{time}:00Z"}


class Rebuilt:
    """A job, and a rebuild of it that has caught up after each of the job's batches but the first."""

    def __init__(self, driver: JobDriver, job: Callable[..., DataFrame]) -> None:
        self.driver, self.job = driver, bind(job)

    @property
    def planned(self) -> RebuildPlan:
        (found,) = self._plans()
        return found

    def _plans(self) -> list[RebuildPlan]:
        """The job's rebuild, once it is planned."""
        plans = [BackfillFolder(self.driver.home, each).plan() for each in backfill_ids(self.driver.home)]
        return [each for each in plans if isinstance(each, RebuildPlan) and each.job == self.job.name]

    def deliver(self, *clicked: Event, bought: Sequence[Event] = (), origin: int | None = None) -> None:
        place = None if origin is None else ("east", "clicks", 0, origin)
        self.driver.send("clicks", *clicked, timestamp=AT, origin=place)
        if bought:
            self.driver.send("bought", *bought, timestamp=AT)
        self.driver.run()
        if not self._plans():
            backfill.plan_rebuild(self.driver.context, self.job)
        backfill.run(self.driver.context, self.planned.id, self.job)

    @property
    def home(self) -> Home:
        folder = BackfillFolder(self.driver.home, self.planned.id)
        return shadow_context(self.driver.context, folder, self.planned).home

    @property
    def table(self) -> Path:
        return self.home.table(self.planned.target)

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        found = DeltaTable(str(self.table)).to_pyarrow_dataset().to_table(columns=list(columns))
        rows = (tuple(row.values()) for row in found.to_pylist())
        return sorted(rows, key=lambda row: [(value is not None, value) for value in row])

    def recomputed(self, how: Recompute = "sample", seed: str | None = None) -> Recomputed:
        context = self.driver.context
        part = plan_jobs(context, [self.job])[-1]
        rows = context.spark.read.format("delta").load(str(self.table))
        planned = replace(self.planned, id=seed or self.planned.id)
        return recompute_rebuild(context, self.home, self.job, part, planned, rows, how)

    def detail(self, how: Recompute = "sample", *, seed: str | None = None, ok: bool = True) -> str:
        found = self.recomputed(how, seed)
        assert found.findings, found.notes
        assert found.findings[0].ok == ok, found.findings[0].detail
        return found.findings[0].detail


def tamper(table: Path, column: str, value: str, where: str) -> None:
    changed = DeltaTable(str(table)).update(updates={column: value}, predicate=where)
    assert changed["num_updated_rows"] == 1


def cut_off_sessions(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, sessions)
    rebuilt.deliver(
        click("10:00", 1), click("10:00", 1, "bob"), click("10:41", 2, "cid"), click("10:05", 100)
    )
    rebuilt.deliver(
        click("10:42", 3, "cid"), click("10:10", -1, "bob")
    )  # [10:00, 10:30) of ann and bob is written
    rebuilt.deliver(
        click("10:20", 4), click("10:15", 6), click("11:00", 7, "dan")
    )  # of ann, each in time by itself
    rebuilt.deliver(click("11:34", 9, "cid"), click("10:10", 50, "bob"))  # of bob, late
    rebuilt.deliver(click("11:35", 9, "cid"))  # [11:00, 11:30) of dan is written
    rebuilt.deliver(click("11:15", 1, "dan"), click("11:20", 1, "eve"))
    written = [("ann", 1.0), ("ann", 10.0), ("bob", 1.0), ("cid", 5.0), ("dan", 7.0)]
    assert rebuilt.rows("who", "total") == written


def test_recompute_of_sessions_compares_those_that_the_watermark_did_not_cut_off(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(ready(cut_off_sessions, sessions), sessions)
    note = "3 sessions that a row behind the watermark began or cut off were not compared"
    detail = "2 of 2 windows from 14 of 14 offsets of clicks"
    verdict = backfill.verify(rebuilt.driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    assert verdict.findings[-1].detail == f"{detail}, as they are written"
    assert verdict.notes[-1] == note
    # Of a sample those are told apart, too.
    monkeypatch.setattr(sampling, "LEAST", 8)
    assert rebuilt.detail(seed="seed 1").endswith("as they are written")
    tamper(rebuilt.table, "total", "6", "who = 'cid'")
    assert "total 6.0 is written, 5.0 recomputed" in rebuilt.detail("all", ok=False)
    DeltaTable(str(rebuilt.table)).delete("who = 'bob' OR total = 10")
    assert "2 recomputed rows not written" in rebuilt.detail("all", ok=False), (
        "bob's, and ann's as a batch gives it"
    )


def full_windows_and_copies(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, pairs)
    rebuilt.deliver(click("10:00", 1), click("10:10", 2), click("10:05", 4, "bob"), origin=0)
    rebuilt.deliver(click("10:20", 8), click("10:15", 16, "bob"), click("10:30", 32), origin=3)
    last = [click("10:04", 64), click("11:00", 128), click("11:10", 256), click("11:20", 512)]
    rebuilt.deliver(click("10:30", 32), *last, origin=5)
    made = [("ann", 3.0), ("ann", 40.0), ("ann", 384.0), ("bob", 20.0)]
    assert rebuilt.rows("who", "total") == made, "10:04 is late, and 11:20 waits"


def test_recompute_of_count_windows_leaves_copies_out_and_takes_full_windows_only(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(ready(full_windows_and_copies, pairs), pairs)
    detail = "4 of 4 windows from 11 of 11 offsets of clicks"
    assert rebuilt.detail() == f"{detail}, as they are written"
    tamper(rebuilt.table, "total", "41", "total = 40")
    assert "total 41.0 is written, 40.0 recomputed" in rebuilt.detail(ok=False)
    monkeypatch.setattr(sampling, "LEAST", 4)
    why = "its windows are counted from the first row of each key on, so it takes all offsets, and they are more"
    assert rebuilt.recomputed().notes == (f"{NOTHING}: {why} than a sample; --recompute all reads them",)
    assert "total of 1" in rebuilt.detail("all", ok=False)


JOINED: dict[How, int] = {"full": 8, "semi": 3}


def waiting_rows(driver: JobDriver, how: How) -> None:
    rebuilt = Rebuilt(driver, purchases(how))
    first = [click("10:00", 1), click("10:10", 2), click("10:20", 3, None), click("10:30", 4, "bob")]
    paid = [buy("10:05"), buy("10:05"), buy("10:40", "dan"), buy("11:40", "bob")]
    rebuilt.deliver(*first, bought=paid)
    later = [click("12:30", 5), click("10:05", 6), click("12:31", 7, "cid")]
    rebuilt.deliver(*later, bought=[buy("12:40"), buy("12:33", "eve")])
    rebuilt.deliver(click("12:32", 8), bought=[buy("12:41", "fay")])
    assert len(rebuilt.rows("who")) == JOINED[how]


@pytest.mark.parametrize("how", ["full", "semi"] if "HEADWATER_LONG" in os.environ else ["full"])
def test_recompute_of_joins_counts_the_rows_that_still_wait(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch, how: How
) -> None:
    job = purchases(how)
    rebuilt = Rebuilt(ready(waiting_rows, job, how=how), job)
    detail = f"{JOINED[how]} rows from 15 of 15 offsets of bought, clicks"
    assert rebuilt.detail() == f"{detail}, as they are written"
    tamper(rebuilt.table, "value", "5.5", "value = 5")
    assert "value 5.5 is written, 5.0 recomputed" in rebuilt.detail("all", ok=False)
    gone = "value = 4" if how == "full" else "value = 1"
    DeltaTable(str(rebuilt.table)).delete(gone)
    assert "not written" in rebuilt.detail("all", ok=False), (
        "one that is not there is not taken for one that waits"
    )
    monkeypatch.setattr(sampling, "LEAST", 4)
    assert rebuilt.recomputed().notes[0].endswith("more than a sample; --recompute all reads them")


def final_answers(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, answers)
    first = [click("10:00", 1), click("10:05", 2, "bob"), click("10:10", 3, None), click("10:15", 100)]
    rebuilt.deliver(*first, click("10:50", 4), bought=[buy("09:50"), buy("10:05"), buy("10:20", None)])
    rebuilt.deliver(click("10:30", 5), bought=[buy("10:31"), buy("10:29")])
    # One report is late, 10:02 would have been nearer to 10:00; of 10:50 and 11:00 the answer may still come.
    rebuilt.deliver(click("11:00", 6), bought=[buy("10:02"), buy("10:40", "bob"), buy("10:52", "eve")])
    rows = [(value, at and f"{at:%H:%M}") for value, at in rebuilt.rows("value", "paid_at")]
    assert rows == [(1.0, "10:05"), (2.0, None), (5.0, "10:29")]


def test_recompute_of_an_as_of_join_takes_the_answers_that_are_final(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(ready(final_answers, answers), answers)
    verdict = backfill.verify(rebuilt.driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    detail = "3 rows from 15 of 15 offsets of bought, clicks"
    assert verdict.findings[-1].detail == f"{detail}, as they are written"
    tamper(rebuilt.table, "value", "5.5", "value = 5")
    assert "value 5.5 is written, 5.0 recomputed" in rebuilt.detail("all", ok=False)
    tamper(rebuilt.table, "value", "5", "value = 5.5")
    DeltaTable(str(rebuilt.table)).delete("value = 2")
    assert "1 recomputed row not written" in rebuilt.detail("all", ok=False)
    monkeypatch.setattr(sampling, "LEAST", 4)
    assert rebuilt.recomputed().notes[0].endswith("more than a sample; --recompute all reads them")


def hours_of_a_table(driver: JobDriver) -> None:
    rebuilt, of_rows = Rebuilt(driver, hours), Rebuilt(driver, paid)
    rebuilt.deliver(click("10:00", 1), click("10:20", 2, None), click("10:50", 4, "bob"))
    rebuilt.deliver(click("12:00", 8), click("11:55", 16, "bob"), click("11:55", 5000))
    # 10:10 is late, 11:10 for [10:30, 11:30) only.
    rebuilt.deliver(click("10:10", 32), click("11:10", 64), click("12:40", 128))
    rebuilt.deliver(click("13:10", 256))
    made = {"ann": [1, 1, 8, 64], "bob": [4, 4, 16, 16]}
    assert rebuilt.rows("who", "total") == [(who, total) for who in made for total in made[who]]
    of_rows.deliver()


def test_recompute_of_jobs_that_read_a_table_takes_its_rows(ready: Callable[..., JobDriver]) -> None:
    driver = ready(hours_of_a_table, clean, hours, paid)
    rebuilt, of_rows = Rebuilt(driver, hours), Rebuilt(driver, paid)
    verdict = backfill.verify(driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    assert (
        verdict.findings[-1].detail == "8 of 8 windows from 10 of 10 offsets of clicks, as they are written"
    )
    tamper(rebuilt.table, "total", "65", "total = 64")
    assert "total 65.0 is written, 64.0 recomputed" in rebuilt.detail("all", ok=False)
    assert of_rows.detail() == "7 rows from 10 of 10 offsets of clicks, as they are written"
    tamper(of_rows.table, "twice", "17", "value = 8")
    assert "twice 17.0 is written, 16.0 recomputed" in of_rows.detail("all", ok=False)
    # A repair folds in what was late.
    planned = backfill.plan(driver.context, bind(hours))
    backfill.run(driver.context, planned.id, bind(hours))
    verdict = backfill.verify(driver.context, planned.id, bind(hours))
    assert verdict.passed, verdict.findings
    assert verdict.findings[-1].detail == "9 of 9 windows from 8 of 8 offsets of clicks, as they are written"


def copies_of_keys(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, once)
    rebuilt.deliver(click("10:00", 1), click("10:10", 1), click("10:00", -1), click("10:00", 7))
    # Not a copy of 10:10, which was not kept; then copies of what was kept, and of what the function filtered.
    rebuilt.deliver(click("10:31", 1), click("10:20", 2, None), click("10:00", 3, "bob"))
    rebuilt.deliver(click("10:02", 1), click("10:20", 2, None), click("10:01", 7), click("11:00", 3, "bob"))
    assert [(who, value) for who, value, _ in rebuilt.rows("value", "who", "at")] == [
        (1.0, "ann"), (1.0, "ann"), (2.0, None), (3.0, "bob"), (3.0, "bob"),
    ]  # fmt: skip


@pytest.mark.story
def test_recompute_of_rows_without_the_copies_of_a_key_judges_all_batches_again(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(ready(copies_of_keys, once), once)
    verdict = backfill.verify(rebuilt.driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    assert verdict.findings[-1].detail == "5 rows from 11 of 11 offsets of clicks, as they are written"
    monkeypatch.setattr(sampling, "LEAST", 8)
    assert rebuilt.detail() == "4 rows from 7 of 11 offsets of clicks, as they are written"
    monkeypatch.setattr(sampling, "LEAST", 3)
    why = "which of a key's rows stays depends on all that came before, and the first batch has more of them"
    assert rebuilt.recomputed().notes == (f"{NOTHING}: {why} than a sample; --recompute all reads them",)
    tamper(rebuilt.table, "at", "'2013-01-01T10:10:00Z'", "at = '2013-01-01T10:00:00Z' AND who = 'ann'")
    assert "at of 1" in rebuilt.detail("all", ok=False)
    DeltaTable(str(rebuilt.table)).delete("who IS NULL")
    assert "1 recomputed row not written" in rebuilt.detail("all", ok=False)


def windows_without_copies(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, once_by_hour)
    rebuilt.deliver(click("10:00", 1), click("10:10", 1), click("10:00", -1), click("10:50", 2))
    rebuilt.deliver(click("10:31", 1), click("11:10", 3), click("10:30", 4, "bob"))
    rebuilt.deliver(click("10:40", 8), click("10:35", 4, "bob"), click("12:30", 1))  # 10:40 is late
    rebuilt.deliver(click("12:40", 16))
    assert rebuilt.rows("who", "total") == [("ann", 3.0), ("ann", 4.0), ("bob", 4.0)]


def test_recompute_of_windows_without_the_copies_of_a_key(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(ready(windows_without_copies, once_by_hour), once_by_hour)
    detail = "3 of 3 windows from 11 of 11 offsets of clicks, as they are written"
    assert rebuilt.detail() == detail
    tamper(rebuilt.table, "total", "5", "total = 4 AND who = 'ann'")
    assert "total 5.0 is written, 4.0 recomputed" in rebuilt.detail(ok=False)
    monkeypatch.setattr(sampling, "LEAST", 4)
    why = "which of a key's rows stays depends on all that came before, so it takes all offsets, and they are more"
    assert rebuilt.recomputed().notes == (f"{NOTHING}: {why} than a sample; --recompute all reads them",)


PAIRS = [(1, 0), (1, 10), (1, 25), (2, 10), (2, 25), (2, 40), (3, 0), (3, 5), (4, 40)]


def late_on_one_side(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, followed)
    rebuilt.deliver(click("10:00", 1), click("10:10", 2), click("10:00", 3, "bob"))
    # bob's of 10:05, and 10:25, are late on the left side, in time on the right one.
    rebuilt.deliver(click("10:40", 4), click("10:05", 5, "bob"))
    rebuilt.deliver(click("10:25", 6))
    assert [(value, then.minute) for value, then in rebuilt.rows("value", "then")] == PAIRS  # type: ignore[attr-defined]


def test_recompute_of_a_join_of_a_topic_with_itself_tells_the_late_rows_of_its_sides(
    ready: Callable[..., JobDriver],
) -> None:
    rebuilt = Rebuilt(ready(late_on_one_side, followed), followed)
    verdict = backfill.verify(rebuilt.driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    assert (
        verdict.findings[-1].detail == f"{len(PAIRS)} rows from 6 of 6 offsets of clicks, as they are written"
    )
    tamper(rebuilt.table, "value", "4.5", "value = 4 AND then = '2013-01-01T10:40:00Z'")
    assert "value 4.5 is written, 4.0 recomputed" in rebuilt.detail("all", ok=False)
    rebuilt.deliver(click("10:50", -1))
    why = (
        "both sides of the join come from clicks, some of whose records are in quarantine, and by which side"
    )
    assert rebuilt.recomputed().notes == (f"{NOTHING}: {why} is not known",)


def union_with_copies(driver: JobDriver) -> None:
    rebuilt = Rebuilt(driver, both)
    rebuilt.deliver(
        click("10:00", 1), click("10:00", -1), bought=[buy("10:00"), buy("10:00", None)], origin=0
    )
    rebuilt.deliver(click("10:00", -1), click("10:10", 2), click("10:10", 7), origin=1)
    rebuilt.deliver(bought=[buy("10:20", "bob")])
    assert rebuilt.rows("value", "who") == [(None, "ann"), (None, "bob"), (1.0, "ann"), (2.0, "ann")]


def test_recompute_of_a_union_leaves_copies_and_bad_records_of_each_input_out(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(ready(union_with_copies, both), both)
    verdict = backfill.verify(rebuilt.driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    assert verdict.findings[-1].detail == "4 rows from 8 of 8 offsets of bought, clicks, as they are written"
    monkeypatch.setattr(sampling, "LEAST", 4)
    assert "as they are written" in rebuilt.detail()
    tamper(rebuilt.table, "value", "5", "who = 'bob'")
    assert "value of 1" in rebuilt.detail("all", ok=False)
    DeltaTable(str(rebuilt.table)).delete("value = 2")
    assert "1 recomputed row not written" in rebuilt.detail("all", ok=False)


def test_recompute_of_a_union_of_tables_takes_the_rows_of_each(drive: Callable[..., JobDriver]) -> None:
    driver = drive(clean, paid_for, both_tables, both_by_hour)
    rebuilt, by_hour = Rebuilt(driver, both_tables), Rebuilt(driver, both_by_hour)
    rebuilt.deliver(click("10:00", 1), click("10:10", 5000), click("10:20", 7))  # nothing was bought yet
    assert rebuilt.detail() == "1 row from 3 of 3 offsets of clicks, as they are written"
    rebuilt.deliver(click("10:30", 2), bought=[buy("10:40"), buy("10:40", None)])
    by_hour.deliver()
    assert rebuilt.rows("value", "who") == [(None, "ann"), (1.0, "ann"), (2.0, "ann")]
    verdict = backfill.verify(driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    assert verdict.findings[-1].detail == "3 rows from 6 of 6 offsets of bought, clicks, as they are written"
    tamper(rebuilt.table, "value", "5", "value = 2")
    assert "value 5.0 is written, 2.0 recomputed" in rebuilt.detail("all", ok=False)
    DeltaTable(str(rebuilt.table)).delete("value IS NULL")
    assert "1 recomputed row not written" in rebuilt.detail("all", ok=False)
    by_hour.deliver(click("12:00", 8), bought=[buy("12:10")])
    by_hour.deliver(click("12:20", 16))
    assert by_hour.rows("who", "events") == [(None, 1), ("ann", 4)]
    assert by_hour.detail() == "2 of 2 windows from 9 of 9 offsets of bought, clicks, as they are written"


SCD = {"scd1": hw.scd1, "scd2": hw.scd2}
PEOPLE = {
    "scd1": [("ann", 4.0), ("cid", 5.0)],
    "scd2": [("ann", 1.0), ("ann", 4.0), ("ann", 6.0), ("bob", 2.0), ("bob", 8.0), ("cid", 5.0)],
}


def dimension(scd: str) -> Callable[..., DataFrame]:
    return people(SCD[scd]("dim.people", keys=["who"], sequence_by="at", apply_as_deletes="value < 0"))


def three_batches_of_people(driver: JobDriver, scd: str) -> None:
    rebuilt = Rebuilt(driver, dimension(scd))
    rebuilt.deliver(click("10:00", 1), click("10:00", 2, "bob"), click("10:05", 3, None), origin=0)
    rebuilt.deliver(click("11:00", 4), click("11:00", -1, "bob"), click("11:00", 5, "cid"), origin=3)
    # A change between two others, one before a delete, copies, and what is rejected or of no interest.
    late = [click("10:30", 6), click("10:30", 8, "bob"), click("12:00", 5000), click("12:00", 7)]
    rebuilt.deliver(click("11:00", 5, "cid"), *late, click("12:00", 5, "cid"), origin=5)
    assert rebuilt.rows("who", "value") == PEOPLE[scd]


@pytest.mark.parametrize("scd", ["scd1", "scd2"] if "HEADWATER_LONG" in os.environ else ["scd2"])
def test_recompute_of_dimensions_takes_the_changes_of_all_batches_at_once(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch, scd: str
) -> None:
    job = dimension(scd)
    rebuilt = Rebuilt(ready(three_batches_of_people, job, scd=scd), job)
    verdict = backfill.verify(rebuilt.driver.context, rebuilt.planned.id, rebuilt.job)
    assert verdict.passed, verdict.findings
    detail = f"{len(PEOPLE[scd])} rows from 12 of 12 offsets of clicks"
    assert verdict.findings[-1].detail == f"{detail}, as they are written"
    tamper(rebuilt.table, "value", "4.5", "value = 4")
    assert "value 4.5 is written, 4.0 recomputed" in rebuilt.detail("all", ok=False)
    DeltaTable(str(rebuilt.table)).delete("who = 'cid'")
    assert "1 recomputed row not written" in rebuilt.detail("all", ok=False)
    monkeypatch.setattr(sampling, "LEAST", 4)
    assert rebuilt.recomputed().notes[0].endswith("more than a sample; --recompute all reads them")
