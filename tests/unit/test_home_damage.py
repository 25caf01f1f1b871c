"""What `headwater doctor` finds in a home, and how the verbs without Spark tell a damaged file."""

import json
import shutil
from pathlib import Path

import pytest

from damaged_files import DAMAGES, write_batch, write_checkpoint
from headwater.cli import main
from headwater.config import load_settings
from headwater.running.environment import find_jobs, remember_modules
from headwater.running.home_damage import home_damage
from headwater.stack.checks import examine
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.quality.result import RESULT_FILE, SuiteResult, stored_results
from headwater_streams.runtime.progress import ProgressLog
from headwater_streams.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    for table in ("silver.clean", "silver.other"):
        write_checkpoint(found, table, 2, 10)
        for batch in range(2):
            write_batch(found, table, batch, 10)
    log = ProgressLog(found, 0.0)
    for job in ("clean", "other"):
        log.event(job, f"silver.{job}", 1, "started")
    log.flush(now=True)
    return found


def _files(home: Home) -> list[tuple[str, str]]:
    found = examine(home.root, {}, load_settings({}).settings)
    return [(each.state, each.detail) for each in found if each.subject == "files"]


def _result(home: Home, version: int) -> Path:
    path = home.root / "quality" / "silver.clean" / f"v{version}" / RESULT_FILE
    path.parent.mkdir(parents=True)
    result = SuiteResult(
        table="silver.clean", version=version, passed=True, rows=9, ran_at="2013-01-01T00:00:00+00:00", seconds=0.1,
        outcomes=(), skipped=(), folder=path.parent,
    )  # fmt: skip
    path.write_text(json.dumps(result.to_json()))
    return path


def test_doctor_finds_each_damaged_part_of_a_home(home: Home) -> None:
    assert _files(home) == [("ok", "checkpoints, tables and backfills are as they were written")]
    offsets = home.checkpoint("clean", 1) / "offsets/1"
    (data,) = list(home.table("silver.other").glob("*.parquet"))[:1]
    plan = BackfillFolder(home, "clean-1").path / "plan.json"
    plan.parent.mkdir(parents=True)
    result = _result(home, 1)
    for path in (offsets, plan, result):
        path.write_bytes(b"x")
    data.unlink()
    found = [each.path for each in home_damage(home.root)]
    assert found == [offsets, data, plan, result]
    told = _files(home)
    assert [state for state, _ in told] == ["wrong"] * 4
    assert [detail.partition(": ")[0] for _, detail in told] == [
        "job 'clean'",
        "silver.other",
        "the backfill 'clean-1'",
        "silver.clean",
    ]
    assert told[3][1].endswith("it is written again by headwater quality run silver.clean --version 1")


def test_doctor_of_a_folder_that_is_no_home_says_nothing_of_files(tmp_path: Path) -> None:
    assert _files(Home(tmp_path / "none")) == []


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"gone", "one bit"}))
def test_stored_results_are_shown_beside_a_damaged_one(
    home: Home, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    _result(home, 1)
    path = _result(home, 2)
    DAMAGES[damage](path)
    assert [each.version for each in stored_results(home.root)] == [1]
    assert main(["quality", "show", "--home", str(home.root)]) == 1
    printed = capsys.readouterr()
    assert "silver.clean" in printed.out
    assert f"{path} is " in printed.err
    assert "headwater quality run silver.clean --version 2" in printed.err


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"gone"}))
def test_verbs_about_jobs_tell_the_damaged_file(
    home: Home, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    facts = home.checkpoint("clean", 1) / "headwater.json"
    DAMAGES[damage](facts)
    assert main(["jobs", "explain", "clean", "--home", str(home.root)]) == 1
    assert capsys.readouterr().err.startswith(f"headwater: job 'clean': {facts} is ")
    assert main(["jobs", "explain", "other", "--home", str(home.root)]) == 0
    progress = home.table("headwater.progress")
    (rows,) = progress.glob("*.parquet")
    rows.unlink()
    capsys.readouterr()
    assert main(["jobs", "explain", "other", "--home", str(home.root)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"headwater: headwater.progress: {rows} is gone")
    assert f"move the folder {progress} away" in told
    assert main(["jobs", "status", "--home", str(home.root)]) == 1
    printed = capsys.readouterr()
    assert "silver.other" in printed.out
    assert printed.err == told


def test_status_goes_on_beside_a_file_for_a_folder_and_without_progress(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(home.root / "checkpoints" / "clean")
    (home.root / "checkpoints" / "clean").write_text("x")
    assert main(["jobs", "explain", "other", "--home", str(home.root)]) == 0
    assert main(["jobs", "status", "--home", str(home.root)]) == 0
    for path in (home.table("headwater.progress") / "_delta_log").iterdir():
        path.unlink()  # as a run leaves the folder that is killed before the first commit
    assert main(["jobs", "status", "--home", str(home.root)]) == 0
    assert capsys.readouterr().out.count("silver.other") == 2


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"\x00", b"/nowhere.py"])
def test_note_of_a_jobs_module_that_is_damaged_is_passed_over(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    module = tmp_path / "delays.py"
    module.write_text(
        "import headwater as hw\n\nclicks = hw.topic('clicks', schema='n INT')\n\n\n"
        "@hw.job(target=hw.delta('silver.delays'))\ndef delays_of_mine(clicks):\n    return clicks\n"
    )
    monkeypatch.chdir(tmp_path)
    (job,) = find_jobs([str(module)])
    remember_modules(home.root, [job])
    assert [each.name for each in find_jobs(["delays_of_mine"], home.root)] == ["delays_of_mine"]
    home.module("delays_of_mine").write_bytes(data)
    with pytest.raises(Exception, match=r"is named with it, FILE\.py:delays_of_mine"):
        find_jobs(["delays_of_mine"], home.root)
