"""Each lane runs what docs/contributing/testing.md says, and a test's lane shows in one place."""

import subprocess
import sys
from pathlib import Path

import pytest

from amount import LANE, amount
from lanes import CHECK, TEST, runs_in

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("folder", "is_story", "lanes"),
    [
        ("unit", False, {"check", "test", "all"}),
        ("docs", False, {"check", "test", "all"}),
        ("clients", False, {"test", "all"}),
        ("spark", True, {"test", "all"}),
        ("spark", False, {"all"}),
        ("e2e", True, {"test", "all"}),
        ("crash", False, {"all"}),
    ],
)
def test_lane_runs_by_folder_and_mark(folder: str, is_story: bool, lanes: set[str]) -> None:
    assert {lane for lane in ("check", "test", "all") if runs_in(lane, folder, is_story=is_story)} == lanes


def test_lane_folders_are_there() -> None:
    assert set(CHECK) < set(TEST)
    assert [folder for folder in TEST if not (ROOT / "tests" / folder).is_dir()] == []


def run_with_lanes(tmp_path: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a test module that stands in tests/unit of a project with these lanes."""
    for folder in ("unit", "support"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_x.py").write_text(module, encoding="utf-8")
    for name in ("lanes.py", "amount.py"):
        (tmp_path / "tests" / "support" / name).write_bytes((ROOT / "tests" / "support" / name).read_bytes())
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers = story: a story\npythonpath = tests/support\n", encoding="ascii"
    )
    command = [sys.executable, "-m", "pytest", "-p", "lanes", "-q", *arguments, "tests/unit"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_lane_of_a_story_in_a_folder_that_decides_is_refused(tmp_path: Path) -> None:
    """The mark would say again what the folder says."""
    ended = run_with_lanes(tmp_path, "import pytest\n\n@pytest.mark.story\ndef test_x() -> None: ...\n")
    assert ended.returncode == 4
    assert (
        "tests/unit/test_x.py::test_x: its folder decides its lane; take the mark `story` away"
        in ended.stderr
    )


@pytest.mark.parametrize(("lane", "expected"), [("check", 3), ("test", 3), ("all", 50), (None, 50)])
def test_amount_is_small_but_in_the_lane_that_runs_all(
    lane: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LANE, raising=False)
    if lane is not None:
        monkeypatch.setenv(LANE, lane)
    assert amount(small=3, full=50) == expected
    assert amount("HEADWATER_NO_SUCH", small=3, full=50) == expected
    monkeypatch.setenv("HEADWATER_NO_SUCH", "7")
    assert amount("HEADWATER_NO_SUCH", small=3, full=50) == 7


@pytest.mark.parametrize(("lane", "tries"), [("check", 3), ("all", 50)])
def test_amount_is_known_while_test_modules_are_imported(lane: str, tries: int, tmp_path: Path) -> None:
    module = "from amount import amount\nTRIES = amount(small=3, full=50)\n\n"
    module += f"def test_x() -> None:\n    assert TRIES == {tries}\n"
    ended = run_with_lanes(tmp_path, module, "--lane", lane)
    assert ended.returncode == 0, ended.stdout + ended.stderr
