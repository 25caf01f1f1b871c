"""`headwater demo --full`: two clusters and a mirror, a registry, counts, checks that break and their alarms.

It runs once, for four days, and all tests look at what it has left."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1500)


@dataclass(frozen=True)
class Finished:
    """The demo that has come to its end: its home, and the command with --json."""

    home: Path
    run: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("full")
    home = folder / "home"
    environ = {name: each for name, each in os.environ.items() if not name.startswith("HEADWATER_")}
    environ |= {name: os.environ[name] for name in ("HEADWATER_JARS",) if name in os.environ}
    command = [
        sys.executable,
        "-m",
        "headwater.cli",
        "demo",
        "--full",
        "--days",
        "4",
        "--home",
        str(home),
        "--json",
    ]
    run = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return Finished(home, run)


def test_full_demo_ends_ok_and_says_what_was_proved(finished: Finished) -> None:
    run = finished.run
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr.splitlines()[-1] == "demo: ok"
    result = json.loads(run.stdout)
    full = result["full"]
    sent = sum(topic["produced"] for topic in result["events"].values())
    assert full["mirror"] == {"records": sent, "topics": 3, "lag": 0}
    assert full["counts"]["records"] == full["counts"]["mirrored"] == sent
    assert full["counts"]["complete"] == full["counts"]["buckets"] > 100
    assert full["registry"]["versions"] == [1, 2]
    assert {each.split()[0] for each in full["checks"]["broken"]} == {"silver.departures", "silver.arrivals"}
    assert sorted(full["alarms"]) == [
        f"{table} in_time {state}"
        for table in ("silver.arrivals", "silver.departures")
        for state in ("broken", "well")
    ]
    assert "silver.departures" in full["trace"]["tables"]
    for what in ("mirror: ", "registry: ", "counts: ", "checks: ", "alarm: ", "trace: "):
        assert any(line.strip().startswith(what) for line in run.stderr.splitlines()), what


def test_full_demo_home_is_what_the_notebooks_draw(
    finished: Finished, run_notebook: Callable[..., list[str]]
) -> None:
    shown = run_notebook("quality_and_audit", HEADWATER_HOME=str(finished.home))
    assert "True" in shown, "producer, broker, mirror and jobs counted the same in every hour"
    assert any("in_time" in text and "broken" in text and "well" in text for text in shown), "the alarms"
    shown = run_notebook("the_ledger", HEADWATER_HOME=str(finished.home))
    assert "'every offset is accounted for'" in shown
