"""The `headwater` command as a person or a script runs it: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Headwater = Callable[..., subprocess.CompletedProcess[str]]
_TIMEOUT_S = 120


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_STACK_")}


@pytest.fixture
def headwater(tmp_path: Path) -> Headwater:
    """Runs one command to its end, in an empty folder."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headwater.cli", *arguments],
            cwd=tmp_path,
            env=_environ(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    return run


class Foreground:
    """A `headwater up --foreground` in a process group of its own.

    Attributes:
        process: The parent process of the stack.
        address: What its ready line said.
    """

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        self._stderr = folder / "foreground.err"
        with self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater.cli", "up", "--foreground", *arguments],
                cwd=folder,
                env=_environ(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                process_group=0,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), self.stderr
        self.address = line.removeprefix("ready ").strip()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def end(self) -> tuple[int, str]:
        """SIGTERM; returns the exit status and what else came on standard output."""
        self.process.terminate()
        rest, _ = self.process.communicate(timeout=_TIMEOUT_S)
        return self.process.returncode, rest

    def close(self) -> None:
        """Whatever the test did, leave nothing running."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[Callable[..., Foreground]]:
    """Starts stacks in the foreground and ends them after the test."""
    started: list[Foreground] = []

    def start(*arguments: str) -> Foreground:
        started.append(Foreground(tmp_path, arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()
