"""RabbitMQ, as Debian's package `rabbitmq-server` installs it, under amqp_load.c.

One node of its own in a folder of its own, with its own epmd. Persistent messages in a durable classic queue, without
confirms: the node writes them behind, as the paper has it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from queues.system import SLICES, NoContenderError, Run, run_of
from support.load import Program
from support.processes import cpu_s, free_port

_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the one on the PATH, which changes to the user and the folders of the installed service."""

_LOAD = Path(__file__).with_name("amqp_load.c")
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 30
_AUTOMATIC = 0
"""No prefetch: RabbitMQ limits what is unacknowledged, and nothing is with automatic acknowledgement, its fastest."""


class RabbitMq:
    """A node that is running."""

    name = "rabbitmq"
    client = "amqp_load.c: AMQP 0-9-1, raw frames"
    batches = (1,)

    def __init__(self, pid: int, port: int, load: Program) -> None:
        self.title = f"RabbitMQ {_version()}"
        self._pid = pid
        self._port = port
        self._load = load

    @contextlib.contextmanager
    def queue(self, name: str) -> Iterator[None]:
        """Which its producer declares."""
        yield
        self._load.run(0, self._port, name, "delete")

    def produce(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """As `System` says."""
        return run_of(self._load.run(seconds, self._port, queue, "produce", messages, seconds, SLICES))

    def consume(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """As `System` says."""
        return run_of(self._load.run(seconds, self._port, queue, "consume", messages, _AUTOMATIC, SLICES))

    def cpu_s(self) -> float:
        """The Erlang VM's."""
        return cpu_s(self._pid)


@contextlib.contextmanager
def running_rabbitmq(folder: Path) -> Iterator[RabbitMq]:
    """A node in a new folder.

    Raises:
        NoContenderError: The package is not installed, or the node does not start.
        NoCompilerError: There is nothing to build the generator with.
    """
    epmd = shutil.which("epmd")
    if not _SCRIPT.is_file() or epmd is None:
        raise NoContenderError(f"RabbitMQ is not installed: {_SCRIPT} comes with Debian's rabbitmq-server")
    folder.mkdir()
    load = Program(_LOAD, folder)
    port, names_port = free_port(), free_port()
    output = folder / "output"
    environment = os.environ | {"ERL_EPMD_PORT": str(names_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}
    with output.open("wb") as log, contextlib.ExitStack() as stack:
        names = subprocess.Popen([epmd], env=environment, stdout=log, stderr=log)
        stack.callback(_stop, names)
        _await(names, names_port, output)
        environment |= _settings(folder, port)
        node = subprocess.Popen(
            [str(_SCRIPT)], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        stack.callback(_stop, node)
        _await(node, port, output)
        yield RabbitMq(node.pid, port, load)


def _settings(folder: Path, port: int) -> dict[str, str]:
    configuration = folder / "rabbitmq.conf"
    configuration.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n", encoding="ascii")
    plugins = folder / "enabled_plugins"
    plugins.write_text("[].\n", encoding="ascii")
    environment_file = folder / "rabbitmq-env.conf"
    environment_file.touch()
    return {
        "HOME": str(folder),
        "RABBITMQ_CONF_ENV_FILE": str(environment_file),
        "RABBITMQ_CONFIG_FILE": str(configuration),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        # The script becomes the Erlang VM, as under systemd, where it would otherwise stay as its parent.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


def _await(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline_s:
            end = output.read_text(errors="replace")[-1000:]
            raise NoContenderError(f"RabbitMQ does not start: {end}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _version() -> str:
    folder = next(iter(sorted(_SCRIPT.parents[1].glob("lib/rabbitmq_server-*"))))
    return folder.name.partition("-")[2]
