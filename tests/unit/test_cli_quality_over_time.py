"""`quality history` and `suggest`, `quarantine list`, `show` and `discard` as a person types them; without Spark."""

import json
import time
from datetime import datetime

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headwater as hw
from headwater.cli import main
from headwater.cli.quality import _keep_results
from headwater.errors import UsageError
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.result import Outcome, SuiteResult
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.storage.home import Home

TABLE = "silver.departures"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def ran(home, capsys, *arguments):
    status = main([*arguments, "--home", str(home.root)])
    output = capsys.readouterr()
    return status, output.out, output.err


def judged(home, *outcomes, check="set", table=TABLE):
    for batch, outcome in enumerate(outcomes):
        failed = 0 if outcome == "held" else 2
        result = CheckResult(check=check, outcome=outcome, action="warn", judged=10, failed=failed)
        at_ms = int(time.time() * 1000) - 1000 * (len(outcomes) - batch)
        append(home, rows_of(Judged(kind="batch", at_ms=at_ms, table=table, job="j", batch=batch), [result]))


def quarantined(home, *checks):
    of = {
        "has_carrier": {"_reason": "carrier is NULL", "_check": "has_carrier", "_raw": b"{}"},
        "json": {"_reason": "it is no JSON", "_check": "json", "_raw": b"\xff"},
    }
    rows = [of[check] for check in checks or of]
    schema = pa.schema(
        [
            ("_reason", pa.string()),
            ("_check", pa.string()),
            ("_raw", pa.binary()),
            ("_topic", pa.string()),
            ("_partition", pa.int32()),
            ("_offset", pa.int64()),
            ("_timestamp", pa.timestamp("us", "UTC")),
            ("_batch", pa.int64()),
            ("_generation", pa.int32()),
        ]
    )
    full = [
        {**row, "_topic": "t", "_partition": 0, "_offset": n, "_timestamp": 0, "_batch": 0, "_generation": 1}
        for n, row in enumerate(rows)
    ]
    write_deltalake(str(home.table(f"{TABLE}__quarantine")), pa.Table.from_pylist(full, schema=schema))


def test_history_draws_each_check_and_fails_where_one_is_broken_now(home, capsys, tmp_path):
    judged(home, "held", "broken", "held")
    assert ran(home, capsys, "quality", "history")[0] == 0
    judged(home, "broken", check="volume")
    status, out, _ = ran(home, capsys, "quality", "history", TABLE, "--html", str(tmp_path / "q.html"))
    assert status == 1
    assert "·✗·" in out
    assert "broken since" in out
    assert "volume" in (tmp_path / "q.html").read_text()
    status, out, _ = ran(home, capsys, "quality", "history", "--check", "set", "--json")
    assert (status, [row["outcome"] for row in json.loads(out)]) == (0, ["held", "broken", "held"])


def test_show_has_what_each_check_came_to_last(home, capsys):
    judged(home, "held", "broken", check="volume")
    judged(home, "broken", "held")
    status, out, err = ran(home, capsys, "quality", "show", TABLE)
    assert status == 0, err
    lines = [line.split() for line in out.splitlines() if "warn" in line]
    assert [line[:5] for line in lines] == [
        ["✓", "set", "warn", "10", "0"],
        ["✗", "volume", "warn", "10", "2"],
    ]
    assert "batch 1" in out
    status, _, err = ran(home, capsys, "quality", "show", "silver.none")
    assert (status, "there is no result of silver.none yet" in err) == (2, True)


def test_checks_of_what_comes_into_a_table_are_shown_with_its_own(home, capsys):
    ingest = f"{TABLE}__ingest_clicks"
    for table in (TABLE, ingest, f"{TABLE}__late"):
        write_deltalake(str(home.table(table)), pa.table({"carrier": ["AA"]}))
    judged(home, "held", check="volume")
    judged(home, "broken", check="has_carrier", table=ingest)
    judged(home, "held", check="x", table="silver.other")
    status, out, _ = ran(home, capsys, "quality", "history", TABLE)
    assert status == 1, "of a job with state, most checks are of its ingest table"
    assert [line.split()[:2] for line in out.splitlines()[2:]] == [[TABLE, "volume"], [ingest, "has_carrier"]]
    _, out, _ = ran(home, capsys, "quality", "history", TABLE, "--json")
    assert sorted(row["table"] for row in json.loads(out)) == [TABLE, ingest]
    status, out, _ = ran(home, capsys, "quality", "show", TABLE)
    assert status == 0
    assert f"batch 0 of {ingest}" in out
    assert ran(home, capsys, "quality", "history", TABLE, "--check", "has_carrier")[0] == 1


def test_history_of_nothing_says_so(home, capsys):
    status, out, err = ran(home, capsys, "quality", "history")
    assert (status, out) == (0, "")
    assert "no check has a result" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("history", "silver.departure"), "there is no table silver.departure; the tables are"),
        (("history", TABLE, "--check", "sets"), f"no check sets of {TABLE} has had a result; those that had"),
        (("history", "--check", "sets"), "no check sets has had a result; those that had one: set"),
        (("history", "silver.unjudged", "--check", "set"), "has had a result; those that had one: none yet"),
        (("suggest", "silver.departure"), "there is no table silver.departure"),
    ],
)
def test_name_that_no_result_has_is_a_mistake_and_not_well(home, capsys, arguments, sentence):
    for table in (TABLE, "silver.unjudged"):
        write_deltalake(str(home.table(table)), pa.table({"carrier": ["AA"]}))
    judged(home, "held")
    status, out, err = ran(home, capsys, "quality", *arguments)
    assert (status, out) == (2, "")
    assert sentence in err


def test_history_of_a_table_without_results_says_so(home, capsys):
    write_deltalake(str(home.table("silver.unjudged")), pa.table({"carrier": ["AA"]}))
    judged(home, "held")
    for arguments in (("silver.unjudged",), (TABLE, "--check", "set", "--days", "0")):
        status, _, err = ran(home, capsys, "quality", "history", *arguments)
        assert (status, "no check has a result of the last " in err) == (0, True)


def test_suggest_writes_a_suite_and_does_not_overwrite_one(home, capsys, tmp_path):
    write_deltalake(str(home.table(TABLE)), pa.table({"carrier": ["AA", "UA"] * 200}))
    suite = tmp_path / "suite.py"
    status, out, _ = ran(home, capsys, "quality", "suggest", TABLE, "--out", str(suite))
    assert status == 0
    assert out.startswith(f"2 checks of {TABLE} in ")
    assert "hw.expect.in_set('carrier', ['AA', 'UA'])" in suite.read_text()
    status, _, err = ran(home, capsys, "quality", "suggest", TABLE, "--out", str(suite))
    assert status == 2
    assert "is there already" in err


def test_quarantine_is_listed_filtered_and_discarded(home, capsys):
    quarantined(home)
    status, out, _ = ran(home, capsys, "quarantine", "list", "--json")
    (listed,) = json.loads(out)
    assert (status, listed["open"], listed["checks"]) == (0, 2, {"has_carrier": 1, "json": 1})
    status, out, _ = ran(home, capsys, "quarantine", "show", TABLE, "--check", "json")
    assert status == 0
    assert "it is no JSON" in out
    assert "carrier is NULL" not in out
    discard = ("quarantine", "discard", TABLE, "--check", "json", "--because", "a test")
    assert ran(home, capsys, *discard)[1] == f"1 rejected record of {TABLE} discarded\n"
    none = f"0 rejected records of {TABLE} discarded; there are 1 by has_carrier\n"
    assert ran(home, capsys, *discard)[1] == none
    _, out, _ = ran(home, capsys, "quarantine", "list", "--json")
    assert [(each["open"], each["discarded"]) for each in json.loads(out)] == [(1, 1)]


def test_all_is_discarded_only_where_all_was_said(home, capsys):
    quarantined(home)
    discard = ("quarantine", "discard", TABLE, "--because", "a test")
    status, _, err = ran(home, capsys, *discard)
    assert status == 2
    assert f"2 rejected records of {TABLE} are open: say which are meant, by --check" in err
    status, _, err = ran(home, capsys, *discard, "--all", "--check", "json")
    assert (status, "--all is each record that is open" in err) == (2, True)
    assert json.loads(ran(home, capsys, "quarantine", "list", "--json")[1])[0]["discarded"] == 0
    assert ran(home, capsys, *discard, "--all")[1] == f"2 rejected records of {TABLE} discarded\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show", "silver.none", "--check", "x"), "there is no table silver.none__quarantine"),
        (("discard", "silver.none", "--because", "x"), "there is no table silver.none__quarantine"),
        (("show", TABLE, "--since", "noon"), "--since noon: write a time such as"),
        (("show", TABLE, "--offsets", "t=1"), "write TOPIC:PARTITION=START-END"),
        (("discard", TABLE, "--because", " "), "say why"),
    ],
)
def test_mistake_is_a_sentence(home, capsys, arguments, sentence):
    quarantined(home)
    status, _, err = ran(home, capsys, "quarantine", *arguments)
    assert status == 2
    assert sentence in err


_JOB = """
import headwater as hw
t = hw.topic("t", schema="carrier STRING")
@hw.job(target=hw.delta("silver.departures"))
def clean(t):
    return t
"""


def test_replay_of_none_says_what_there_is(home, capsys, tmp_path):
    quarantined(home)
    (tmp_path / "clean.py").write_text(_JOB)
    status, out, err = ran(
        home, capsys, "quarantine", "replay", str(tmp_path / "clean.py"), "--check", "jsno"
    )
    assert status == 0, err
    assert out == f"no rejected record of {TABLE} is open, of these; there are 1 by has_carrier, 1 by json\n"


def test_replay_of_what_was_rejected_before_an_ingest_table_is_refused_with_what_mends_it(
    home, capsys, tmp_path
):
    quarantined(home)
    write_deltalake(str(home.table(f"{TABLE}__ingest_t")), pa.table({"carrier": ["AA"]}))
    file = tmp_path / "clean.py"
    file.write_text(_JOB)
    for more in ((), ("--dry-run",)):
        status, _, err = ran(home, capsys, "quarantine", "replay", str(file), *more)
        assert status == 2
        assert (
            f"{TABLE}__ingest_t, which is to be mended first: headwater backfill plan {file} --quaran" in err
        )


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--check", "json", "--check", "has_carrier"), [0, 1]),
        (("--check", "it's"), []),
        (("--since", "1970-01-01T01:00:00+01:00"), [0, 1]),
        (("--since", "1970-01-01T00:00:00.001Z"), []),
        (("--until", "1970-01-01"), []),
        (("--offsets", "t:0=1-2"), [1]),
        (("--offsets", "t:0=0-1", "--offsets", "o'hare:3=0-9"), [0]),
    ],
)
def test_quarantine_is_shown_by_check_time_and_offsets_as_it_is_shown_whole(home, capsys, options, offsets):
    quarantined(home)
    status, out, err = ran(home, capsys, "quarantine", TABLE, "--json", *options)
    assert (status, [row["_offset"] for row in json.loads(out)]) == (0, offsets), err
    whole = json.loads(ran(home, capsys, "quarantine", TABLE, "--json")[1])
    assert json.loads(out) == [row for row in whole if row["_offset"] in offsets]


def test_quarantine_without_what_was_discarded_is_shown_where_nothing_was_and_where_some_was(home, capsys):
    quarantined(home)
    shown = ("quarantine", "show", TABLE, "--open", "--json")
    assert len(json.loads(ran(home, capsys, *shown)[1])) == 2
    ran(home, capsys, "quarantine", "discard", TABLE, "--offsets", "t:0=0-1", "--because", "a test")
    assert [row["_offset"] for row in json.loads(ran(home, capsys, *shown)[1])] == [1]
    assert len(json.loads(ran(home, capsys, "quarantine", TABLE, "--json")[1])) == 2


def test_check_may_be_called_as_a_command_is(home, capsys):
    quarantined(home)
    status, out, err = ran(home, capsys, "quarantine", TABLE, "--check", "list", "--json")
    assert (status, out) == (0, "[]\n"), err


@pytest.mark.parametrize(("days", "status"), [("1e9", 0), ("inf", 2)])
def test_history_of_more_days_than_there_are_is_that_of_all(home, capsys, days, status):
    judged(home, "held")
    found, out, err = ran(home, capsys, "quality", "history", "--days", days)
    assert found == status, err
    assert ("set" in out) == (status == 0)


def test_table_in_place_of_a_command_is_shown_as_before(home, capsys):
    quarantined(home)
    status, out, _ = ran(home, capsys, "quarantine", TABLE, "--json")
    assert (status, len(json.loads(out))) == (0, 2)
    status, out, _ = ran(home, capsys, "quarantine", "--limit", "1", TABLE, "--json")
    assert (status, len(json.loads(out))) == (0, 1)


def test_python_has_the_history_and_the_rejected_records(home, monkeypatch):
    judged(home, "held", "broken")
    quarantined(home)
    monkeypatch.setenv("HEADWATER_HOME", str(home.root))
    assert hw.quality.history(TABLE, check="set")["outcome"].to_pylist() == ["held", "broken"]
    assert hw.quality.history("silver.none").num_rows == 0
    found = hw.quality.rejected(TABLE, checks=["json"])
    assert (found["_offset"].to_pylist(), "_raw" in found.column_names) == ([1], False)
    assert hw.quality.rejected(TABLE, offsets={"t": {0: (0, 1)}}).num_rows == 1
    begin, end = datetime(1970, 1, 1), datetime(1970, 1, 2)  # a person leaves the zone out
    assert hw.quality.rejected(TABLE, since=begin, until=end).num_rows == 2
    with pytest.raises(UsageError, match=r"there is no table silver\.none;"):
        hw.quality.rejected("silver.none")
    with pytest.raises(UsageError, match="there is no folder"):
        hw.quality.history(home=home.root / "none")


def test_suite_that_a_person_ran_is_kept_as_such_and_does_not_decide(home, capsys):
    judged(home, "broken")
    outcome = Outcome(name="set", text="", severity="critical", passed=True, observed="")
    result = SuiteResult(
        table=TABLE,
        version=0,
        passed=True,
        rows=10,
        ran_at="2036-01-01T00:00:00+00:00",
        seconds=0.0,
        outcomes=(outcome,),
        skipped=(),
        folder=home.root,
    )
    _keep_results(home.root, [result])
    status, out, err = ran(home, capsys, "quality", "history", TABLE)
    assert (status, "✗·" in out, "batch 0" in out) == (1, True, True), err
    status, out, err = ran(home, capsys, "quality", "history", TABLE, "--json")
    assert [row["kind"] for row in json.loads(out)] == ["batch", "manual"]
