"""A local stack from outside: start it as a process of its own, find it, stop it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import UserError
from headwater.stack.logs import lines_since, open_log
from headwater.stack.processes import start_child
from headwater.stack.spec import BROKER_ID, StackSpec
from headwater.stack.state import StackState, running_state

_POLL_S = 0.05


def data_dir(home: Path) -> Path:
    """Where a home's stack keeps its data unless told otherwise."""
    return home / "stack"


@dataclass(frozen=True)
class Started:
    """A stack that was started, or was found running.

    Attributes:
        state: Its processes and addresses.
        already_running: True if it was there before.
    """

    state: StackState
    already_running: bool


def start_detached(spec: StackSpec) -> Started:
    """Start a stack that goes on when this process ends; one that already runs over that data is left alone.

    Raises:
        UserError: If it does not come up, with the reason and exit status of `headwater up --foreground`.
    """
    running = running_state(spec.data)
    if running is not None:
        return Started(running, already_running=True)
    log_path = spec.data / "up.log"
    with open_log(log_path) as log:
        log_start = log.tell()
        parent = subprocess.Popen(
            _command(spec),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        return Started(_await_ready(spec, parent, log_path, log_start), already_running=False)
    except BaseException:
        if parent.poll() is None:
            parent.terminate()
        raise


@contextmanager
def running_stack(spec: StackSpec) -> Iterator[StackState]:
    """A stack for the length of a `with` block, which also ends if this process is killed.

    Raises:
        UserError: If it does not come up, with the reason and exit status of `headwater up --foreground`.
    """
    log_path = spec.data / "up.log"
    with open_log(log_path) as log:
        log_start = log.tell()
        parent = start_child(_command(spec), stdout=subprocess.PIPE, stderr=log)
    try:
        yield _await_ready(spec, parent, log_path, log_start)
    finally:
        parent.terminate()
        try:
            parent.wait(spec.stop_timeout_s + 5)
        except subprocess.TimeoutExpired:
            parent.kill()
            parent.wait()


def stop(data: Path, timeout_s: float) -> bool:
    """Stop the stack that runs over a data folder.

    Returns:
        False if none ran.

    Raises:
        UserError: If its parent process may not be signalled.
    """
    state = running_state(data)
    if state is None:
        return False
    try:
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s + 5
        while state.is_alive:
            if time.monotonic() > deadline:
                # The kernel ends the children with their parent.
                os.kill(state.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise UserError(f"process {state.pid} belongs to another user: stop it as that user") from error
    return True


def bootstrap_of(home: Path) -> str:
    """The addresses of the brokers that run over a home.

    Raises:
        UserError: If none do.
    """
    address = known_bootstrap(home)
    if not address:
        raise UserError(
            f"no stack runs over {home}: start one with headwater up, or give --bootstrap HOST:PORT"
        )
    return address


def known_bootstrap(home: Path) -> str:
    """The addresses of the brokers that run over a home; empty where none do."""
    state = running_state(data_dir(home))
    return state.bootstrap if state is not None else ""


def _command(spec: StackSpec) -> list[str]:
    """`headwater up --foreground` with every setting of the spec spelled out."""
    command = [sys.executable, "-P", "-m", "headwater.cli", "up", "--foreground"]
    command += ["--data", str(spec.data), "--host", spec.host, "--port", str(spec.port)]
    command += ["--brokers", str(len(spec.broker_ids)), "--coordinator", spec.coordinator]
    command += ["--zookeeper", spec.zookeeper]
    properties = {BROKER_ID: str(spec.broker_ids[0]), **spec.properties}
    return command + [part for item in properties.items() for part in ("--set", "=".join(item))]


def _await_ready(
    spec: StackSpec, parent: subprocess.Popen[bytes], log_path: Path, log_start: int
) -> StackState:
    """Wait for the ready line; the parent has its own deadlines, so it always says something in the end."""
    assert parent.stdout is not None
    with parent.stdout as stdout:
        line = stdout.readline()
    if line.startswith(b"ready "):
        state = running_state(spec.data)
        if state is not None:
            return state
    status = parent.wait()
    said = lines_since(log_path, log_start)
    message = said[-1].removeprefix("headwater: ") if said else f"the stack ended with status {status}"
    raise UserError(message, status if status > 0 else 1)
