"""Chains of stateful operators in one function: each has a table of its own, and the last one's is the job's.

    minutes      10:00 |a a a| 10:01 |a| 10:02 |b b| ...      gold.x__step_1, once they are closed
    busy ones          3                 2                    gold.x__ingest_step_1
    hours        [10:00, 11:00): 2 busy minutes, 5 clicks     gold.x

What comes out is what the function gives over all rows at once, whatever is killed on the way.
"""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import IncompatibleStateError, JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing import JobDriver, SimulatedCrash

LONG = "HEADWATER_CHAINS" in os.environ
START = datetime(2013, 1, 1, 10, tzinfo=UTC)
END = START + timedelta(days=10)
MINUTE = timedelta(minutes=1)

one = hw.topic("one", schema="key STRING, at TIMESTAMP, value INT", event_time="at",
               watermark="30 minutes", max_ahead="400 days")  # fmt: skip
other = hw.topic("other", schema="key STRING, seen_at TIMESTAMP, mark INT", event_time="seen_at",
                 watermark="20 minutes", max_ahead="400 days")  # fmt: skip
endless = hw.topic("endless", schema="key STRING, at TIMESTAMP, value INT", event_time="at")
step_1 = hw.topic("one", schema="key STRING, at TIMESTAMP, value INT", event_time="at", watermark="1 hour")
names = hw.lookup("dim.names")
patient = hw.topic("patient", schema="key STRING, seen_at TIMESTAMP, mark INT", event_time="seen_at",
                   watermark="12 hours", max_ahead="400 days")  # fmt: skip
SIDES = {"patient": ("seen_at", "mark"), "one": ("at", "value"), "other": ("seen_at", "mark")}


def total() -> list[Any]:
    return [F.count("*").alias("n"), F.sum("value").alias("total")]


def totals_of(rows: DataFrame, time: str, size: str = "1 hour") -> DataFrame:
    windows = hw.tumbling(rows, time, size, by=["key"])
    return windows.agg(F.count("*").alias("parts"), F.sum("n").alias("n"), F.sum("total").alias("total"))


def busy_hours(one: DataFrame) -> DataFrame:
    minutes = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return totals_of(minutes.filter("n > 1"), "window_end")


def of_starts(one: DataFrame) -> DataFrame:
    minutes = hw.hopping(one, "at", "20 minutes", "10 minutes", by=["key"]).agg(*total())
    return totals_of(minutes, "window_start")


def of_sessions(one: DataFrame) -> DataFrame:
    found = hw.session(one, "at", "15 minutes", by=["key"]).agg(*total())
    return totals_of(found.select("key", "window_end", "n", "total"), "window_end")


def sessions_of_windows(one: DataFrame) -> DataFrame:
    steps = hw.cumulative(one, "at", "1 hour", "20 minutes", by=["key"]).agg(*total())
    found = hw.session(steps.filter("n > 2"), "window_end", "30 minutes", by=["key"])
    return found.agg(F.count("*").alias("parts"), F.max("n").alias("n"))


def of_counted(one: DataFrame) -> DataFrame:
    threes = hw.count_window(one, "at", 3, by=["key"]).agg(*total())
    return totals_of(threes, "window_end")


def of_pairs(one: DataFrame, other: DataFrame) -> DataFrame:
    pairs = hw.join(one, other, on=["key"], left_time="at", right_time="seen_at", within="40 minutes")
    return totals_of(pairs.withColumns({"n": F.col("mark"), "total": F.col("value")}), "at")


def of_answers(one: DataFrame, other: DataFrame) -> DataFrame:
    found = hw.as_of(one, other, by=["key"], left_time="at", right_time="seen_at", tolerance="1 hour")
    return totals_of(found.withColumns({"n": F.col("mark"), "total": F.col("value")}), "at")


def of_nearest(one: DataFrame, other: DataFrame) -> DataFrame:
    times = {"left_time": "at", "right_time": "seen_at", "tolerance": "1 hour"}
    found = hw.as_of(one, other, by=["key"], direction="nearest", **times)
    return totals_of(found.withColumns({"n": F.col("mark"), "total": F.col("value")}), "at", "20 minutes")


def joined_windows(one: DataFrame, other: DataFrame) -> DataFrame:
    mine = hw.tumbling(one, "at", "20 minutes", by=["key"]).agg(*total())
    theirs = hw.tumbling(other, "seen_at", "20 minutes", by=["key"]).agg(F.sum("mark").alias("marks"))
    mine = mine.select("key", "window_end", "n", "total")
    theirs = theirs.select("key", "window_start", "marks")
    return hw.join(
        mine, theirs, on=["key"], left_time="window_end", right_time="window_start", within="20 minutes"
    )


def windows_with_a_topic(one: DataFrame, other: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    times = {"left_time": "window_end", "right_time": "seen_at", "within": "30 minutes"}
    return hw.join(tens.filter("n > 1"), other, on=["key"], **times)


def answers_for_windows(one: DataFrame, other: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    times = {"left_time": "window_end", "right_time": "seen_at", "tolerance": "1 hour"}
    return hw.as_of(tens, other, by=["key"], direction="forward", **times)


def of_the_paired(one: DataFrame, other: DataFrame) -> DataFrame:
    times = {"left_time": "at", "right_time": "seen_at", "within": "40 minutes"}
    found = hw.join(one, other, on=["key"], how="semi", **times)
    return totals_of(found.withColumns({"n": F.lit(1), "total": F.col("value")}), "at")


def used_twice(one: DataFrame) -> DataFrame:
    fives = hw.tumbling(one, "at", "5 minutes", by=["key"]).agg(*total())
    tens = totals_of(fives, "window_end", "10 minutes").select("key", "window_end", "n")
    twenties = totals_of(fives.filter("n > 1"), "window_end", "20 minutes")
    twenties = twenties.select("key", F.col("window_end").alias("until"), F.col("n").alias("of_many"))
    times = {"left_time": "window_end", "right_time": "until", "within": "20 minutes"}
    return hw.join(tens, twenties, on=["key"], **times)


def three(one: DataFrame, other: DataFrame) -> DataFrame:
    pairs = hw.join(one, other, on=["key"], left_time="at", right_time="seen_at", within="40 minutes")
    tens = hw.tumbling(pairs.filter("value <> 7"), "seen_at", "10 minutes", by=["key"]).agg(*total())
    return totals_of(tens, "window_end")


def of_a_union(one: DataFrame, patient: DataFrame) -> DataFrame:
    theirs = patient.select("key", F.col("seen_at").alias("at"), F.col("mark").alias("value"))
    tens = hw.tumbling(hw.union(one, theirs), "at", "10 minutes", by=["key"]).agg(*total())
    renamed = tens.select("key", F.col("window_end").alias("until"), "n", "total")
    return totals_of(renamed.filter("total <> 0"), "until")


def united(one: DataFrame, other: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    mine = tens.select("key", F.col("window_end").alias("seen_at"), F.col("n").cast("int").alias("mark"))
    both = hw.union(mine, other.select("key", "seen_at", "mark"))
    return hw.tumbling(both, "seen_at", "1 hour", by=["key"]).agg(F.sum("mark").alias("marks"))


def newest(one: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return hw.latest(tens, by=["key"], order="window_end", state="unbounded")


UPDATED = {"keys": ["key", "window_start"], "mode": "update"}
EVERY: list[tuple[Callable[..., DataFrame], dict[str, Any], Any]] = [
    (busy_hours, UPDATED, "table"),
    (busy_hours, {}, "count"),
    (of_starts, {}, "table"),
    (of_sessions, {}, "count"),
    (sessions_of_windows, {}, "table"),
    (of_counted, {}, "table"),
    (of_pairs, UPDATED, "table"),
    (of_pairs, {}, "count"),
    (of_answers, {}, "table"),
    (of_nearest, {}, "table"),
    (joined_windows, {}, "count"),
    (windows_with_a_topic, {}, "table"),
    (windows_with_a_topic, {}, "count"),
    (answers_for_windows, {}, "table"),
    (of_the_paired, {}, "count"),
    (used_twice, {}, "table"),
    (three, {}, "count"),
    (of_a_union, UPDATED, "table"),
    (newest, {"keys": ["key"], "mode": "update"}, "table"),
]
CHAINS = EVERY if LONG else [EVERY[0], EVERY[7], EVERY[10]]
"""HEADWATER_CHAINS=1 looks at every one, with more rows, which takes ten minutes."""


def job_of(
    function: Callable[..., DataFrame], target: dict[str, Any], late: Any = "table", **more: Any
) -> Job:
    declared = hw.job(name="chain", target=hw.delta("gold.chain", **target), late=late, **more)
    return bind(declared(function))


def events(rng: random.Random, topic: str, count: int) -> list[list[tuple[str, datetime, int]]]:
    """Deliveries of random rows of six hours, none behind the greatest before by the delay."""
    found, newest = [], START
    rows = sorted(rng.randrange(6 * 60) for _ in range(count))
    while rows:
        some, rows = rows[: (size := rng.randrange(10, 30))], rows[size:]
        delay = 29 if topic == "one" else 19
        made = [(START + minute * MINUTE - rng.randrange(delay) * MINUTE) for minute in some]
        made = [max(at, newest - delay * MINUTE) for at in made]
        found.append([(rng.choice("ab"), at, rng.randrange(10)) for at in made])
        newest = max([newest, *made])
    return found


@pytest.fixture
def rng() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def stream(
    driver: JobDriver,
    rng: random.Random,
    sent: dict[str, list[Any]],
    parts: list[str],
    *,
    apart: bool = False,
) -> None:
    """Sends the deliveries and runs, in each run one of each topic; where they come apart, of one topic alone."""
    most = max(map(len, sent.values()))
    # A row that closes a step's windows makes the row that closes the next one's.
    ends = [END + timedelta(days=day) for day in range(4)]
    for place in range(most + len(ends)):
        for topic, made in sent.items():
            time, number = SIDES[topic]
            rows = made[place] if place < len(made) else []
            if place >= most:
                rows = [("end", ends[place - most], 1)] * 3
            values = [{"key": key, time: at.isoformat(), number: n} for key, at, n in rows]
            if values:
                driver.send(topic, *values, partition=rng.randrange(2), timestamp=START)
            if values and apart:
                driver.run()
        if parts and rng.random() < 0.4:
            driver.crash_at(rng.choice(["before commit", "after commit"]), rng.choice(parts))
            with suppress(SimulatedCrash):
                driver.run()
        driver.run()


def given(spark: SparkSession, job: Job, sent: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """What the function gives over all rows in one go."""
    frames = {}
    for name in job.inputs:
        time, number = SIDES[name]
        rows = [row for delivery in sent[name] for row in delivery]
        frames[name] = spark.createDataFrame(rows, f"key STRING, {time} TIMESTAMP, {number} INT").coalesce(1)
    return ordered(job.function(**frames).collect())


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


def result(driver: JobDriver) -> list[tuple[Any, ...]]:
    table = driver.table("gold.chain").filter("key <> 'end'")
    return ordered(table.select([name for name in table.columns if not name.startswith("_")]).collect())


def findings(driver: JobDriver) -> list[str]:
    return [finding for audit in audit_home(driver.home) for finding in audit.findings]


@pytest.mark.parametrize(
    ("function", "target", "late"),
    CHAINS,
    ids=[f"{function.__name__}-{late}" for function, _, late in CHAINS],
)
def test_chained_operators_give_what_the_function_gives_over_all_rows(
    spark: SparkSession,
    drive: Callable[..., JobDriver],
    closing_batches: None,
    rng: random.Random,
    function: Callable[..., DataFrame],
    target: dict[str, Any],
    late: Any,
) -> None:
    job = job_of(function, target, late)
    sent = {topic: events(rng, topic, 150 if LONG else 50) for topic in job.inputs}
    driver = drive(job)
    stream(driver, rng, sent, [plan.job.name for plan in plan_jobs(driver.context, [job])])
    wanted = given(spark, job, sent)
    assert wanted
    assert result(driver) == wanted
    assert findings(driver) == []


@pytest.mark.parametrize("function", [of_pairs, of_nearest])
def test_chained_operators_whose_inputs_come_in_different_runs_give_the_same(
    spark: SparkSession,
    drive: Callable[..., JobDriver],
    closing_batches: None,
    rng: random.Random,
    function: Callable[..., DataFrame],
) -> None:
    job = job_of(function, {})
    sent = {topic: events(rng, topic, 30) for topic in job.inputs}
    driver = drive(job)
    stream(driver, rng, sent, [plan.job.name for plan in plan_jobs(driver.context, [job])], apart=True)
    wanted = given(spark, job, sent)
    assert wanted
    assert result(driver) == wanted
    assert findings(driver) == []


def outer(one: DataFrame, other: DataFrame) -> DataFrame:
    pairs = hw.join(
        one, other, on=["key"], left_time="at", right_time="seen_at", within="40 minutes", how="left"
    )
    return hw.tumbling(pairs, "at", "1 hour", by=["key"]).agg(F.count("*").alias("n"))


def of_groups(one: DataFrame) -> DataFrame:
    groups = hw.grouped(one, by=["key"], state="unbounded").agg(F.max("at").alias("at"))
    return hw.tumbling(groups, "at", "1 hour").agg(F.count("*").alias("n"))


def computed_time(one: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return totals_of(tens.withColumn("day", F.date_trunc("day", "window_end")), "day")


def starts_of_sessions(one: DataFrame) -> DataFrame:
    found = hw.session(one, "at", "15 minutes", by=["key"]).agg(*total())
    return totals_of(found, "window_start")


def two_results(one: DataFrame, other: DataFrame) -> DataFrame:
    mine = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(F.count("*").alias("n"))
    theirs = hw.tumbling(other, "seen_at", "10 minutes", by=["key"]).agg(F.count("*").alias("n"))
    return hw.union(mine, theirs)


def unused(one: DataFrame, other: DataFrame) -> DataFrame:
    hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(F.count("*").alias("n"))
    return hw.tumbling(other, "seen_at", "10 minutes", by=["key"]).agg(F.count("*").alias("n"))


def without_a_delay(endless: DataFrame) -> DataFrame:
    return totals_of(hw.tumbling(endless, "at", "10 minutes", by=["key"]).agg(*total()), "window_end")


def called_like_a_step(step_1: DataFrame) -> DataFrame:
    return totals_of(hw.tumbling(step_1, "at", "10 minutes", by=["key"]).agg(*total()), "window_end")


def looked_up(one: DataFrame, names: DataFrame) -> DataFrame:
    named = hw.enrich(one, names, on=["key"])
    tens = hw.tumbling(named, "at", "10 minutes", by=["key", "name"]).agg(*total())
    again = hw.enrich(tens.drop("name"), names, on=["key"])
    return hw.tumbling(again, "window_end", "1 hour", by=["name"]).agg(F.sum("n").alias("n"))


def looked_up_before_a_join(one: DataFrame, other: DataFrame, names: DataFrame) -> DataFrame:
    named = hw.enrich(one, names, on=["key"])
    pairs = hw.join(named, other, on=["key"], left_time="at", right_time="seen_at", within="40 minutes")
    return hw.tumbling(pairs, "at", "1 hour", by=["key"]).agg(F.count("*").alias("n"))


def misnamed(one: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return totals_of(tens.filter("nn > 1"), "window_end")


def without_its_time(one: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return totals_of(tens, "window_finish")


def with_its_input(one: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(F.count("*").alias("value"))
    return hw.union(tens.select("key", "value"), one.select("key", "value"))


def counted_at_once(one: DataFrame) -> DataFrame:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return totals_of(tens.withColumn("n", F.col("n") / (tens.count() or 1)), "window_end")


def without_a_result(one: DataFrame) -> None:
    totals_of(hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total()), "window_end")


def without_its_aggregates(one: DataFrame) -> Any:
    return hw.tumbling(one, "at", "10 minutes", by=["key"])


def without_the_first_aggregates(one: DataFrame) -> DataFrame:
    tens: Any = hw.tumbling(one, "at", "10 minutes", by=["key"])
    return totals_of(tens, "window_end")


def two_frames(one: DataFrame) -> Any:
    tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg(*total())
    return tens, totals_of(tens, "window_end")


@pytest.mark.story
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            counted_at_once,
            "^job 'chain': its function makes columns of streams, and asks for no rows, as count, c",
        ),
        (
            without_a_result,
            "^job 'chain': the function returned nothing; end it with return and the DataFrame",
        ),
        (
            without_its_aggregates,
            r"the function returned windows without their aggregates; call .agg\(\.\.\.\)",
        ),
        (
            without_the_first_aggregates,
            r"^job 'chain': \S+\.py, line \d+: tumbling: it was handed Windowed, not a DataFrame; of windo",
        ),
        (two_frames, "the function returned a tuple, and the job has one table; return one DataFrame"),
        (outer, r"rows without a partner come out of hw.join\(..., how='left'\) when they expire"),
        (of_groups, "an aggregation by key changes as its rows come"),
        (
            computed_time,
            "the time of what follows a tumbling window must be one in whose order its rows come: ",
        ),
        (starts_of_sessions, "window_end, as it is, under any name"),
        (two_results, "a tumbling window, then a tumbling window are no chain"),
        (unused, "a tumbling window, then a tumbling window are no chain"),
        (united, "step_1 and other are united on the way to a tumbling window"),
        (without_a_delay, "the input 'endless' feeds state, so it needs event_time= and watermark="),
        (called_like_a_step, "'step_1' is what the library calls a step of a chain"),
        (looked_up_before_a_join, "rows on the way to a join of streams look nothing up, here in names"),
        (misnamed, "^job 'chain': .*`nn` cannot be resolved"),
        (
            without_its_time,
            r"^job 'chain': \S+\.py, line \d+: tumbling: no column 'window_finish'; there are key, window_start",
        ),
        (
            with_its_input,
            r"^job 'chain': \S+\.py, line \d+: union: the first frame is not made of an input's rows",
        ),
    ],
)
def test_chained_operators_that_cannot_be_run_are_refused_with_the_reason(
    drive: Callable[..., JobDriver], function: Callable[..., DataFrame], said: str
) -> None:
    driver = drive()
    if function is looked_up_before_a_join:
        driver.put("dim.names", "key STRING, name STRING", ("a", "Ann"))
    with pytest.raises(JobDefinitionError, match=said):
        plan_jobs(driver.context, [job_of(function, {})])


def test_chained_operators_with_a_check_that_speaks_of_no_input_are_refused(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("gold.chain"))
    @hw.check("known", "mark > value")
    def chain(one: DataFrame) -> DataFrame:
        return busy_hours(one)

    with pytest.raises(JobDefinitionError, match=r"job 'chain': check 'known': .*`mark` cannot be resolved"):
        plan_jobs(drive().context, [bind(chain)])


@pytest.mark.story
def test_chained_operators_parts_and_their_tables(drive: Callable[..., JobDriver]) -> None:
    job = job_of(three, {}, dedup=hw.by_offset(origin=True))
    plans = plan_jobs(drive().context, [job])
    assert [(plan.job.name, plan.kind, *sorted(plan.job.table_names)) for plan in plans] == [
        ("chain__step_1__ingest_one", "row"),
        ("chain__step_1__ingest_other", "row"),
        ("chain__step_1", "join", "gold.chain__step_1__ingest_one", "gold.chain__step_1__ingest_other"),
        ("chain__step_2__ingest_step_1", "row", "gold.chain__step_1"),
        ("chain__step_2", "window", "gold.chain__step_2__ingest_step_1"),
        ("chain__ingest_step_2", "row", "gold.chain__step_2"),
        ("chain", "window", "gold.chain__ingest_step_2"),
    ]
    delays = [declared.watermark for plan in plans for declared in plan.job.tables if plan.kind != "row"]
    assert delays == ["30 minutes", "20 minutes", "4200000 milliseconds", "1 millisecond"]
    assert [plan.job.dedup for plan in plans if plan.job.dedup] == [hw.by_offset(origin=True)] * 2


def at(minute: str, key: str = "a", value: int = 1) -> dict[str, Any]:
    return {"key": key, "at": f"2013-01-01T{minute}:00Z", "value": value}


def quick(driver: JobDriver, *batches: list[dict[str, Any]]) -> None:
    for some in batches:
        driver.send("one", *some, timestamp=START)
        driver.run()


def hours(least: int = 1, size: str = "1 hour", times: int = 1) -> Job:
    @hw.job(name="chain", target=hw.delta("gold.chain", **UPDATED), dedup=hw.by_offset())
    @hw.check("positive", "value > 0")
    @hw.check("few", "sum(n) < 100", on="output", level="batch", action="fail")
    def chain(one: DataFrame) -> DataFrame:
        tens = hw.tumbling(one, "at", "10 minutes", by=["key"]).agg((F.count("*") * times).alias("n"))
        windows = hw.tumbling(tens.filter(F.col("n") >= least), "window_end", size, by=["key"])
        return windows.agg(F.sum("n").alias("n"))

    return bind(chain)


def sums(driver: JobDriver) -> list[tuple[Any, ...]]:
    hour = F.date_format("window_start", "HH:mm")
    return ordered(driver.table("gold.chain").select(hour, "n").collect())


BATCHES = [
    [at("10:01"), at("10:02"), at("10:11", value=0), at("10:21")],
    [at("11:40"), at("11:41")],
    [at("10:03"), at("12:31")],  # an hour and more behind
    [at("14:00")],
    [at("18:00")],
]


def hours_of(driver: JobDriver, batches: int) -> None:
    """Fills a home with what `hours` makes of the first batches."""
    quick(driver, *BATCHES[:batches])


def test_chained_operators_keep_late_and_rejected_records_with_the_step_that_reads_them(
    ready: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = ready(hours_of, hours(), batches=5)
    assert sums(driver) == [("10:00", 3), ("11:00", 2), ("12:00", 1), ("14:00", 1)]
    assert driver.late("gold.chain__step_1", "_offset") == [(6,)]
    assert [reason for reason, _ in driver.quarantined("gold.chain__step_1")] == ["positive: value > 0"]
    assert driver.accounting("gold.chain__step_1")["late"] == 1
    assert "late" not in driver.accounting("gold.chain")
    assert findings(driver) == []
    path = driver.home.table("gold.chain__ingest_step_1")
    driver.context.spark.sql(f"DELETE FROM delta.`{path}` WHERE n = 2 AND window_start < '2013-01-01 11:00'")
    assert findings(driver) == ["gold.chain__ingest_step_1 batch 1: 1 row is gone: one 0 offset 0"]


def test_chained_operators_look_things_up_where_their_rows_are_on_their_way(
    drive: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = drive(job_of(looked_up, {}))
    driver.put("dim.names", "key STRING, name STRING", ("a", "Ann"))
    quick(driver, *BATCHES[:2])
    driver.put("dim.names", "key STRING, name STRING", ("a", "Bob"))
    quick(driver, *BATCHES[2:])
    found = driver.table("gold.chain").select(F.date_format("window_start", "HH"), "name", "n").collect()
    assert ordered(found) == [("10", "Ann", 4), ("11", "Bob", 2), ("12", "Bob", 1)]
    assert findings(driver) == []


def test_chained_operators_that_were_changed_are_refused_and_rebuilt_in_all_steps(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = ready(hours_of, hours(), batches=5)
    read = driver.accounting("gold.chain__step_1__ingest_one")["read"]
    changed = {
        "before the window": hours(least=2),
        r"^job .chain. cannot.*operator: .*headwater jobs rebuild chain$": hours(size="2 hours"),
        r"^job 'chain__step_1' cannot.*state .*headwater jobs rebuild chain$": hours(times=2),
    }
    for said, job in changed.items():
        again = drive(job)
        again.send("one", at("20:00"), timestamp=START)
        with pytest.raises(IncompatibleStateError, match=said):
            again.run()
        assert again.accounting("gold.chain__step_1__ingest_one")["read"] == read
    begun = begin_generations(driver.context, [hours(least=2, times=2)], "rebuild", lambda _: NoLease())
    assert [entry.table for entry in begun] == [
        "gold.chain__step_1", "gold.chain__ingest_step_1", "gold.chain",
    ]  # fmt: skip
    # Started at once, as by jobs run, the later parts find nothing behind the rebuild yet.
    JobRunner(driver.context, [hours(least=2, times=2)]).run_once(jobs=["chain__ingest_step_1", "chain"])
    again = drive(hours(least=2, times=2))
    again.run()
    again.send("one", at("23:00"), timestamp=START)
    again.run()
    assert sums(again) == [
        ("10:00", 6), ("11:00", 4), ("12:00", 2), ("14:00", 2), ("18:00", 2), ("20:00", 6),
    ]  # fmt: skip  # what was late then is late now
    assert findings(again) == []


def test_chained_operators_may_become_more_and_fewer_by_a_rebuild_of_all(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = ready(hours_of, hours(), batches=5)
    longer, single = job_of(three_windows, UPDATED, dedup=hw.by_offset()), job_of(one_window, UPDATED)
    for job in (longer, single):
        with pytest.raises(
            BackfillError, match=r"(reads gold\.chain__ingest|differs from its last run).* jobs rebuild"
        ):
            backfill.plan_rebuild(driver.context, job)
        with pytest.raises(IncompatibleStateError, match="headwater jobs rebuild chain"):
            drive(job).run()
        begin_generations(driver.context, [job], "rebuild", lambda _: NoLease())
        again = drive(job)
        again.run()
        again.send("one", at("23:00"), timestamp=START)
        again.run()
        assert [n for _, n in sums(again)][:2] == [3, 2] if job is longer else [4, 2]
        assert findings(again) == []


def three_windows(one: DataFrame) -> DataFrame:
    fives = hw.tumbling(one.filter("value > 0"), "at", "5 minutes", by=["key"]).agg(F.count("*").alias("n"))
    tens = hw.tumbling(fives, "window_end", "10 minutes", by=["key"]).agg(F.sum("n").alias("n"))
    return hw.tumbling(tens, "window_end", "1 hour", by=["key"]).agg(F.sum("n").alias("n"))


def one_window(one: DataFrame) -> DataFrame:
    return hw.tumbling(one, "at", "1 hour", by=["key"]).agg(F.count("*").alias("n"))


def test_chained_operators_begin_a_new_generation_with_their_rows(
    ready: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = ready(hours_of, hours(), batches=4)
    with pytest.raises(IncompatibleStateError, match=r"'chain__ingest_step_1' cannot.*jobs rebuild chain$"):
        begin_generations(driver.context, [hours(least=2)], "renew", lambda _: NoLease())
    begin_generations(driver.context, [hours()], "renew", lambda _: NoLease())
    quick(driver, BATCHES[4], [at("23:00")])
    assert sums(driver) == [("10:00", 3), ("11:00", 2), ("12:00", 1), ("14:00", 1), ("18:00", 1)]
    assert findings(driver) == []


def test_backfill_of_chained_operators_makes_the_last_one_s_rows_anew_or_puts_them_back(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = ready(hours_of, hours(), batches=5)
    context, job, wide = driver.context, hours(), hours(size="2 hours")
    with pytest.raises(
        BackfillError, match="'chain' is a chain of operators, and no part of its rows can be"
    ):
        backfill.plan(context, job)
    with pytest.raises(BackfillError, match="differs from its last run before its last operator"):
        backfill.plan_rebuild(context, hours(times=2))
    before = sums(driver)
    whole = backfill.plan_rebuild(context, wide)
    backfill.run(context, whole.id, wide)
    verdict = backfill.verify(context, whole.id, wide)
    assert verdict.passed, verdict.findings
    backfill.swap(context, whole.id, accept_diff=verdict.digest)
    assert sums(driver) == [("10:00", 5), ("12:00", 1), ("14:00", 1)]
    quick(drive(wide), [at("23:00")])
    assert sums(driver) == [("10:00", 5), ("12:00", 1), ("14:00", 1), ("18:00", 1)]
    assert findings(driver) == []
    assert before != sums(driver)


def made_aside(driver: JobDriver, job: Job, table: str | None, *behind: str) -> str:
    planned = backfill.plan_rebuild(driver.context, job, table=table, behind=behind)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert any(finding.name.startswith("recomputed") for finding in verdict.findings), verdict.notes
    return planned.id


def test_backfill_of_chained_operators_makes_all_their_tables_anew_beside_the_live_ones(
    drive: Callable[..., JobDriver], ready: Callable[..., JobDriver], closing_batches: None
) -> None:
    driver = ready(hours_of, hours(), batches=5)
    context, job, before = driver.context, hours(least=2, times=2), sums(driver)
    step, between = "gold.chain__step_1", "gold.chain__ingest_step_1"
    with pytest.raises(BackfillError, match=rf"plan chain --rebuild --table {step}, or build all"):
        backfill.plan_rebuild(context, job)
    with pytest.raises(BackfillError, match=rf"gold\.other is no table that .*, {step}, {between}, gold"):
        backfill.plan_rebuild(context, job, table="gold.other")
    first = made_aside(driver, job, step)
    with pytest.raises(BackfillError, match=rf"make it anew first: .*--rebuild --table {between} --behind"):
        backfill.plan_rebuild(context, job, behind=[first])
    with pytest.raises(BackfillError, match=rf"rebuild of {step} was planned with other code"):
        backfill.plan_rebuild(context, hours(least=3, times=2), table=between, behind=[first])
    second = made_aside(driver, job, between, first)
    third = made_aside(driver, job, None, first, second)
    assert sums(driver) == before
    quick(driver, [at("20:01")])  # with the code of before, while all is ready
    for each in (first, second, third):
        backfill.swap(context, each)
    with pytest.raises(IncompatibleStateError, match="headwater jobs rebuild chain"):
        drive(hours()).run()
    again = drive(job)
    again.run()
    again.send("one", at("23:00"), timestamp=START)
    again.run()
    wanted = [("10:00", 6), ("11:00", 4), ("12:00", 2), ("14:00", 2), ("18:00", 2), ("20:00", 2)]
    assert sums(again) == wanted
    assert findings(again) == []

    for each in (third, second, first):
        backfill.rollback(context, each)
    quick(driver, [at("23:30")])
    assert sums(driver) == [*before, ("18:00", 1), ("20:00", 1)]
    assert findings(driver) == []
