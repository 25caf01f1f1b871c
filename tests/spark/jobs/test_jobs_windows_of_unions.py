"""Windows over a union of inputs: one stream, late by the greatest time of all of them.

web      10:01 a      10:02 /health                                    10:59 a (late)   12:01 a
shop     10:31 a      10:31 of 0 (rejected)   12:31 b
windows  [10:00, 11:00) a: 2, spent 5         [12:00, 13:00) b: 1                       a: 1
"""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.repair.jobs import same_job
from headwater_streams.base.errors import IncompatibleStateError, JobDefinitionError
from headwater_streams.ledger.audit import audit_table
from headwater_streams.operators.dedup import Dedup
from headwater_streams.plan.job import bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.testing import JobDriver, SimulatedCrash

web = hw.topic(
    "web", schema="user STRING, at TIMESTAMP, page STRING", event_time="at", watermark="10 minutes"
)
shop = hw.topic(
    "shop", schema="sold_at TIMESTAMP, user STRING, amount INT", event_time="sold_at", watermark="30 minutes"
)
early = hw.topic(
    "old", schema="user STRING, at TIMESTAMP, page STRING", event_time="at", watermark="1 minute"
)
kept = hw.table("silver.kept", event_time="at", watermark="1 minute")
endless = hw.topic("endless", schema="user STRING, at TIMESTAMP", event_time="at")
people = hw.lookup("dim.people")
AT = "2013-01-01T10:00:00+00:00"
HOURLY = hw.delta("gold.hourly", keys=["window_start", "user"], mode="update")


@hw.job(target=hw.delta("silver.kept"))
def keep(early: DataFrame) -> DataFrame:
    return early


@hw.job(target=HOURLY, dedup=hw.by_offset(origin=True))
@hw.check("positive", "amount > 0")
@hw.check("busy", "sum(n) > 0", on="output", level="batch", action="warn")
def hourly(web: DataFrame, shop: DataFrame) -> DataFrame:
    """What each user did in an hour."""
    bought = shop.withColumnRenamed("sold_at", "at")
    rows = hw.union(web.filter("page <> '/health'"), bought, allow_missing=True)
    windows = hw.tumbling(rows, "at", "1 hour", by=["user"])
    return windows.agg(F.count("*").alias("n"), F.sum("amount").alias("spent"))


def visit(at: str, user: str = "a", page: str = "/") -> dict[str, Any]:
    return {"user": user, "at": f"2013-01-01T{at}:00Z", "page": page}


def sale(at: str, amount: int, user: str = "a") -> dict[str, Any]:
    return {"user": user, "sold_at": f"2013-01-01T{at}:00Z", "amount": amount}


def hours(driver: JobDriver) -> list[tuple[Any, ...]]:
    hour = F.date_format("window_start", "HH:mm")
    rows = driver.table("gold.hourly").select(hour, "user", "n", "spent", "_rows")
    return sorted(tuple(row) for row in rows.collect())


def send_all(driver: JobDriver, *crashes: tuple[str, str]) -> None:
    """The events of the picture, three batches; the crashes come in the last one."""
    driver.send(
        "web", visit("10:01"), visit("10:02", page="/health"), timestamp=AT, origin=("east", "w", 0, 0)
    )
    driver.send("shop", sale("10:31", 5), sale("10:31", 0), b"none", timestamp=AT)
    driver.run()
    driver.send("shop", sale("12:31", 2, "b"), timestamp=AT)
    driver.run()
    driver.resend("web", 0, as_new=True)
    driver.send("web", visit("10:59"), visit("12:01"), timestamp=AT, origin=("east", "w", 0, 2))
    for step, job in crashes:
        driver.crash_at(step, job)
        with pytest.raises(SimulatedCrash):
            driver.run()
    driver.run()


def test_window_of_a_union_folds_each_record_once_whatever_is_killed(drive: Callable[..., JobDriver]) -> None:
    driver = drive(hourly)
    steps = [("before commit", "hourly__ingest_union"), ("after commit", "hourly__ingest_union")]
    send_all(
        driver, *steps, ("before late", "hourly"), ("before commit", "hourly"), ("after commit", "hourly")
    )
    assert hours(driver) == [("10:00", "a", 2, 5, 2), ("12:00", "a", 1, None, 1), ("12:00", "b", 1, 2, 1)]
    assert driver.late("gold.hourly", "_topic", "_offset", "_input") == [("web", 3, "union")]
    assert [reason for reason, _ in driver.quarantined("gold.hourly")] == [
        "positive: amount > 0", "the value is not one JSON object",
    ]  # fmt: skip
    assert driver.accounting("gold.hourly") == {"read": 5, "folded": 4, "late": 1}
    into = driver.ledger("gold.hourly__ingest_union")
    read = {
        name: sum(entry.accounting.get(name, {}).get("read", 0) for entry in into) for name in ("web", "shop")
    }
    assert read == {"web": 5, "shop": 4}
    assert driver.accounting("gold.hourly__ingest_union") == {
        "read": 9, "written": 5, "filtered": 1, "duplicate": 1, "quarantined": 2,
    }  # fmt: skip
    assert driver.audit() == []
    audit = audit_table(driver.home, "gold.hourly")
    assert audit is not None
    places = {(p.topic, p.partition): (p.start, p.end) for p in audit.partitions}
    assert places == {("web", 0): (0, 5), ("shop", 0): (0, 4)}
    of_ten = [r for r in driver.table("gold.hourly").collect() if r["spent"] == 5]
    assert [(s["topic"], s["start"], s["end"]) for s in of_ten[0]["_sources"]] == [
        ("shop", 0, 1),
        ("web", 0, 1),
    ]


def test_window_of_a_union_is_repaired_with_its_late_row_and_rebuilt_and_both_are_proved(
    ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, job = ready(send_all, hourly), bind(hourly)
    context = driver.context
    for options in ({"rows": "late"}, {}):
        planned = backfill.plan(context, job, **options)
        with (
            monkeypatch.context() as away
        ):  # what was united was looked at by the plan, and asks for no broker again
            away.setattr(type(context.source), "topic_id", lambda _, topic: pytest.fail(f"asked for {topic}"))
            assert same_job(context, job, planned).job.name == "hourly"
        backfill.run(context, planned.id, job)
        verdict = backfill.verify(context, planned.id, job)
        assert verdict.passed, verdict.findings
        (found,) = [finding for finding in verdict.findings if finding.name == "recomputed"]
        assert found.detail.endswith("of shop, web, as they are written")
        if options:
            backfill.swap(context, planned.id, accept_diff=verdict.digest)
            assert hours(driver)[0] == ("10:00", "a", 3, 5, 3)
    whole = backfill.plan_rebuild(context, job)
    backfill.run(context, whole.id, job)
    assert backfill.verify(context, whole.id, job).passed
    with pytest.raises(BackfillError, match="records of web, shop are in quarantine, and only one input's"):
        backfill.plan(context, job, rows="quarantined")


def united_as(*, keep_health: bool, twice: bool = False) -> Callable[..., DataFrame]:
    """The job with or without what it leaves out before its window, and counting once or twice behind it."""
    count = F.count("*") * 2 if twice else F.count("*")

    @hw.job(target=HOURLY, dedup=hw.by_offset(origin=True), name="hourly")
    def changed(web: DataFrame, shop: DataFrame) -> DataFrame:
        bought = shop.withColumnRenamed("sold_at", "at")
        visited = web if keep_health else web.filter("page <> '/health'")
        windows = hw.tumbling(hw.union(visited, bought, allow_missing=True), "at", "1 hour", by=["user"])
        return windows.agg(count.alias("n"), F.sum("amount").alias("spent"))

    return changed


def test_window_of_a_union_that_is_built_anew_unites_its_inputs_anew(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver = ready(send_all, hourly)
    healthy = united_as(keep_health=True)
    begin_generations(driver.context, [bind(healthy)], "rebuild", lambda _: NoLease())
    again = drive(healthy)
    again.run()
    assert hours(again)[0] == (
        "10:00",
        "a",
        5,
        5,
        5,
    )  # with /health, the sale of 0, and 10:59, which came with all
    assert again.audit() == []


def test_backfill_of_a_union_refuses_code_that_would_have_united_other_rows(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver = ready(send_all, hourly)
    other, counting_twice = bind(united_as(keep_health=True)), bind(united_as(keep_health=False, twice=True))
    for plan in (backfill.plan, backfill.plan_rebuild):
        with pytest.raises(
            BackfillError, match=r"before its last operator.*Filter\(.*headwater jobs rebuild hourly"
        ):
            plan(driver.context, other)
    whole = backfill.plan_rebuild(driver.context, counting_twice)
    backfill.run(driver.context, whole.id, counting_twice)
    assert backfill.verify(driver.context, whole.id, counting_twice).passed
    with pytest.raises(
        IncompatibleStateError,
        match=r"^job 'hourly__ingest_union'.*before the window.*headwater jobs rebuild hourly$",
    ):
        drive(united_as(keep_health=True)).run()


def test_backfill_of_a_union_unites_its_inputs_anew_beside_the_live_table(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    driver = ready(send_all, hourly)
    before, job = hours(driver), bind(united_as(keep_health=True))
    planned: list[str] = []
    for table in ("gold.hourly__ingest_union", None):
        each = backfill.plan_rebuild(driver.context, job, table=table, behind=planned)
        backfill.run(driver.context, each.id, job)
        verdict = backfill.verify(driver.context, each.id, job)
        assert verdict.passed, verdict.findings
        (found,) = [finding for finding in verdict.findings if finding.name == "recomputed"]
        assert "of web, shop" in found.detail or "of shop, web" in found.detail, found
        planned.append(each.id)
    assert hours(driver) == before
    assert len(driver.quarantined("gold.hourly")) == 2
    for id_ in planned:
        backfill.swap(driver.context, id_)
    assert hours(driver)[0] == ("10:00", "a", 5, 5, 5), "as one that is built from empty"
    assert [reason for reason, _ in driver.quarantined("gold.hourly")] == ["the value is not one JSON object"]
    again = drive(united_as(keep_health=True))
    again.send("web", visit("12:40"), timestamp=AT)
    again.run()
    assert [row[2] for row in hours(again)] == [5, 2, 1]
    assert again.audit() == []
    for id_ in reversed(planned):
        backfill.rollback(driver.context, id_)
    assert hours(driver) == before
    assert len(driver.quarantined("gold.hourly")) == 2
    assert driver.audit() == []


def test_backfill_of_a_union_behind_a_table_made_anew_unites_that_one_s_rows(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=HOURLY, name="hourly")
    def of_both(kept: DataFrame, web: DataFrame) -> DataFrame:
        return hw.tumbling(hw.union(kept, web), "at", "1 hour", by=["user"]).agg(F.count("*").alias("n"))

    @hw.job(target=hw.delta("silver.kept"), name="keep")
    def keep_pages(early: DataFrame) -> DataFrame:
        return early.filter("page <> '/health'")

    def counts() -> list[tuple[Any, ...]]:
        return driver.rows("gold.hourly", "user", "n")

    driver = drive(keep, of_both)
    driver.send("old", visit("10:01"), visit("10:02", page="/health"), timestamp=AT)
    driver.send("web", visit("10:03"), timestamp=AT)
    driver.run()
    assert counts() == [("a", 3)]
    planned: list[str] = []
    for job, table in ((keep_pages, None), (of_both, "gold.hourly__ingest_union"), (of_both, None)):
        if len(planned) == 1:
            with pytest.raises(BackfillError, match=r"ingest_union was made of rows that another rebuild"):
                backfill.plan_rebuild(driver.context, bind(of_both), behind=planned)
        each = backfill.plan_rebuild(driver.context, bind(job), table=table, behind=planned)
        backfill.run(driver.context, each.id, bind(job))
        verdict = backfill.verify(driver.context, each.id, bind(job))
        assert verdict.passed, verdict.findings
        planned.append(each.id)
    for id_ in planned:
        backfill.swap(driver.context, id_)
    assert counts() == [("a", 2)]
    again = drive(keep_pages, of_both)
    again.send("old", visit("10:04", page="/health"), visit("10:05"), timestamp=AT)
    again.run()
    assert counts() == [("a", 3)]
    assert again.audit() == []


def test_job_that_unites_only_now_is_built_anew(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=HOURLY, name="hourly")
    def alone(web: DataFrame) -> DataFrame:
        rows = web.withColumn("amount", F.lit(1))
        return hw.tumbling(rows, "at", "1 hour", by=["user"]).agg(
            F.count("*").alias("n"), F.sum("amount").alias("spent")
        )

    driver = drive(alone)
    driver.send("web", visit("10:01"), timestamp=AT)
    driver.run()
    assert [row[2] for row in hours(driver)] == [1]
    both = united_as(keep_health=True)
    again = drive(both)
    again.send("shop", sale("10:31", 5), timestamp=AT)
    begin_generations(again.context, [bind(both)], "rebuild", lambda _: NoLease())
    again.run()
    assert [row[2] for row in hours(again)] == [2]


def test_time_that_a_union_computes_says_what_is_late(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=HOURLY)
    def delivered(web: DataFrame, shop: DataFrame) -> DataFrame:
        """By when it arrives, five hours after it is sold."""
        sold = shop.select("user", (F.col("sold_at") + F.expr("INTERVAL 5 HOURS")).alias("at"), "amount")
        windows = hw.tumbling(hw.union(web, sold, allow_missing=True), "at", "1 hour", by=["user"])
        return windows.agg(F.count("*").alias("n"), F.sum("amount").alias("spent"))

    driver = drive(delivered)
    driver.send("shop", sale("10:31", 5), timestamp=AT)
    driver.run()
    driver.send("web", visit("10:31"), visit("15:01"), timestamp=AT)
    driver.run()
    assert hours(driver) == [("15:00", "a", 2, 5, 2)]
    assert driver.late("gold.hourly", "_topic", "_offset") == [("web", 0)]
    assert driver.accounting("gold.hourly") == {"read": 3, "folded": 2, "late": 1}
    assert driver.audit() == []


def windowed(rows: DataFrame, kind: str) -> DataFrame:
    """Windows of every other kind."""
    if kind == "session":
        return hw.session(rows, "at", "30 minutes", by=["city"]).agg(F.count("*").alias("n"))
    if kind == "count":
        return hw.count_window(rows, "at", 2, by=["city"]).agg(F.max("at").alias("until"))
    if kind == "hopping":
        return hw.hopping(rows, "at", "2 hours", "1 hour").agg(F.count("city").alias("n"))
    return hw.grouped(rows, by=["city"], state="unbounded").agg(F.count("*").alias("n"))


def windows_of(kind: str) -> Callable[..., DataFrame]:
    updated: dict[str, Any] = {"keys": ["city"], "mode": "update"} if kind == "grouped" else {}

    @hw.job(name=kind, target=hw.delta(f"gold.{kind}", **updated))
    def windows(web: DataFrame, shop: DataFrame, kept: DataFrame, people: DataFrame) -> DataFrame:
        sold = shop.select("user", F.col("sold_at").alias("at"))
        rows = hw.union(web.select("user", "at"), sold, kept.select("user", "at"))
        return windowed(hw.enrich(rows, people, on=["user"]), kind)

    return windows


def test_window_of_a_union_streamed_is_the_batch(drive: Callable[..., JobDriver]) -> None:
    jobs = {kind: windows_of(kind) for kind in ("session", "count", "hopping", "grouped")}
    driver = drive(keep, *jobs.values())
    driver.put("dim.people", "user STRING, city STRING", ("a", "Rome"), ("b", "Oslo"))
    seed = drawn_seed()
    random, spark = Random(seed), driver.context.spark
    sent: dict[str, list[tuple[str, datetime]]] = {"web": [], "shop": [], "old": []}
    for hour in (10, 12, 22, 23):  # the last finds all windows of the first two closed
        for topic, rows in sent.items():
            times = [f"{hour}:{minute:02}" for minute in random.sample(range(40, 60), random.randrange(1, 4))]
            events = [(random.choice("ab"), at) for at in times]
            values = [sale(at, 1, user) if topic == "shop" else visit(at, user) for user, at in events]
            driver.send(topic, *values, timestamp=AT)
            rows += [(user, datetime.fromisoformat(f"2013-01-01T{at}:00Z")) for user, at in events]
        driver.run()
    assert driver.audit() == []
    frames = {name: spark.createDataFrame(rows, "user STRING, at TIMESTAMP") for name, rows in sent.items()}
    shop_rows = frames["shop"].withColumnRenamed("at", "sold_at")
    day_ends = datetime(2013, 1, 1, 20)
    for kind, windows in jobs.items():
        batch = windows(frames["web"], shop_rows, frames["old"], driver.table("dim.people"))
        shown = batch.columns
        made = driver.rows(f"gold.{kind}", *shown)
        expected = sorted((tuple(row) for row in batch.collect()), key=repr)
        if kind != "grouped":
            end = shown.index("until" if kind == "count" else "window_end")
            made, expected = ([row for row in rows if row[end] < day_ends] for rows in (made, expected))
        assert made == expected, kind
        assert made, kind


@pytest.mark.story
def test_windows_of_unions_that_cannot_be_accounted_for_are_refused(drive: Callable[..., JobDriver]) -> None:
    driver = drive()
    driver.put("dim.people", "user STRING, city STRING")

    def refused(make: Callable[..., DataFrame], dedup: Dedup | None = None) -> str:
        declared = hw.job(name="refused", target=HOURLY, dedup=dedup)(make)
        with pytest.raises(JobDefinitionError) as error:
            plan_jobs(driver.context, [bind(declared)])
        return str(error.value)

    def hours_of(rows: DataFrame) -> DataFrame:
        return hw.tumbling(rows, "at", "1 hour", by=["user"]).agg(F.count("*").alias("n"))

    assert "rows of 'web' come to the result by 2 ways" in refused(
        lambda web: hours_of(hw.union(web.filter("user = 'a'"), web.filter("page = '/'")))
    )
    assert "no rows of the input 'shop'; leave it out" in refused(lambda web, shop: hours_of(web))
    assert "the input 'endless' feeds state, so it needs event_time= and watermark=" in refused(
        lambda web, endless: hours_of(hw.union(web.select("user", "at"), endless))
    )
    assert "by_key over several inputs" in refused(
        lambda web, early: hours_of(hw.union(web, early)), hw.by_key(["user"], within="1 hour")
    )
    after = "only select and withColumn may follow .agg"
    assert after in refused(
        lambda web, early, people: hw.enrich(hours_of(hw.union(web, early)), people, on=["user"])
    )
    assert after in refused(lambda web, early: hours_of(web).unionByName(early, allowMissingColumns=True))
    assert after in refused(lambda web, early: hours_of(hw.union(web, early)).filter("n > 1"))

    def by_frame(web: DataFrame, early: DataFrame) -> DataFrame:
        rows = hw.union(web, early)
        return hw.tumbling(rows, "at", "1 hour", by=["user"]).agg(F.max(rows.page).alias("n"))

    assert "behind hw.union or hw.enrich a column is named by F.col('page')" in refused(by_frame)
    assert "a union on the way to IntervalJoin; unite the inputs in a row-by-row job" in refused(
        lambda web, early, shop: hw.join(
            hw.union(web, early), shop, on=["user"], left_time="at", right_time="sold_at", within="1 hour"
        )
    )


def test_window_of_a_union_that_folds_by_another_key_now_is_refused(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    ready(send_all, hourly)

    @hw.job(target=hw.delta("gold.hourly", keys=["window_start"], mode="update"), name="hourly")
    def other(web: DataFrame, shop: DataFrame) -> DataFrame:
        rows = hw.union(web, shop.withColumnRenamed("sold_at", "at"), allow_missing=True)
        return hw.tumbling(rows, "at", "1 hour").agg(F.count("*").alias("n"), F.sum("amount").alias("spent"))

    driver = drive(other)
    driver.send("web", visit("13:00"), timestamp=AT, offset=5)
    with pytest.raises(IncompatibleStateError, match="keys"):
        driver.run()
