"""Slowly changing dimensions: tables that follow from the set of change events, whatever their order and batches."""

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams.backfill.repair import planning
from headwater_streams.backfill.store import BackfillError
from headwater_streams.base.errors import IncompatibleStateError, JobDefinitionError
from headwater_streams.delta.history import history, newest
from headwater_streams.plan.job import bind
from headwater_streams.runtime.generations import begin_generation
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

AT = "2013-01-01T12:00:00+00:00"
customers = hw.topic("customers", schema="id INT, op STRING, at BIGINT, city STRING, phone STRING")
_SHARED: dict[str, Any] = {
    "keys": ["id"], "sequence_by": "at", "apply_as_deletes": "op = 'd'", "except_columns": ["op"],
}  # fmt: skip


@hw.job(target=hw.scd1("dim.newest", **_SHARED), dedup=hw.by_offset(origin=True))
@hw.check("city_is_spelled", "city IS NULL OR city <> '?'")
def keep_newest(customers: DataFrame) -> DataFrame:
    return customers


_BY_CITY = hw.scd2("dim.history", **_SHARED, track_history_columns=["city"])


@hw.job(target=_BY_CITY, dedup=hw.by_offset(origin=True))
@hw.check("city_is_spelled", "city IS NULL OR city <> '?'")
def keep_history(customers: DataFrame) -> DataFrame:
    return customers


Event = Mapping[str, Any]
"""A change: `id`, `op`, `at`, `city`, `phone`, and `place`, its partition and offset."""


def counted(events: Iterable[Event]) -> dict[int, list[Event]]:
    """Of each key the events that count, by their sequence: of those with one sequence the last."""
    last: dict[tuple[int, int], Event] = {}
    for event in sorted(events, key=lambda e: e["place"]):
        last[event["id"], event["at"]] = event
    found: dict[int, list[Event]] = {}
    for (key, _), event in sorted(last.items()):
        found.setdefault(key, []).append(event)
    return found


def newest_rows(events: Iterable[Event]) -> list[tuple[tuple[Any, ...], Event]]:
    """The model of type 1: id, at, city, phone; and the event that the row is."""
    last = [of_key[-1] for of_key in counted(events).values()]
    return [((e["id"], e["at"], e["city"], e["phone"]), e) for e in last if e["op"] != "d"]


def history_rows(
    events: Iterable[Event], tracked: Iterable[str] = ("city",)
) -> list[tuple[tuple[Any, ...], Event]]:
    """The model of type 2: id, city, phone, valid_from, valid_to, is_current, events; and the event that began it."""
    rows = []
    for key, of_key in counted(events).items():
        ends = [event["at"] for event in of_key[1:]] + [None]
        told = itertools.groupby(
            zip(of_key, ends, strict=True),
            key=lambda pair: pair[0]["op"] == "d" or [pair[0][name] for name in tracked],
        )
        for is_delete, run in told:
            held = list(run)
            (first, _), (last, end) = held[0], held[-1]
            if is_delete is not True:
                values = (key, first["city"], last["phone"], first["at"], end, end is None, len(held))
                rows.append((values, first))
    return rows


def changes(rng: random.Random, count: int, keys: int) -> list[dict[str, Any]]:
    """Changes of few keys with few sequences and values, so that they tie, repeat and delete each other."""
    return [
        {
            "id": rng.randrange(keys),
            "op": rng.choice("cuuud"),
            "at": rng.randrange(12),
            "city": rng.choice(["Rome", "Oslo", None]),
            "phone": rng.choice("abc"),
        }
        for _ in range(count)
    ]


COLUMNS_1 = ("id", "at", "city", "phone")
COLUMNS_2 = ("id", "city", "phone", "valid_from", "valid_to", "is_current", "_changes")
TIMELINE = [
    (1, "c", "Rome"),
    (4, "u", "Oslo"),
    (6, "d", None),
    (7, "c", "Oslo"),
    (2, "u", "Rome"),
    (3, "u", "Bern"),
]
"""The one of `delta/scd_target.py`."""


def test_rows_of_random_events_are_those_of_the_model(spark: SparkSession) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    events = [{**event, "place": (n % 2, n // 2)} for n, event in enumerate(changes(rng, 1500, keys=200))]
    drawn = [{"id": -1, "at": at, "op": op, "city": city, "phone": "1"} for at, op, city in TIMELINE]
    events += [{**event, "place": (0, 10**6 + n)} for n, event in enumerate(drawn)]
    rng.shuffle(events)
    table = pa.Table.from_pylist(
        [
            {
                **event,
                "_deleted": event["op"] == "d",
                "_topic": "t",
                "_partition": place[0],
                "_offset": place[1],
            }
            for event in (*events, *events[:50])  # some of them twice
            if (place := event["place"])
        ]
    ).drop_columns(["place", "op"])
    frame = spark.createDataFrame(table).selectExpr(
        "*", "timestamp'2013-01-01' AS _timestamp", "1L AS _batch", "1 AS _generation",
        "CAST(NULL AS STRUCT<cluster: STRING, topic: STRING, partition: INT, offset: BIGINT>) AS _origin",
    )  # fmt: skip

    found = newest(frame, ["id"], "at").select(*COLUMNS_1, "_partition", "_offset").collect()
    assert sorted(map(tuple, found)) == sorted((*row, *e["place"]) for row, e in newest_rows(events))

    found = history(frame, ["id"], "at", ["city"]).drop("_changes").toArrow().to_pylist()
    told = [(*[row[name] for name in COLUMNS_2[:-1]], row["_partition"], row["_offset"]) for row in found]
    expected = [(*row[:-1], *e["place"]) for row, e in history_rows(events)]
    assert sorted(told, key=repr) == sorted(expected, key=repr)
    assert sorted(row[1:6] for row in told if row[0] == -1) == [
        ("Bern", "1", 3, 4, False),
        ("Oslo", "1", 4, 6, False),
        ("Oslo", "1", 7, None, True),
        ("Rome", "1", 1, 3, False),
    ]


def as_sorted(rows: Iterable[tuple[tuple[Any, ...], Event]]) -> list[tuple[Any, ...]]:
    return sorted((row for row, _ in rows), key=repr)


class Source:
    """Where changes come from: each has its place there, and arrives in some order, some of them twice."""

    def __init__(self, driver: JobDriver, rng: random.Random) -> None:
        self._driver, self._rng = driver, rng
        self.sent: list[Event] = []
        self.resent = 0

    def deliver(self, events: Iterable[Mapping[str, Any]]) -> None:
        fresh = []
        for event in events:
            place = (self._rng.randrange(2), len(self.sent))
            fresh.append({"city": None, "phone": None, **event, "place": place})
            self.sent.append(fresh[-1])
        self._rng.shuffle(fresh)
        again = self._rng.choices(self.sent, k=3)
        self.resent += len(again)
        for event in (*fresh, *again):
            value = {name: event[name] for name in event if name != "place"}
            origin = ("east", "customers", *event["place"])
            self._driver.send(
                "customers", value, partition=self._rng.randrange(2), timestamp=AT, origin=origin
            )


def run_with_crashes(driver: JobDriver, rng: random.Random, *steps: str) -> Source:
    """Sends good and bad changes, in several deliveries, to a job that dies at each of the steps."""
    source = Source(driver, rng)
    source.deliver([{"id": 7, "op": "u", "at": 1, "city": "Rome"}])  # of one that is never deleted
    driver.send("customers", {"id": 1, "op": "u"}, {"op": "d", "at": 3}, b"bad", timestamp=AT)
    driver.send("customers", {"id": 1, "op": "u", "at": 3, "city": "?"}, timestamp=AT)
    for step in steps:
        deletes = [{"id": 9, "op": "d", "at": 5}, {"id": rng.randrange(4), "op": "d", "at": 6}]
        source.deliver([*changes(rng, rng.randrange(6, 16), keys=4), *deletes])
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            driver.run()
    source.deliver(changes(rng, 12, keys=4))  # what came while it was down
    return source


def check_accounts(driver: JobDriver, table: str, source: Source, *, kept: int) -> None:
    assert driver.audit() == []
    assert sorted(reason for reason, _ in driver.quarantined(table)) == [
        "at, which orders the changes, is missing",
        "city_is_spelled: city IS NULL OR city <> '?'",
        "the key id is missing",
        "the value is not one JSON object",
    ]
    total, deleted = driver.accounting(table), count_deletes(source)
    assert (total["changed"], total["deleted"]) == (len(source.sent) - deleted, deleted)
    assert (total["quarantined"], total["duplicate"], total["kept"]) == (4, source.resent, kept)


def count_deletes(source: Source) -> int:
    return sum(event["op"] == "d" for event in source.sent)


def test_dimension_type_1_any_order_batches_and_crashes_are_the_model(
    drive: Callable[..., JobDriver],
) -> None:
    seed = drawn_seed()
    driver = drive(keep_newest)
    source = run_with_crashes(driver, random.Random(seed), "before commit")
    driver.run()
    assert driver.rows("dim.newest", *COLUMNS_1) == as_sorted(newest_rows(source.sent))
    check_accounts(driver, "dim.newest", source, kept=count_deletes(source))


def test_dimension_type_2_any_order_batches_and_crashes_are_the_model(
    drive: Callable[..., JobDriver],
) -> None:
    seed = drawn_seed()
    driver = drive(keep_history)
    source = run_with_crashes(driver, random.Random(seed), "before table", "before commit")
    driver._jobs = [bind(with_tier(_BY_CITY))]  # a column more, from the second batch on
    driver.run()
    assert driver.rows("dim.history", *COLUMNS_2) == as_sorted(history_rows(source.sent))
    tiers = driver.rows("dim.history__changes", "phone", "tier", "_batch")
    assert all(tier == (phone.upper() if batch else None) for phone, tier, batch in tiers if phone)
    check_accounts(driver, "dim.history", source, kept=len(source.sent))

    driver._jobs = [bind(with_tier(hw.scd2("dim.history", **_SHARED)))]  # other columns make a history
    with pytest.raises(IncompatibleStateError, match=r"type 2 by at, history of city before.*jobs rebuild"):
        driver.run()
    (plan,) = plan_jobs(driver.context, driver._jobs)
    begin_generation(driver.context, plan, "rebuild")
    assert driver.rows("dim.history", "city") == driver.rows("dim.history__changes", "city") == []
    driver.run()
    expected = as_sorted(history_rows(source.sent, ("city", "phone")))
    assert driver.rows("dim.history", *COLUMNS_2) == expected
    assert driver.audit() == []

    DeltaTable(str(driver.home.table("dim.history"))).delete("is_current")
    DeltaTable(str(driver.home.table("dim.history__changes"))).delete("at = 6")
    held, left = sum(row[-1] for row in expected), sum(row[-1] for row in expected if not row[-2])
    assert driver.audit() == [
        f"dim.history: its rows stand for {left} change events, {held} were applied and hold",
        f"dim.history__changes batch 0: not the {len(source.sent)} rows that dim.history sent there",
    ]


def with_tier(target: hw.ScdTarget) -> Callable[..., DataFrame]:
    @hw.job(name="keep_history", target=target, dedup=hw.by_offset(origin=True))
    @hw.check("city_is_spelled", "city IS NULL OR city <> '?'")
    def wider(customers: DataFrame) -> DataFrame:
        return customers.withColumn("tier", F.upper("phone"))

    return wider


envelopes = hw.topic(
    "db.customers",
    schema="op STRING, ts_ms BIGINT, before STRUCT<id: BIGINT>, after STRUCT<id: BIGINT, city: STRING>",
)


@hw.job(
    target=hw.scd1(
        "dim.customers", keys=["id"], sequence_by="ts_ms", apply_as_deletes="op = 'd'", except_columns=["op"]
    )
)
def dim_customers(envelopes: DataFrame) -> DataFrame:
    row = F.coalesce("after.id", "before.id").alias("id")
    return envelopes.select(row, "after.city", "op", "ts_ms")


def test_dimension_of_debezium_events_and_a_commit_that_comes_between(
    drive: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []

    def delete_meanwhile(driver: JobDriver, job: str, step: str, batch: int) -> None:
        met.append(step)
        if batch == 1 and met.count("before commit") == 2:
            DeltaTable(str(driver.home.table("dim.customers"))).delete("city = 'Rome'")

    monkeypatch.setattr(JobDriver, "_step", delete_meanwhile)
    driver = drive(dim_customers)
    made = [{"op": "c", "ts_ms": 1, "after": {"id": n, "city": "Rome"}} for n in (1, 2)]
    driver.send("db.customers", *made, {"op": "d", "ts_ms": 2, "before": {"id": 1}}, timestamp=AT)
    driver.run()
    assert driver.rows("dim.customers", "id", "city", "ts_ms") == [(2, "Rome", 1)]
    assert driver.audit() == []

    made = [{"op": "u", "ts_ms": 3, "after": {"id": 2, "city": "Oslo"}}]
    driver.send("db.customers", *made, timestamp=AT)
    driver.run()
    assert met.count("before commit") == 3, "the second batch was applied again to what the delete left"
    assert driver.rows("dim.customers", "id", "city", "ts_ms") == [(2, "Oslo", 3)]
    (told,) = driver.audit()
    assert told == "dim.customers: its rows stand for 1 change events, 2 were applied and hold"


windowed = hw.table("dim.history")
clocked = hw.topic("customers", schema="id INT, at TIMESTAMP", event_time="at", watermark="1 hour")


@pytest.mark.story
def test_dimension_that_cannot_be_is_refused_in_a_sentence(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.scd1("dim.wrong", keys=["id"], sequence_by="at", apply_as_deletes="oops = 1"))
    def wrong_deletes(customers: DataFrame) -> DataFrame:
        return customers

    @hw.job(target=hw.scd2("dim.wrong", keys=["id"], sequence_by="when"))
    def wrong_sequence(customers: DataFrame) -> DataFrame:
        return customers

    @hw.job(targets={"a": hw.scd1("dim.wrong", keys=["id"], sequence_by="at"), "b": hw.delta("dim.b")})
    def several(customers: DataFrame) -> dict[str, DataFrame]:
        return {"a": customers, "b": customers}

    @hw.job(target=hw.scd1("dim.wrong", keys=["id"], sequence_by="at"))
    def counted(clocked: DataFrame) -> DataFrame:
        return hw.tumbling(clocked, "at", "1 hour", by=["id"]).agg(F.count("*").alias("n"))

    @hw.job(target=hw.delta("silver.copy"))
    def read_on(windowed: DataFrame) -> DataFrame:
        return windowed

    driver = drive(keep_history)
    for jobs, told in (
        ([wrong_deletes], "dim.wrong: apply_as_deletes 'oops = 1': ["),
        (
            [wrong_sequence],
            "dim.wrong: sequence_by names 'when', which is not a column; the result has id, op,",
        ),
        ([several], "dim.wrong is a slowly changing dimension, and the only table of its job"),
        ([counted], "change events are applied row by row, and TumblingWindow is none"),
        ([keep_history, read_on], "dim.history is a slowly changing dimension, whose rows are replaced"),
    ):
        with pytest.raises(JobDefinitionError) as refused:
            plan_jobs(driver.context, [bind(job) for job in jobs])
        assert told in str(refused.value)
    with pytest.raises(BackfillError, match="applies change events to rows"):
        planning.plan(driver.context, bind(keep_history), since_version=0)
