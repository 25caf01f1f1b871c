"""Checks over time in jobs: dropped and bounded rows, results with each batch once, keys of a batch, stops."""

import pytest
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import CheckFailedError, JobDefinitionError
from headwater_streams.base.extra import Extra
from headwater_streams.plan.analysis import analyse
from headwater_streams.plan.job import bind
from headwater_streams.quality.results import history
from headwater_streams.quality.run import judge_by_clock, run_suite
from headwater_streams.testing import JobDriver
from headwater_streams.testing.driver import SimulatedCrash

visits = hw.topic("visits", schema="page STRING, user STRING, ms INT")


@hw.job(target=hw.delta("silver.visits"), dedup=hw.by_offset())
@hw.check("has_page", hw.expect.not_null("page"), at_most="50 %")
@hw.check("no_robots", "user <> 'robot'", action="drop")
@hw.check("fast", hw.expect.between("ms", 0, 1000), action="warn")
@hw.check("one_visit", hw.expect.unique("user", "page"), action="warn")
@hw.check("usual", hw.expect.volume(within=0.5, last=5), action="warn")
def clean_visits(visits):
    return visits


ROWS = [
    {"page": "a", "user": "u1", "ms": 12},
    {"page": "b", "user": "u1", "ms": 4000},
    {"page": None, "user": "u2", "ms": 9},
    {"page": "a", "user": "robot", "ms": 1},
    {"page": "a", "user": "u3", "ms": 70},
]


def results(driver, **which):
    return [
        (row["check"], row["kind"], row["outcome"], row["judged"], row["failed"])
        for row in history(driver.home, **which).to_pylist()
    ]


@pytest.mark.story
def test_job_drops_bounds_and_counts_and_its_results_are_rows_of_a_table(spark, tmp_path):
    driver = JobDriver(spark, tmp_path, [clean_visits])
    driver.send("visits", *ROWS)
    driver.run()
    assert driver.rows("silver.visits", "page", "user") == [("a", "u1"), ("a", "u3"), ("b", "u1")]
    assert driver.accounting("silver.visits") == {
        "read": 5,
        "written": 3,
        "filtered": 1,
        "quarantined": 1,
    }
    ((reason, _),) = driver.quarantined("silver.visits")
    assert reason == "has_page: page is not NULL", "the rule's words, not its SQL"
    assert sorted(results(driver)) == [
        ("fast", "batch", "broken", 3, 1),
        ("has_page", "batch", "within", 5, 1),
        ("no_robots", "batch", "within", 4, 1),
        ("one_visit", "batch", "held", 3, 0),
        ("usual", "batch", "held", 3, 0),
    ]
    (fast,) = history(driver.home, check="fast").to_pylist()
    assert fast["sample"] == ["visits:0:1"]
    assert fast["ranges"] == [{"topic": "visits", "partition": 0, "start": 0, "end": 5}]
    (page,) = history(driver.home, check="has_page").to_pylist()
    assert page["sample"] == ["visits:0:2"]
    assert driver.audit() == []


def test_batch_beyond_the_bound_is_not_committed_and_its_results_are_kept_once(spark, tmp_path):
    driver = JobDriver(spark, tmp_path, [clean_visits])
    driver.send("visits", *[{"page": None, "user": "u", "ms": 1}] * 3, ROWS[0])
    for _ in range(2):
        with pytest.raises(CheckFailedError, match=r"3 rows fail the check 'has_page'.*it allows 50 %"):
            driver.run()
    assert driver.rows("silver.visits", "page") == []
    assert driver.quarantined("silver.visits") == []
    assert [row for row in results(driver) if row[0] == "has_page"] == [
        ("has_page", "stopped", "broken", 4, 3)
    ]


@pytest.mark.parametrize("step", ["before quarantine", "before commit", "after commit", "end"])
def test_results_of_a_batch_are_there_once_wherever_the_driver_dies(spark, tmp_path, step):
    driver = JobDriver(spark, tmp_path, [clean_visits])
    driver.crash_at(step)
    driver.send("visits", *ROWS)
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()
    assert len(results(driver)) == 5
    assert len([row for row in results(driver) if row[0] == "has_page" and row[4] == 1]) == 1
    entries = [entry for entry in driver.ledger("silver.visits") if Extra.CHECKS.is_in(entry)]
    assert len(entries) == 1


def test_volume_is_compared_with_earlier_batches_and_across_a_restart(spark, tmp_path):
    driver = JobDriver(spark, tmp_path, [clean_visits])
    for batch in range(5):
        driver.send("visits", *[{"page": "p", "user": f"{batch} {n}", "ms": 1} for n in range(10)])
        driver.run()
    again = JobDriver(spark, tmp_path, [clean_visits])
    again.send("visits", {"page": "p", "user": "alone", "ms": 1})
    again.run()
    assert results(again, check="usual")[-1] == ("usual", "batch", "broken", 1, 0)


def test_references_are_judged_of_the_files_of_a_batch(spark, tmp_path):
    @hw.job(target=hw.delta("silver.known"))
    @hw.check("known", hw.expect.references("user", "dim.users", "name"), action="fail")
    def known_visits(visits):
        return visits

    function = known_visits
    function.__globals__["visits"] = visits
    driver = JobDriver(spark, tmp_path, [function])
    driver.put("dim.users", "name STRING", ("u1",))
    driver.send("visits", ROWS[0], ROWS[4])
    with pytest.raises(CheckFailedError, match=r"1 of 2 rows with a key that dim.users lacks"):
        driver.run()


def test_same_checks_judge_the_table_at_rest(spark, tmp_path):
    driver = JobDriver(spark, tmp_path, [clean_visits])
    driver.send("visits", *ROWS)
    driver.run()
    result = run_suite(spark, tmp_path, "silver.visits", checks=bind(clean_visits).checks)
    held = {each.name: each.passed for each in result.outcomes}
    assert held == {
        "has_page": True,
        "no_robots": True,
        "fast": False,
        "coordinates_present": True,
    }
    assert [each.name for each in result.skipped] == ["one_visit", "usual"]  # they speak of batches
    assert result.passed  # the one that does not hold only warns


def test_unique_in_the_table_looks_at_rows_of_earlier_batches(spark, tmp_path):
    @hw.job(target=hw.delta("silver.once"))
    @hw.check("once", hw.expect.unique("user", within="table"), action="warn")
    def once(visits):
        return visits

    once.__globals__["visits"] = visits
    driver = JobDriver(spark, tmp_path, [once])
    for user in ("u1", "u2", "u1"):
        driver.send("visits", {"page": "a", "user": user, "ms": 1})
        driver.run()
    assert [row[2:] for row in results(driver)] == [("held", 1, 0), ("held", 1, 0), ("broken", 1, 1)]
    result = run_suite(spark, tmp_path, "silver.once", checks=bind(once).checks)
    assert not next(each for each in result.outcomes if each.name == "once").passed


def test_freshness_is_judged_again_at_a_version_that_was_judged(spark, tmp_path):
    timed = hw.topic("timed", schema="page STRING, at TIMESTAMP")

    @hw.job(target=hw.delta("silver.timed"))
    @hw.check("fresh", hw.expect.fresh("at", "1 hour"))
    @hw.check("has_page", "page IS NOT NULL", action="warn")
    def timed_pages(timed):
        return timed

    timed_pages.__globals__["timed"] = timed
    driver = JobDriver(spark, tmp_path, [timed_pages])
    driver.send("timed", {"page": "a", "at": "2013-01-01T10:00:00Z"})
    driver.run()  # freshness warns, so the row is there
    version = judge_by_clock(spark, tmp_path, "silver.timed", bind(timed_pages).checks)
    (row,) = history(driver.home, kind="suite").to_pylist()
    assert (row["check"], row["outcome"], row["judged"], row["version"]) == ("fresh", "broken", 1, version)
    assert "the newest is" in row["observed"]


@pytest.mark.parametrize("action", ["quarantine", "drop", "warn"])
def test_lateness_is_that_of_the_record(spark, tmp_path, action):
    timed = hw.topic("timed", schema="page STRING, at TIMESTAMP")

    @hw.job(target=hw.delta("silver.timed"))
    @hw.check("prompt", hw.expect.on_time("at", "5 minutes"), action=action)
    def timed_pages(timed):
        return timed

    timed_pages.__globals__["timed"] = timed
    driver = JobDriver(spark, tmp_path, [timed_pages])
    rows = [{"page": "a", "at": "2013-01-01T09:55:00Z"}, {"page": "b", "at": "2013-01-01T09:54:59Z"}]
    driver.send("timed", *rows, timestamp="2013-01-01T10:00:00+00:00")
    driver.run()
    kept = [("a",), ("b",)] if action == "warn" else [("a",)]
    assert driver.rows("silver.timed", "page") == kept
    outcome = "broken" if action == "warn" else "within"
    assert results(driver) == [("prompt", "batch", outcome, 2, 1)]
    assert history(driver.home).to_pylist()[0]["sample"] == ["timed:0:1"]


def test_rule_of_keys_is_refused_where_a_job_has_no_files_of_its_own(spark):
    timed = hw.topic("timed", schema="page STRING, at TIMESTAMP", event_time="at", watermark="1 minute")

    @hw.job(target=hw.delta("gold.pages", keys=["page", "window_start"], mode="update"))
    @hw.check("once", hw.expect.unique("page"))
    def pages(timed):
        return hw.tumbling(timed, "at", "1 hour", by=["page"]).agg(F.count("*").alias("n"))

    pages.__globals__["timed"] = timed
    with pytest.raises(JobDefinitionError, match="is of jobs that write row by row"):
        analyse(bind(pages), spark, {})
