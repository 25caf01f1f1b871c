"""Results of checks over time: a line in the terminal, a page."""

from datetime import UTC, datetime, timedelta

from headwater_streams.quality.trend import page, spark_line, trends

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


def test_line_shows_what_failed_and_where_it_broke():
    (trend,) = trends([row(0), row(1, "within", 1), row(2, "within", 2), row(3, "broken", 2)])
    assert spark_line(trend) == "·▄█✗"


def test_line_shows_the_worst_of_what_falls_together():
    (trend,) = trends([row(n, "broken" if n == 7 else "held") for n in range(100)])
    assert spark_line(trend, width=10) == "✗·········"


def test_page_has_what_records_hold_as_text():
    (trend,) = trends([row(0, "broken", 1, observed="<script>alert(1)</script>")])
    written = page([trend], "Quality of <home>")
    assert "<script>" not in written
    assert "http" not in written
    assert "&lt;script&gt;alert(1)" in written


def test_stopped_batch_says_so():
    (trend,) = trends([row(0, "broken", 1, kind="stopped")])
    assert trend.last.where == "batch 0, stopped"
