"""How long each test took, and what it waited for: a line for each test below build/; `make test-slowest` prints them.

A test's seconds are CPU time of its own process, CPU time of child processes (Spark's JVM, brokers, commands), and
sleeps of the test itself. The rest of its wall-clock time it waited for a disk, a socket or another process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

LINES = Path(__file__).resolve().parents[2] / "build" / "test-times.jsonl"
"""`{"test", "s", "own_s", "children_s", "slept_s"}`, the newest line of a test counts; all in seconds."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_slept_s = 0.0
_sleep = time.sleep


def pytest_configure(config: pytest.Config) -> None:
    """Drops lines that later runs have replaced, once for all workers, and measures sleeps from here on."""
    if not hasattr(config, "workerinput"):
        LINES.parent.mkdir(exist_ok=True)
        LINES.write_text("".join(json.dumps(line) + "\n" for line in newest().values()), encoding="utf-8")
    time.sleep = _measured_sleep


def pytest_report_header() -> str:
    """How busy the machine was as the run began."""
    return f"load average {', '.join(f'{each:.1f}' for each in os.getloadavg())}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"at the end: {pytest_report_header()}")


def pytest_unconfigure() -> None:
    time.sleep = _sleep


def _measured_sleep(seconds: float) -> None:
    global _slept_s
    if threading.current_thread() is threading.main_thread():
        _slept_s += seconds
    _sleep(seconds)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measures a test with its fixtures; a shared one counts for the first test that uses it."""
    start_s, own_s, children_s, slept_s = time.monotonic(), time.process_time(), _children_cpu_s(), _slept_s
    done = yield
    line = {
        "test": item.nodeid,
        "s": round(time.monotonic() - start_s, 3),
        "own_s": round(time.process_time() - own_s, 3),
        "children_s": round(max(0.0, _children_cpu_s() - children_s), 3),
        "slept_s": round(_slept_s - slept_s, 3),
    }
    with LINES.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")
    return done


def _children_cpu_s() -> float:
    """CPU time of all processes below this one, those that have ended included."""
    ended = os.times()
    return ended.children_user + ended.children_system + sum(map(_cpu_s, _children_of(os.getpid())))


def _cpu_s(pid: int) -> float:
    """CPU time of a process and of all below it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S + sum(map(_cpu_s, _children_of(pid)))


def _children_of(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += map(int, task.read_text(encoding="ascii").split())
        except OSError:
            continue
    return children


def newest() -> dict[str, dict[str, float]]:
    """The newest line of each test, by test."""
    if not LINES.exists():
        return {}
    lines = map(json.loads, LINES.read_text(encoding="utf-8").splitlines())
    return {line["test"]: line for line in lines if _exists(line["test"])}


def _exists(test: str) -> bool:
    """Whether a test still exists, by its file and the name of its function."""
    file, _, names = test.partition("::")
    return f"def {names.rpartition('::')[2].partition('[')[0]}(" in _text(LINES.parents[1] / file)


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def main(count: int) -> None:
    """Prints the slowest tests, and what all of a folder took."""
    lines = sorted(newest().values(), key=lambda line: -line["s"])
    if not lines:
        sys.exit("no test has run here yet; run `make test` or `make test-all` first")
    print("      s     own children    slept   waited  test")
    for line in lines[:count]:
        print(_row(line, str(line["test"])))
    print("\nall tests, by folder")
    folders: dict[str, dict[str, float]] = {}
    for line in lines:
        total = folders.setdefault(str(Path(str(line["test"]).partition("::")[0]).parent), {})
        for name in ("s", "own_s", "children_s", "slept_s"):
            total[name] = total.get(name, 0.0) + line[name]
    for folder, total in sorted(folders.items(), key=lambda each: -each[1]["s"]):
        print(_row(total, folder))


def _row(line: dict[str, float], name: str) -> str:
    waited_s = max(0.0, line["s"] - line["own_s"] - line["children_s"] - line["slept_s"])
    seconds = (line["s"], line["own_s"], line["children_s"], line["slept_s"], waited_s)
    return " ".join(f"{each:7.1f} " for each in seconds) + f" {name}"


if __name__ == "__main__":
    argument = sys.argv[1] if len(sys.argv) > 1 else "40"
    if not argument.isdecimal():
        sys.exit(f"{argument} is no number of tests: write make test-slowest ARGS=40")
    main(int(argument))
