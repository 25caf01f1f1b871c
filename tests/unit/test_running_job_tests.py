"""Which tests `headwater jobs test` finds beside a job, how it runs them, and what it says where there is none."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.jobs import app as jobs
from headwater.errors import UsageError, UserError
from headwater.running.job_tests import find_tests, run_tests

TESTS = "def test_good():\n    assert True\n\n\ndef test_bad():\n    assert 1 == 2\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "test_delays", raising=False)  # of the test before
    for name in ("delays.py", "other.py", "bare.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "test_delays.py").write_text(TESTS)
    (tmp_path / "tests").mkdir()
    for name in ("test_delays.py", "test_other.py"):
        (tmp_path / "tests" / name).write_text("")
    return tmp_path


def test_job_tests_are_found_beside_a_module_and_in_its_folder(here: Path) -> None:
    assert find_tests(["delays.py:delays", "other", "tests/test_other.py"], []) == [
        here / "test_delays.py",
        here / "tests" / "test_delays.py",
        here / "tests" / "test_other.py",
    ]
    assert find_tests(["jobs.py"], [_module(here / "elsewhere")]) == [here / "elsewhere" / "test_jobs.py"]


def _module(folder: Path) -> Path:
    folder.mkdir()
    for name in ("jobs.py", "test_jobs.py"):
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("bare.py", "bare.py has no tests: write "),
        ("nothere.py", "no job module 'nothere.py'"),
        ("not.there", "no job module 'not.there'"),
    ],
)
def test_job_tests_that_are_not_there_are_told_in_a_sentence(here: Path, reference: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_tests([reference], [])
    assert told in str(refused.value)


def test_job_tests_run_and_their_outcomes_are_counted(here: Path) -> None:
    found = run_tests([here / "test_delays.py"], quiet=True)
    assert sorted(found.outcomes.values()) == ["failed", "passed"]
    assert (found.count("failed"), found.exit_code) == (1, 1)
    assert run_tests([here / "test_delays.py"], chosen="good", quiet=True).exit_code == 0


def test_job_tests_in_a_folder_of_their_own_import_the_module_that_they_are_about(here: Path) -> None:
    (here / "above_them.py").write_text("ANSWER = 42\n")
    asks = "from above_them import ANSWER\n\n\ndef test_answer():\n    assert ANSWER == 42\n"
    (here / "tests" / "test_above_them.py").write_text(asks)
    before = list(sys.path)
    found = run_tests(find_tests(["above_them.py"]), quiet=True)
    assert found.outcomes == {"tests/test_above_them.py::test_answer": "passed"}
    assert str(here) not in sys.path or str(here) in before


def test_job_tests_command_ends_as_they_do(here: Path) -> None:
    runner = CliRunner()
    passed = runner.invoke(jobs, ["test", "test_delays.py", "-k", "good", "--json"])
    assert passed.exception is None
    assert json.loads(passed.stdout) == [{"test": "test_delays.py::test_good", "outcome": "passed"}]
    failed = runner.invoke(jobs, ["test", "test_delays.py", "--json"])
    assert isinstance(failed.exception, UserError)
    assert str(failed.exception) == "1 of 2 tests failed"
    (here / "test_broken.py").write_text("import nothere\n")
    broken = runner.invoke(jobs, ["test", "test_broken.py", "--json"])
    assert json.loads(broken.stdout) == [{"test": "test_broken.py", "outcome": "failed"}]
    assert isinstance(broken.exception, UserError)
    none = runner.invoke(jobs, ["test", "test_delays.py", "-k", "nosuch", "--json"])
    assert isinstance(none.exception, UsageError)
    assert "matches 'nosuch'" in str(none.exception)
