"""Count windows: what is streamed, in any order within the watermark, is what the function gives in one go.

size 2              10:00    10:10    10:20    10:30
10:00 a              a
10:20 b                                b                  window 0: a, c
10:10 c, in time               c comes in between         window 1: b, d
10:30 d                                         d

Lateness is told by the greatest time of all commits before a row's, less the delay of 30 minutes.
"""

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import DataLossError, IncompatibleStateError, JobDefinitionError
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.stages import open_rows
from headwater_streams.testing import JobDriver, SimulatedCrash
from support.watching import watch_until

events = hw.topic(
    "events", schema="key STRING, at TIMESTAMP, value INT, note STRING", event_time="at",
    watermark="30 minutes", max_ahead="400 days",
)  # fmt: skip
rows = hw.table("silver.events", event_time="at", watermark="30 minutes")
MINUTE = timedelta(minutes=1)
DELAY = 30 * MINUTE
START = datetime(2013, 1, 1, 10, tzinfo=UTC)
AT = START.isoformat()


@hw.job(target=hw.delta("silver.events"), dedup=hw.by_offset(origin=True))
def clean(events: DataFrame) -> DataFrame:
    return events


@hw.job(target=hw.delta("gold.by_key"))
def by_key(rows: DataFrame) -> DataFrame:
    useful = rows.filter("value <> 7").withColumn("twice", F.col("value") * 2)
    counted = hw.count_window(useful, "at", 3, by=["key"])
    return counted.agg(F.sum("twice").alias("total")).withColumn("half", F.expr("total / 2"))


@hw.job(target=hw.delta("gold.together"), late="count")
def together(rows: DataFrame) -> DataFrame:
    return hw.count_window(rows, "at", 7).agg(F.sum("value").alias("total"), F.max("_offset").alias("newest"))


@hw.job(target=hw.delta("gold.pairs"), dedup=hw.by_offset())
@hw.check("low", "total < 900", on="output", action="fail")
def pairs(events: DataFrame) -> DataFrame:
    return hw.count_window(events, "at", 2, by=["key"]).agg(F.sum("value").alias("total"))


@dataclass(frozen=True)
class Event:
    key: str | None
    at: datetime
    value: int
    place: tuple[int, int] = (0, 0)
    """Partition and offset."""
    closed_until: datetime = datetime(1, 1, 1, tzinfo=UTC)
    """The greatest time before the delivery, less the delay."""


def seeded() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def full(made: Iterable[Event], size: int, *, keyed: bool) -> list[tuple[Any, ...]]:
    """The definition: `key, index, start, end, total` of each full window, the totals doubled where keyed."""
    runs: dict[str | None, list[Event]] = defaultdict(list)
    for event in sorted(made, key=lambda e: (e.at, e.place)):
        runs[event.key if keyed else None].append(event)
    found: list[tuple[Any, ...]] = []
    for key, run in runs.items():
        for first in range(0, len(run) - size + 1, size):
            inside = run[first : first + size]
            total = sum(event.value for event in inside) * (2 if keyed else 1)
            ends = (naive(inside[0].at), naive(inside[-1].at))
            found.append((*([key] if keyed else []), first // size, *ends, total))
    return sorted(found, key=repr)


def naive(moment: datetime) -> datetime:
    """As PySpark gives it: without a zone, in that of the machine."""
    return moment.astimezone().replace(tzinfo=None)


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def made_at(*minutes: int, key: str = "a", value: int = 1) -> list[dict[str, Any]]:
    return [{"key": key, "at": (START + n * MINUTE).isoformat(), "value": value} for n in minutes]


def test_count_window_in_one_go_gives_the_windows_of_the_definition(spark: SparkSession) -> None:
    rng = seeded()
    # Of rows that are equal but for their places it does not matter which is first: one value for each time.
    value = defaultdict(lambda: rng.randrange(10))
    times = [START + rng.randrange(60) * MINUTE for _ in range(100)]
    every = [Event(rng.choice(["a", "b", None]), at, value[at]) for at in times]
    frame = spark.createDataFrame(
        [(e.key, e.at, e.value) for e in every], "key STRING, at TIMESTAMP, value INT"
    )
    timeless = spark.createDataFrame([("a", None, 1)], frame.schema)
    windows = hw.count_window(frame.union(timeless), "at", 3, by=["key"]).agg(F.sum("value").alias("total"))
    assert windows.columns == ["key", "window_index", "window_start", "window_end", "total"]
    doubled = windows.withColumn("total", F.col("total") * 2)
    assert collected(doubled) == full(every, 3, keyed=True)
    alone = hw.count_window(frame, "at", 1).agg(F.sum("value").alias("total"))
    assert collected(alone) == full(every, 1, keyed=False)
    # A table's rows have their places, by which rows of one time are in order.
    placed = [("t", n % 2, n // 2, START, n) for n in (3, 1, 0, 2)]
    schema = "_topic STRING, _partition INT, _offset LONG, at TIMESTAMP, value INT"
    kept = spark.createDataFrame([(t, p, o, None, None, at, v) for t, p, o, at, v in placed], (
        schema.replace("at T", "_timestamp TIMESTAMP, _origin STRING, at T")
    ))  # fmt: skip
    totals = hw.count_window(kept, "at", 2).agg(F.sum("value").alias("total")).orderBy("window_index")
    assert [row["total"] for row in totals.collect()] == [0 + 2, 1 + 3]


def test_count_windows_account_for_commits_of_their_input_that_brought_no_row(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(pairs)
    for records in (made_at(0), [b"no event"], made_at(40, 90)):
        driver.send("events", *records, timestamp=AT)
        driver.run()
    assert driver.rows("gold.pairs", "key", "total") == [("a", 2)]
    assert driver.audit() == []


def test_count_windows_of_no_row_commit_their_batches(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.none"), dedup=hw.by_offset())
    def none(events: DataFrame) -> DataFrame:
        kept = events.where("1 = 2")  # Spark sees that it is empty
        return hw.count_window(kept, "at", 2, by=["key"]).agg(F.sum("value").alias("total"))

    driver = drive(none)
    for minute in (0, 90):
        driver.send("events", *made_at(minute, minute + 1), timestamp=AT)
        driver.run()
    assert driver.rows("gold.none", "total") == []
    assert driver.accounting("gold.none")["filtered"] == 4
    assert driver.audit() == []


def test_count_windows_streamed_in_any_order_are_those_of_the_definition(
    drive: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in random order, some of them late, some delivered twice; the parts of the state are written anew."""
    monkeypatch.setattr(open_rows, "_MOST_PARTS", 2)
    monkeypatch.setattr(open_rows, "_MANY", 10)
    rng = seeded()
    driver = drive(clean, by_key, together)
    made: list[Event] = []
    offsets = [0, 0]
    newest, horizon = None, START
    for delivery in range(3):
        closed_until = newest - DELAY if newest else datetime(1, 1, 1, tzinfo=UTC)
        horizon += 25 * MINUTE
        oldest = max(START, newest - DELAY - 5 * MINUTE) if newest else START
        for partition in (0, 1):
            sent = []
            for _ in range(rng.randrange(1, 16)):
                at = oldest + rng.randrange(1, (horizon - oldest) // MINUTE) * MINUTE
                place = (partition, offsets[partition] + len(sent))
                # One key comes at last: the others' windows must not wait for it, nor their numbers begin anew.
                key = rng.choice(["a", "b", None, "rare"] if delivery != 1 else ["a", "b", None])
                sent.append(Event(key, at, rng.randrange(10), place, closed_until))
            values = [{"key": e.key, "at": e.at.isoformat(), "value": e.value} for e in sent]
            origin = ("east", "events", partition, offsets[partition])
            driver.send("events", *values, partition=partition, timestamp=AT, origin=origin)
            driver.resend("events", rng.choice(sent).place[1], partition=partition, as_new=True)
            offsets[partition] += len(sent) + 1
            made += sent
        if delivery == 1:
            driver.send("events", b"no event", timestamp=AT)
            offsets[0] += 1
        driver.run()
        newest = max(e.at for e in made)
        in_time = [e for e in made if e.at > e.closed_until]
        final = [e for e in in_time if e.at <= newest - DELAY]
        by = ["window_index", "window_start", "window_end", "total"]
        known = [e for e in final if e.value != 7]
        assert collected(driver.table("gold.by_key").select("key", *by)) == full(known, 3, keyed=True)
        assert collected(driver.table("gold.together").select(*by)) == full(final, 7, keyed=False)
        assert driver.audit() == []
    # What a batch over the table gives of the same rows.
    whole = driver.table("silver.events").filter("coalesce(at > _seen_until - INTERVAL 30 MINUTES, true)")
    reached = whole.filter(
        F.col("at") <= F.timestamp_micros(F.lit(int((newest - DELAY).timestamp() * 10**6)))
    )
    assert collected(together(reached)) == collected(
        driver.table("gold.together").select(*by[:3], "total", "newest")
    )
    late = {e.place for e in made if e.at <= e.closed_until}
    assert {tuple(row) for row in driver.late("gold.by_key", "_partition", "_offset")} == late
    assert driver.late("gold.together") == []
    told = Counter(driver.accounting("gold.by_key"))  # a term of 0 is not in it
    read = told["late"] + told["folded"] + told["filtered"]
    assert told["read"] == len(made) == read
    assert told["late"] == len(late)
    assert told["folded"] == sum(e.value != 7 for e in in_time) == told["emitted"] + told["open"]
    assert told["emitted"] == 3 * len(driver.rows("gold.by_key", "_rows"))
    check_sources(driver, in_time)
    check_parts(driver)


def check_parts(driver: JobDriver) -> None:
    """The state's parts stay as long as Spark knows a batch that needs them."""
    checkpoint = driver.home.checkpoint("by_key", 1)
    parts = {int(path.name): path for path in (checkpoint / "open_rows").iterdir()}
    whole = max((number for number, path in parts.items() if (path / "_whole").exists()), default=0)
    rows = open_rows.OpenRows(driver.context.spark, checkpoint, "by_key")
    for batch, left in ((whole + 99, set(parts)), (whole + 100, {n for n in parts if n >= whole})):
        rows.committed(batch)
        assert {int(path.name) for path in (checkpoint / "open_rows").iterdir()} == left


def check_sources(driver: JobDriver, in_time: list[Event]) -> None:
    """The ranges that a window names are those of its rows."""
    run = sorted(in_time, key=lambda e: (e.at, e.place))
    for row in driver.table("gold.together").select("window_index", "_sources").collect():
        first = row["window_index"] * 7
        offsets: dict[int, list[int]] = defaultdict(list)
        for event in run[first : first + 7]:
            offsets[event.place[0]].append(event.place[1])
        ranges = [("events", p, min(found), max(found) + 1) for p, found in sorted(offsets.items())]
        assert [tuple(each) for each in row["_sources"]] == ranges


def test_count_windows_killed_at_any_step_give_each_window_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(pairs)
    columns = ("window_index", "total", "_batch")
    driver.send("events", *made_at(0, 50, value=1), timestamp=AT)  # the watermark is 10:20
    driver.run()
    assert driver.rows("gold.pairs", *columns) == []
    driver.send("events", *made_at(40, value=10), *made_at(20, value=1000), timestamp=AT)  # 10:20 is late
    driver.advance(
        "events", "2013-01-01T11:10:00Z", key="other", value=0
    )  # 10:40: 10:00 and 10:40 are a window
    for step in ("before commit", "after commit"):
        driver.crash_at(step, "pairs")
        with pytest.raises(SimulatedCrash):
            driver.run()
    driver.run()
    assert driver.rows("gold.pairs", *columns) == [(0, 11, 1)]
    assert driver.late("gold.pairs", "value") == [(1000,)]
    assert driver.accounting("gold.pairs") == {"read": 5, "late": 1, "folded": 4, "emitted": 2, "open": 2}

    # One query over several batches, and a check of the result, which stops it before anything is written.
    runner = JobRunner(driver.context, [bind(pairs)], progress_every_s=None)
    runner.start(interval_s=0.1)
    try:
        for minute, value in ((100, 100), (130, 0), (160, 900)):
            driver.send("events", *made_at(minute, value=value), timestamp=AT)
            watch_until(runner, lambda m=minute: max_seen(driver) == START + m * MINUTE, within_s=120)
    finally:
        runner.stop()
    assert [row[:2] for row in driver.rows("gold.pairs", *columns)] == [(0, 11), (1, 101)]
    driver.send("events", *made_at(190, 220, value=100), timestamp=AT)
    with pytest.raises(Exception, match="1 row fails the check 'low'"):
        driver.run()
    assert len(driver.rows("gold.pairs", *columns)) == 2
    assert driver.audit() == []


def max_seen(driver: JobDriver) -> datetime:
    seen_us = driver.ledger("gold.pairs")[-1].extra["seen_us"]
    return datetime.fromtimestamp(seen_us / 10**6, UTC)


def test_count_windows_that_cannot_run_or_go_on_are_refused(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(pairs)
    driver.send("events", *made_at(0, 40), timestamp=AT)
    driver.run()

    def job(make: Callable[[DataFrame], DataFrame], **target: Any) -> Job:
        @hw.job(name="pairs", target=hw.delta("gold.pairs", **target), dedup=hw.by_offset())
        def changed(events: DataFrame) -> DataFrame:
            return make(events)

        return bind(changed)

    def refused(make: Callable[[DataFrame], DataFrame], **target: Any) -> str:
        with pytest.raises(JobDefinitionError) as error:
            plan_jobs(driver.context, [job(make, **target)])
        return str(error.value)

    def total(counted: Any) -> DataFrame:
        return counted.agg(F.sum("value").alias("total"))

    assert "has no updating result" in refused(
        lambda e: total(hw.count_window(e, "at", 2, by=["key"])), keys=["key"], mode="update"
    )
    assert "cannot use dropDuplicates" in refused(
        lambda e: total(hw.count_window(e.dropDuplicates(), "at", 2))
    )
    assert "cannot use limit" in refused(lambda e: total(hw.count_window(e.limit(5), "at", 2)))
    assert "lost their coordinates" in refused(
        lambda e: total(hw.count_window(e.groupBy("at").agg(F.max("value").alias("value")), "at", 2))
    )
    assert "only select and withColumn may follow" in refused(
        lambda e: total(hw.count_window(e, "at", 2)).filter("total > 0")
    )
    with pytest.raises(BackfillError, match="is a count window, and only windows of times"):
        backfill.plan(driver.context, bind(pairs))

    changes = {
        "operator: CountWindow.*size=2.* before, .*size=3": lambda e: total(
            hw.count_window(e, "at", 3, by=["key"])
        ),
        "operator: .*by=.'key',.*by=..": lambda e: total(hw.count_window(e, "at", 2)),
        "state: .*value:int,.*value:bigint": lambda e: total(
            hw.count_window(e.withColumn("value", F.col("value").cast("long")), "at", 2, by=["key"])
        ),
    }
    for found, make in changes.items():
        with pytest.raises(IncompatibleStateError, match=found):
            JobRunner(driver.context, [job(make)], progress_every_s=None).run_once()
    shutil.rmtree(driver.home.checkpoint("pairs", 1) / "open_rows" / "0")
    with pytest.raises(DataLossError, match="has 0 rows where 2 wait for their windows to be full"):
        driver.run()
