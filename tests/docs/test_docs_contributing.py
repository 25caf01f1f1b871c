"""What CONTRIBUTING.md and the other pages in the root say is there, and fragments of the changelog are ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import commits

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "changes" / "README.md"]
FRAGMENTS = [path.name for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
KINDS = ("breaking", "added", "changed", "fixed")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ROOT_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_in_the_root_link_to_what_is_there(page: Path) -> None:
    """MkDocs looks at the links of docs/ only."""
    links = re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
    here = [link.partition("#")[0] for link in links if not re.match(r"\w+:|#", link)]
    assert [link for link in here if not (page.parent / link).exists()] == []


def test_contributing_has_the_lanes_of_the_page_of_testing() -> None:
    def lanes(text: str) -> list[str]:
        return re.findall(r"^\| `make (?:check|test|test-all)` \|.*$", text, re.MULTILINE)

    assert len(lanes(text_of("CONTRIBUTING.md"))) == 3
    assert lanes(text_of("CONTRIBUTING.md")) == lanes(text_of("docs/contributing/testing.md"))


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "changes/README.md", "CHANGELOG.md"])
def test_pages_name_make_targets_that_are_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text_of(page))) - targets == set()


def test_contributing_says_what_a_subject_is() -> None:
    text = text_of("CONTRIBUTING.md")
    assert f"at most {commits.LONGEST} characters" in text
    (example,) = re.findall(r"`(\w+: a plan [^`]*)`", text)
    assert commits.problem_of(example) is None


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_fragments_are_of_a_kind_that_the_changelog_has(fragment: str) -> None:
    assert re.fullmatch(rf"(?:\d+|\+[\w-]+)\.(?:{'|'.join(KINDS)})(?:\.\d+)?\.md", fragment)
    text = text_of(f"changes/{fragment}")
    assert text.endswith(".\n")


def test_fragments_come_out_in_the_changelog() -> None:
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--draft",
        "--version",
        "9.9.9",
        "--date",
        "2030-01-01",
    ]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "## 9.9.9 (2030-01-01)" in built.stdout
    drafted = " ".join(built.stdout.split())
    for fragment in FRAGMENTS:
        assert " ".join(text_of(f"changes/{fragment}").split()) in drafted
    assert text_of("CHANGELOG.md").count("<!-- changes: begin -->\n") == 1


def test_kinds_of_fragments_are_those_that_their_page_explains() -> None:
    assert tuple(re.findall(r"^- `(\w+)`:", text_of("changes/README.md"), re.MULTILINE)) == KINDS
    assert tuple(re.findall(r'^directory = "(\w+)"\nname', text_of("pyproject.toml"), re.MULTILINE)) == KINDS


def test_hooks_of_commits_fetch_nothing() -> None:
    config = yaml.safe_load(text_of(".pre-commit-config.yaml"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system", hook
        program, *rest = hook["entry"].split()
        assert program.startswith(".venv/bin/"), hook
        assert all((ROOT / word).exists() for word in rest if word.endswith(".py")), hook
