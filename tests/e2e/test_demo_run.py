"""The demo from the installed wheel, in an unrelated folder: killed in the middle, then the same command again.

It runs once, and all tests look at what it has left."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from amount import amount

pytestmark = pytest.mark.timeout(1500)

KILLS = amount(small=0, full=1)
DAYS = amount(small=4, full=31)

_MONTH = {
    "silver.departures": 26_483,
    "silver.arrivals": 26_398,
    "silver.departures__quarantine": 521,
    "gold.flights": 26_398,
    "silver.weather": 2_241,
    "gold.departures_weather": 26_483,
}
_FOUR_DAYS = {
    "silver.departures": 3_586,
    "silver.arrivals": 3_567,
    "silver.departures__quarantine": 28,
    "gold.flights": 3_567,
    "silver.weather": 301,
    "gold.departures_weather": 3_586,
}
_TABLES = _FOUR_DAYS if DAYS == 4 else _MONTH
_MIDWAY_VERSION = 4


class Installation(Protocol):
    """The fixture `installed` of this folder's conftest."""

    bin: Path
    environ: dict[str, str]


@dataclass(frozen=True)
class Demo:
    """The demo of the installed wheel, with one home in a folder that has nothing else."""

    installed: Installation
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def command(self, *more: str) -> list[str]:
        return [
            str(self.installed.bin / "headwater"),
            "demo",
            "--home",
            str(self.home),
            "--days",
            str(DAYS),
            *more,
        ]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*more),
            cwd=self.folder,
            env=self.installed.environ,
            capture_output=True,
            text=True,
            check=False,
        )


def _ends(home: Path) -> dict[str, int]:
    """How many bytes each partition's log holds."""
    logs = (home / "stack" / "broker-1" / "log").glob("*-[0-9]/*.log")
    return {str(log): log.stat().st_size for log in logs}


@dataclass(frozen=True)
class Finished:
    """A demo that has come to its end.

    Attributes:
        demo: The demo.
        killed: What each partition's log held when it was killed; nothing where it was not.
        run: Its last command, with --json.
    """

    demo: Demo
    killed: dict[str, int]
    run: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def finished(installed: Installation, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The one demo of these tests: a month, killed midway and begun again; for the story four days, run through."""
    demo = Demo(installed, tmp_path_factory.mktemp("demo"))
    killed = _kill_midway(demo) if KILLS else {}
    return Finished(demo, killed, demo.run("--json"))


@pytest.fixture
def demo(finished: Finished) -> Demo:
    return finished.demo


def _kill_midway(demo: Demo) -> dict[str, int]:
    """Kills a demo with all its children while the events arrive; gives what the logs hold then."""
    home, folder = demo.home, demo.folder
    midway = home / "tables" / "silver" / "departures" / "_delta_log" / f"{_MIDWAY_VERSION:020}.json"
    with (folder / "killed.log").open("w") as log:
        process = subprocess.Popen(
            demo.command(),
            cwd=folder,
            env=demo.installed.environ,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline_s = time.monotonic() + 600
        while not midway.exists() and process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert midway.exists(), (folder / "killed.log").read_text()
    return _ends(home)


@pytest.mark.story
def test_demo_ends_ok_with_the_numbers_of_its_days(finished: Finished) -> None:
    run = finished.run
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr.splitlines()[-1] == "demo: ok"

    result = json.loads(run.stdout)
    assert set(result) == {"ok", "seconds", "month", "seed", "events", "tables", "audit", "backfill"}
    assert (result["ok"], result["month"], result["seed"]) == (True, 1, 1)
    departed, landed = _TABLES["silver.departures"], _TABLES["silver.arrivals"]
    never_left = _TABLES["silver.departures__quarantine"]
    for topic, events in (("departures", departed + never_left), ("arrivals", landed)):
        counted = result["events"][topic]
        assert counted["produced"] == events + counted["duplicates"]
        assert counted["late"] > 0
    rows = {name: table["rows"] for name, table in result["tables"].items()}
    assert rows.items() >= _TABLES.items()
    assert all(table["equal"] for table in result["tables"].values())
    assert {(entry["topic"], entry["partition"]) for entry in result["audit"]} == {
        (topic, partition) for topic in ("departures", "arrivals", "weather") for partition in range(3)
    }
    assert all(entry["ok"] for entry in result["audit"])
    assert result["backfill"]["plan"]["target"] == "gold.delay_by_carrier"
    assert result["backfill"]["verdict"]["passed"]


def test_demo_killed_in_the_middle_goes_on_and_ends_ok(finished: Finished) -> None:
    assert "going on in" in finished.run.stderr
    assert finished.run.returncode == 0, finished.run.stdout + finished.run.stderr
    assert json.loads(finished.run.stdout)["ok"]
    now = _ends(finished.demo.home)
    assert finished.killed
    assert all(now[log] >= size for log, size in finished.killed.items())


def test_demo_finished_again_says_so_and_changes_nothing(demo: Demo) -> None:
    before = _ends(demo.home)
    run = demo.run()
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "demo: ok"
    assert _ends(demo.home) == before


def test_demo_home_is_what_the_notebooks_explore(demo: Demo, run_notebook: Callable[..., list[str]]) -> None:
    shown = run_notebook("explore_flights", HEADWATER_HOME=str(demo.home))
    assert "'every offset is accounted for'" in shown
    assert any("departed_at is missing" in text for text in shown)
    assert any("minutes_behind" in text for text in shown)
    assert any(text.count("departures:") == text.count("arrivals:") == 1 for text in shown), (
        "the trace of a flight"
    )
    shown = run_notebook("the_ledger", HEADWATER_HOME=str(demo.home))
    assert "'every offset is accounted for'" in shown
    assert shown.count("True") == 2, "the terms add up, and every offset is once"


def test_demo_other_arguments_are_refused(demo: Demo) -> None:
    run = demo.run("--seed", "2")
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "was made with --seed 1, not --seed 2" in run.stderr


def test_demo_join_is_rebuilt_beside_its_table_by_commands(
    demo: Demo, headwater_in: Callable[[Path], Callable[..., subprocess.CompletedProcess[str]]]
) -> None:
    headwater = headwater_in(demo.folder)

    def backfill(*words: str) -> dict[str, Any]:
        run = headwater("backfill", *words, "--json", "--home", str(demo.home))
        assert run.returncode == 0, run.stdout + run.stderr
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    planned = backfill("plan", "jobs/flights.py:join_flights", "--rebuild")
    assert (planned["mode"], planned["target"]) == ("rebuild", "gold.flights")
    done = backfill("run", planned["id"])
    assert (done["state"], done["rows_read"]) == ("done", planned["rows"])
    verdict = backfill("verify", planned["id"])
    assert verdict["passed"], verdict["findings"]
    differing = {kind: verdict["diff"][kind] for kind in ("added", "removed", "changed")}
    assert differing == {"added": 0, "removed": 0, "changed": 0}
    assert verdict["diff"]["unchanged"] == _TABLES["gold.flights"]
    swapped = backfill("swap", planned["id"])
    assert swapped["proof"]["rows"] == _TABLES["gold.flights"]
    assert backfill("status", planned["id"])["state"] == "swapped"
