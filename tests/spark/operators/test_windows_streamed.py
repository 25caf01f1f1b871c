"""Windows of every kind: what is streamed, in any order within the watermark, is what the function gives in one go.

    at            10:00    10:20    10:40    11:00    11:20    11:40
    hopping 50/20  |--------------|                                     a row is in two or three
    cumulative     |--|-----|--------|                                  from the hour's start to each 20 minutes
    session 15      |---|   |------|      |--|                          until a key is silent for 15 minutes

Lateness is told by the greatest time of all commits before a row's, less the delay of 30 minutes. A job that only
counts its late rows reads the topic itself, and Spark's watermark says the same.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams.base.errors import CheckFailedError, JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver, SimulatedCrash

pytestmark = pytest.mark.usefixtures("closing_batches")

events = hw.topic(
    "events", schema="key STRING, at TIMESTAMP, value INT", event_time="at", max_ahead="400 days"
)
topic_rows = replace(events, watermark="30 minutes")
rows = hw.table("silver.events", event_time="at", watermark="30 minutes")
MINUTE = timedelta(minutes=1)
DELAY = 30 * MINUTE
START = datetime(2013, 1, 1, 10, tzinfo=UTC)
LAST = START + timedelta(days=9)
"""Only the window of the row that closes the others ends after it."""
AT = START.isoformat()


def measures() -> list[Column]:
    return [F.count("*").alias("n"), F.sum("value").alias("total"), F.max("at").alias("newest")]


@hw.job(target=hw.delta("silver.events"), dedup=hw.by_offset())
def clean(events: DataFrame) -> DataFrame:
    return events


@hw.job(target=hw.delta("gold.tumbling_final"))
def tumbling_final(rows: DataFrame) -> DataFrame:
    return hw.tumbling(rows, "at", "20 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.hopping_final"))
def hopping_final(rows: DataFrame) -> DataFrame:
    return hw.hopping(rows.filter("value <> 7"), "at", "50 minutes", "20 minutes").agg(*measures())


@hw.job(
    target=hw.delta("gold.cumulative", keys=["parity", "window_start", "window_end"], mode="update"),
    late="count",
)
def cumulative(rows: DataFrame) -> DataFrame:
    known = rows.withColumn("parity", F.expr("value % 2"))
    return hw.cumulative(known, "at", "1 hour", "20 minutes", by=["parity"]).agg(*measures())


@hw.job(target=hw.delta("gold.session_final"))
def session_final(rows: DataFrame) -> DataFrame:
    return hw.session(rows, "at", "15 minutes", by=["key"]).agg(*measures())


@hw.job(target=hw.delta("gold.tumbling_updated", keys=["key", "window_start"], mode="update"))
@hw.check("known", "value >= 0", on="input", action="quarantine")
@hw.check("small", "max(value) < 100", on="input", level="batch", action="fail")
def tumbling_updated(rows: DataFrame) -> DataFrame:
    return hw.tumbling(rows.filter("value <> 7"), "at", "20 minutes", by=["key"]).agg(*measures())


JOBS = (tumbling_final, hopping_final, cumulative, session_final)


@dataclass(frozen=True)
class Event:
    key: str | None
    at: datetime
    value: int
    offset: int = 0
    closed_until: datetime = datetime(1, 1, 1, tzinfo=UTC)
    """The greatest time before the delivery, less the delay."""

    def value_of(self) -> dict[str, object]:
        return {"key": self.key, "at": self.at.isoformat(), "value": self.value}


@pytest.fixture
def rng() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def deliveries(rng: random.Random, *, oldest: timedelta) -> list[list[Event]]:
    """Two deliveries, times out of order and at most `oldest` behind the greatest of those before, and one row that
    closes all their windows."""
    made: list[list[Event]] = []
    offset, newest, horizon = 0, None, START
    for _ in range(2):
        closed_until = newest - DELAY if newest else datetime(1, 1, 1, tzinfo=UTC)
        horizon += 80 * MINUTE
        delivery = []
        for _ in range(60):
            first = max(START, newest - oldest + timedelta(microseconds=1)) if newest else START
            span = (horizon - first) // MINUTE
            at = first + rng.randrange(max(1, span)) * MINUTE
            key = rng.choice(["a", "b", "c", "d", None])
            delivery.append(Event(key, at, rng.randrange(10), offset, closed_until))
            offset += 1
        newest = max([*([newest] if newest else []), *[e.at for e in delivery]])
        made.append(delivery)
    assert newest is not None
    return [*made, [Event("z", START + timedelta(days=10), 0, offset, newest - DELAY)]]


def in_order(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def counting(job: Any) -> Job:
    """The same job over the topic, which counts its late rows."""
    return replace(bind(job), inputs={"rows": topic_rows}, late="count")


def check_books(driver: JobDriver) -> dict[str, dict[str, int]]:
    audits = audit_home(driver.home)
    assert [finding for audit in audits for finding in audit.findings] == []
    terms = {audit.table.removeprefix("gold."): audit.totals.get("rows", {}) for audit in audits}
    for found in (found for found in terms.values() if found):
        assert found["read"] == found["folded"] + found["filtered"] + found["late"] + found["quarantined"]
    return terms


def starts(event: Event, size: int, every: int) -> list[datetime]:
    """The starts of the windows, `size` and `every` in minutes, that hold an event."""
    last = START + (event.at - START) // (every * MINUTE) * every * MINUTE
    return [
        last - n * every * MINUTE
        for n in range(size // every + 1)
        if event.at < last + (size - n * every) * MINUTE
    ]


def bounds(event: Event, name: str) -> list[tuple[datetime, datetime]]:
    """The windows of an event, in the order of their ends."""
    if name == "cumulative":
        (hour,) = starts(event, 60, 60)
        return [(hour, hour + n * 20 * MINUTE) for n in (1, 2, 3) if event.at < hour + n * 20 * MINUTE]
    if name == "session_final":
        return [(event.at, event.at + 15 * MINUTE)]
    size = {"tumbling_final": 20, "hopping_final": 50}[name]
    return [(start, start + size * MINUTE) for start in reversed(starts(event, size, 20))]


KEY_OF: dict[str, Callable[[Event], tuple[Any, ...]]] = {
    "tumbling_final": lambda e: (e.key,),
    "hopping_final": lambda e: (),
    "cumulative": lambda e: (e.value % 2,),
    "session_final": lambda e: (e.key,),
}


def measured(groups: dict[tuple[Any, ...], list[Event]]) -> list[tuple[Any, ...]]:
    """What `measures` gives, with the first and the last offset of each window."""
    found = []
    for window, inside in groups.items():
        offsets = [event.offset for event in inside]
        total, newest = sum(event.value for event in inside), max(event.at for event in inside)
        row = (*window, len(inside), total, newest, min(offsets), max(offsets) + 1)
        found.append(tuple(naive(value) if isinstance(value, datetime) else value for value in row))
    return sorted(found, key=repr)


def sessions(made: Sequence[Sequence[Event]], gap: timedelta) -> dict[tuple[Any, ...], list[Event]]:
    """Spark's sessions, told once more: rows join what is open, then what has ended by the new watermark leaves."""
    closed: dict[tuple[Any, ...], list[Event]] = {}
    waiting: dict[Any, list[list[Event]]] = defaultdict(list)
    for delivery, following in pairwise(made):
        watermark = following[0].closed_until
        for event in delivery:
            if event.at + gap > event.closed_until:
                waiting[event.key].append([event])
        for key, parts in waiting.items():
            merged: list[list[Event]] = []
            for part in sorted(parts, key=lambda rows: min(event.at for event in rows)):
                if merged and min(e.at for e in part) <= max(e.at for e in merged[-1]) + gap:
                    merged[-1] = merged[-1] + part
                else:
                    merged.append(part)
            ended = [part for part in merged if max(e.at for e in part) + gap < watermark]
            for part in ended:
                closed[key, min(e.at for e in part), max(e.at for e in part) + gap] = part
            waiting[key] = [part for part in merged if part not in ended]
    for key, parts in waiting.items():
        for part in parts:
            closed[key, min(e.at for e in part), max(e.at for e in part) + gap] = part
    return closed


def expected(made: Sequence[Sequence[Event]], name: str) -> dict[tuple[Any, ...], list[Event]]:
    """The windows of a job with the events that are counted in them."""
    if name == "session_final":
        return sessions(made, 15 * MINUTE)
    groups: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in (event for delivery in made for event in delivery):
        if event.value == 7 and name == "hopping_final":
            continue  # the function filters it
        for window in bounds(event, name):
            if event.closed_until < window[1] < LAST:
                groups[(*KEY_OF[name](event), *window)].append(event)
    return groups


def test_window_function_in_one_go_gives_the_windows_of_the_model(
    spark: SparkSession, rng: random.Random
) -> None:
    made = deliveries(rng, oldest=DELAY)
    every = [(e.key, e.at, e.value) for delivery in made for e in delivery]
    rows = spark.createDataFrame(every, "key STRING, at TIMESTAMP, value INT").coalesce(1)
    for job in JOBS:
        batch = job(rows).filter(F.col("window_end") < LAST)
        assert in_order(batch) == [row[:-2] for row in measured(expected(made, job.__name__))]


@pytest.mark.parametrize(
    ("oldest", "jobs"),
    [(DELAY, (tumbling_final,)), (120 * MINUTE, (hopping_final, cumulative, session_final))],
    ids=["in time", "late rows"],
)
def test_windows_streamed_in_any_order_are_those_of_the_model(
    drive: Callable[..., JobDriver], rng: random.Random, oldest: timedelta, jobs: tuple[Any, ...]
) -> None:
    """With rows in time, in whatever order, that is what the function gives in one go; late ones are told exactly."""
    made = deliveries(rng, oldest=oldest)
    every = [event for delivery in made for event in delivery]
    driver = drive(clean, *jobs)
    for delivery in made:
        driver.send("events", *[event.value_of() for event in delivery], timestamp=AT)
        driver.run()
    terms = check_books(driver)
    for job in jobs:
        name = job.__name__
        by = {"hopping_final": [], "cumulative": ["parity"]}.get(name, ["key"])
        source = F.col("_sources")[0]
        columns = [*by, "window_start", "window_end", "n", "total", "newest", source["start"], source["end"]]
        streamed = driver.table(f"gold.{name}").filter(F.col("window_end") < LAST).select(*columns)
        assert in_order(streamed) == measured(expected(made, name)), name
        check_late(driver, name, every, terms[name])
    # The row that closed the windows waits in its own: of 50 minutes every 20, a full hour is in three.
    waiting = {"tumbling_final": 1, "hopping_final": 3, "session_final": 1}
    assert {n: t["open"] for n, t in terms.items() if "open" in t} == {
        job.__name__: waiting[job.__name__] for job in jobs if job.__name__ in waiting
    }


def check_late(driver: JobDriver, name: str, every: Sequence[Event], terms: dict[str, int]) -> None:
    windows = {e.offset: bounds(e, name) for e in every}
    closed = {e.offset: [w for w in windows[e.offset] if w[1] <= e.closed_until] for e in every}
    missing = {offset: missed for offset, missed in closed.items() if missed}
    late = sum(missed == windows[offset] for offset, missed in closed.items())
    assert (terms["late"], terms["late"] + terms.get("partly_late", 0)) == (late, len(missing))
    there = driver.table(f"gold.{name}__late").collect()
    assert sorted(row["_offset"] for row in there) == ([] if name == "cumulative" else sorted(missing))
    if name == "hopping_final":
        told = {row["_offset"]: [(w["start"], w["end"]) for w in row["_missed"]] for row in there}
        assert told == {offset: [tuple(map(naive, w)) for w in missed] for offset, missed in missing.items()}
    if "placed" in terms:
        folded = [e for e in every if closed[e.offset] != windows[e.offset]]
        folded = [e for e in folded if name != "hopping_final" or e.value != 7]
        pairs = sum(len(windows[e.offset]) for e in folded)
        missed = sum(len(closed[e.offset]) for e in folded)
        assert (terms["placed"], terms["missed"]) == (pairs - missed, missed)


@pytest.mark.parametrize("name", ["tumbling_final", "hopping_final", "cumulative", "session_final"])
def test_windows_over_the_topic_itself_are_those_of_the_model(
    drive: Callable[..., JobDriver], rng: random.Random, name: str
) -> None:
    made = deliveries(rng, oldest=120 * MINUTE)
    driver = drive(counting(globals()[name]))
    for place, delivery in enumerate(made):
        driver.send("events", *[event.value_of() for event in delivery], timestamp=AT)
        if place == 1:  # the batch that has late rows is run again, with the watermark that it had
            driver.crash_at(rng.choice(["start", "before commit", "after commit", "end"]), name)
            with pytest.raises(SimulatedCrash):
                driver.run()
        driver.run()
    (terms,) = check_books(driver).values()
    assert not driver.home.table(f"gold.{name}__ingest_rows").exists()
    by = {"hopping_final": [], "cumulative": ["parity"]}.get(name, ["key"])
    source = F.col("_sources")[0]
    columns = [*by, "window_start", "window_end", "n", "total", "newest", source["start"], source["end"]]
    streamed = driver.table(f"gold.{name}").filter(F.col("window_end") < LAST).select(*columns)
    found, groups = in_order(streamed), measured(expected(made, name))
    assert [row[:-2] for row in found] == [row[:-2] for row in groups]
    # Their sources are whole batches: from the one that brought the first row.
    begins = list(accumulate([len(delivery) for delivery in made], initial=0))
    for row, exact in zip(found, groups, strict=True):
        assert row[-2] == max(begin for begin in begins if begin <= exact[-2])
        assert row[-1] in begins
        assert row[-1] >= exact[-1]
    every = [event for delivery in made for event in delivery]
    windows = {e.offset: bounds(e, name) for e in every}
    closed = {e.offset: [w for w in windows[e.offset] if w[1] <= e.closed_until] for e in every}
    assert terms["late"] == sum(missed == windows[o] for o, missed in closed.items())
    assert terms.get("partly_late", 0) + terms["late"] == sum(map(bool, closed.values()))
    assert driver.late(f"gold.{name}") == []


@pytest.mark.story
def test_windows_over_the_topic_bad_rows_and_failed_checks(drive: Callable[..., JobDriver]) -> None:
    driver = drive(counting(tumbling_updated))

    def send(*events: tuple[int, int]) -> None:
        values = [{"key": "a", "at": (START + m * MINUTE).isoformat(), "value": v} for m, v in events]
        driver.send("events", *values, b"not JSON", timestamp=AT)

    send((1, 1), (2, 7), (3, -1), (100, 2))
    driver.run()
    send((4, 3), (90, 4), (91, 500))
    with pytest.raises(CheckFailedError, match="small"):
        driver.run()
    assert driver.accounting("gold.tumbling_updated") == {
        "read": 5,
        "folded": 2,
        "filtered": 1,
        "quarantined": 2,
    }
    assert [raw for _, raw in driver.quarantined("gold.tumbling_updated")][1] == b"not JSON"
    (audit,) = audit_home(driver.home)
    assert [partition.terms for partition in audit.partitions] == [
        {"read": 5, "kept": 3, "late": 0, "quarantined": 2}
    ]
    assert driver.rows("gold.tumbling_updated", "key", "n", "total") == [("a", 1, 1), ("a", 1, 2)]


@pytest.mark.story
def test_windows_over_more_partitions_than_are_counted_each_balance_in_all(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(counting(tumbling_updated))
    for partition in range(20):
        at = (START + partition * MINUTE).isoformat()
        driver.send("events", {"key": "a", "at": at, "value": 1}, b"bad", timestamp=AT, partition=partition)
    driver.run()
    (audit,) = audit_home(driver.home)
    assert (len(audit.partitions), audit.findings) == (20, [])
    assert not any(partition.terms for partition in audit.partitions)
    assert driver.accounting("gold.tumbling_updated") == {"read": 40, "folded": 20, "quarantined": 20}


def naive(moment: datetime) -> datetime:
    """As PySpark gives it: without a zone, in that of the machine."""
    return moment.astimezone().replace(tzinfo=None)


def test_final_windows_crashes_give_each_window_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(clean, hopping_final)

    def send(*minutes: int) -> None:
        times = [(START + minute * MINUTE).isoformat() for minute in minutes]
        driver.send("events", *[{"key": "a", "at": at, "value": 1} for at in times], timestamp=AT)

    send(5, 95)  # the watermark is 11:05: [09:20, 10:10), [09:40, 10:30) and [10:00, 10:50) are closed
    driver.run()
    send(0, 30, 220)  # 10:00 is late; 10:30 is so for [10:00, 10:50), in time for [10:20, 11:10)
    for step in ("before commit", "after commit"):
        driver.crash_at(step, "hopping_final")
        with pytest.raises(SimulatedCrash):
            driver.run()
    driver.run()
    found = driver.table("gold.hopping_final").select(F.date_format("window_start", "HH:mm"), "n").collect()
    in_one = [("09:20", 1), ("09:40", 1), ("10:00", 1), ("10:20", 1), ("11:00", 1), ("11:20", 1)]
    assert sorted(map(tuple, found)) == in_one
    told = driver.table("gold.hopping_final__late").select("_offset", F.size("_missed")).collect()
    assert sorted(map(tuple, told)) == [(2, 3), (3, 1)]
    assert [finding for audit in audit_home(driver.home) for finding in audit.findings] == []


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session", "count_window"])
def test_aggregate_that_is_called_as_a_key_is_refused_by_name(spark: SparkSession, kind: str) -> None:
    one = spark.createDataFrame([("x", 1)], "k STRING, n INT").withColumn("at", F.current_timestamp())
    windows: Any = {
        "tumbling": lambda: hw.tumbling(one, "at", "1 hour", by=["k"]),
        "hopping": lambda: hw.hopping(one, "at", "1 hour", "10 minutes", by=["k"]),
        "session": lambda: hw.session(one, "at", "1 hour", by=["k"]),
        "count_window": lambda: hw.count_window(one, "at", 1, by=["k"]),
    }
    with pytest.raises(JobDefinitionError, match=r"^agg: an aggregate is called 'k', and by= names"):
        windows[kind]().agg(F.max("n").alias("k"))
    with pytest.raises(
        JobDefinitionError, match=r"^agg: an aggregate is called 'window_end', and the windows"
    ):
        windows[kind]().agg(F.max("n").alias("window_end"))
    made = windows[kind]().agg(F.max("n").alias("m"))
    assert made.columns[-1] == "m"
    assert [row["m"] for row in made.collect()][:1] == [1]
