"""The wheel as a user gets it: built offline, installed in an environment of its own, run from an unrelated folder.

The whole demo runs from it too: see `test_demo_run`.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Protocol

import pytest

import release

_ROOT = Path(__file__).resolve().parents[2]


class Installation(Protocol):
    """The fixture `installed` of this folder's conftest."""

    def run(self, *arguments: str, program: str = "headwater") -> subprocess.CompletedProcess[str]: ...


@pytest.mark.story
def test_wheel_holds_the_three_packages_and_what_they_read(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "headwater",
        "headwater_broker",
        "headwater_client",
        "headwater_streams",
    }
    tracked = subprocess.run(
        ["git", "ls-files", "conf", "jobs"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    shipped = {f"headwater/_shipped/{name}" for name in tracked.stdout.split()}
    assert shipped <= names, shipped - names
    assert {"headwater/py.typed", "headwater_streams/quality/page/page.css"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


@pytest.mark.story
def test_wheel_installed_runs_its_own_code_from_anywhere(installed: Installation) -> None:
    code = "import headwater, headwater_broker, headwater_streams as s; print(headwater.__file__, s.__file__)"
    where = installed.run("-c", code, program="python")
    assert where.returncode == 0, where.stderr
    assert where.stdout.count("site-packages") == 2
    assert str(_ROOT) not in where.stdout

    shown = installed.run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    for verb in ("up", "jobs", "backfill", "sql", "demo"):
        assert f" {verb} " in shown.stdout


@pytest.mark.story
def test_wheel_installed_finds_its_configuration(installed: Installation) -> None:
    done = installed.run("config", "show", "--json")
    assert done.returncode == 0, done.stderr
    here = subprocess.run(
        [sys.executable, "-m", "headwater.cli", "config", "show", "--json"],
        cwd=_ROOT.anchor,
        capture_output=True,
        text=True,
        check=True,
    )

    def values(text: str) -> dict[str, object]:
        return {each["key"]: each["value"] for each in json.loads(text)}

    assert values(done.stdout) == values(here.stdout)


def test_wheel_and_sdist_pass_the_checks_of_a_release(wheel: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--sdist",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(_ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (sdist,) = tmp_path.glob("headwater-*.tar.gz")
    assert list(release.problems_of_wheel(wheel, release.version())) == []
    assert list(release.problems_of_sdist(sdist, release.version())) == []


def test_wheel_installed_plans_the_packaged_jobs(installed: Installation) -> None:
    done = installed.run("jobs", "check", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {job["job"] for job in found} == {
        "clean_departures",
        "clean_arrivals",
        "clean_weather",
        "delay_by_carrier",
        "delay_by_route",
        "departures_weather",
        "join_flights",
        "parse_requests",
        "traffic_by_minute",
        "slow_paths",
    }
    assert all("_shipped" in job["module"] for job in found)
