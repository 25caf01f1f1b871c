"""Results of checks over time: a line in the terminal, a page."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headwater_streams.quality.results import SCHEMA
from headwater_streams.quality.trend import page, spark_line
from headwater_streams.quality.trend import trends as trends_of

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def row(minute, outcome="held", failed=0, *, check="set", kind="batch", observed=""):
    return {
        "at": NOON + timedelta(minutes=minute),
        "table": "silver.departures",
        "check": check,
        "outcome": outcome,
        "kind": kind,
        "batch": minute,
        "version": minute,
        "judged": 100,
        "failed": failed,
        "observed": observed,
    }


def trends(rows, cells=300):
    return trends_of([pa.Table.from_pylist(rows, schema=SCHEMA)], cells)


def test_trend_is_that_of_each_check_and_knows_since_when_it_is_broken():
    rows = [
        row(0),
        row(1, "broken", 9),
        row(2),
        row(3, "broken", 5),
        row(4, "broken", 7),
        row(0, check="volume"),
    ]
    broken, well = trends(rows)
    assert (broken.check, broken.broken, broken.since) == ("set", 3, NOON + timedelta(minutes=3))
    assert (well.check, well.since) == ("volume", None)
    assert broken.last.observed == "7 of 100 rows failed"


def test_trend_is_in_the_order_in_which_results_were_recorded():
    ahead, then, later = row(90, "broken", 9), row(31, "within", 1), row(32)
    rows = [{**each, "recorded": n} for n, each in enumerate((row(30), ahead, then, later))]
    for parts in ([rows], [rows[:2], rows[2:]], [rows[2:], rows[:2]], [rows[::-1]]):
        (trend,) = trends_of([pa.Table.from_pylist(part, schema=SCHEMA) for part in parts])
        assert (spark_line(trend), trend.last.at, trend.since) == ("·✗▁·", later["at"], None)


def test_rows_that_were_recorded_together_are_in_the_order_of_the_tables_versions():
    rows = [
        {**row(minute, outcome), "version": v, "recorded": 7}
        for minute, outcome, v in ((9, "broken", 1), (1, "held", 2))
    ]
    assert trends(rows)[0].since is None


def test_what_a_person_ran_is_drawn_and_decides_only_of_checks_without_others():
    rows = [row(0, "broken", 9), row(1, kind="manual"), row(2, "broken", 9), row(3, kind="manual")]
    rows += [row(0, "broken", 9, check="mine", kind="manual")]
    mine, both = trends(rows)
    assert (spark_line(both), both.since, both.last.at) == ("✗·✗·", rows[0]["at"], rows[2]["at"])
    assert (mine.since, mine.last.where) == (rows[0]["at"], "version 0, by hand")


def test_line_shows_what_failed_and_where_it_broke():
    (trend,) = trends([row(0), row(1, "within", 1), row(2, "within", 2), row(3, "broken", 2)])
    assert spark_line(trend) == "·▄█✗"


def test_line_shows_the_worst_of_what_falls_together():
    (trend,) = trends([row(n, "broken" if n == 7 else "held") for n in range(100)])
    assert spark_line(trend, width=10) == "✗·········"


def test_year_has_as_many_cells_as_can_be_drawn_and_counts_every_result():
    rows = [row(n, "broken" if n % 1000 == 999 else "held", n % 7) for n in range(10_000)]
    (trend,) = trends(rows)
    assert (len(trend.cells), trend.results, trend.broken) == (300, 10_000, 10)
    assert (trend.cells[0].since, trend.cells[-1].share) == (NOON, 0.06)
    assert trend.since == NOON + timedelta(minutes=9999)
    assert page([trend], "t").count("<rect") == 300


def test_rows_of_many_checks_and_files_are_put_in_order():
    rows = [row(n, "broken" if n > 7 else "held", check=check) for n in range(10) for check in "ba"]
    shuffled = random.Random(1).sample(rows, len(rows))
    whole = pa.Table.from_pylist(shuffled, schema=SCHEMA)
    encoded = whole.set_column(3, "check", whole["check"].dictionary_encode())
    parts = [encoded.slice(0, 3), encoded.slice(3, 9), encoded.slice(12)]
    for found in (trends_of([whole]), trends_of([pa.concat_tables(parts)]), trends_of(parts)):
        assert [(each.check, each.results, each.since) for each in found] == [
            ("a", 10, NOON + timedelta(minutes=8)),
            ("b", 10, NOON + timedelta(minutes=8)),
        ]
        assert found[0].last.where == "batch 9"
    assert trends_of([whole.slice(0, 0)]) == trends_of([]) == []


def test_page_has_what_records_hold_as_text():
    (trend,) = trends([row(0, "broken", 1, observed="<script>alert(1)</script>")])
    written = page([trend], "Quality of <home>")
    assert "<script>" not in written
    assert "http" not in written
    assert "&lt;script&gt;alert(1)" in written


def test_stopped_batch_says_so():
    for kind, where in (("stopped", "batch 0, stopped"), ("backfill", "version 0, a backfill")):
        (trend,) = trends([row(0, "broken", 1, kind=kind)])
        assert trend.last.where == where
