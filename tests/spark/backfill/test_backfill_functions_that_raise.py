"""Backfills of windows and joins whose function raises for rows, of now or of then: what the live job would give.

The job of then divides by `qty`, that of now makes a number of `word`; a row of qty 0 or of the word "x" raises.

offset of sales     0       1        2        3        4       5           6 and 7
id                  1       2        3        4        5       no JSON     9
raises              -       then     now      both     -                   -
at                  10:00   10:01    10:02    10:03    10:04               20:00
offset of returns   0       1        2        3                            4 and 5
id                  1       2        5        3                            9
raises              -       then     now      -                            -
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillPlan, Verdict
from headwater_streams.base.errors import RowErrorsError
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

SCHEMA = "id INT, shop STRING, qty INT, word STRING, at TIMESTAMP"
sales = hw.topic("sales", schema=SCHEMA, event_time="at", watermark="10 minutes")
returns = hw.topic("returns", schema=SCHEMA, event_time="at", watermark="10 minutes")
silver_sales = hw.table("silver.sales", event_time="at", watermark="10 minutes")
parsed = F.udf(lambda word: int(word), T.IntegerType())

Code = Callable[[], Column]
Rows = Sequence[dict[str, Any] | bytes]


def then() -> Column:
    return F.expr("id / qty") > -1


def now() -> Column:
    return parsed("word") > -1


def both(rows: DataFrame, code: Code) -> DataFrame:
    return rows.withColumn("ok", code())


def of_windows(
    make: Callable[[DataFrame], Any], target: hw.DeltaTarget, **options: Any
) -> Callable[..., Job]:
    def job(code: Code, **more: Any) -> Job:
        def story(sales: DataFrame) -> DataFrame:
            return make(both(sales, code)).agg(F.count_if("ok").alias("rows"), F.sum("id").alias("ids"))

        return bind(hw.job(name="story", target=target, dedup=hw.by_offset(), **options, **more)(story))

    return job


def joined(code: Code) -> Job:
    @hw.job(name="story", target=hw.delta("gold.t"))
    def story(sales: DataFrame, returns: DataFrame) -> DataFrame:
        right = both(returns, code).select("id", F.col("ok").alias("back"), F.col("at").alias("back_at"))
        times = {"left_time": "at", "right_time": "back_at"}
        left = both(sales, code).select("id", "ok", "at")
        return hw.join(left, right, on=["id"], **times, within="1 hour", how="full")

    return bind(story)


def as_of(code: Code) -> Job:
    @hw.job(name="story", target=hw.delta("gold.t"))
    def story(sales: DataFrame, returns: DataFrame) -> DataFrame:
        right = both(returns, code).select("id", F.col("ok").alias("back"), "at")
        left = both(sales, code).select("id", "ok", "at")
        times = {"left_time": "at", "right_time": "at"}
        return hw.as_of(left, right, by=["id"], **times, direction="nearest", tolerance="1 hour")

    return bind(story)


UPDATED = hw.delta("gold.t", keys=["shop", "window_start"], mode="update")
KINDS: dict[str, Callable[..., Job]] = {
    "tumbling": of_windows(lambda rows: hw.tumbling(rows, "at", "5 minutes", by=["shop"]), UPDATED),
    "hopping": of_windows(
        lambda rows: hw.hopping(rows, "at", "4 minutes", every="1 minute", by=["shop"]), UPDATED
    ),
    "closed": of_windows(lambda rows: hw.tumbling(rows, "at", "2 minutes", by=["shop"]), hw.delta("gold.t")),
    "session": of_windows(lambda rows: hw.session(rows, "at", "90 seconds", by=["shop"]), hw.delta("gold.t")),
    "joined": joined,
    "as of": as_of,
}
JOINS = ("joined", "as of")


def row(number: int, at: str, *, qty: int = 2, word: str = "3", day: str = "2024-03-01") -> dict[str, Any]:
    return {"id": number, "shop": "a", "qty": qty, "word": word, "at": f"{day}T{at}Z"}


@dataclass(frozen=True)
class Batch:
    sales: Rows
    returns: Rows
    sent_at: str

    def __add__(self, other: "Batch") -> "Batch":
        return Batch([*self.sales, *other.sales], [*self.returns, *other.returns], self.sent_at)


def batches(day: str = "2024-03-01") -> list[Batch]:
    of = {"day": day}
    return [
        Batch(
            [row(1, "10:00:00", **of), row(2, "10:01:00", qty=0, **of), row(3, "10:02:00", word="x", **of)],
            [row(1, "10:00:30", **of), row(2, "10:01:30", qty=0, **of)],
            f"{day}T12:00:00+00:00",
        ),
        Batch(
            [row(4, "10:03:00", qty=0, word="x", **of), row(5, "10:04:00", **of), b"no JSON"],
            [row(5, "10:04:30", word="x", **of), row(3, "10:02:30", **of)],
            f"{day}T12:00:00+00:00",
        ),
        *[
            Batch([row(9, at, **of)], [row(9, at, **of)], f"{day}T21:00:00+00:00")
            for at in ("20:00:00", "20:00:30")  # of which the second closes what the first is beyond
        ],
    ]


RAISES_THEN = {("sales", 1), ("sales", 3), ("returns", 1)}
RAISES_NOW = {("sales", 2), ("sales", 3), ("returns", 2)}
THEN, NOW = {1: 0, 3: 2, 5: 4}, {1: 0, 2: 1, 5: 4}
"""The ids of the sales that the code of then, or of now, makes something of, and their minutes."""
OF_RETURNS = {"then": {1, 5, 3}, "now": {1, 2, 3}}


def model(kind: str, code: str) -> list[tuple[Any, ...]]:
    """What the code of then or of now makes of the first hour: `start, end, ids` in minutes, or `id, paired, alone`."""
    left, right = (THEN if code == "then" else NOW), OF_RETURNS[code]
    if kind in JOINS:
        rows = [(number, True, number in right) for number in left]
        return sorted([*rows, *((n, False, True) for n in right - left.keys() if kind == "joined")])
    if kind == "session":
        return [(0, 1.5, 1), (2, 3.5, 3), (4, 5.5, 5)] if code == "then" else [(0, 2.5, 3), (4, 5.5, 5)]
    size, every = {"tumbling": (5, 5), "hopping": (4, 1), "closed": (2, 2)}[kind]
    found = [
        (start, start + size, sum(number for number, at in left.items() if start <= at < start + size))
        for start in range(-size, 10)
        if start % every == 0
    ]
    return [each for each in found if each[-1]]


def deliver(driver: JobDriver, job: Job, *sent: Batch) -> None:
    for batch in sent:
        for topic, rows in (("sales", batch.sales), ("returns", batch.returns)):
            if topic in {name for each in job.topics for name in each.names}:
                driver.send(topic, *rows, timestamp=batch.sent_at)
        driver.run()


def live(spark: SparkSession, home: Path, job: Job, *sent: Batch) -> JobDriver:
    driver = JobDriver(spark, home, [job])
    first, second, *last = batches()
    deliver(driver, job, *(sent or (first + second, *last)))
    assert driver.audit() == []
    return driver


def table(driver: JobDriver, kind: str) -> list[tuple[Any, ...]]:
    """The rows of the first hour, as `model` has them."""
    if kind in JOINS:
        pairs = driver.table("gold.t").filter("id < 9")
        return sorted(map(tuple, pairs.selectExpr("id", "ok IS NOT NULL", "back IS NOT NULL").collect()))
    times = (f"unix_seconds(window_{bound}) / 60.0 - 28488120" for bound in ("start", "end"))
    found = driver.table("gold.t").selectExpr(*times, "ids").collect()
    return sorted((float(start), float(end), ids) for start, end, ids in found if start < 60)


def raising(driver: JobDriver) -> set[tuple[str, int]]:
    found = driver.rows("gold.t__quarantine", "_topic", "_offset", "_check", "_reason")
    of_function = [(topic, offset) for topic, offset, check, _ in found if check == "function"]
    assert len(of_function) == len(set(of_function)), "each stands there once"
    assert all(
        "DIVIDE_BY_ZERO" in why or "ValueError" in why for *_, check, why in found if check == "function"
    )
    return set(of_function)


def verified(driver: JobDriver, planned: Any, job: Job) -> Verdict:
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert [f.name for f in verdict.findings if f.name == "recomputed"], verdict.notes
    return verdict


def swapped(driver: JobDriver, planned: Any, job: Job) -> Verdict:
    verdict = verified(driver, planned, job)
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert driver.audit() == []
    return verdict


def of_kind(kind: str, places: set[tuple[str, int]]) -> set[tuple[str, int]]:
    return places if kind in JOINS else {place for place in places if place[0] == "sales"}


@pytest.mark.parametrize(
    "kind", [pytest.param("session", marks=pytest.mark.story), *(k for k in KINDS if k != "session")]
)
def test_repair_of_all_is_what_the_live_job_of_now_gives(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    driver, job = live(spark, tmp_path, KINDS[kind](then)), KINDS[kind](now)
    assert table(driver, kind) == model(kind, "then")
    assert raising(driver) == of_kind(kind, RAISES_THEN)
    planned = backfill.plan(driver.context, job, rows_per_chunk=5)
    diff = backfill.preview(driver.context, planned.id, job)
    verdict = swapped(driver, planned, job)
    assert diff.to_json() == verdict.diff.to_json()
    assert table(driver, kind) == model(kind, "now")
    assert raising(driver) == of_kind(kind, RAISES_NOW)
    assert len(driver.quarantined("gold.t")) == len(raising(driver)) + 1
    if kind == "session":
        backfill.rollback(driver.context, planned.id)
        assert driver.audit() == []
        assert table(driver, kind) == model(kind, "then")
        assert raising(driver) == of_kind(kind, RAISES_THEN)
        return
    goes_on(spark, tmp_path, driver, kind)


def goes_on(spark: SparkSession, home: Path, driver: JobDriver, kind: str) -> None:
    """Has the job go on with the code of now, over rows of before, too."""
    at, job = "2024-03-01T22:00:00+00:00", KINDS[kind](now)
    later = Batch([row(9, "20:30:00"), row(10, "20:31:00", word="x")], [row(9, "20:40:00")], at)
    deliver(JobDriver(spark, home, [job]), job, later)
    assert driver.audit() == []
    assert table(driver, kind) == model(kind, "now")
    assert raising(driver) == of_kind(kind, RAISES_NOW) | {("sales", 9)}


@pytest.mark.parametrize("kind", ["tumbling", "joined"])
def test_rebuild_is_what_the_live_job_of_now_gives(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    driver, job = live(spark, tmp_path, KINDS[kind](then)), KINDS[kind](now)
    swapped(driver, backfill.plan_rebuild(driver.context, job), job)
    assert raising(driver) == of_kind(kind, RAISES_NOW)
    goes_on(spark, tmp_path, driver, kind)  # and writes the join's rows without a partner


@pytest.mark.parametrize("kind", ["tumbling", "joined", "as of"])
def test_rewind_over_rows_that_raise_of_before_1970(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    job = KINDS[kind](then)
    driver = live(spark, tmp_path, job, *batches("1969-12-30"))
    rows, failed = driver.rows("gold.t", "_sources"), raising(driver)
    assert failed == of_kind(kind, RAISES_THEN)
    first = next(version for version in backfill.versions(driver.home, job))
    planned = backfill.plan_rewind(driver.context, job, version=first.version)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert driver.audit() == []
    assert raising(driver) == {place for place in failed if place[1] < 3}
    driver.run()
    assert driver.audit() == []
    assert driver.rows("gold.t", "_sources") == rows
    assert raising(driver) == failed


def test_repair_stops_where_more_rows_raise_than_the_job_allows_or_at_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent = Batch([row(n, f"10:{n:02}:00", word="x") for n in range(5)], [], "2024-03-01T12:00:00+00:00")
    for kind in ("tumbling", "session"):
        driver = live(spark, tmp_path / kind, KINDS[kind](then), sent, *batches()[2:])
        few, none = KINDS[kind](now, max_errors=1), KINDS[kind](now, on_error="fail")
        # Where a session ends depends on the rows that raise, which are looked for when it is planned.
        for job, error, told in (
            (few, RowErrorsError, r"for more than \d of"),
            (none, Exception, "ValueError"),
        ):
            with pytest.raises(error, match=told):
                backfill.run(driver.context, backfill.plan(driver.context, job).id, job)


def test_late_rows_that_raise_go_to_quarantine_when_they_are_folded_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = KINDS["closed"](now)
    late = Batch([row(7, "10:00:01", word="x"), row(8, "10:00:02")], [], "2024-03-01T21:00:00+00:00")
    driver = live(spark, tmp_path, job, *batches(), late)
    assert ("sales", 8) not in raising(driver)
    planned = backfill.plan(driver.context, job, rows="late")
    verdict = swapped(driver, planned, job)
    assert (verdict.accounting["late_folded"], verdict.accounting["quarantined"]) == (1, 1)
    assert ("sales", 8) in raising(driver)
    assert "1 row of the range goes to quarantine, or stays there" in verdict.notes
    with pytest.raises(backfill.BackfillError, match="no late row"):
        backfill.plan(driver.context, job, rows="late")


def over_a_table(code: Code, rule: str) -> Job:
    @hw.job(name="story", target=hw.delta("gold.t", keys=["shop", "window_start"], mode="update"))
    @hw.check("odd", rule, on="input", action="quarantine")
    def story(silver_sales: DataFrame) -> DataFrame:
        windows = hw.tumbling(both(silver_sales, code), "at", "5 minutes", by=["shop"])
        return windows.agg(F.count_if("ok").alias("rows"), F.sum("id").alias("ids"))

    return bind(story)


def test_rows_of_a_table_leave_quarantine_as_checks_and_code_are_mended(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hw.job(target=hw.delta("silver.sales"), dedup=hw.by_offset())
    def kept(sales: DataFrame) -> DataFrame:
        return sales

    first, mended = over_a_table(then, "id <> 5"), over_a_table(now, "id <> 1")
    driver = JobDriver(spark, tmp_path, [kept, first])
    for batch in batches():
        driver.send("sales", *batch.sales, timestamp=batch.sent_at)
        driver.run()
    places = driver.rows("gold.t__quarantine", "_offset", "_check")
    assert places == [(1, "function"), (3, "function"), (4, "odd")]
    planned = backfill.plan(driver.context, mended, rows="quarantined")
    swapped(driver, planned, mended)
    assert driver.rows("gold.t__quarantine", "_offset", "_check") == [
        (0, "odd"),
        (2, "function"),
        (3, "function"),
    ]
    assert driver.rows("gold.t", "ids") == [(18,), (7,)]


def with_a_check(code: Code, rule: str) -> Job:
    @hw.job(name="story", target=hw.delta("gold.t", keys=["shop", "window_start"], mode="update"))
    @hw.check("odd", rule, on="input", action="quarantine")
    def story(sales: DataFrame) -> DataFrame:
        windows = hw.tumbling(both(sales, code), "at", "5 minutes", by=["shop"])
        return windows.agg(F.count_if("ok").alias("rows"), F.sum("id").alias("ids"))

    return bind(story)


def test_what_a_check_rejected_is_mended_first_and_rows_that_raised_behind_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = live(spark, tmp_path, with_a_check(then, "id <> 5"))
    mended = with_a_check(now, "id > 0")
    ingest = backfill.plan(driver.context, mended, rows="quarantined")
    assert ingest.job == "story__ingest_sales"
    swapped(driver, ingest, mended)
    found = driver.rows("gold.t__quarantine", "_offset", "_check")
    assert found == [(1, "function"), (3, "function"), (5, "value")], "the windows' rows are left alone"
    windows = backfill.plan(driver.context, mended, offsets=ingest.ranges)
    assert isinstance(windows, BackfillPlan)
    swapped(driver, windows, mended)
    found = driver.rows("gold.t__quarantine", "_offset", "_check")
    assert found == [(2, "function"), (3, "function"), (5, "value")]
    assert driver.rows("gold.t", "ids") == [(18,), (8,)]
