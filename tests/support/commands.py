"""`headwater` commands one after another in one process, for tests that do not test the process itself.

A process for each command costs 0.3 s of CPU time, and 6 s where the command starts Spark. Here modules are imported
once, and the JVM is started once: a session ends with its command, and the next one is a new session in the same JVM.
It is not the process of the tests, whose own Spark session a command would find and stop. Its standard streams are real
ones, so that what the JVM or a C library says there is in a command's output.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from readable import is_readable

_STDIN, _STDOUT, _STDERR = "stdin", "stdout", "stderr"


class Commands:
    """The process. It is started for the first command, and again after one that ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._streams = tempfile.TemporaryDirectory(prefix="headwater-commands-")

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environ: dict[str, str],
        stdin: str = "",
        terminal: str = "",
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end.

        Args:
            arguments: What comes behind `headwater`.
            cwd: The folder that it is started in.
            environ: All of its environment.
            stdin: What it reads.
            terminal: The path of a terminal for its standard error; by default its standard error is returned.
            timeout_s: The process is killed after so long.
        """
        streams = Path(self._streams.name)
        (streams / _STDIN).write_text(stdin, encoding="utf-8")
        process = self._process = self._process or self._start(environ)
        request = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "environ": environ,
            "terminal": terminal,
        }
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        if not is_readable(process.stdout, timeout_s):
            self._end()
            raise subprocess.TimeoutExpired(
                list(arguments), timeout_s, self._output(_STDOUT), self._output(_STDERR)
            )
        answer = process.stdout.readline()
        status = int(answer) if answer else self._end()
        return subprocess.CompletedProcess(
            list(arguments), status, self._output(_STDOUT).decode(), self._output(_STDERR).decode()
        )

    def close(self) -> None:
        """Ends the process, and its JVM with it."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._end()
        self._streams.cleanup()

    def _start(self, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, __file__, self._streams.name],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def _end(self) -> int:
        """Ends what is left of the process and of its children; returns its exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
        return status

    def _output(self, name: str) -> bytes:
        return (Path(self._streams.name) / name).read_bytes()


def serve(streams: Path) -> None:
    """Runs the commands that come as lines on standard input, and answers each with its exit status.

    Args:
        streams: The folder of the files that are the commands' standard streams.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    for number, name in ((1, _STDOUT), (2, _STDERR)):
        _replace(number, os.open(streams / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    out = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    err = os.fdopen(2, "w", 1, encoding="utf-8", closefd=False)
    for line in requests:
        request = json.loads(line)
        for number in (1, 2):
            os.ftruncate(number, 0)
        _replace(0, os.open(streams / _STDIN, os.O_RDONLY))
        _go_to(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.stdout, sys.stderr = out, err
        with ExitStack() as opened:
            sys.stdin = opened.enter_context(os.fdopen(0, encoding="utf-8", closefd=False))
            if request["terminal"]:  # not of the JVM, which would keep it open behind the command
                terminal = os.open(request["terminal"], os.O_WRONLY | os.O_NOCTTY)
                sys.stderr = opened.enter_context(os.fdopen(terminal, "w", 1, encoding="utf-8"))
            status = _status(request["arguments"])
            gc.collect()  # what a command has left open is closed, as at the end of a process
            sys.stdout.flush()
        answers.write(b"%d\n" % status)


def _go_to(folder: str) -> None:
    """Makes a folder the current one, for the JVM's file system, too: that reads the process's only at its start."""
    os.chdir(folder)
    sys.path[0] = folder
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark and pyspark.SparkContext._gateway
    if gateway:
        hadoop = gateway.jvm.org.apache.hadoop
        files = hadoop.fs.FileSystem.get(hadoop.conf.Configuration())
        files.setWorkingDirectory(hadoop.fs.Path(folder))


def _status(arguments: list[str]) -> int:
    """The exit status that a process of this command ends with."""
    from headwater.cli import main

    try:
        return main(arguments)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def _replace(number: int, opened: int) -> None:
    os.dup2(opened, number)
    os.close(opened)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
