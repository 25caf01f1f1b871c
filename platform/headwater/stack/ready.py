"""Child processes that say on standard output when they are ready, as their parent sees them."""

import os
import re
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from headwater.errors import EXIT_FAILED, UserError
from headwater.stack.logs import lines_since, open_log
from headwater.stack.processes import start_child

_PROGRAM = re.compile(r"^headwater(_broker)?: ")


class ReadyProcess:
    """A process whose standard output has a line `ready ADDRESS`, and whose log is its standard error.

    Args:
        name: What messages call it: `broker 2`.
        log: Its log.
        passed_on: The exit statuses of it that its parent ends with, too; the last line of its log says why.
        prefix: What stands before that line then.
    """

    def __init__(self, name: str, log: Path, passed_on: Collection[int], prefix: str = "") -> None:
        self.address = ""
        self.log = log
        self._name = name
        self._passed_on = passed_on
        self._prefix = prefix
        self._log_start = 0
        self._output = b""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def stdout_fd(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def run(self, command: Sequence[str]) -> None:
        """Start the process, once more too; it is ready once `read_ready` says so.

        Raises:
            UserError: Its log may not be written.
        """
        self._output = b""
        with open_log(self.log) as log:
            self._log_start = log.tell()
            self._process = start_child(command, stdout=subprocess.PIPE, stderr=log)
        os.set_blocking(self.stdout_fd, False)

    def read_ready(self) -> bool:
        """Read what the process has printed on standard output; True once that includes its ready line."""
        try:
            while chunk := os.read(self.stdout_fd, 4096):
                self._output += chunk
        except BlockingIOError:
            pass
        for line in self._output.decode("utf-8", "replace").splitlines():
            word, _, address = line.partition(" ")
            if word == "ready" and address:
                self.address = address.strip()
        return bool(self.address)

    def failure(self) -> UserError:
        """Why the process has ended, with the exit status that `headwater up` returns for it."""
        status = self.process.returncode
        lines = lines_since(self.log, self._log_start)
        if status in self._passed_on and lines:
            return UserError(self._prefix + _PROGRAM.sub("", lines[-1]), status)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        reason = f" ({lines[-1]})" if lines and status > 0 else ""
        return UserError(f"{self._name} {how}{reason}: see {self.log}", EXIT_FAILED)
