"""A join whose function raises for pairs, and for no row alone: one row of each goes to quarantine, the others stay.

`share` is a division by the left row's `qty` times the right row's. The ids of rows of qty 0, and who is to blame:

id   batch 0                           batch 1                    to blame
50   a sale, a return of qty 0                                    the return: nothing tells the two apart
60   a sale of qty 0, three returns                               the sale: it raises with all of them
70   three sales, a return of qty 0                               the return: likewise
80   a return of qty 0                 a sale                     the sale: the return is in the state
81   a sale of qty 0                   a return                   the return: likewise
82   a sale                            a return of qty 0, a sale  the return
90   a sale of qty 0                                              nobody: it has no partner
95   a late sale of qty 0 in batch 3, a return in batch 4         nobody: no state has had the sale
96   a sale and a return of qty 0 in batch 4                      the return
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import RowErrorsError
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

SOLD, BACK = "id INT, qty INT, at TIMESTAMP", "id INT, back_qty INT, back_at TIMESTAMP"
sales = hw.topic("sales", schema=SOLD, event_time="at", watermark="10 minutes")
returns = hw.topic("returns", schema=BACK, event_time="back_at", watermark="10 minutes")
AT = "2024-03-01T23:00:00+00:00"
TARGET = hw.delta("gold.t")
SHARE = "100 div (qty * back_qty)"

Batch = dict[str, Sequence[dict[str, Any]]]


def row(number: int, qty: int = 1, at: str = "10:00") -> dict[str, Any]:
    return {"id": number, "qty": qty, "at": f"2024-03-01T{at}:00Z"}


def back(number: int, qty: int, at: str = "10:10") -> dict[str, Any]:
    return {"id": number, "back_qty": qty, "back_at": f"2024-03-01T{at}:00Z"}


def shares(left: DataFrame, returns: DataFrame, how: Any, by: str) -> DataFrame:
    times = {"left_time": "at", "right_time": "back_at"}
    pairs = hw.join(left, returns, on=["id"], **times, within="1 hour", how=how)
    return pairs.select("id", "qty", "back_qty", F.expr(by).alias("share"))


def of_topics(how: str = "inner", by: str = SHARE, **options: Any) -> Job:
    @hw.job(name="story", target=TARGET, **options)
    def story(sales: DataFrame, returns: DataFrame) -> DataFrame:
        return shares(sales, returns, how, by)

    return bind(story)


def in_sql(folder: Path) -> Job:
    topics = "topic('{}', schema => '{}', event_time => '{}', watermark => '10 minutes')"
    left, right = topics.format("sales", SOLD, "at"), topics.format("returns", BACK, "back_at")
    (folder / "jobs.sql").write_text(
        f"CREATE STREAMING TABLE gold.t AS SELECT s.id, qty, back_qty, {SHARE} AS share FROM {left} AS s "
        f"JOIN {right} AS r ON s.id = r.id AND r.back_at BETWEEN s.at AND s.at + INTERVAL 1 HOURS"
    )
    (job,) = load_jobs([str(folder / "jobs.sql")])
    assert isinstance(job, Job)
    return job


BATCHES: Sequence[Batch] = (
    {
        "sales": [
            *[row(number) for number in range(40)],
            row(50),
            row(60, 0),
            *[row(70)] * 3,
            row(81, 0),
            row(82),
            row(90, 0),
        ],
        "returns": [
            *[back(number, 2) for number in range(20)],
            back(50, 0),
            *[back(60, 2)] * 3,
            back(70, 0),
            back(80, 0),
        ],
    },
    {
        "sales": [row(41), row(80), row(82)],
        "returns": [back(20, 4, "10:20"), back(81, 2, "10:20"), back(82, 0, "10:20"), back(41, 4, "10:20")],
    },
    {"sales": [row(99, 1, "20:00")], "returns": [back(99, 5, "20:00")]},
    {"sales": [row(99, 1, "20:01"), row(95, 0, "19:40")], "returns": [back(99, 5, "20:02")]},
    {"sales": [row(96, 1, "20:10")], "returns": [back(95, 2, "20:11"), back(96, 0, "20:12")]},
)
BLAMED = {
    ("sales", 41): 60,
    ("sales", 49): 80,
    ("returns", 20): 50,
    ("returns", 24): 70,
    ("returns", 27): 81,
    ("returns", 28): 82,
    ("returns", 33): 96,
}
"""The rows to blame, and their ids."""
PAIRS = [*[(n, 1, 2, 50) for n in range(20)], (20, 1, 4, 25), (41, 1, 4, 25), *[(99, 1, 5, 20)] * 3]
ALONE = [
    *[(n, 1, None, None) for n in (*range(21, 40), 50, 70, 70, 70, 82, 82)],
    (81, 0, None, None),
    (90, 0, None, None),
]


def run(driver: JobDriver, *batches: Batch) -> None:
    for batch in batches:
        for topic, rows in batch.items():
            driver.send(topic, *rows, timestamp=AT)
        driver.run()


def rows_of(driver: JobDriver) -> list[tuple[Any, ...]]:
    return sorted(driver.rows("gold.t", "id", "qty", "back_qty", "share"), key=str)


def blamed(driver: JobDriver) -> set[tuple[str, int]]:
    found = driver.rows("gold.t__quarantine", "_topic", "_offset", "_check", "_reason")
    assert all(check == "function" and "[DIVIDE_BY_ZERO]" in why for _, _, check, why in found)
    assert len(found) == len({(topic, offset) for topic, offset, *_ in found}), "each stands there once"
    return {(topic, offset) for topic, offset, *_ in found}


def swap_in(driver: JobDriver, planned: str, job: Job) -> None:
    """Runs a backfill, swaps it in, and sees to it that what it made was computed once more."""
    backfill.run(driver.context, planned, job)
    verdict = backfill.verify(driver.context, planned, job, recompute="all")
    assert verdict.passed, verdict.findings
    assert [f.name for f in verdict.findings if f.name == "recomputed"], verdict.notes
    backfill.swap(driver.context, planned, accept_diff=verdict.digest)


KINDS: dict[str, Callable[[Path], Job]] = {
    "inner": lambda _: of_topics(),
    "counted late": lambda _: of_topics(late="count"),
    "left": lambda _: of_topics("left"),
    "sql": in_sql,
}


@pytest.mark.parametrize(
    "kind", [pytest.param("left", marks=pytest.mark.story), *(k for k in KINDS if k != "left")]
)
def test_one_row_of_each_pair_that_raises_goes_to_quarantine(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    job = KINDS[kind](tmp_path)
    driver = JobDriver(spark, tmp_path / "home", [job])
    run(driver, *BATCHES)
    assert blamed(driver) == {*BLAMED}
    expected = [*PAIRS, *(ALONE if kind == "left" else [])]
    assert rows_of(driver) == sorted(expected, key=str)
    assert driver.audit() == []
    (why,) = [
        why
        for topic, at, why in driver.rows("gold.t__quarantine", "_topic", "_offset", "_reason")
        if (topic, at) == ("sales", 49)
    ]
    assert "(as a pair with returns 0 offset 25)" in why
    if kind == "counted late":
        return  # a rebuild has no late row where these are only counted
    # A rebuild reads all in one batch, and blames the same rows; so does what recomputes it.
    planned = backfill.plan_rebuild(driver.context, job)
    swap_in(driver, planned.id, job)
    assert blamed(driver) == {*BLAMED}
    later = {"sales": [row(100, 1, "20:13")], "returns": [back(100, 0, "20:14")]}
    run(JobDriver(spark, tmp_path / "home", [job]), later)
    assert blamed(driver) == {*BLAMED, ("returns", 34)}
    assert rows_of(driver) == sorted(expected, key=str)
    assert driver.audit() == []


def test_job_stops_where_more_pairs_raise_than_it_allows(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [of_topics(max_errors=2)])
    run(driver, {"sales": [row(50)], "returns": [back(n, 0) for n in range(4)]})
    with pytest.raises(
        RowErrorsError, match=r"more than 2 of 4 records, such as sales 0 offset \d+ \(\[DIVIDE_BY"
    ):
        run(driver, {"sales": [row(n) for n in range(4)]})


def test_repair_takes_the_rows_back_where_the_mended_function_raises_no_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [of_topics("left")])
    later = [{"sales": [row(98, 1, at)], "returns": [back(98, 1, at)]} for at in ("23:00", "23:01")]
    run(driver, *BATCHES, *later)  # the second one has a watermark beyond all rows of before
    mended = of_topics("left", by="100 div nullif(qty * back_qty, 0)")
    with pytest.raises(
        BackfillError, match=r"returns 0 offset \d+ is in .* for a pair, .* repair a longer range"
    ):
        backfill.plan(driver.context, mended, offsets={"sales": {0: (0, 44)}})
    # A repair folds the late sale 95 in, so that there is a pair of it.
    still = {*BLAMED, ("returns", 32)}
    for job, left in ((of_topics("left"), still), (mended, set[tuple[str, int]]())):
        planned = backfill.plan(driver.context, job)
        swap_in(driver, planned.id, job)
        assert blamed(driver) == left
        assert driver.audit() == []
    assert {(50, 1, 0, None), (60, 0, 2, None), (70, 1, 0, None), (95, 0, 2, None)} <= {*rows_of(driver)}
    again = backfill.plan(driver.context, mended, offsets={"sales": {0: (0, 44)}})
    assert again.lefts == {"sales": {0: (0, 44)}}, "no row in quarantine stands in its way any more"
