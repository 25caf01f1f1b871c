"""`tools/commits.py`: which subjects are good, and which commits it looks at."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import commits

Git = Callable[..., None]


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("docs: a page tells how to ship log files", None),
        ("test-all: parts run alone", None),
        ("README: five figures are left", None),
        ("broker log: segments are closed", None),
        ("docs:a page", "it is not `area: what`"),
        ("Fixed the docs", "it is not `area: what`"),
        ("docs, tests: two areas", "it is not `area: what`"),
        ("fixup! docs: a page", "it is not `area: what`"),
        ("docs: a page.", "a subject ends without a full stop"),
        ("docs: " + "x" * 66, None),
        ("docs: " + "x" * 67, "it has 73 characters, and 72 are shown"),
        ("", "it is not `area: what`"),
    ],
)
def test_subject_is_an_area_and_what_within_its_length(subject: str, problem: str | None) -> None:
    assert commits.problem_of(subject) == problem


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a repository of its own."""

    def run(*arguments: str) -> None:
        settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    return run


def commit(git: Git, *subjects: str) -> None:
    for subject in subjects:
        git("commit", "-q", "--allow-empty", "-m", subject, "-m", "A body: that is not looked at.")


def subjects(tmp_path: Path) -> list[str]:
    return [subject for _, subject in commits.subjects_since_release(tmp_path)]


def test_subjects_are_those_since_the_last_release(tmp_path: Path, git: Git) -> None:
    commit(git, "one", "two")
    git("tag", "v0.1.0")
    commit(git, "three")
    git("tag", "a-tag-of-somebody")
    commit(git, "four")
    assert subjects(tmp_path) == ["four", "three"]


def test_subjects_without_a_release_are_those_since_the_check_came(tmp_path: Path, git: Git) -> None:
    commit(git, "one", "two")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "commits.py").write_text("1\n")
    git("add", "tools")
    commit(git, "the check")
    (tmp_path / "tools" / "commits.py").write_text("2\n")
    git("add", "tools")
    commit(git, "the check, changed", "five")
    assert subjects(tmp_path) == ["five", "the check, changed"]


def test_subjects_leave_merges_out(tmp_path: Path, git: Git) -> None:
    commit(git, "one")
    git("tag", "v1.0.0")
    git("switch", "-q", "-c", "side")
    commit(git, "side")
    git("switch", "-q", "main")
    commit(git, "main")
    git("merge", "-q", "--no-ff", "-m", "Merge branch 'side'", "side")
    assert sorted(subjects(tmp_path)) == ["main", "side"]


def test_message_of_a_commit_is_looked_at_before_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("docs: a page\n\nWhy.\n")
    assert commits.main(["--message", str(message)]) == 0
    message.write_text("A page\n")
    assert commits.main(["--message", str(message)]) == 1
    assert capsys.readouterr().err == "this commit: A page: it is not `area: what`\n"
