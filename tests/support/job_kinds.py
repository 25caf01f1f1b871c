"""Each kind of job once, over the same three batches: what it makes of them, what is late and what is rejected.

offset of clicks       0        1        2        3      4        | 5        6        | 7        8        9
who                    a        a        b        bad    nobody   | a        b        | a        b        = 0
at                     10:05    10:20    10:40           10:50    | 11:45    11:50    | 10:30    12:10    10:05
n                      1        2        3               4        | 5        6        | 7        8        1
buys, who and at       a 10:10                                    | b 11:55           | a 10:31
cents                  100                                        | 200               | 300

The watermark is 30 minutes: behind the second batch, 11:20 for clicks and 11:25 for buys. So 7 of clicks and 2 of buys
are late for whatever has closed by then. 3 is no JSON; 4 has no `who`, which a check rejects. 9 has the origin of 0.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.names import quoted
from headwater_streams.plan.job import Job, bind
from headwater_streams.spark.columns import col, cols
from headwater_streams.streaming_sql import load_sql
from headwater_streams.testing import JobDriver, SimulatedCrash


@dataclass(frozen=True)
class Columns:
    """What the columns are called."""

    who: str = "who"
    at: str = "at"
    n: str = "n"
    cents: str = "cents"
    name: str = "name"
    clicked_at: str = "clicked_at"

    def schema(self, value: str) -> str:
        """The columns of `clicks` or `buys`, as DDL."""
        return f"{quoted(self.who)} STRING, {quoted(self.at)} TIMESTAMP, {quoted(value)} INT"

    def bound(self, job: Job) -> Job:
        """A job over inputs whose columns are called so."""
        times = {"event_time": self.at, "watermark": "30 minutes"}
        inputs = {
            "clicks": hw.topic("clicks", schema=self.schema(self.n), **times),
            "buys": hw.topic("buys", schema=self.schema(self.cents), **times),
            "kept": hw.table("silver.kept", **times),
        }
        return replace(job, inputs={name: inputs[name] for name in job.inputs})

    def sql(self, expression: str) -> str:
        """An expression; if it is one of the columns, as SQL has it."""
        return quoted(getattr(self, expression)) if hasattr(self, expression) else expression


PLAIN = Columns()
clicks = buys = hw.topic("any", schema="x INT")
kept = hw.table("silver.kept")
names = hw.lookup("dim.names")
ARRIVED = "2013-01-01T14:00:00+00:00"
TABLE = "gold.story"
_LATE = 7
"""The late row's `n`."""
Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of job.

    Attributes:
        name: What it is called in a test's id.
        jobs: Gives the jobs, the last of which, `story`, writes `TABLE`; they multiply `n` by a factor, so that a
            backfill with another has something to mend. The columns may be called otherwise.
        columns: Expressions over the table, one for each value of `rows`.
        rows: The table's rows, in order, for a factor and for what is folded in of the late row: its `n`, or 0.
        late: Offsets of clicks in the late table; None where the kind knows no late rows.
        rejected: Offsets of clicks in the quarantine table.
        sides: The table whose late and quarantine tables these are.
        topics: What it reads.
        repair: Whether a range can be repaired; else the backfill is a rebuild.
        repaired: The rows after a repair with the factor 10, where the end of the range is left to the live job: a join
            is not done with the left rows from 5 on. None where all are repaired.
    """

    name: str
    jobs: Callable[..., list[Job]]
    columns: tuple[str, ...]
    rows: Callable[[int, int], list[Row]]
    late: tuple[int, ...] | None = None
    rejected: tuple[int, ...] = (3, 4)
    sides: str = TABLE
    topics: tuple[str, ...] = ("clicks",)
    repair: bool = True
    repaired: tuple[Row, ...] | None = None

    def after_backfill(self) -> list[Row]:
        """The table's rows after a backfill with the factor 10: a repair folds the late row in."""
        if self.repaired is not None:
            return in_order(self.repaired)
        return in_order(self.rows(10, _LATE if self.repair else 0))


def _story(target: Any, function: Callable[..., Any], c: Columns, **options: Any) -> list[Job]:
    """A job of that function with the check that rejects 4; the function's parameters name its inputs."""
    options = {"dedup": hw.by_offset(origin=True)} | options
    job = hw.job(
        name="story", **({"targets": target} if isinstance(target, dict) else {"target": target}), **options
    )
    return [c.bound(bind(job(hw.check("known", f"{quoted(c.who)} IS NOT NULL")(function))))]


def _updated(*keys: str) -> Any:
    return hw.delta(TABLE, keys=list(keys), mode="update")


def _n(factor: int, c: Columns) -> Column:
    return F.sum(col(c.n) * factor).alias(c.n)


def _times(factor: int, rows: DataFrame, c: Columns) -> DataFrame:
    return rows.withColumn(c.n, col(c.n) * factor)


def _rows(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return _times(factor, clicks.filter(f"{quoted(c.n)} <> 2"), c)

    return _story(hw.delta(TABLE), story, c)


def _tumbling(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.tumbling(clicks, c.at, "1 hour", by=[c.who]).agg(_n(factor, c))

    return _story(_updated(c.who, "window_start"), story, c)


def _closed(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.tumbling(clicks, c.at, "1 hour", by=[c.who]).agg(_n(factor, c))

    return _story(hw.delta(TABLE), story, c)


def _hopping(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.hopping(clicks, c.at, "2 hours", "1 hour", by=[c.who]).agg(_n(factor, c))

    return _story(_updated(c.who, "window_start"), story, c)


def _cumulative(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.cumulative(clicks, c.at, "1 hour", "30 minutes", by=[c.who]).agg(_n(factor, c))

    return _story(_updated(c.who, "window_start", "window_end"), story, c)


def _session(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.session(clicks, c.at, "30 minutes", by=[c.who]).agg(_n(factor, c))

    return _story(hw.delta(TABLE), story, c)


def _counted(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.count_window(clicks, c.at, 2, by=[c.who]).agg(_n(factor, c))

    return _story(hw.delta(TABLE), story, c)


def _grouped(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.grouped(clicks, by=[c.who], state="unbounded").agg(_n(factor, c))

    return _story(_updated(c.who), story, c)


def _latest(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return hw.latest(_times(factor, clicks, c), by=[c.who], order=c.at, state="unbounded")

    return _story(_updated(c.who), story, c)


def _united(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        rows = hw.union(_times(factor, clicks, c), buys, allow_missing=True)
        return rows.select(*cols((c.who, c.n, c.cents)))

    return _story(hw.delta(TABLE), story, c)


def _windows_of_a_union(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        rows = hw.union(clicks, buys, allow_missing=True)
        return hw.tumbling(rows, c.at, "1 hour", by=[c.who]).agg(
            _n(factor, c), F.sum(col(c.cents)).alias(c.cents)
        )

    return _story(_updated(c.who, "window_start"), story, c)


def _join(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        clicks = _times(factor, clicks.withColumnRenamed(c.at, c.clicked_at), c)
        return hw.join(clicks, buys, on=[c.who], left_time=c.clicked_at, right_time=c.at, within="20 minutes")

    return _story(hw.delta(TABLE), story, c)


def _left_join(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        clicks = _times(factor, clicks.withColumnRenamed(c.at, c.clicked_at), c)
        times = {"left_time": c.clicked_at, "right_time": c.at, "within": "20 minutes"}
        return hw.join(clicks, buys, on=[c.who], how="left", **times)

    return _story(hw.delta(TABLE), story, c)


def _as_of(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        clicks = _times(factor, clicks, c)
        return hw.as_of(clicks, buys, by=[c.who], left_time=c.at, right_time=c.at)

    return _story(hw.delta(TABLE), story, c)


def _looked_up(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame, names: DataFrame) -> DataFrame:
        return hw.enrich(_times(factor, clicks, c), names, on=[c.who])

    return _story(hw.delta(TABLE), story, c)


def _chain(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        tens = hw.tumbling(clicks, c.at, "10 minutes", by=[c.who]).agg(F.sum(col(c.n)).alias(c.n))
        return hw.tumbling(tens, "window_end", "1 hour", by=[c.who]).agg(_n(factor, c))

    return _story(_updated(c.who, "window_start"), story, c)


def _several_tables(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> dict[str, DataFrame]:
        clicks = _times(factor, clicks, c)
        return {"story": clicks.filter(col(c.n) % 2 == 1), "even": clicks.filter(col(c.n) % 2 == 0)}

    return _story({"story": hw.delta(TABLE), "even": hw.delta("gold.even")}, story, c)


def _newest(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return _times(factor, clicks, c)

    return _story(hw.scd1(TABLE, keys=[c.who], sequence_by=c.at), story, c)


def _history(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return _times(factor, clicks, c)

    return _story(hw.scd2(TABLE, keys=[c.who], sequence_by=c.at), story, c)


def _by_key(factor: int, c: Columns = PLAIN) -> list[Job]:
    def story(clicks: DataFrame) -> DataFrame:
        return _times(factor, clicks, c)

    return _story(hw.delta(TABLE), story, c, dedup=hw.by_key([c.who, c.n], within="3 hours"))


def _of_a_table(factor: int, c: Columns = PLAIN) -> list[Job]:
    @hw.job(name="kept", target=hw.delta("silver.kept"), dedup=hw.by_offset(origin=True))
    def keep(clicks: DataFrame) -> DataFrame:
        return clicks

    def story(kept: DataFrame) -> DataFrame:
        return hw.tumbling(kept, c.at, "1 hour", by=[c.who]).agg(_n(factor, c))

    return [c.bound(bind(keep)), *_story(_updated(c.who, "window_start"), story, c, dedup=None)]


def _sql(factor: int, c: Columns = PLAIN) -> list[Job]:
    who, n, schema = quoted(c.who), quoted(c.n), c.schema(c.n).replace("'", "\\'")
    statement = f"""
        CREATE STREAMING TABLE {TABLE} (CONSTRAINT known EXPECT ({who} IS NOT NULL))
        WITH (name = 'story', mode = 'update', dedup = by_offset(origin => true))
        AS SELECT {who}, window_start, sum({n}) * {factor} AS {n}
        FROM topic('clicks', schema => '{schema}', event_time => '{c.at}', watermark => '30 minutes')
        GROUP BY {who}, window({quoted(c.at)}, '1 hour')
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "story.sql").write_text(statement, encoding="utf-8")
        return load_sql(Path(folder) / "story.sql")


def _hours(factor: int, late: int) -> list[Row]:
    return [
        ("a", 10, (3 + late) * factor), ("a", 11, 5 * factor), ("b", 10, 3 * factor), ("b", 11, 6 * factor),
        ("b", 12, 8 * factor),
    ]  # fmt: skip


_OF_WINDOWS: dict[str, Any] = {"columns": ("who", "hour(window_start)", "n"), "late": (7,)}
_BOTH = ("clicks", "buys")
_ROWS = [("a", 1), ("a", 2), ("a", 5), ("a", 7), ("b", 3), ("b", 6), ("b", 8)]


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=repr)


KINDS = [
    Kind(
        name="rows", jobs=_rows, columns=("who", "n"),
        rows=lambda f, _: [(who, n * f) for who, n in _ROWS if n != 2],
    ),
    Kind(name="tumbling", jobs=_tumbling, rows=_hours, **_OF_WINDOWS),
    Kind(
        name="closed", jobs=_closed, rows=lambda f, late: [("a", 10, (3 + late) * f), ("b", 10, 3 * f)], **_OF_WINDOWS
    ),
    Kind(
        name="hopping", jobs=_hopping, **_OF_WINDOWS,
        rows=lambda f, late: [
            ("a", 9, (3 + late) * f), ("a", 10, 15 * f), ("a", 11, 5 * f), ("b", 9, 3 * f), ("b", 10, 9 * f),
            ("b", 11, 14 * f), ("b", 12, 8 * f),
        ],
    ),
    Kind(
        name="cumulative", jobs=_cumulative,
        **(_OF_WINDOWS | {"columns": ("who", "date_format(window_end, 'HH:mm')", "n")}),
        rows=lambda f, late: [
            ("a", "10:30", 3 * f), ("a", "11:00", (3 + late) * f), ("a", "12:00", 5 * f), ("b", "11:00", 3 * f),
            ("b", "12:00", 6 * f), ("b", "12:30", 8 * f), ("b", "13:00", 8 * f),
        ],
    ),
    Kind(
        name="session", jobs=_session, rows=lambda f, late: [("a", 10, (3 + late) * f), ("b", 10, 3 * f)], **_OF_WINDOWS
    ),
    Kind(name="count window", jobs=_counted, repair=False, rows=lambda f, _: [("a", 10, 3 * f)], **_OF_WINDOWS),
    Kind(
        name="grouped", jobs=_grouped, columns=("who", "n"), repair=False, late=(),
        rows=lambda f, _: [("a", 15 * f), ("b", 17 * f)],
    ),
    Kind(
        name="latest", jobs=_latest, columns=("who", "n"), repair=False, late=(),
        rows=lambda f, _: [("a", 5 * f), ("b", 8 * f)],
    ),
    Kind(
        name="union", jobs=_united, columns=("who", "n", "cents"), topics=_BOTH, repair=False,
        rows=lambda f, _: [
            *[(who, n * f, None) for who, n in _ROWS], ("a", None, 100), ("a", None, 300), ("b", None, 200),
        ],
    ),
    Kind(name="windows of a union", jobs=_windows_of_a_union, topics=_BOTH, rows=_hours, **_OF_WINDOWS),
    Kind(
        name="join", jobs=_join, columns=("who", "n", "cents"), topics=_BOTH, late=(7,),
        rows=lambda f, _: [("a", f, 100), ("b", 6 * f, 200)],
        repaired=(("a", 10, 100), ("a", 20, 300), ("b", 6, 200)),
    ),
    Kind(
        name="left join", jobs=_left_join, columns=("who", "n", "cents"), topics=_BOTH, late=(7,),
        rows=lambda f, _: [("a", f, 100), ("a", 2 * f, None), ("b", 3 * f, None), ("b", 6 * f, 200)],
        repaired=(("a", 10, 100), ("a", 20, 300), ("b", 30, None), ("b", 6, 200)),
    ),
    Kind(
        name="as of", jobs=_as_of, columns=("who", "n", "cents"), topics=_BOTH, late=(),
        rows=lambda f, _: [("a", f, None), ("a", 2 * f, 100), ("a", 7 * f, 100), ("b", 3 * f, None)],
        repaired=(("a", 10, None), ("a", 20, 100), ("a", 7, 100), ("b", 30, None)),
    ),
    Kind(
        name="look-up", jobs=_looked_up, columns=("who", "n", "name"),
        rows=lambda f, _: [(who, n * f, {"a": "Ann", "b": "Bob"}[who]) for who, n in _ROWS],
    ),
    Kind(
        name="chain", jobs=_chain, sides="gold.story__step_1", repair=False,
        rows=lambda f, _: [("a", 10, 3 * f), ("b", 10, 3 * f)], **_OF_WINDOWS,
    ),
    Kind(
        name="several tables", jobs=_several_tables, columns=("who", "n"),
        rows=lambda f, _: [(who, n * f) for who, n in _ROWS if n * f % 2],
    ),
    Kind(
        name="newest", jobs=_newest, columns=("who", "n"), repair=False,
        rows=lambda f, _: [("a", 5 * f), ("b", 8 * f)],
    ),
    Kind(
        name="history", jobs=_history, columns=("who", "n", "minute(valid_to)"), repair=False,
        rows=lambda f, _: [
            (who, n * f, end) for (who, n), end in zip(_ROWS, (20, 30, None, 45, 50, 10, None), strict=True)
        ],
    ),
    Kind(
        name="by key", jobs=_by_key, columns=("who", "n"), repair=False,
        rows=lambda f, _: [(who, n * f) for who, n in _ROWS],
    ),
    Kind(name="table", jobs=_of_a_table, rows=_hours, rejected=(4,), **_OF_WINDOWS),
    Kind(name="sql", jobs=_sql, rows=_hours, **_OF_WINDOWS),
]  # fmt: skip


def kinds(*names: str, marks: Any = ()) -> list[Any]:
    """Kinds as parameters of a test, all of them where none is named."""
    return [
        pytest.param(kind, id=kind.name, marks=marks) for kind in KINDS if kind.name in names or not names
    ]


def three_batches(
    driver: JobDriver,
    kind: str = "",
    *,
    crash_at: tuple[str, ...] = (),
    day: str = "2013-01-01",
    columns: Columns = PLAIN,
) -> None:
    """Sends and runs the three batches; the driver dies once at each of the steps in the second and third one.

    Args:
        driver: The driver.
        kind: The name of the kind.
        crash_at: The steps.
        day: The day on which all of it happened.
        columns: What the columns are called.
    """

    def record(who: str | None, at: str, n: int, of: str = "n") -> dict[str, Any]:
        return {columns.who: who, columns.at: f"{day}T{at}:00Z", getattr(columns, of): n}

    topics = next(each.topics for each in KINDS if each.name == kind)
    names = f"{quoted(columns.who)} STRING, {quoted(columns.name)} STRING"
    driver.put("dim.names", names, ("a", "Ann"), ("b", "Bob"))
    batches = [
        (
            [
                record("a", "10:05", 1),
                record("a", "10:20", 2),
                record("b", "10:40", 3),
                b"{",
                record(None, "10:50", 4),
            ],
            [record("a", "10:10", 100, "cents")],
        ),
        ([record("a", "11:45", 5), record("b", "11:50", 6)], [record("b", "11:55", 200, "cents")]),
        ([record("a", "10:30", 7), record("b", "12:10", 8)], [record("a", "10:31", 300, "cents")]),
    ]
    offset = 0
    for number, (clicked, bought) in enumerate(batches):
        driver.send("clicks", *clicked, timestamp=ARRIVED, origin=("east", "clicks", 0, offset))
        offset += len(clicked)
        if "buys" in topics:
            driver.send("buys", *bought, timestamp=ARRIVED)
        if number == 2:
            driver.resend("clicks", 0, as_new=True)
        for step in crash_at if number else ():
            driver.crash_at(step, "story")
            with pytest.raises(SimulatedCrash):
                driver.run()
        driver.run()


def rows_of(driver: JobDriver, kind: Kind, columns: Columns = PLAIN) -> list[Row]:
    """The table of the kind, in the order of `Kind.rows`."""
    expressions = map(columns.sql, kind.columns)
    return in_order(tuple(row) for row in driver.table(TABLE).selectExpr(*expressions).collect())
