"""What a suite expects of a table, and how its results are kept; nothing here is evaluated."""

import json
import subprocess
import sys
from pathlib import Path

from headwater_streams.quality import Check, Outcome, SuiteResult, expect, stored_results
from headwater_streams.quality.result import RESULT_FILE, load_result, result_folder
from headwater_streams.quality.suite import Skipped, describe, expectations_for


def test_suite_keeps_row_checks_and_leaves_batches_of_the_input_out():
    checks = (
        Check("carrier", "carrier IS NOT NULL"),
        Check("late", "delay < 999", action="warn"),
        Check("mean", "avg(delay) < 60", level="batch", action="fail"),
        Check("mean_in", "avg(delay) < 60", level="batch", action="fail", on="input"),
    )
    expected, skipped = expectations_for(checks, keys=(), columns=["carrier", "delay"])
    assert [(each.name, each.kind, each.severity) for each in expected] == [
        ("carrier", "rows", "critical"),
        ("late", "rows", "warning"),
        ("mean", "aggregate", "critical"),
    ]
    assert [each.name for each in skipped] == ["mean_in"]


def test_suite_expects_keys_and_coordinates_where_there_are_any():
    expected, _ = expectations_for(
        (), keys=["carrier", "hour"], columns=["carrier", "hour", "_topic", "_offset"]
    )
    assert [(each.name, each.kind, each.columns) for each in expected] == [
        ("coordinates_present", "no_nulls", ("_topic", "_offset")),
        ("keys_present", "no_nulls", ("carrier", "hour")),
        ("keys_unique", "unique", ("carrier", "hour")),
    ]


def test_suite_expects_no_place_of_rows_that_were_the_only_ones_of_their_record():
    columns = ["sku", "_topic", "_partition", "_offset", "_row"]
    ((present,), _) = expectations_for((), keys=(), columns=columns)
    assert present.columns == ("_topic", "_partition", "_offset")


def test_suite_of_a_plain_table_without_checks_expects_nothing():
    assert expectations_for((), keys=(), columns=["a"]) == ((), ())


def test_suite_knows_the_aggregates_of_a_batch_check_alone():
    checks = (
        Check("mean", "avg(delay) < 60 AND count(*) > 0", level="batch", action="fail"),
        Check("some", "delay LIKE SOME ('1%')", action="fail"),
    )
    expected, _ = expectations_for(checks, keys=(), columns=["delay"])
    assert [each.calls for each in expected] == [("avg(delay)", "count(*)"), ()]


def test_suite_tells_what_a_rule_expects_in_its_words_and_a_condition_as_it_is():
    checks = (
        Check("known", expect.in_set("carrier", ["AA", "UA"]), action="warn"),
        Check("some", expect.null_share("tail", "5 %")),
        Check("late", "delay < 999"),
    )
    expected, _ = expectations_for(checks, keys=(), columns=["carrier", "delay", "tail"])
    assert [describe(each) for each in expected] == [
        "known (warns only): every row: carrier is one of AA, UA",
        "some: all rows together: at most 5 % of tail is NULL",
        "late: every row: delay < 999",
    ]


def result(home: Path, **changes: object) -> SuiteResult:
    outcomes = (
        Outcome(
            name="a",
            text="a: every row: x > 0",
            severity="critical",
            passed=True,
            observed="0 of 3 rows unexpected",
            unexpected_count=0,
        ),
        Outcome(
            name="b",
            text="b: every row: x > 1",
            severity="critical",
            passed=False,
            observed="1 of 3 rows unexpected",
            unexpected_count=1,
            unexpected_sample=('{"x":1}',),
        ),
        Outcome(name="c", text="c", severity="warning", passed=False, observed="", error="no such column"),
    )
    fields = {
        "table": "silver.departures",
        "version": 3,
        "passed": False,
        "rows": 3,
        "ran_at": "2013-01-01T10:00:00+00:00",
        "seconds": 0.5,
        "outcomes": outcomes,
        "skipped": (Skipped(name="d", reason="because"),),
    } | changes
    return SuiteResult(
        **fields, folder=result_folder(home, str(fields["table"]), int(str(fields["version"])))
    )


def store(stored: SuiteResult) -> None:
    stored.folder.mkdir(parents=True)
    (stored.folder / RESULT_FILE).write_text(json.dumps(stored.to_json()), encoding="utf-8")


def test_result_tells_failures_from_warnings(tmp_path):
    assert [each.name for each in result(tmp_path).failed] == ["b"]
    assert [each.name for each in result(tmp_path).warnings] == ["c"]


def test_result_reads_back_as_it_was_stored(tmp_path):
    stored = result(tmp_path)
    store(stored)
    assert load_result(tmp_path / "quality/silver.departures/v3") == stored


def test_stored_results_are_in_order_of_table_and_version(tmp_path):
    for table, version in (("silver.b", 10), ("silver.b", 9), ("silver.a", 11)):
        store(result(tmp_path, table=table, version=version))
    assert [(each.table, each.version) for each in stored_results(tmp_path)] == [
        ("silver.a", 11),
        ("silver.b", 9),
        ("silver.b", 10),
    ]
    assert [each.version for each in stored_results(tmp_path, "silver.b")] == [9, 10]
    assert stored_results(tmp_path, "silver.c") == []


def test_library_is_imported_in_a_process_whose_main_module_has_no_file():
    """PySpark 4.2 takes such a process for a doctest where Spark Connect is tried without grpc, and ends it."""
    code = (
        "from headwater_streams.quality.validation import import_great_expectations as ready; "
        "print(ready().__name__, hasattr(__import__('__main__'), '__file__'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "great_expectations False\n"), done.stderr


def test_rule_that_speaks_of_batches_says_nothing_of_a_table():
    rules = {
        "usual": expect.volume(),
        "hourly": expect.volume(same_hour_of_days=7),
        "in_batch": expect.unique("delay"),
        "in_table": expect.unique("delay", within="table"),
        "spread": expect.drift("delay", edges=[0]),
    }
    checks = [Check(name, rule) for name, rule in rules.items()]
    expected, skipped = expectations_for(checks, keys=(), columns=["delay"])
    assert [each.name for each in expected] == ["in_table", "spread"]
    assert [each.name for each in skipped] == ["usual", "hourly", "in_batch"]
    assert {each.reason for each in skipped} == {"it judges each batch as it is written, not the table"}
