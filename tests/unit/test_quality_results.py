"""`quality.results`: each batch's rows once, whatever was cut short, and the history that is read of them."""

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.ledger.check_results import copy_results, record_stopped
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.results import (
    RECORDED,
    RESULTS_TABLE,
    SCHEMA,
    Judged,
    Mark,
    append,
    history,
    last_mark,
    newest,
    opened_results,
    past_of,
    past_of_suites,
    rows_of,
)
from headwater_streams.runtime.upkeep import Upkeep, tidy
from headwater_streams.storage.delta_files import opened_table
from headwater_streams.storage.home import Home

TABLE = "silver.departures"


def result(check="volume", *, failed=0, outcome="held", rows=10.0):
    return CheckResult(
        check=check, outcome=outcome, action="warn", judged=10, failed=failed, values={"rows": rows}
    )


def commit(home, batch, *results):
    """A commit of a batch, as a row job makes it."""
    source = SourceRange(
        input="d", topic="departures", ranges={"departures": {0: (batch * 10, batch * 10 + 10)}}
    )
    entry = LedgerEntry(
        job="departures",
        generation=1,
        batch=batch,
        table=TABLE,
        kind="row",
        sources=(source,),
        accounting={"d": {"read": 10, "written": 10}},
        extra={Extra.CHECKS: [each.to_json() for each in results]} if results else {},
    )
    write_deltalake(
        str(home.table(TABLE)),
        pa.table({"x": [batch]}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
    )


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_results_are_copied_once_however_often_it_is_tried(home):
    commit(home, 0, result(), result("set", failed=2, outcome="broken"))
    write_deltalake(str(home.table(TABLE)), pa.table({"x": [9]}), mode="append")  # somebody else's
    commit(home, 2, result(rows=12.0))
    assert copy_results(home, TABLE) == 3
    assert copy_results(home, TABLE) == 0
    commit(home, 3, result(rows=13.0))
    assert copy_results(home, TABLE) == 1
    found = history(home, job="departures").to_pylist()
    assert [(row["check"], row["batch"], row["version"]) for row in found] == [
        ("volume", 0, 0),
        ("set", 0, 0),
        ("volume", 2, 2),
        ("volume", 3, 3),
    ]
    assert found[0]["ranges"] == [{"topic": "departures", "partition": 0, "start": 0, "end": 10}]


def test_results_of_a_table_that_was_made_anew_are_copied_though_its_versions_are_smaller(home):
    for batch in range(3):
        commit(home, batch, result())
    assert copy_results(home, TABLE) == 3
    home.table(TABLE).rename(home.root / "aside")  # as `jobs rebuild` does where its log is damaged
    commit(home, 0, result(rows=1.0))
    assert copy_results(home, TABLE) == 1
    assert copy_results(home, TABLE) == 0
    commit(home, 1, result(rows=2.0))
    assert copy_results(home, TABLE) == 1
    assert history(home).num_rows == 5


def test_results_of_a_table_that_lost_its_newest_version_are_not_copied_again(home):
    for batch in range(3):
        commit(home, batch, result())
    copy_results(home, TABLE)
    max((home.table(TABLE) / "_delta_log").glob("*.json")).unlink()
    assert copy_results(home, TABLE) == 0
    commit(home, 2, result())  # the batch is made again
    commit(home, 3, result())
    assert copy_results(home, TABLE) == 1
    assert [row["batch"] for row in history(home).to_pylist()] == [0, 1, 2, 3]


def test_batches_before_a_job_had_checks_are_not_read(home):
    commit(home, 0, result("gone"))
    commit(home, 1)
    commit(home, 2, result())
    assert copy_results(home, TABLE) == 1
    commit(home, 3)
    assert copy_results(home, TABLE) == 0


def test_stopped_batch_is_written_once_and_its_later_commit_beside_it(home):
    commit(home, 0)
    error = CheckFailedError("too many")
    error.results = (result("set", failed=5, outcome="broken"),)
    arguments = {
        "job": "departures",
        "generation": 1,
        "batch": 1,
        "at_ms": 1000,
        "ranges": {"departures": {0: (10, 20)}},
        "error": error,
    }
    assert record_stopped(home, TABLE, **arguments)
    assert not record_stopped(home, TABLE, **arguments | {"at_ms": 2000})
    commit(home, 1, result("set"))
    copy_results(home, TABLE)
    rows = history(home, table=TABLE, check="set").to_pylist()
    assert [(row["kind"], row["outcome"]) for row in rows] == [("stopped", "broken"), ("batch", "held")]


def test_batch_that_another_check_stops_once_the_first_was_mended_is_written_again(home):
    def stopped(at_ms, *results, batch=1):
        error = CheckFailedError("it failed")
        error.results = results
        return record_stopped(
            home, TABLE, job="departures", generation=1, batch=batch, at_ms=at_ms, ranges={}, error=error
        )

    broken, held = result("set", failed=5, outcome="broken"), result("set")
    assert stopped(1000, broken)
    assert stopped(2000, held, result("volume", outcome="broken"))
    assert not stopped(3000, held, result("volume", outcome="broken"))
    assert stopped(4000, broken)
    assert stopped(5000, broken, batch=2)
    rows = history(home, check="set").to_pylist()
    assert [row["outcome"] for row in rows] == ["broken", "held", "broken", "broken"]


def test_error_without_results_writes_nothing(home):
    error = CheckFailedError("of a backfill")
    assert not record_stopped(home, TABLE, job="j", generation=1, batch=0, at_ms=0, ranges={}, error=error)
    assert history(home).num_rows == 0


def test_past_is_that_of_committed_batches_in_order(home):
    for at_ms, kind in ((3000, "batch"), (1000, "batch"), (2000, "stopped")):
        judged = Judged(kind=kind, at_ms=at_ms, table=TABLE, job="departures")
        append(home, rows_of(judged, [result(rows=float(at_ms))]))
    assert [past.at_ms for past in past_of(home, "departures", "volume", 5)] == [1000, 3000]
    assert [past.values for past in past_of(home, "departures", "volume", 1)] == [{"rows": 3000.0}]


def test_history_is_that_of_a_check_since_a_time(home):
    judged = Judged(kind="suite", at_ms=1000, table=TABLE, version=4)
    append(home, rows_of(judged, [result(), result("set")]))
    assert history(home, check="set", columns=["check"]).to_pylist()[0]["check"] == "set"
    assert history(home, since=datetime(2000, 1, 1, tzinfo=UTC)).num_rows == 0


def test_copy_that_another_process_made_meanwhile_is_not_made_again(home):
    judged = Judged(kind="batch", at_ms=1000, table=TABLE)
    assert append(home, rows_of(judged, [result()]), Mark("results", -1, 3))
    # The other one has collected versions 1 to 4 before the first was there.
    assert not append(home, rows_of(judged, [result(), result("set")]), Mark("results", -1, 4))
    assert append(home, rows_of(judged, [result("set")]), Mark("results", 3, 4))
    assert history(home).num_rows == 2


def test_copy_behind_which_another_process_wrote_is_not_made(home):
    judged = Judged(kind="batch", at_ms=1000, table=TABLE)
    append(home, rows_of(judged, [result()]), Mark("results", -1, 1))
    opened = opened_results(home)
    assert append(home, rows_of(judged, [result()]), Mark("results", 1, 2))
    assert not append(home, rows_of(judged, [result()]), Mark("results", 1, 2), opened)
    assert history(home).num_rows == 2


def test_batch_copies_its_results_with_one_look_at_the_table_of_results(home, monkeypatch):
    commit(home, 0, result())
    copy_results(home, TABLE)
    looks = []

    def opened(path):
        looks.append(path)
        return opened_table(path)

    monkeypatch.setattr("headwater_streams.quality.results.opened_table", opened)
    commit(home, 1, result())
    assert copy_results(home, TABLE) == 1
    assert len(looks) == 1


def test_results_that_are_older_than_they_are_kept_are_forgotten_with_whole_days(home):
    now = datetime.now(UTC)
    for n, days in enumerate((40, 31, 29, 0)):
        at_ms = int((now - timedelta(days=days)).timestamp() * 1000)
        judged = Judged(kind="batch", at_ms=at_ms, table=TABLE, job="departures", batch=n)
        append(home, rows_of(judged, [result(rows=float(n))]), Mark("results", n - 1, n))
    tidy(home, Upkeep())
    assert history(home).num_rows == 4
    tidy(home, Upkeep(results_kept_days=30))
    assert [row["batch"] for row in history(home).to_pylist()] == [2, 3]
    assert past_of(home, "departures", "volume", 5)[0].values == {"rows": 2.0}
    assert last_mark(opened_results(home), "results") == 3
    version = opened_results(home).version()
    tidy(home, Upkeep(results_kept_days=30))
    assert opened_results(home).version() == version


def test_long_file_of_results_is_not_written_again_with_each_new_batch(home, monkeypatch):
    monkeypatch.setattr("headwater_streams.runtime.upkeep._FILE_BYTES", 20_000)
    judged, rng = Judged(kind="batch", at_ms=1000, table=TABLE), random.Random(1)
    append(home, rows_of(judged, [result(f"check {rng.random()}") for _ in range(2000)]))
    (long,) = opened_results(home).file_uris()
    for _ in range(2):
        append(home, rows_of(judged, [result()]))
    tidy(home, Upkeep())
    files = opened_results(home).file_uris()
    assert long in files
    assert len(files) == 2


def test_rows_appended_by_two_processes_are_both_there(home):
    judged = Judged(kind="suite", at_ms=1000, table=TABLE)
    assert append(home, rows_of(judged, [result()]), Mark("results of a.a", -1, 1))
    assert append(home, rows_of(judged, [result()]), Mark("results of a.b", -1, 1))
    assert history(home).num_rows == 2
    log = max((home.table(RESULTS_TABLE) / "_delta_log").glob("*.json")).read_text()
    assert {"appId": "results of a.b", "version": 1}.items() <= next(
        json.loads(line)["txn"] for line in log.splitlines() if "txn" in line
    ).items()


@pytest.mark.parametrize("attempt", range(5))
def test_results_of_jobs_that_begin_at_once_are_all_there(home, attempt):
    """Each finds no table of results, and makes it; one attempt of three met another's commit before."""
    jobs = 8
    together = threading.Barrier(jobs)

    def appended(number):
        judged = Judged(kind="batch", at_ms=1000, table=f"silver.t{number}")
        together.wait()
        return append(home, rows_of(judged, [result()]), Mark(f"results of t{number}", -1, number))

    with ThreadPoolExecutor(jobs) as pool:
        assert all(pool.map(appended, range(jobs)))
    assert history(home).num_rows == jobs


def test_results_are_in_the_order_of_their_commits_whatever_the_clock_said(home):
    for batch, outcome in enumerate(("broken", "held")):
        judged = Judged(
            kind="batch", at_ms=90_000_000 - batch * 86_400_000, table=TABLE, batch=batch, version=batch
        )
        append(home, rows_of(judged, [result(outcome=outcome)]))
    assert [row["batch"] for row in history(home).to_pylist()] == [0, 1]
    assert [row["outcome"] for row in newest(home, TABLE)] == ["held"]


def test_table_of_results_from_before_they_were_numbered_is_read_and_added_to(home):
    old = SCHEMA.remove(SCHEMA.get_field_index(RECORDED))
    judged = Judged(kind="batch", at_ms=0, table=TABLE, job="departures", batch=0, version=7)
    rows = [
        {**row, "at": row["at"] + timedelta(hours=hours)}
        for hours in (2, 1)
        for row in rows_of(judged, [result(rows=float(hours))])
    ]
    write_deltalake(str(home.table(RESULTS_TABLE)), pa.Table.from_pylist(rows, schema=old))
    assert [each.values["rows"] for each in past_of(home, "departures", "volume", 5)] == [1.0, 2.0]
    assert newest(home, TABLE)[0]["values"] == [("rows", 2.0)]
    append(home, rows_of(judged, [result(rows=3.0)]))  # of an earlier time than both
    assert history(home)["recorded"].to_pylist() == [None, None, 1]
    assert [dict(row)["rows"] for row in history(home)["values"].to_pylist()] == [1.0, 2.0, 3.0]
    assert newest(home, TABLE)[0]["values"] == [("rows", 3.0)]


def test_newest_is_what_ran_by_itself_and_what_a_person_ran_of_a_check_without(home):
    for kind, version, outcome, check in (
        ("suite", 5, "broken", "volume"),
        ("manual", 3, "held", "volume"),
        ("manual", 3, "held", "mine"),
    ):
        judged = Judged(kind=kind, at_ms=1000 * version, table=TABLE, version=version)
        append(home, rows_of(judged, [result(check, outcome=outcome)]))
    assert [(row["check"], row["kind"]) for row in newest(home, TABLE)] == [
        ("mine", "manual"),
        ("volume", "suite"),
    ]


def test_suite_is_compared_with_earlier_versions_each_once(home):
    for kind, version, rows in (("suite", 2, 2.0), ("suite", 4, 4.0), ("manual", 1, 1.0), ("manual", 4, 5.0)):
        judged = Judged(kind=kind, at_ms=1000, table=TABLE, version=version)
        append(home, rows_of(judged, [result(rows=rows)]))
    found = [
        past_of_suites(home, TABLE, "volume", count, before) for count, before in ((9, 5), (2, 5), (9, 4))
    ]
    assert [[each.values["rows"] for each in past] for past in found] == [
        [1.0, 2.0, 5.0],
        [2.0, 5.0],
        [1.0, 2.0],
    ]
