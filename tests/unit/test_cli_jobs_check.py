"""What `headwater jobs check` and `run` print of jobs that are not well."""

from pathlib import Path
from typing import Any

import pytest

from headwater.cli import _fail, main
from headwater.cli.jobs import _print_plans, _raise_for
from headwater.errors import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, UserError
from headwater_streams.runtime.compatibility import Difference
from headwater_streams.runtime.runner import Outcome


def plan_of(job: str, **more: Any) -> dict[str, Any]:
    """What `jobs check` has of a table, as for machines."""
    nothing: dict[str, Any] = {
        "inputs": {},
        "keys": [],
        "columns": {},
        "checks": [],
        "event_times": {},
        "explodes": False,
        "layout": "",
    }
    return {"job": job, "target": f"silver.{job}", "kind": "row", **nothing, **more}


def test_check_says_what_can_be_done_about_each_difference(capsys: pytest.CaptureFixture[str]) -> None:
    changed = [
        Difference("function or declaration", "aa", "bb", "keep", "rows before are as the old one made them"),
        Difference("watermark of orders", "1 hour", "2 hours", "keep", "it is late"),
        Difference("shuffle partitions", "2", "4", "renew", "state is cut by them"),
    ]
    part = plan_of("hourly__ingest_orders", target="gold.hourly__ingest_orders")
    _print_plans([part], {"clean": changed, part["job"]: changed[:1]})
    told = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in told if line.startswith("clean")]
    assert [line.rpartition("   ")[2] for line in lines] == [
        "go on as it is; for rows before: headwater backfill plan",
        "go on as it is",
        "renew",
    ]
    assert told[-1].endswith("plan hourly --rebuild --table gold.hourly__ingest_orders")


FAILED = Outcome("clean", "failed", "job 'clean': the check some does not hold")
REFUSED = Outcome("hours", "refused", "job 'hours': other code")
BLOCKED = Outcome("days", "blocked", "job 'days' does not run: clean, which writes silver.clean, failed")


@pytest.mark.parametrize(
    ("not_loaded", "outcomes", "status", "lines"),
    [
        ([], [FAILED, BLOCKED], EXIT_FAILED, [FAILED.message, BLOCKED.message]),
        ([], [FAILED, REFUSED, BLOCKED], EXIT_FAILED, [FAILED.message, REFUSED.message, BLOCKED.message]),
        ([], [REFUSED, BLOCKED], EXIT_USAGE, [REFUSED.message, BLOCKED.message]),
        (["shop.py, line 3: no"], [], EXIT_USAGE, ["shop.py, line 3: no"]),
        (["shop.py, line 3: no"], [FAILED], EXIT_FAILED, ["shop.py, line 3: no", FAILED.message]),
    ],
)
def test_run_ends_with_a_line_and_a_status_for_those_that_did_not_end_well(
    not_loaded: list[str],
    outcomes: list[Outcome],
    status: int,
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError) as raised:
        _raise_for(not_loaded, outcomes)
    assert _fail(str(raised.value), raised.value.exit_code) == status
    assert capsys.readouterr().err.splitlines() == [f"headwater: {line}" for line in lines]


def test_run_whose_jobs_are_all_well_ends_well() -> None:
    _raise_for([], [])


def test_check_says_how_tables_are_laid_out(capsys: pytest.CaptureFixture[str]) -> None:
    layout = "partitioned by at_day = days(at); kept for 90 days"
    _print_plans([plan_of("clean", layout=layout), plan_of("dirty")], {})
    told = [line for line in capsys.readouterr().out.splitlines() if " is " in line]
    assert told == [f"silver.clean is {layout}"]


def test_check_says_of_event_times_rows_and_layouts_in_one_go(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan_of(
        "lines",
        columns={"sku": "string", "_row": "bigint"},
        explodes=True,
        event_times={"orders": "timestamp_millis(ts_ms) AS event_time", "returns": "at"},
        layout="kept for 90 days",
    )
    behind = plan_of("loud", columns={"sku": "string", "_row": "bigint"})
    _print_plans([lines, plan_of("clean"), behind], {})
    assert capsys.readouterr().out.split("\n\n")[-1].splitlines() == [
        "orders of lines has the event time timestamp_millis(ts_ms) AS event_time",
        (
            "silver.lines: a record may become several rows; _row is the place of each in its record, and the ledger "
            "counts records and rows apart"
        ),
        "silver.loud: a record may become several rows; _row is the place of each in its record",
        "silver.lines is kept for 90 days",
    ]


def test_graph_and_status_of_a_module_that_is_wrong_show_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text("import headwater as hw\nhw.topic('orders of today')\n")
    (tmp_path / "clean.py").write_text(
        "import headwater as hw\nclicks = hw.topic('clicks', schema='n INT')\n\n\n"
        "@hw.job(target=hw.delta('silver.clicks'))\ndef clean(clicks):\n    return clicks\n"
    )
    assert main(["jobs", "graph", "clean.py", "wrong.py"]) == EXIT_USAGE
    shown = capsys.readouterr()
    assert "silver.clicks" in shown.out
    assert shown.err.startswith("headwater: wrong.py, line 2: topic 'orders of today'")
    assert main(["jobs", "status", "clean.py", "wrong.py", "--home", "home"]) == EXIT_DONE
    shown = capsys.readouterr()
    assert "no job has run in home" in shown.out + shown.err
    assert "wrong.py, line 2" in shown.err
    assert main(["jobs", "status", "wrong.py", "--home", "home"]) == EXIT_USAGE
