"""A broker in a process of its own, which a test may kill and start again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.processes import free_port

READY_TIMEOUT_S = 60


class BrokerProcess:
    """`python -m headwater_broker` on a port of its own, which it keeps over restarts."""

    def __init__(
        self,
        directory: Path,
        shared_state: list[str],
        broker_id: int = 1,
        within: Sequence[str] = (),
    ) -> None:
        """A broker with data below `directory`, started by the command `within` where one is given."""
        self.data = directory / f"broker-{broker_id}" / "log"
        self.stderr = directory / f"broker-{broker_id}.stderr"
        self.bootstrap = ""
        self.ready_cpu_s = 0.0
        self._broker_id = broker_id
        self.shared_state = shared_state
        self._within = list(within)
        self._port = free_port()
        self._process: subprocess.Popen[str] | None = None

    def start(self, *settings: str) -> BrokerProcess:
        """Starts it and waits until it is ready; `listeners=...` among the settings stands for its own port."""
        command = [*self._within, sys.executable, "-m", "headwater_broker", "--id", str(self._broker_id)]
        command += ["--data", str(self.data), *self.shared_state]
        if not any(each.startswith("listeners=") for each in settings):
            command += ["--listen", f"127.0.0.1:{self._port}"]
        for setting in (
            "group.initial.rebalance.delay.ms=200",
            "group.min.session.timeout.ms=1000",
            *settings,
        ):
            command += ["--set", setting]
        with self.stderr.open("ab") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), self.log()
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        self.ready_cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.bootstrap = line.split()[1]
        return self

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(timeout=READY_TIMEOUT_S)
        self._forget()
        return status

    def _forget(self) -> None:
        assert self._process is not None
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def log(self) -> str:
        """What it logged."""
        return self.stderr.read_text(errors="replace")

    def resident_kb(self) -> int:
        """Resident memory."""
        match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"))
        assert match is not None
        return int(match[1])
