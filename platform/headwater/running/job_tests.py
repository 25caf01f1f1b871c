"""Finds and runs the tests that stand beside job modules."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwater.errors import DependencyError, UsageError


@dataclass
class Outcome:
    """How the tests ended; a plugin of pytest that collects their outcomes.

    Attributes:
        outcomes: Each test's outcome, `passed`, `failed` or `skipped`, by its id.
        exit_code: pytest's own.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Notes a test's outcome; an error before or after it counts as its failure."""
        if (report.when == "call" or not report.passed) and self.outcomes.get(report.nodeid) != "failed":
            self.outcomes[report.nodeid] = report.outcome

    def pytest_collectreport(self, report: Any) -> None:
        """Notes a file that could not be read."""
        if report.failed:
            self.outcomes[report.nodeid] = "failed"

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return list(self.outcomes.values()).count(outcome)


def find_tests(references: Sequence[str], search: Sequence[Path] = ()) -> list[Path]:
    """The test files of job modules: `test_<module>.py` beside each, or in a folder `tests` beside it.

    Args:
        references: Each `PATH_OR_MODULE[:job]`; a test file stands for itself.
        search: Folders in which a relative path is looked for after the current one.

    Raises:
        UsageError: There is no such module, or no test of it.
    """
    files = []
    for reference in references:
        module = _module_file(reference, search)
        if module.name.startswith("test_"):
            files.append(module)
            continue
        name = f"test_{module.stem}.py"
        beside = [module.parent / name, module.parent / "tests" / name]
        existing = [path for path in beside if path.is_file()]
        if not existing:
            raise UsageError(
                f"{module.name} has no tests: write {beside[0]}; "
                "python -c 'help(\"headwater_streams.testing\")' shows a whole one"
            )
        files += existing
    return list(dict.fromkeys(files))


def run_tests(files: Sequence[Path], *, chosen: str | None = None, quiet: bool = False) -> Outcome:
    """Runs test files with the fixtures of `pytest_plugin`.

    Args:
        files: The files.
        chosen: Only tests whose names match this expression (pytest's `-k`).
        quiet: Whether nothing is printed.

    Raises:
        DependencyError: pytest is not installed.
    """
    if find_spec("pytest") is None:
        raise DependencyError("headwater jobs test needs pytest: run pip install pytest")
    import pytest

    outcome = Outcome()
    # pytest imports what is beside a test. The module of a test in a folder `tests` is in the folder above.
    above = list(dict.fromkeys(str(path.parent.parent) for path in files if path.parent.name == "tests"))
    arguments = [*map(str, files), "-p", "headwater.running.pytest_plugin", "-p", "no:cacheprovider"]
    arguments += ["-k", chosen] if chosen else []
    arguments += ["-p", "no:terminal"] if quiet else ["--durations=3", "--durations-min=1"]
    sys.path[:0] = above
    try:
        outcome.exit_code = int(pytest.main(arguments, plugins=[outcome]))
    finally:
        for folder in above:
            sys.path.remove(folder)
    return outcome


def _module_file(reference: str, search: Sequence[Path]) -> Path:
    where = reference.rpartition(":")[0] or reference
    if where.endswith((".py", ".sql")) or "/" in where:
        for folder in (Path(), *search):
            if (folder / where).is_file():
                return (folder / where).resolve()
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            spec = find_spec(where)
        except ModuleNotFoundError:
            spec = None
        finally:
            sys.path.pop(0)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin)
    raise UsageError(f"no job module {where!r}; give a path ending in .py or an importable module")
