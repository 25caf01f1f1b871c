"""What `headwater backfill` prints of a diff and of a rewind, without Spark."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli import main
from headwater.cli._backfill import (
    print_behind,
    print_changes,
    print_plan,
    print_verdict,
    print_whole,
    still_open,
)
from headwater.running import environment
from headwater_streams import backfill
from headwater_streams.backfill.change import Change
from headwater_streams.backfill.diff import Diff
from headwater_streams.backfill.repair.spec import BackfillPlan, FurtherTable
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.backfill.verdict import Finding, Verdict
from headwater_streams.storage.home import Home

MORE = "more: headwater backfill preview split-1 --limit N"


def diff_of(added: int = 0, removed: int = 0, shown: int = 5) -> Diff:
    samples = {
        kind: [{"key": {"n": n}, side: {"n": n}} for n in range(min(count, shown))]
        for kind, count, side in (("added", added, "after"), ("removed", removed, "before"))
        if count
    }
    return Diff(
        keys=("n",), added=added, removed=removed, changed=0, unchanged=7, samples=samples, digest="d1"
    )


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines but those of the tables of rows."""
    lines = capsys.readouterr().out.splitlines()
    return [line.rstrip() for line in lines if not line.startswith(("row ", "──", "added  ", "removed  "))]


def test_changes_say_how_many_of_how_many_rows_are_shown_and_where_the_others_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_changes({"silver.people": diff_of(added=1, removed=1_234)}, "d1", MORE)
    assert printed(capsys) == [
        "1 row added, 1,234 removed, 0 changed, 7 unchanged; digest d1",
        "shown: 5 of 1,234 removed",
        MORE,
    ]
    print_changes({"silver.people": diff_of(added=6, removed=7, shown=6)}, "d1", MORE)
    assert printed(capsys)[1:] == ["shown: 6 of 7 removed", MORE]


def test_changes_show_nested_values_as_json_and_null_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = {"_sources": [{"topic": "t", "end": 1}], "m": None}, {"_sources": [], "m": "x"}
    sample = {"key": {"n": None}, "before": before, "after": after}
    print_changes(
        {
            "gold.n": Diff(
                keys=("n",),
                added=0,
                removed=0,
                changed=1,
                unchanged=7,
                samples={"changed": [sample]},
                digest="d1",
            )
        },
        "d1",
        MORE,
    )
    told = " ".join(capsys.readouterr().out.split())
    assert 'n=NULL _sources: [{"topic": "t", "end": 1}] -> [], m: NULL -> x' in told


def test_changes_that_are_all_shown_say_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    for diff in (diff_of(added=5), diff_of()):
        print_changes({"silver.people": diff}, "d1", MORE)
        assert len(printed(capsys)) == 1


def test_verdict_of_several_tables_says_so_of_each_and_names_the_others_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    beside = {"silver.bots": Change(diff=diff_of(added=8), table_version=3)}
    finding = Finding(name="files", ok=True, detail="3 files")
    verdict = Verdict(
        backfill="split-1",
        passed=True,
        findings=(finding,),
        accounting={},
        diff=diff_of(removed=6),
        notes=(),
        shadow_version=2,
        verified_at="",
        table_version=4,
        beside=beside,
    )
    print_verdict(verdict, "silver.people", MORE)
    lines = printed(capsys)
    assert lines[-6:] == [
        "shown: 5 of 6 removed",
        "silver.bots: 8 rows added, 0 removed, 0 changed, 7 unchanged",
        "shown: 5 of 8 added",
        f"digest {verdict.digest}",
        MORE,
        "passed; next: headwater backfill swap split-1",
    ]
    print_verdict(verdict, "silver.people", "")
    assert MORE not in printed(capsys), "where nothing has the others, nothing is said"


@pytest.fixture
def rewind(tmp_path: Path) -> BackfillFolder:
    """A rewind that was planned."""
    planned = RewindPlan(
        id="split-1", job="split", reference="requests.py:split", kind="row", target="silver.people", sides=(),
        further=("silver.bots",), keys=("_offset",), columns=("path",), fingerprint="f", base_generation=1,
        base_version=3, rows=4, version=2, batch=1, origin=1, ranges={"requests": {0: (8, 12)}},
    )  # fmt: skip
    folder = BackfillFolder(Home(tmp_path), "split-1")
    folder.path.mkdir(parents=True)
    folder.write(planned)
    return folder


def test_list_says_what_a_rewind_reads_and_that_it_has_no_steps(
    rewind: BackfillFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backfill", "list", "--home", str(rewind.path.parent.parent)]) == 0
    head, _, told = (line.split() for line in capsys.readouterr().out.splitlines()[:3])
    assert head[:7] == ["backfill", "mode", "state", "job", "table", "steps", "reads"]
    assert told[:7] == ["split-1", "rewind", "done", "split", "silver.people,", "silver.bots", "4"]


def verdict_of(passed: bool) -> Verdict:
    return Verdict(
        backfill="split-1",
        passed=passed,
        findings=(),
        accounting={},
        diff=diff_of(),
        notes=(),
        shadow_version=2,
        verified_at="",
    )


def test_run_of_a_rewind_has_nothing_to_run(
    rewind: BackfillFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "a rewind has nothing to run, for the rows and the state that it puts back are there; next: headwater "
    where = ("split-1", "--home", str(rewind.path.parent.parent))
    for verb in ("run", "resume"):
        assert main(["backfill", verb, *where]) == 0
        assert capsys.readouterr() == (f"{said}backfill verify split-1\n", "")
    rewind.write(verdict_of(passed=True))
    assert main(["backfill", "run", *where]) == 0
    assert capsys.readouterr().out == f"{said}backfill swap split-1\n"
    assert main(["backfill", "run", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
    assert main(["backfill", "abort", *where, "--json"]) == 0
    capsys.readouterr()
    assert main(["backfill", "run", *where]) == 1
    assert capsys.readouterr().err == "headwater: the backfill 'split-1' was aborted; plan again\n"


def test_plan_names_the_jobs_that_its_tables_feed(
    rewind: BackfillFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = rewind.plan()
    assert isinstance(planned, RewindPlan)
    print_whole(planned)
    assert not any(line.startswith("feeds") for line in printed(capsys)), "nobody reads them"
    print_whole(replace(planned, feeds=("long", "longest")))
    (told,) = [line for line in printed(capsys) if line.startswith("feeds")]
    assert told == (
        "feeds     long, longest; a job that has read replaced rows stops at the swap until its table is rebuilt, in "
        "this order"
    )
    rewind.write(replace(planned, feeds=("long",)))
    again = rewind.plan()
    assert isinstance(again, RewindPlan)
    assert again.feeds == ("long",)


def test_swap_says_what_is_to_be_done_with_the_jobs_behind(capsys: pytest.CaptureFixture[str]) -> None:
    print_behind((), {"t": {"0": [1, 2]}})
    assert not printed(capsys)
    print_behind(("long", "longest"), {"t": {"0": [1, 2], "1": [0, 5]}})
    (told,) = printed(capsys)
    assert told.startswith(
        "it feeds long, longest; they pass over the swap, so their own rows stay as they are"
    )
    assert told.endswith("headwater backfill plan JOB --offsets t:0=1-2 --offsets t:1=0-5, or --rebuild")
    print_behind(("long",), {"t": {str(p): [0, 5] for p in range(1000)}})
    (told,) = printed(capsys)
    assert told.endswith("JOB with --offsets for each partition of the plan, or --rebuild")
    print_behind(("long",), None)
    (told,) = printed(capsys)
    assert told.endswith("until its table is rebuilt, in this order: headwater backfill plan JOB --rebuild")


@pytest.mark.parametrize("which", ["--late", "--quarantined"])
def test_plan_with_nothing_to_do_says_so_and_is_no_error(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "no late row of gold.clicks waits to be folded in, so there is nothing to do"

    def nothing(*_: Any, **__: Any) -> None:
        raise backfill.NothingToRepairError(said)

    monkeypatch.setattr(backfill, "plan", nothing)
    monkeypatch.setattr(
        environment, "one_job", lambda *_: (SimpleNamespace(topic_names=()), "clicks.py:count")
    )
    monkeypatch.setattr("headwater.cli.backfill.session_of", lambda *_, **__: nullcontext())
    where = ["backfill", "plan", "clicks.py:count", which, "--home", str(tmp_path)]
    assert main(where) == 0
    assert capsys.readouterr() == (f"{said}\n", "")
    assert main([*where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": None, "notes": [said]}


def test_swap_of_windows_that_were_open_says_what_becomes_of_them() -> None:
    said = still_open("delays__step_1", "2024-03-04T15:00:00Z", "2024-03-04T16:00:00Z")
    assert said.startswith(
        "windows of [2024-03-04T15:00:00Z, 2024-03-04T16:00:00Z) were still open in the live job"
    )
    assert said.endswith("plan delays --event-time 2024-03-04T15:00:00Z 2024-03-04T16:00:00Z")


def test_plan_of_a_repair_names_all_tables_and_their_versions(capsys: pytest.CaptureFixture[str]) -> None:
    planned = BackfillPlan(
        id="split-1", job="split", reference="requests.py:split", kind="row", target="silver.people",
        quarantine="silver.people__quarantine", input_name="requests",
        keys=(), columns=(), fingerprint="9f2c", asked={"all": True}, ranges={"requests": {0: (1, 8)}},
        windows=(), rows=7, chunks=(), base_version=5, generation=1, batch=2, pinned=None, notes=(), created_at="",
        further={"silver.bots": FurtherTable(columns=(), base_version=3)},
    )  # fmt: skip
    print_plan(planned)
    lines = capsys.readouterr().out.splitlines()
    told = "silver.people, planned on version 5; silver.bots, planned on version 3"
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("table ")] == [told]
