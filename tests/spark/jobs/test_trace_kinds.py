"""A trace of each kind of job, over the story of `job_kinds`: what rows were made of, and what became of each record.

The story's rows say by themselves what they are made of: the `n` of a window or a group is the sum of its records', and
that of any other row is its one record's.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.made_of import CHOOSING, CHOSEN, HOWS
from headwater_streams.ledger.trace import (
    HomeTables,
    Place,
    Step,
    TracedRow,
    notes_of,
    records_of,
    trace_record,
    trace_rows,
)
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.testing import JobDriver
from job_kinds import TABLE, Kind, kinds, three_batches

N = {0: 1, 1: 2, 2: 3, 5: 5, 6: 6, 7: 7, 8: 8}
"""`n` of the clicks by their offsets, without those that are rejected (3 and 4) and the one that comes again (9)."""
BY_TIME = (0, 1, 7, 2, 5, 6, 8)
"""These offsets in the order of `at`: 7 came late."""
_OF_WINDOWS = {"clicks at GROUP_BY", "clicks who GROUP_BY"}
_OF_TUMBLING = _OF_WINDOWS | {"clicks at FILTER"}
"""Spark filters by the time itself: one that is NULL is in no window."""
_OF_JOINS = {"clicks who JOIN", "clicks at JOIN", "buys who JOIN", "buys at JOIN"}
CHOSEN_BY: dict[str, set[str]] = {
    "rows": {"clicks n FILTER"},
    "union": set(),
    "newest": set(),
    "tumbling": _OF_TUMBLING,
    "closed": _OF_TUMBLING,
    "hopping": _OF_WINDOWS,
    "grouped": {"clicks who GROUP_BY"},
    "latest": {"clicks who GROUP_BY"},
    "join": _OF_JOINS,
    "left join": _OF_JOINS,
    "look-up": {"clicks who JOIN", "names who JOIN"},
    "sql": _OF_TUMBLING,
}
"""By what rows are chosen, where a kind says it in full."""


def clicks_of(row: TracedRow) -> frozenset[int]:
    """The clicks that a row is made of."""
    spans = [span for span in records_of(row) if span.topic == "clicks"]
    return frozenset(place.offset for span in spans for place in span.places(99))


def steps_in(steps: list[Step]) -> Iterator[Step]:
    """All steps of a trace."""
    for step in steps:
        yield step
        yield from steps_in([*step.further])


@pytest.mark.parametrize("kind", kinds())
def test_trace_of_each_kind_of_job_is_the_truth_both_ways(
    ready: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = ready(three_batches, *kind.jobs(1), kind=kind.name, crash_at=("before commit", "after commit"))
    tables = HomeTables(driver.home)
    rows = trace_rows(tables, TABLE, dataset_of(driver.home.table(TABLE)).to_table().to_pylist(), most=99)
    for row in rows:
        assert (row.job, list(notes_of(row))) == ("story", [])
        assert row.version is not None
        found = sorted(clicks_of(row), key=BY_TIME.index)
        # The newest row of a key is made of all of them.
        ns = [N[offset] for offset in (found[-1:] if kind.name == "latest" else found)]
        assert sum(ns) == (row.values["n"] or 0), row

    told = {offset: list(steps_in(trace_record(tables, Place("clicks", 0, offset)))) for offset in range(10)}
    for offset, steps in told.items():
        at_the_end = {step.fate for step in steps if step.table == TABLE}
        has_row = any(offset in clicks_of(row) for row in rows)
        assert ("row" in at_the_end) == has_row, (offset, steps)
        assert "maybe" not in {step.fate for step in steps}, (offset, steps)
        assert has_row or any(step.fate not in ("row", "not read") for step in steps), (offset, steps)
        # 3 is no JSON, and rejected by whichever job reads the topic.
        assert ("quarantined" in {step.fate for step in steps}) == (offset in {3, *kind.rejected}), (
            offset,
            steps,
        )
        assert ("late" in {step.fate for step in steps}) == (offset in (kind.late or ())), (offset, steps)
    reasons = {step.why for step in told[9] if step.fate == "left out"}
    if kind.name == "several tables":  # in each of which the function drops some of the batch
        assert all("it had been read before (1)" in reason for reason in reasons), told[9]
    else:
        assert reasons == {"it had been read before"}, told[9]


@pytest.mark.parametrize("kind", kinds())
def test_columns_of_each_kind_of_job_are_made_of_its_inputs(
    ready: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = ready(three_batches, *kind.jobs(1), kind=kind.name, crash_at=("before commit", "after commit"))
    plans = plan_jobs(driver.context, kind.jobs(1))
    for plan in plans:
        for table, made_of in plan.made_of.items():
            assert {*plan.schemas[table].names, CHOSEN} >= {*made_of}, table
            for into, name, column, how in ((into, *each) for into, of in made_of.items() for each in of):
                columns = plan.inputs.get(name) or plan.lookups[name]
                assert column in columns.names, (table, name, column)
                assert how in (CHOOSING.values() if into == CHOSEN else HOWS), (table, name, column, how)
    made_of = plans[-1].made_of[TABLE]
    sums = kind.late is not None and kind.name not in ("join", "left join", "as of", "latest")
    expected = {"who": {("who", "IDENTITY")}, "n": {("n", "AGGREGATION" if sums else "TRANSFORMATION")}}
    found = {name: {(column, how) for _, column, how in made_of[name]} for name in expected}
    assert found == expected
    if "window_start" in made_of:
        assert {column for _, column, _ in made_of["window_start"]} <= {"at", "window_end"}
    if kind.name in CHOSEN_BY:
        assert {" ".join(each) for each in made_of.get(CHOSEN, ())} == CHOSEN_BY[kind.name]
    if kind.name == "history":
        assert made_of["valid_from"] == made_of["valid_to"] == (("clicks", "at", "IDENTITY"),)
    if kind.name == "look-up":
        assert made_of["name"] == (("names", "name", "IDENTITY"),)


clicks = hw.topic("clicks", schema="who STRING, at TIMESTAMP, n INT", event_time="at")
rates = hw.lookup("dim.rates")


@hw.job(target=hw.delta("gold.rated"))
def rated(clicks: DataFrame, rates: DataFrame) -> DataFrame:
    """Each click with the rate that held."""
    known = rates.withColumn("rate", F.col("rate") * 2)
    return hw.as_of(clicks, known, by=["who"], left_time="at", right_time="since")


def test_columns_of_rows_that_were_one_column_on_their_way_are_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [rated])
    driver.put("dim.rates", "who STRING, since TIMESTAMP, rate INT, unit STRING")
    (plan,) = plan_jobs(driver.context, [bind(rated)])
    assert {name: of for name, of in plan.made_of["gold.rated"].items() if name != CHOSEN} == {
        "who": (("clicks", "who", "IDENTITY"),),
        "at": (("clicks", "at", "IDENTITY"),),
        "n": (("clicks", "n", "IDENTITY"),),
        "since": (("rates", "since", "IDENTITY"),),
        "rate": (("rates", "rate", "TRANSFORMATION"),),
        "unit": (("rates", "unit", "IDENTITY"),),
    }
