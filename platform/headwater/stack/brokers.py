"""One broker process, as its parent sees it: how it is started, when it is ready, why it stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from headwater.errors import EXIT_DEPENDENCY, EXIT_FAILED, EXIT_PORT_IN_USE, EXIT_USAGE, UserError
from headwater.stack.logs import cannot_write, lines_since, open_log
from headwater.stack.ports import format_address
from headwater.stack.processes import start_child
from headwater.stack.spec import StackSpec

# `headwater up` passes these exit statuses of `python -m headwater_broker` on.
_PASSED_ON = (EXIT_USAGE, EXIT_PORT_IN_USE, EXIT_DEPENDENCY)


class BrokerProcess:
    """One `python -m headwater_broker`.

    Args:
        spec: The stack that it belongs to.
        index: Which of the stack's brokers it is, from 0.
        zookeeper: ZooKeeper's address; empty for the memory coordinator.
    """

    def __init__(self, spec: StackSpec, index: int, zookeeper: str) -> None:
        self.id = spec.broker_ids[index]
        self.address = ""
        folder = spec.data / f"broker-{self.id}"
        self.log = folder / "broker.log"
        self._folder = folder
        self._spec = spec
        self._port = spec.port_of(index)
        self._zookeeper = zookeeper
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

    def start(self) -> None:
        """Start the process; it is ready once `read_ready` says so.

        Raises:
            UserError: Its folder may not be written to.
        """
        log_dir: Path = self._folder / "log"
        try:
            log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        state = ["--zookeeper", self._zookeeper] if self._zookeeper else ["--coordinator", "memory"]
        properties = [part for item in self._spec.properties.items() for part in ("--set", "=".join(item))]
        with open_log(self.log) as log:
            self._log_start = log.tell()
            self._process = start_child(
                [
                    # -P: the current folder is not on the broker's path.
                    *(sys.executable, "-P", "-m", "headwater_broker"),
                    *("--id", str(self.id)),
                    *("--listen", format_address(self._spec.host, self._port)),
                    *("--data", str(log_dir)),
                    *state,
                    *properties,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
            )
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
        if status in _PASSED_ON and lines:
            return UserError(lines[-1].removeprefix("headwater_broker: "), status)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        reason = f" ({lines[-1]})" if lines and status > 0 else ""
        return UserError(f"broker {self.id} {how}{reason}: see {self.log}", EXIT_FAILED)
