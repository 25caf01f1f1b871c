"""Repairs of joins: left rows of a range joined again with all right rows, late ones of both sides, too.

The right side's watermark says which left rows have all their partners; the others are left to the live job:

    clicks      10:00 a      10:30 b                  12:00 d
    purchases       10:10 A      10:40 B (late)           12:20
                                        watermark 11:20 |
    repaired    |---------------------|                d is left to the live job
"""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError, BackfillPlan
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.joins.interval import How
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

clicks = hw.topic(
    "clicks", schema="who STRING, at TIMESTAMP, value INT", event_time="at", watermark="20 minutes"
)
bought = hw.topic(
    "bought", schema="who STRING, paid_at TIMESTAMP, paid INT", event_time="paid_at", watermark="20 minutes"
)
repeated = hw.topic(
    "clicks", schema="who STRING, at TIMESTAMP, value INT", event_time="at", watermark="20 minutes"
)
DAY = datetime(2013, 1, 1, tzinfo=UTC)


def joined(how: How, *, is_mended: bool = False) -> Job:
    """The first version takes values beyond 5 for 5 and leaves 7 out, where a later one leaves 11 out."""

    @hw.job(name=f"bought_{how}", target=hw.delta(f"gold.{how}"), dedup=hw.by_offset())
    @hw.check("bought", "paid > 0", on="input", action="quarantine")
    def job(clicks: DataFrame, bought: DataFrame) -> DataFrame:
        found = hw.join(
            clicks.filter(f"value <> {11 if is_mended else 7}"), bought, on=["who"], left_time="at",
            right_time="paid_at", within="30 minutes", how=how,
        )  # fmt: skip
        return found.withColumn("value", shown(is_mended))

    return bind(job)


def answered(how: Literal["left", "inner"] = "left", *, is_mended: bool = False) -> Job:
    @hw.job(name="answers", target=hw.delta("gold.answers"), dedup=hw.by_offset())
    @hw.check("bought", "paid > 0", on="input", action="quarantine")
    def job(clicks: DataFrame, bought: DataFrame) -> DataFrame:
        found = hw.as_of(
            clicks.filter("value <> 7"), bought, by=["who"], left_time="at", right_time="paid_at",
            direction="nearest", tolerance="30 minutes", how=how,
        )  # fmt: skip
        return found.withColumn("value", shown(is_mended))

    return bind(job)


def shown(is_mended: bool) -> Column:
    return F.col("value") if is_mended else F.least("value", F.lit(5))


def click(time: str, value: int, who: str = "ann") -> dict[str, Any]:
    return {"who": who, "at": f"2013-01-01T{time}:00Z", "value": value}


def buy(time: str, paid: int, who: str = "ann") -> dict[str, Any]:
    return {"who": who, "paid_at": f"2013-01-01T{time}:00Z", "paid": paid}


def rows(driver: JobDriver, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = driver.table(table).select(*columns).collect()
    return sorted(
        (tuple(f"{v:%H:%M}" if isinstance(v, datetime) else v for v in row) for row in found), key=repr
    )


def repaired(driver: JobDriver, job: Job, **asked: Any) -> str:
    """Planned, run, proved and swapped in; the id."""
    planned = backfill.plan(driver.context, job, **asked)
    previewed = backfill.preview(driver.context, planned.id, job)
    assert backfill.run(driver.context, planned.id, job).state == "done"
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert verdict.diff.digest == previewed.digest
    assert "rows outside the range" in [finding.name for finding in verdict.findings]
    swapped = backfill.swap(driver.context, planned.id, accept_diff=verdict.diff.digest)
    assert swapped["proof"]["outside_unchanged"]
    assert swapped["proof"]["inside_is_the_shadow"]
    assert driver.audit() == []
    return planned.id


def late_answers(driver: JobDriver) -> None:
    """10:05 and 10:39 are late: of 10:00 and 10:40 they would have been the nearest. 12:00 waits."""
    driver.send("clicks", click("10:00", 9), click("10:30", 7), click("10:40", 8), click("10:50", 1, "bob"))
    driver.send("bought", buy("10:20", 1), buy("09:00", 0), buy("11:50", 2))
    driver.run()
    driver.send("bought", buy("10:05", 3), buy("10:39", 4), buy("10:45", 5, "bob"), buy("12:20", 6))
    driver.send("clicks", click("12:00", 9))
    driver.run()
    assert rows(driver, "gold.answers", "at", "value", "paid") == ANSWERS


ANSWERS = [("10:00", 5, 1), ("10:40", 5, 1), ("10:50", 1, None)]


def test_as_of_repair_takes_late_answers_and_leaves_open_rows_to_the_job(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver]
) -> None:
    before, job = ANSWERS, answered(is_mended=True)
    with pytest.raises(BackfillError, match=r"there is no table gold.answers"):
        backfill.plan(drive(answered()).context, job)
    driver = ready(late_answers, answered())
    assert backfill.plan(driver.context, job, rows="late").ranges == {"clicks": {0: (0, 4)}}
    with pytest.raises(BackfillError, match="may still get partners, so the job 'answers' is not done"):
        backfill.plan(driver.context, job, offsets={"clicks": {0: (4, 5)}})
    with pytest.raises(
        BackfillError, match=r"\[4, 9\) are asked for, and the job 'answers' has read \[0, 5\)"
    ):
        backfill.plan(driver.context, job, offsets={"clicks": {0: (4, 9)}})
    whole = backfill.plan(driver.context, job)
    assert whole.ranges == {"clicks": {0: (0, 4)}}
    assert whole.notes == (
        "1 row of gold.answers__ingest_clicks at the range's end is left out: the job 'answers' is not done with them",
    )
    first = repaired(driver, job, event_time=("2013-01-01T10:00:00Z", "2013-01-01T10:35:00Z"))
    after_first = [("10:00", 9, 3), ("10:40", 5, 1), ("10:50", 1, None)]
    assert rows(driver, "gold.answers", "at", "value", "paid") == after_first
    second = repaired(driver, job, rows_per_chunk=1)
    mended = [("10:00", 9, 3), ("10:40", 8, 4), ("10:50", 1, 5)]
    assert rows(driver, "gold.answers", "at", "value", "paid") == mended

    # The live job answers what waited, in its own way, and the books hold; then back, one after the other.
    driver.send("bought", buy("13:30", 1))
    driver.run()
    assert rows(driver, "gold.answers", "at", "value", "paid") == [*mended, ("12:00", 5, 2)]
    assert driver.audit() == []
    backfill.rollback(driver.context, second)
    assert rows(driver, "gold.answers", "at", "value", "paid") == [*after_first, ("12:00", 5, 2)]
    assert driver.audit() == []
    backfill.rollback(driver.context, first)
    assert rows(driver, "gold.answers", "at", "value", "paid") == [*before, ("12:00", 5, 2)]
    assert driver.audit() == []


HOWS: list[How] = ["inner", "left", "semi", "right", "full"]
SEED = drawn_seed()


Sent = dict[str, list[tuple[str, int, int]]]
Row = tuple[Any, ...]


def hours(driver: JobDriver, rng: random.Random) -> Iterator[Sent]:
    """Four hours of clicks and purchases in a random order, late ones among them, run one by one; all until then."""
    sent: Sent = {"clicks": [], "bought": []}
    for hour in range(4):
        for topic, send, count in (("clicks", click, 12), ("bought", buy, 8)):
            found = []
            for _ in range(count):
                # None of the first ones is so far ahead that the watermark might not pass it.
                minute = max(0, 60 * (hour + 1) + rng.randrange(-80, 60 if hour else 0))
                who, number = rng.choice(["ann", "bob", "cid"]), len(sent[topic]) + len(found)
                value = number if topic == "clicks" or rng.random() < 0.9 else 0
                found.append((who, minute, value))
            sent[topic] += found
            driver.send(topic, *[send(f"{m // 60:02}:{m % 60:02}", v, who) for who, m, v in found])
        driver.run()
        yield sent


def end(driver: JobDriver) -> None:
    """The watermark passes all that was sent."""
    for time, value in (("20:00", 60), ("20:10", 61)):
        driver.send("clicks", click(time, value))
        driver.send("bought", buy(time, value))
        driver.run()


@pytest.mark.parametrize("how", HOWS)
def test_join_repair_equals_the_definition_over_all_rows(drive: Callable[..., JobDriver], how: How) -> None:
    print(f"HEADWATER_SEED={SEED}")
    rng = random.Random(SEED)
    driver, job = drive(joined(how)), joined(how, is_mended=True)
    *_, sent = hours(driver, rng)
    assert driver.audit() == []
    before = driver.table(f"gold.{how}").drop("_sources").collect()
    planned = backfill.plan(driver.context, job)
    first, past = planned.ranges["clicks"][0]
    assert first == 0
    assert past > 5, "the watermark has passed some"
    if how in ("right", "full"):
        assert planned.ranges["bought"][0][1] > 5
    made = repaired(driver, job, rows_per_chunk=7)
    assert wanted(driver, how, planned, sent) == affected(driver, how, planned)
    after = affected(driver, how, planned)
    end(driver)
    assert driver.audit() == []
    assert affected(driver, how, planned) == after
    backfill.rollback(driver.context, made)
    assert driver.audit() == []
    there = driver.table(f"gold.{how}").drop("_sources").collect()
    assert set(map(repr, before)) <= set(map(repr, there))


def test_right_row_is_alone_or_paired_wherever_ranges_end(drive: Callable[..., JobDriver]) -> None:
    print(f"HEADWATER_SEED={SEED}")
    rng = random.Random(SEED)
    how: How = rng.choice(["right", "full"])
    driver, job = drive(joined(how)), joined(how, is_mended=True)
    for hour, sent in enumerate(hours(driver, rng)):
        if hour < 2:
            continue
        minute = rng.randrange(0, 60 * hour)
        span = (f"2013-01-01T{m // 60:02}:{m % 60:02}:00Z" for m in (minute, minute + rng.randrange(1, 90)))
        asked: list[dict[str, Any]] = [
            {"event_time": tuple(span)},
            {"offsets": {"bought": {0: (hour, hour + rng.randrange(1, 8))}}},
            {"since_version": rng.randrange(2)},
            {"rows": "late"},
        ]
        given = rng.choice(asked)
        try:
            planned = backfill.plan(driver.context, job, **given)
        except BackfillError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert any(why in refused for why in ("may still get", "came late", "no row of")), f"seed {SEED}"
            continue
        repaired(driver, job, rows_per_chunk=rng.randrange(3, 20), **given)
        assert wanted(driver, how, planned, sent) == affected(driver, how, planned), f"seed {SEED} {given}"
    end(driver)
    assert driver.audit() == []
    repaired(driver, job)
    assert pairs_and_alone(driver, how, sent)
    planned = backfill.plan(driver.context, job)
    assert wanted(driver, how, planned, sent) == affected(driver, how, planned), f"seed {SEED}"


def table_of(driver: JobDriver, how: How) -> list[Row]:
    """Who, the left row's offset, the right row's, the value and what was paid."""
    table = driver.table(f"gold.{how}")
    alone, paid = F.col("_sources")[0].isNull(), F.lit(None) if how == "semi" else F.col("paid")
    left = F.when(~alone, F.col("_offset"))
    right = F.lit(None) if how == "semi" else F.col("_sources")[1]["start"]
    found = table.select("who", left, right, "value", paid).collect()
    return sorted((tuple(row) for row in found), key=repr)


def is_inside(planned: BackfillPlan, row: Row) -> bool:
    """Whether a row of the table belongs to a left row of the range, or to a right one alone."""
    topic, offset = ("clicks", row[1]) if row[1] is not None else ("bought", row[2])
    start, end = planned.ranges.get(topic, {}).get(0, (0, 0))
    return bool(start <= offset < end)


def affected(driver: JobDriver, how: How, planned: BackfillPlan) -> list[Row]:
    return [row for row in table_of(driver, how) if is_inside(planned, row)]


def wanted(driver: JobDriver, how: How, planned: BackfillPlan, sent: Sent) -> list[Row]:
    """The definition, as a search through all right rows that a check has not rejected, beside what stays as it is."""
    start, end = planned.ranges.get("clicks", {}).get(0, (0, 0))
    rights = [(*right, place) for place, right in enumerate(sent["bought"])]
    found: list[Row] = []
    paired = {row[2] for row in table_of(driver, how) if row[1] is not None and not is_inside(planned, row)}
    for offset, (who, minute, value) in enumerate(sent["clicks"][start:end], start):
        if value == 11:
            continue
        near = [(place, p) for w, m, p, place in rights if w == who and minute <= m <= minute + 30 and p > 0]
        paired |= {place for place, _ in near}
        if how == "semi":
            found += [(who, offset, None, value, None)] if near else []
            continue
        alone = [(None, None)] if how in ("left", "full") else []
        found += [(who, offset, place, value, paid) for place, paid in near or alone]
    if how in ("right", "full"):
        alone_rows = [(w, None, place, None, p) for w, _, p, place in rights if p > 0 and place not in paired]
        found += [row for row in alone_rows if is_inside(planned, row)]
    return sorted(found, key=repr)


def pairs_and_alone(driver: JobDriver, how: How, sent: Sent) -> bool:
    """Whether each right row that is not rejected is in the table in pairs, or once and alone, and never in both."""
    rows = table_of(driver, how)
    alone = [row[2] for row in rows if row[1] is None]
    paired = {row[2] for row in rows if row[1] is not None and row[2] is not None}
    kept = {place for place, (_, _, paid) in enumerate(sent["bought"]) if paid > 0}
    return len(alone) == len(set(alone)) and not paired & set(alone) and kept <= paired | set(alone)


silver = hw.table("silver.clicks", event_time="at", watermark="20 minutes")


def clean(*, is_mended: bool) -> Job:
    @hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
    def clean(clicks: DataFrame) -> DataFrame:
        return clicks.withColumn("value", shown(is_mended))

    return bind(clean)


@hw.job(target=hw.delta("gold.matches"), dedup=hw.by_offset())
@hw.check("counted", "value > 0", on="output", action="fail")
def matches(silver: DataFrame, bought: DataFrame) -> DataFrame:
    return hw.join(silver, bought, on=["who"], left_time="at", right_time="paid_at", within="30 minutes")


BOTH = [("10:00", 5, 1), ("10:05", 5, 2), ("12:00", 5, 3)]


def three_batches(driver: JobDriver) -> None:
    driver.send("clicks", click("10:00", 9), click("10:05", 8, "bob"), click("12:00", 6))
    driver.send("bought", buy("10:10", 1), buy("10:11", 2, "bob"), buy("12:10", 3))
    driver.run()
    driver.send("clicks", click("13:00", 4))
    driver.send("bought", buy("13:10", 4))
    driver.run()
    driver.send("clicks", click("13:20", 3))
    driver.run()
    assert rows(driver, "gold.matches", "at", "value", "paid") == [*BOTH, ("13:00", 4, 4)]


def test_join_behind_a_repaired_table_is_repaired_by_the_same_offsets_and_killed_goes_on(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(three_batches, clean(is_mended=False), matches), bind(matches)
    upstream = clean(is_mended=True)
    planned = backfill.plan(driver.context, upstream, offsets={"clicks": {0: (0, 2)}})
    assert planned.feeds == ("matches",)
    for step in (backfill.run, backfill.verify):
        step(driver.context, planned.id, upstream)
    backfill.swap(driver.context, planned.id)
    assert rows(driver, "gold.matches", "at", "value", "paid") == [*BOTH, ("13:00", 4, 4)]

    with pytest.raises(BackfillError, match="no row of the job 'matches' came late for a partner"):
        backfill.plan(driver.context, job, rows="late")
    planned = backfill.plan(driver.context, job, offsets={"clicks": {0: (0, 2)}}, rows_per_chunk=1)
    assert [chunk.ranges for chunk in planned.chunks] == [{"clicks": {0: (0, 1)}}, {"clicks": {0: (1, 2)}}]
    driver.crash_at("after chunk")
    with pytest.raises(SimulatedCrash):
        backfill.run(driver.context, planned.id, job)
    done = backfill.run(driver.context, planned.id, job)
    assert (done.state, done.accounting["read"], done.accounting["matched"]) == ("done", 2, 2)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (0, 0, 2)
    driver.crash_at("after swap")
    with pytest.raises(SimulatedCrash):
        backfill.swap(driver.context, planned.id)
    backfill.swap(driver.context, planned.id)
    mended = [("10:00", 9, 1), ("10:05", 8, 2), ("12:00", 5, 3), ("13:00", 4, 4)]
    assert rows(driver, "gold.matches", "at", "value", "paid") == mended
    assert driver.audit() == []
    driver.send("clicks", click("10:02", 2), click("15:00", 3))
    driver.send("bought", buy("10:04", 6), buy("15:00", 5))
    driver.run()
    driver.send("clicks", click("15:10", 3))  # with it the watermark of the batch before is in force
    driver.run()
    late = backfill.plan(driver.context, job, rows="late")
    assert late.ranges == {"clicks": {0: (0, 6)}}, "10:00 with the late 10:04; 10:02 is late itself"
    newest = backfill.plan(driver.context, job, since_version=0)
    assert newest.ranges["clicks"][0][0] == 0, "what was written since has left rows of the first batch"


@hw.job(target=hw.delta("gold.counted"), late="count")
def counted(clicks: DataFrame, bought: DataFrame) -> DataFrame:
    return hw.join(clicks, bought, on=["who"], left_time="at", right_time="paid_at", within="1 hour")


@hw.job(target=hw.delta("gold.again"), dedup=hw.by_offset())
def again(clicks: DataFrame, repeated: DataFrame) -> DataFrame:
    later = repeated.select("who", F.col("at").alias("again_at"))
    return hw.join(
        clicks, later, on=["who"], left_time="at", right_time="again_at", within="1 hour", how="right"
    )


@hw.job(target=hw.delta("gold.shifted"))
def shifted(clicks: DataFrame, bought: DataFrame) -> DataFrame:
    later = bought.withColumnRenamed("paid_at", "then").withColumn(
        "at", F.col("then") - F.expr("INTERVAL 1 HOUR")
    )
    return hw.join(
        clicks, later.withColumnRenamed("at", "paid_at"), on=["who"], left_time="at", right_time="paid_at",
        within="1 hour",
    )  # fmt: skip


def one_batch(driver: JobDriver) -> None:
    driver.send("clicks", click("10:00", 1))
    driver.send("bought", buy("10:10", 1), buy("11:10", 1))
    driver.run()


def test_joins_of_one_topic_with_right_rows_alone_or_of_counted_late_ones_are_not_repaired(
    ready: Callable[..., JobDriver],
) -> None:
    driver = ready(one_batch, again, counted, shifted)
    for job, why in (
        (again, r"both sides of the join come from clicks, .* --rebuild"),
        (counted, r"only counts its late rows \(late='count'\).* --rebuild"),
        (shifted, r"joins by paid_at, which is no event time of an input, .* --rebuild"),
    ):
        with pytest.raises(BackfillError, match=why):
            backfill.plan(driver.context, bind(job))


def closed_by_later_ones(driver: JobDriver) -> None:
    driver.send("clicks", click("10:00", 9), b"bad", click("10:50", 8, "bob"), click("12:00", 6))
    driver.send("bought", buy("10:10", 1), buy("10:55", 2, "bob"), buy("12:10", 3))
    driver.run()
    driver.send("clicks", click("15:00", 6))
    driver.send("bought", buy("15:00", 1, "cid"))
    driver.run()
    driver.send("clicks", click("15:01", 6))
    driver.run()


def test_join_repair_of_right_rows_and_of_offsets_without_a_row(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(closed_by_later_ones, joined("inner")), joined("inner", is_mended=True)
    repaired(driver, job, offsets={"bought": {0: (1, 2)}})
    after = [("10:00", 5, 1), ("10:50", 8, 2), ("12:00", 5, 3)]
    assert rows(driver, "gold.inner", "at", "value", "paid") == after, "the left rows near the right one"
    planned = backfill.plan(driver.context, job, offsets={"clicks": {0: (1, 2)}})
    assert backfill.run(driver.context, planned.id, job).accounting["read"] == 0
    verdict = backfill.verify(driver.context, planned.id, job)
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (0, 0, 0)
    whole = repaired(driver, job, rows_per_chunk=1)
    assert rows(driver, "gold.inner", "at", "value", "paid") == [
        ("10:00", 9, 1),
        ("10:50", 8, 2),
        ("12:00", 6, 3),
    ]
    assert whole != planned.id


@pytest.mark.parametrize("time", ["later", "paid_at"])
def test_outer_join_by_a_time_that_is_no_event_time_is_refused(
    drive: Callable[..., JobDriver], time: str
) -> None:
    """Spark would let go of its rows by the event time, and write some alone whose partners come in time."""

    @hw.job(target=hw.delta("gold.shifted"))
    def shifted(clicks: DataFrame, bought: DataFrame) -> DataFrame:
        later = F.col("paid_at") + F.expr("INTERVAL 1 HOUR")
        rights = bought.withColumn("later", later).withColumn("paid_at", later)
        return hw.join(
            clicks, rights, on=["who"], left_time="at", right_time=time, within="2 hours", how="left"
        )

    with pytest.raises(
        JobDefinitionError, match=f"how='left'.* is by {time}, which is no event_time of an input"
    ):
        plan_jobs(drive(shifted).context, [bind(shifted)])


@hw.job(target=hw.delta("gold.paid"), dedup=hw.by_offset(origin=True))
def paid(clicks: DataFrame, bought: DataFrame) -> DataFrame:
    return hw.join(
        clicks, bought, on=["who"], left_time="at", right_time="paid_at", within="30 minutes", how="left"
    )


def copy_of_the_first(driver: JobDriver) -> None:
    driver.send("clicks", click("10:00", 1), click("10:10", 2), origin=("east", "clicks", 0, 0))
    driver.send("bought", buy("10:20", 1), origin=("east", "bought", 0, 0))
    driver.resend("clicks", 0, as_new=True)
    driver.send("clicks", click("10:15", 3), origin=("east", "clicks", 0, 2))
    driver.run()
    for number, time in enumerate(("15:00", "15:01")):
        driver.send("clicks", click(time, 6, "zed"), origin=("east", "clicks", 0, 3 + number))
        driver.send("bought", buy(time, 6, "zed"), origin=("east", "bought", 0, 1 + number))
        driver.run()
    assert rows(driver, "gold.paid", "at", "value")[:3] == [("10:00", 1), ("10:10", 2), ("10:15", 3)]


@pytest.mark.story
def test_copy_of_a_record_before_the_range_is_known_for_one_when_its_join_is_verified(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(copy_of_the_first, paid), bind(paid)
    planned = backfill.plan(driver.context, job, offsets={"clicks": {0: (1, 4)}})
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
