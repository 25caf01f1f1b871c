"""`headwater quality` as scripts and people run it."""

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from headwater_streams.base.ledger_entry import LedgerEntry

JOB = """
import headwater as hw

departures = hw.topic("departures", schema="flight_id STRING, delay INT, gate STRING")


@hw.job(target=hw.delta("silver.departures", keys=["flight_id"]), dedup=hw.by_offset())
@hw.check("has_gate", "gate IS NOT NULL", action="quarantine")
@hw.check("delay_sane", "delay < 999", action="fail")
@hw.check("mean_sane", "avg(delay) < 60", level="batch", action="warn")
def clean(departures):
    return departures.select("flight_id", "delay")
"""
EXPECTATIONS = """
def expectations():
    import great_expectations.expectations as gxe

    return [gxe.ExpectColumnValuesToNotBeNull(column="delay")]


def raises():
    raise ValueError("boom")


def number():
    return 5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder: two versions of one table in `.headwater`, the job that writes it in `jobs/`."""
    here = tmp_path_factory.mktemp("work")
    table = here / ".headwater/tables/silver/departures"
    write_deltalake(table, pa.table({"flight_id": ["UA-1", "AA-2"], "delay": pa.array([5, 500], pa.int32())}))
    broken = pa.table({"flight_id": ["UA-1"], "delay": pa.array([4000], pa.int32())})
    write_deltalake(table, broken, mode="append")
    (here / "jobs").mkdir()
    (here / "jobs/clean.py").write_text(JOB)
    (here / "mine.py").write_text(EXPECTATIONS)
    return here


@pytest.fixture(scope="module")
def run_quality(headwater_in, folder):
    """Runs `headwater quality` in that folder."""
    return partial(headwater_in(folder), "quality")


@pytest.mark.story
def test_quality_run_finds_the_tables_job_and_fails_by_its_checks(run_quality, folder):
    done = run_quality("run", "silver.departures", "--json")
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    held = {outcome["name"]: outcome["passed"] for outcome in result["outcomes"]}
    assert held == {
        "delay_sane": False,
        "mean_sane": False,
        "keys_present": True,
        "keys_unique": False,
    }
    assert [each["name"] for each in result["skipped"]] == ["has_gate"]
    assert (result["version"], result["passed"], result["rows"]) == (1, False, 3)
    assert Path(folder, result["docs"]).is_file()


@pytest.mark.story
def test_quality_run_of_a_job_file_at_a_version_passes_with_its_warnings(run_quality):
    done = run_quality(
        *("run", "jobs/clean.py", "--version", "0", "--expectations", "mine.py:expectations"),
        *("--check", "positive: delay > 0", "--batch-check", "some: count(*) > 0"),
    )
    assert done.returncode == 0, done.stderr
    assert "silver.departures version 0: passed, with warnings (mean_sane); 2 rows" in done.stdout
    assert "avg(delay) = 252.5" in done.stdout
    assert "positive: every row: delay > 0" in done.stdout
    assert "expect_column_values_to_not_be_null" in done.stdout
    assert "Data Docs: file://" in done.stdout
    shown = run_quality("show", "silver.departures")
    assert shown.returncode == 0, shown.stderr
    assert "passed" in shown.stdout
    assert json.loads(run_quality("show", "--json").stdout)[0]["version"] == 0


def test_quality_run_of_a_table_whose_job_is_not_at_hand_says_that_its_checks_are_left_out(
    run_quality, folder
):
    table = folder / ".headwater/tables/silver/alone"
    told = {
        "userMetadata": LedgerEntry(
            job="alone",
            generation=1,
            batch=0,
            table="silver.alone",
            kind="row",
            sources=(),
            accounting={},
            fingerprint="",
        ).to_json()
    }
    write_deltalake(table, pa.table({"delay": [1]}), commit_properties=CommitProperties(custom_metadata=told))
    for _ in range(2):
        done = run_quality("run", "silver.alone", "--check", "positive: delay > 0")
        assert done.returncode == 0, done.stderr
        assert "the job 'alone', which writes silver.alone, is in no module of ./jobs" in done.stderr
    assert "in place of what was found at 20" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["run", "silver.departurs"], 2, "did you mean silver.departures?"),
        (["run", "jobs/nothing.py"], 2, "jobs/nothing.py"),
        (["run", "silver.departures", "--check", "delay > 0"], 2, "write NAME: CONDITION"),
        (["run", "silver.departures", "--check", "two words: delay > 0"], 2, "check name 'two words'"),
        (["run", "silver.departures", "--expectations", "mine.py:nope"], 2, "mine.py has no function 'nope'"),
        (["run", "silver.departures", "--expectations", "none.py:nope"], 2, "there is no file none.py"),
        (["run", "silver.departures", "--expectations", "mine.py:raises"], 2, "failed: ValueError: boom"),
        (
            ["run", "silver.departures", "--expectations", "mine.py:number"],
            2,
            "returned 5; it returns a list",
        ),
        (["run"], 2, "Missing argument"),
        (["show", "gold.flights"], 2, "there is no result of gold.flights yet"),
    ],
)
def test_quality_mistake_is_told_in_a_sentence_with_its_status(run_quality, arguments, status, said):
    done = run_quality(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
