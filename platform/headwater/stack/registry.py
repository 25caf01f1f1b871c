"""The stack's schema registry process, as its parent sees it."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from headwater.errors import EXIT_DEPENDENCY, EXIT_FAILED, EXIT_PORT_IN_USE, UserError
from headwater.stack.logs import lines_since, open_log
from headwater.stack.processes import start_child
from headwater.stack.spec import StackSpec

_PASSED_ON = (EXIT_PORT_IN_USE, EXIT_DEPENDENCY)
_READY = "ready http://"
_POLL_S = 0.2


class RegistryProcess:
    """One `headwater registry serve`.

    Args:
        spec: The stack that it belongs to.
        brokers: The addresses of the stack's brokers.
    """

    def __init__(self, spec: StackSpec, brokers: Sequence[str]) -> None:
        self.address = ""
        self.log = spec.data / "registry.log"
        self._spec = spec
        self._brokers = ",".join(brokers)
        self._log_start = 0
        self._output = b""
        self._port = spec.registry_port or 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def stdout_fd(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def start(self) -> None:
        """Start the process; it is ready once `read_ready` says so."""
        self._output = b""
        with open_log(self.log) as log:
            self._log_start = log.tell()
            self._process = start_child(
                [
                    *(sys.executable, "-P", "-m", "headwater.cli", "registry", "serve"),
                    *("--bootstrap", self._brokers),
                    *("--host", self._spec.host),
                    *("--port", str(self._port)),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        os.set_blocking(self.stdout_fd, False)

    def read_ready(self) -> bool:
        """Read what the process has printed; True once that includes its ready line."""
        try:
            while chunk := os.read(self.stdout_fd, 4096):
                self._output += chunk
        except BlockingIOError:
            pass
        for line in self._output.decode("utf-8", "replace").splitlines():
            if line.startswith(_READY):
                self.address = line.removeprefix(_READY).strip()
                self._port = int(
                    self.address.rpartition(":")[2]
                )  # where clients look for it when it runs again
        return bool(self.address)

    def await_ready(self, timeout_s: float, interrupted: Callable[[], bool]) -> None:
        """Wait until it answers.

        Raises:
            UserError: It ends, or takes too long.
        """
        deadline = time.monotonic() + timeout_s
        while not self.read_ready() and not interrupted():
            if self.process.poll() is not None:
                raise self.failure()
            if time.monotonic() > deadline:
                raise UserError(
                    f"the schema registry was not ready after {timeout_s:.0f} s: see {self.log}, or raise "
                    "stack.ready_timeout_s"
                )
            select.select([self.stdout_fd], [], [], _POLL_S)

    def failure(self) -> UserError:
        """Why the process has ended, with the exit status that `headwater up` returns for it."""
        status = self.process.returncode
        lines = lines_since(self.log, self._log_start)
        if status in _PASSED_ON and lines:
            return UserError(f"the schema registry: {lines[-1].removeprefix('headwater: ')}", status)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        why = f" ({lines[-1]})" if lines and status > 0 else ""
        return UserError(f"the schema registry {how}{why}: see {self.log}", EXIT_FAILED)
