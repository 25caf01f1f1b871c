"""Keys that look alike, or are not equal to themselves, in each kind of job; its tables are compacted between batches.

batch 0      NaN                                       | the first of two texts or decimals that are alike
batch 1      infinity less infinity, -0.0, no number   | the second
batch 2      all of them, and 0.0
the end      a record ten days later, which closes windows

Infinity less infinity is a NaN, of other bits than that of a text. All events are between 10:01 and 10:29, the marks of
the other topic at 10:30: one for each key, of which NaN and 0 are sent in their other form. What each kind makes of the
events is told in Python, where a key is what Spark's grouping makes of it.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.delta.compaction import compact
from headwater_streams.plan.job import Job, bind
from headwater_streams.sources.coordinates import SOURCES
from headwater_streams.testing import JobDriver

AT, TABLE = "2013-01-01T14:00:00+00:00", "gold.odd"
SCHEMA = "x DOUBLE, s STRING, d DECIMAL(38,18), at TIMESTAMP"
events = hw.topic(
    "events", schema=f"{SCHEMA}, n INT", event_time="at", watermark="30 minutes", max_ahead="400 days"
)
marks = hw.topic(
    "marks", schema=f"{SCHEMA}, mark STRING", event_time="at", watermark="30 minutes", max_ahead="400 days"
)
names = hw.lookup("dim.names")

Key = tuple[float | str | None, str | None, str | None]
"""A key as it is sent: the number, the text, the decimal's text."""
Row = tuple[Any, ...]
_LONG = "x" * 40
FIRST: list[Key] = [
    ("NaN", "a", "0"), *((1.0, text, "0") for text in ("", "a", "A", "\u00e9", f"{_LONG}1")),
    (1.0, "d", "99999999999.123456789"), (1.0, None, "0"),
]  # fmt: skip
SECOND: list[Key] = [
    ("Infinity", "a", "0"), (-0.0, "a", "0"), (None, "a", "0"), (5e-324, "a", "0"),
    *((1.0, text, "0") for text in (" ", "a ", "a\u0000", "e\u0301", f"{_LONG}2")),
    (1.0, "d", "99999999999.123456788"), (1.0, "d", None),
]  # fmt: skip
BATCHES = [FIRST, SECOND, [*FIRST, *SECOND, (0.0, "a", "0")]]
EVENTS = [(key, n) for n, key in enumerate(key for batch in BATCHES for key in batch)]


def key_of(key: Key, *, as_sent: bool = False) -> Row:
    """A key as a grouping has it."""
    number, text, decimal = key
    if number == "Infinity":
        number = math.inf if as_sent else "NaN"
    elif isinstance(number, float):
        number = "NaN" if math.isnan(number) else number + 0.0  # -0.0 is 0.0
    return number, text, None if decimal is None else Decimal(decimal).normalize()


BY_KEY: dict[Row, list[int]] = defaultdict(list)
for _key, _n in EVENTS:
    BY_KEY[key_of(_key)].append(_n)


def x() -> Column:
    number = F.col("x")
    return F.when(number == F.lit(math.inf), number - number).otherwise(number)


def each(*more: Callable[[list[int]], Any]) -> list[Row]:
    """A row for each key, with what is made of its events' numbers."""
    return [(*key, *(made(found) for made in more)) for key, found in BY_KEY.items()]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of job.

    Attributes:
        job: Gives the job.
        more: Columns of its table beside the key's.
        rows: The table's rows, without that of the end.
        repair: Whether a range can be repaired; else the backfill is a rebuild.
    """

    job: Callable[[], Job]
    more: tuple[str, ...]
    rows: list[Row]
    repair: bool = False
    key: tuple[str, ...] = ("x", "s", "d")


def story(target: Any, function: Callable[..., DataFrame], **options: Any) -> Job:
    return bind(hw.job(name="odd", target=target, **options)(function))


def _updated(*more: str) -> Any:
    return hw.delta(TABLE, keys=["x", "s", "d", *more], mode="update")


_BY = ["x", "s", "d"]


def _count() -> Column:
    return F.count("*").alias("n")


def _grouped() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        return hw.grouped(events.withColumn("x", x()), by=_BY, state="unbounded").agg(_count())

    return story(_updated(), odd)


def _computed() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        groups = hw.grouped(events.withColumn("x", x()), by=_BY, state="unbounded").agg(_count())
        return groups.withColumn("x", -F.col("x"))

    return story(_updated(), odd)


def _latest() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        return hw.latest(events.withColumn("x", x()).drop("at"), by=_BY, order="n", state="unbounded")

    return story(_updated(), odd)


def _windows(operator: Callable[..., Any], *sizes: Any, final: bool = False, ends: bool = False) -> Any:
    def job() -> Job:
        def odd(events: DataFrame) -> DataFrame:
            return operator(events.withColumn("x", x()), "at", *sizes, by=_BY).agg(_count())

        updated = _updated("window_start", *(["window_end"] if ends else []))
        return story(hw.delta(TABLE) if final else updated, odd)

    return job


def _chain() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        tens = hw.tumbling(events.withColumn("x", x()), "at", "10 minutes", by=_BY).agg(_count())
        return hw.tumbling(tens, "window_end", "1 hour", by=_BY).agg(F.sum("n").alias("n"))

    return story(_updated("window_start"), odd)


def _by_key() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        return events

    return story(hw.delta(TABLE), odd, dedup=hw.by_key(_BY, within="3 hours"))


def _join(how: Any) -> Callable[[], Job]:
    def job() -> Job:
        def odd(events: DataFrame, marks: DataFrame) -> DataFrame:
            left, right = (rows.withColumn("x", x()) for rows in (events, marks))
            right = right.withColumnRenamed("at", "marked_at")
            times = {"left_time": "at", "right_time": "marked_at", "within": "1 hour"}
            return hw.join(left, right, on=_BY, how=how, **times)

        return story(hw.delta(TABLE), odd)

    return job


def _as_of() -> Job:
    def odd(events: DataFrame, marks: DataFrame) -> DataFrame:
        left, right = (rows.withColumn("x", x()) for rows in (events, marks))
        times = {"left_time": "at", "right_time": "at", "tolerance": "1 hour"}
        return hw.as_of(left, right, by=_BY, direction="forward", **times)

    return story(hw.delta(TABLE), odd)


def _looked_up() -> Job:
    def odd(events: DataFrame, names: DataFrame) -> DataFrame:
        return hw.enrich(events.withColumn("x", x()), names.withColumn("x", x()), on=_BY)

    return story(hw.delta(TABLE), odd)


def _newest() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        return events.filter("x = 1").drop("x")

    return story(hw.scd1(TABLE, keys=["s", "d"], sequence_by="n"), odd)


def _history() -> Job:
    def odd(events: DataFrame) -> DataFrame:
        return events.filter("x = 1").drop("x")

    return story(hw.scd2(TABLE, keys=["s", "d"], sequence_by="n"), odd)


def mark_of(key: Row) -> str | None:
    """What the other topic and the look-up have of a key; NULL equals nothing."""
    return None if None in key else repr(key)


_MARKED = [(*key, n, mark_of(key)) for key, found in BY_KEY.items() for n in found]
_CHANGES = [
    (*key[1:], n, n == found[-1])
    for key, found in BY_KEY.items()
    for n in found
    if key[0] == 1.0 and None not in key
]
_KEPT: dict[Row, int] = {}
for _key, _n in EVENTS:
    _KEPT.setdefault(key_of(_key, as_sent=True), _n)

KINDS = {
    "grouped": Kind(job=_grouped, more=("n",), rows=each(len)),
    "computed": Kind(
        job=_computed, more=("n",),
        rows=[(-k if isinstance(k, float) and k else k, *rest) for k, *rest in each(len)],
    ),
    "latest": Kind(job=_latest, more=("n",), rows=each(max)),
    "tumbling": Kind(job=_windows(hw.tumbling, "1 hour"), more=("n",), rows=each(len), repair=True),
    "closed": Kind(job=_windows(hw.tumbling, "1 hour", final=True), more=("n",), rows=each(len), repair=True),
    "hopping": Kind(
        job=_windows(hw.hopping, "2 hours", "1 hour"), more=("n", "hour(window_start)"), repair=True,
        rows=[(*row, hour) for row in each(len) for hour in (9, 10)],
    ),
    "cumulative": Kind(
        job=_windows(hw.cumulative, "1 hour", "30 minutes", ends=True), more=("n", "minute(window_end)"), repair=True,
        rows=[(*row, minute) for row in each(len) for minute in (0, 30)],
    ),
    "session": Kind(
        job=_windows(hw.session, "30 minutes", final=True), more=("n",), rows=each(len), repair=True
    ),
    "count window": Kind(
        job=_windows(hw.count_window, 2, final=True), more=("n", "window_index"),
        rows=[(*row, 2, place) for *row, windows in each(lambda found: len(found) // 2) for place in range(windows)],
    ),
    "chain": Kind(job=_chain, more=("n",), rows=each(len)),
    "by key": Kind(job=_by_key, more=("n",), rows=[(*key, n) for key, n in _KEPT.items()]),
    "join": Kind(
        job=_join("inner"), more=("n", "mark"), rows=[row for row in _MARKED if row[-1] is not None], repair=True
    ),
    "left join": Kind(job=_join("left"), more=("n", "mark"), rows=_MARKED, repair=True),
    "as of": Kind(job=_as_of, more=("n", "mark"), rows=_MARKED, repair=True),
    "look-up": Kind(job=_looked_up, more=("n", "mark"), rows=_MARKED, repair=True),
    "newest": Kind(
        job=_newest, key=("s", "d"), more=("n",),
        rows=[row[:-1] for row in _CHANGES if row[-1]],
    ),
    "history": Kind(job=_history, key=("s", "d"), more=("valid_from", "is_current"), rows=_CHANGES),
}  # fmt: skip


def record(key: Key, at: str, **more: Any) -> dict[str, Any]:
    number, text, decimal = key
    return {"x": number, "s": text, "d": decimal, "at": at, **more}


def sent_otherwise(key: Row) -> Key:
    """A key of the other topic: NaN and 0 as the events have them not."""
    number, text, decimal = key
    other = "Infinity" if number == "NaN" else -0.0 if number == 0 else number
    return other, text, None if decimal is None else f"{decimal:f}"


def looked_up(key: Row) -> Row:
    """The same of the look-up."""
    number, text, decimal = sent_otherwise(key)
    return (float(number) if number is not None else None), text, Decimal(decimal or 0)


def rows_of(driver: JobDriver, kind: Kind) -> list[Row]:
    if SOURCES in driver.table(TABLE).columns:
        assert driver.table(TABLE).filter(F.col(SOURCES).isNull()).count() == 0, (
            "each row says where it comes from"
        )
    found = driver.table(TABLE).filter("s IS NULL OR s <> 'end'").selectExpr(*kind.key, *kind.more).collect()
    return in_order([_shown(tuple(row), len(kind.key)) for row in found])


def _shown(row: Row, parts: int) -> Row:
    key = [None] * (3 - parts) + list(row[:parts])
    decimal = None if key[2] is None else f"{key[2]:f}"
    return (*key_of((key[0], key[1], decimal))[3 - parts :], *row[parts:])


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.story if name == "grouped" else ()) for name in KINDS]
)
def test_odd_keys_give_what_a_batch_over_all_rows_gives(
    drive: Callable[..., JobDriver], closing_batches: None, name: str
) -> None:
    kind = KINDS[name]
    job = kind.job()
    driver = drive(job)
    path = driver.home.table(TABLE)
    known = [(*looked_up(key), mark_of(key)) for key in BY_KEY if None not in key]
    driver.put("dim.names", "x DOUBLE, s STRING, d DECIMAL(38,18), mark STRING", *known)
    marked = [record(sent_otherwise(key), "2013-01-01T10:30:00Z", mark=mark_of(key)) for key in BY_KEY]
    number = 0
    for place, batch in enumerate(BATCHES):
        made = []
        for key in batch:
            at = datetime(2013, 1, 1, 10, 1, tzinfo=UTC) + timedelta(seconds=40 * number)
            made.append(record(key, at.isoformat(), n=number))
            number += 1
        driver.send("events", *made, timestamp=AT)
        if place == 1 and "marks" in job.topic_names:
            driver.send("marks", *marked, timestamp=AT)
        driver.run()
        compact(path)
    # A join's entries have the watermark behind the end only with the batch after that.
    for day in (11, 12) if "marks" in job.topic_names else (11,):
        end, at = (2.0, "end", "0"), f"2013-01-{day}T00:00:00Z"
        driver.send("events", record(end, at, n=-1), timestamp=AT)
        if "marks" in job.topic_names:
            driver.send("marks", record(end, at, mark="end"), timestamp=AT)
        driver.run()
    assert rows_of(driver, kind) == in_order(kind.rows)
    assert driver.audit() == []
    compact(path)
    planned: Any = (
        backfill.plan(driver.context, job) if kind.repair else backfill.plan_rebuild(driver.context, job)
    )
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert verdict.diff.unchanged
    assert (verdict.diff.added, verdict.diff.removed, verdict.diff.changed) == (0, 0, 0)
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert rows_of(driver, kind) == in_order(kind.rows)
    assert driver.audit() == []
