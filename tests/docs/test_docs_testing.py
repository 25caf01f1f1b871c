"""docs/contributing/testing.md names every test file and no test that is not there, with the lanes of each claim."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lanes import runs_in

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "contributing" / "testing.md"
PROVED = "## What is proved, and where"
LANES = ("check", "test", "all")
"""From the one that runs the least; each runs what those before it run."""


@dataclass(frozen=True)
class Row:
    """A line of the page's tables.

    Attributes:
        line: Its number in the page, from 1.
        claim: What is proved.
        lanes: As the page states them.
        tests: `file` or `file::function`, from tests/.
    """

    line: int
    claim: str
    lanes: str
    tests: tuple[str, ...]


def rows_of(page: str) -> list[Row]:
    """The rows of all tables below the heading `PROVED`; `::function` is of the file that its row named before."""
    lines = page.splitlines()
    rows = []
    for number, line in enumerate(lines[lines.index(PROVED) :], lines.index(PROVED) + 1):
        if not line.startswith("|") or line.startswith(("| Claim |", "|--")):
            continue
        claim, lanes, named = (cell.strip() for cell in line.strip("|").split("|"))
        tests: list[str] = []
        for name in re.findall(r"`([^`]+)`", named):
            tests.append(tests[-1].partition("::")[0] + name if name.startswith("::") else name)
        rows.append(Row(number, claim, lanes, tuple(tests)))
    return rows


def stories_of(source: str) -> dict[str, bool]:
    """The tests of a module, and whether the mark `story` stands at each: at the module, at its class, at itself, or at
    some of its parameters."""
    body = ast.parse(source).body
    values: dict[str, ast.AST] = {}
    for node in body:
        if isinstance(node, ast.Assign):
            values |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values[node.target.id] = node.value
        elif isinstance(node, ast.FunctionDef):
            values[node.name] = node
    of_module = [values["pytestmark"]] if "pytestmark" in values else []
    return {name: _has_story(marks, values) for name, marks in _tests_in(body, of_module)}


def _tests_in(body: list[ast.stmt], marks: list[ast.AST]) -> Iterator[tuple[str, list[ast.AST]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node.body, [*marks, *node.decorator_list])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, [*marks, *node.decorator_list]


def _has_story(marks: Iterable[ast.AST], values: dict[str, ast.AST]) -> bool:
    """Whether the mark stands in expressions, or in what their names stand for in their module."""
    left, seen = list(marks), set()
    while left:
        for part in ast.walk(left.pop()):
            if isinstance(part, ast.Attribute) and ast.unparse(part) == "pytest.mark.story":
                return True
            if isinstance(part, ast.Name) and part.id in values and part.id not in seen:
                seen.add(part.id)
                left.append(values[part.id])
    return False


@cache
def lanes_in(file: str) -> dict[str, str]:
    """The tests of a file below tests/, each with the first lane that runs it or some of its cases."""
    folder = Path(file).parts[0]
    return {
        name: next(lane for lane in LANES if runs_in(lane, folder, is_story=is_story))
        for name, is_story in stories_of((TESTS / file).read_text(encoding="utf-8")).items()
    }


def lane_of(test: str) -> str:
    """The first lane that runs a test, or any test of a file."""
    file, _, function = test.partition("::")
    return lanes_in(file)[function] if function else min(lanes_in(file).values(), key=LANES.index)


def lanes_of(row: Row) -> str:
    """What a row's column of lanes is to state: those of its tests, the first one first."""
    return ", ".join(sorted({lane_of(test) for test in row.tests}, key=LANES.index))


def is_there(test: str) -> bool:
    file, _, function = test.partition("::")
    return (TESTS / file).is_file() and (not function or function in lanes_in(file))


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


def test_testing_names_tests_that_are_there() -> None:
    lost = [f"line {row.line}: {test}" for row in ROWS for test in row.tests if not is_there(test)]
    assert not lost, "\n".join(["no such tests below tests/:", *lost])
    bare = [f"line {row.line}: {row.claim}" for row in ROWS if not row.tests]
    assert not bare, "\n".join(["no test is named for:", *bare])


def test_testing_names_every_test_file() -> None:
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    files = {file for file in files if Path(file).parts[0] not in ("bench", "support")}
    named = {test.partition("::")[0] for row in ROWS for test in row.tests}
    left_out = sorted(files - named)
    assert not left_out, "\n".join(["docs/contributing/testing.md has no row for:", *left_out])


def test_testing_states_the_lanes_of_each_claim() -> None:
    wrong = [
        f"line {row.line}: {row.claim} It states {row.lanes!r}, and is to state {lanes_of(row)!r}."
        for row in ROWS
        if all(map(is_there, row.tests)) and row.lanes != lanes_of(row)
    ]
    assert not wrong, "\n".join(["docs/contributing/testing.md:", *wrong])


def test_testing_claims_each_thing_once() -> None:
    claims = [row.claim for row in ROWS]
    assert sorted(claim for claim in set(claims) if claims.count(claim) > 1) == []


def test_testing_names_make_targets_that_are_there() -> None:
    named = set(re.findall(r"`make ([a-z-]+)", PAGE.read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"check", "test", "test-all", "test-failed", "test-slowest", "coverage"} <= named
    assert sorted(named - set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))) == []


@pytest.mark.parametrize(
    ("source", "stories"),
    [
        ("def test_a(): ...", {"test_a": False}),
        ("@pytest.mark.story\ndef test_a(): ...\n\ndef test_b(): ...", {"test_a": True, "test_b": False}),
        ("pytestmark = [pytest.mark.spark, pytest.mark.story]\n\ndef test_a(): ...", {"test_a": True}),
        ("@pytest.mark.story\nclass TestA:\n    def test_a(self): ...", {"test_a": True}),
        (
            "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.story)])\ndef test_a(n): ...",
            {"test_a": True},
        ),
        (
            "CASES = [pytest.param(2, marks=MARK)]\nMARK = pytest.mark.story\n\n@each('n', CASES)\ndef test_a(n): ...",
            {"test_a": True},
        ),
        ("TEXT = 'pytest.mark.story'\n\n@pytest.mark.spark\ndef test_a(): ...", {"test_a": False}),
    ],
    ids=[
        "no mark",
        "at itself",
        "at the module",
        "at its class",
        "at a parameter",
        "at a named one",
        "a text",
    ],
)
def test_stories_of_a_module_are_seen_wherever_the_mark_stands(source: str, stories: dict[str, bool]) -> None:
    assert stories_of(source) == stories


def test_rows_of_a_page_have_the_file_before_a_bare_function() -> None:
    table = "| Claim | Lane | Tests |\n|---|---|---|\n| It is so. | check | `unit/a.py::test_x`, `::test_y` |"
    assert rows_of(f"{PROVED}\n\n{table}") == [
        Row(5, "It is so.", "check", ("unit/a.py::test_x", "unit/a.py::test_y"))
    ]
