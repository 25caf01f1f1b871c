"""The load generators in C, tests/bench/load.c first: built by the machine's C compiler, run against a port."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "load.c"
_EXTRA_S = 60
"""What a run may take beyond the time that it was given: for answers that are under way, and a slow machine."""


class NoCompilerError(Exception):
    """There is nothing to build the generator with."""


class LoadError(Exception):
    """A run ended early: the broker refused a request, lost one, stored one twice or served something else."""


class Program:
    """A generator's C program: built in a folder, and run.

    Raises:
        NoCompilerError: There is no C compiler, or it does not build the program.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise NoCompilerError(
                "there is no C compiler (cc, gcc or clang) to build the load generator with"
            )
        self._program = folder / source.stem
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(self._program), str(source)]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            raise NoCompilerError(f"{compiler} does not build the load generator: {built.stderr.strip()}")
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        self.compiler = said.partition("\n")[0]

    def run(self, seconds: float, *arguments: object) -> dict[str, Any]:
        """Its JSON object.

        Args:
            seconds: That it may take, beside what `_EXTRA_S` allows.
            arguments: Its own.

        Raises:
            LoadError: See the class.
        """
        command = [str(self._program), *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _EXTRA_S)
        except subprocess.TimeoutExpired:
            raise LoadError(f"{' '.join(command[1:])}: no answers came") from None
        if done.returncode:
            raise LoadError(f"{' '.join(command[1:])}: {done.stderr.strip()}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found


class Load:
    """The generator for brokers that speak Kafka's protocol.

    Raises:
        NoCompilerError: There is no C compiler, or it does not build the generator.
    """

    def __init__(self, folder: Path) -> None:
        """Builds it in a folder."""
        self._program = Program(SOURCE, folder)
        self.compiler = self._program.compiler

    def produce(
        self,
        port: int,
        topic: str,
        *,
        acks: int,
        messages: int,
        in_flight: int,
        seconds: float,
        max_bytes: float,
        slices: int = 0,
    ) -> dict[str, Any]:
        """Fills an empty topic; see the source for what is sent and checked.

        Raises:
            LoadError: See the class.
        """
        numbers = (acks, messages, in_flight, seconds, max_bytes, slices)
        return self._program.run(seconds, port, topic, "produce", *numbers)

    def fetch(
        self, port: int, topic: str, *, messages: int, max_bytes: int, seconds: float
    ) -> dict[str, Any]:
        """Reads a topic that `produce` filled with as many messages in a request, again and again.

        Raises:
            LoadError: See the class.
        """
        return self._program.run(seconds, port, topic, "fetch", messages, max_bytes, seconds)

    def consume(
        self, port: int, topic: str, *, messages: int, max_bytes: int, slices: int, seconds: float
    ) -> dict[str, Any]:
        """Reads all of a topic that `produce` filled with as many messages in a request, once, message by message.

        Raises:
            LoadError: See the class.
        """
        return self._program.run(seconds, port, topic, "consume", messages, max_bytes, slices)
