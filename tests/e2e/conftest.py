"""The `headwater` command as a person or a script runs it.

Where the process is what is proved (its exit status, its start, its end, signals, pipes) it is a process of its own:
`headwater_process`, `foreground`, `installed`. Elsewhere the commands share one, see `commands`: `headwater`.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import nbformat
import pytest

from commands import Commands
from headwater.stack.places import jars_dir

_TIMEOUT_S = 240
_FIRST_COMPILER = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
"""A JVM for a few rows: its second compiler would take two fifths of all CPU time."""
_OF_THE_CALLER = ("HEADWATER_HOME", "HEADWATER_CONFIG")


class Headwater(Protocol):
    """Runs one command to its end."""

    def __call__(
        self, *arguments: str, stdin: str = ..., terminal: str = ...
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(autouse=True)
def first_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of commands that start a JVM have it compile as is best for a few rows."""
    for name, value in _FIRST_COMPILER.items():
        monkeypatch.setenv(name, value)


def _environ() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HEADWATER_STACK_") and name not in _OF_THE_CALLER
    }


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """The process that the commands of all tests share."""
    shared = Commands()
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def headwater_in(commands: Commands) -> Callable[[Path], Headwater]:
    """Gives what runs commands in a folder, `headwater_in(folder)("sql", "tables")`, in the process that all share."""

    def in_folder(folder: Path) -> Headwater:
        def run(*arguments: str, stdin: str = "", terminal: str = "") -> subprocess.CompletedProcess[str]:
            environ = _environ() | _FIRST_COMPILER
            return commands.run(
                arguments, cwd=folder, environ=environ, stdin=stdin, terminal=terminal, timeout_s=_TIMEOUT_S
            )

        return run

    return in_folder


@pytest.fixture
def headwater(headwater_in: Callable[[Path], Headwater], tmp_path: Path) -> Headwater:
    """Runs one command to its end, in an empty folder, in the process that all share."""
    return headwater_in(tmp_path)


@pytest.fixture
def headwater_process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one command to its end, in an empty folder, in a process of its own."""

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

    def __init__(self, folder: Path, arguments: tuple[str, ...], within: Sequence[str] = ()) -> None:
        self._stderr = folder / "foreground.err"
        with self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", "headwater.cli", "up", "--foreground", *arguments],
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

    def start(*arguments: str, within: Sequence[str] = ()) -> Foreground:
        started.append(Foreground(tmp_path, arguments, within))
        return started[-1]

    yield start
    for each in started:
        each.close()


class Installation:
    """The wheel in an environment of its own, which borrows the libraries of this one.

    Attributes:
        bin: The folder of its programs.
        environ: What its programs are started with.
    """

    def __init__(self, folder: Path, elsewhere: Path, wheel: Path) -> None:
        self.bin = folder / "bin"
        self._elsewhere = elsewhere
        self.environ = {name: value for name, value in _environ().items() if name != "PYTHONPATH"}
        self.environ["HEADWATER_JARS"] = str(jars_dir(os.environ).absolute())
        venv.create(folder, symlinks=True)
        _succeed(
            "pip", "--python", str(self.bin / "python"), "install", "--no-deps", "--no-index", str(wheel)
        )
        # A line of a .pth file comes behind the environment's own packages, and .pth files in the folder that it
        # names are not read: a checkout that is installed for development here stays out.
        packages = next((folder / "lib").glob("python*")) / "site-packages"
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, *arguments: str, program: str = "headwater") -> subprocess.CompletedProcess[str]:
        """Runs one of its programs to its end, in an empty folder."""
        return subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self._elsewhere,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    root = Path(__file__).resolve().parents[2]
    _succeed("build", "--wheel", "--no-isolation", "--outdir", str(folder), str(root))
    return next(folder.glob("headwater-*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel, installed."""
    return Installation(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere"), wheel)


@pytest.fixture
def run_notebook(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs a notebook of the repository from top to bottom, and gives what its cells show, as plain text."""
    from nbclient import NotebookClient

    def run(name: str, **environ: str) -> list[str]:
        path = Path(__file__).resolve().parents[2] / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        where = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=5 * _TIMEOUT_S, resources=where).execute(env=_environ() | environ)
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
        return [output["data"]["text/plain"] for output in outputs if output.output_type == "execute_result"]

    return run


def _succeed(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
