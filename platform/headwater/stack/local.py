"""A local stack from outside: start it as a process of its own, find it, stop it."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import PortInUseError, UserError
from headwater.stack.logs import lines_since, open_log
from headwater.stack.ports import parse_address, refusal
from headwater.stack.processes import start_child, start_ticks
from headwater.stack.spec import BROKER_ID, StackSpec
from headwater.stack.state import (
    START_MISSING,
    Member,
    StackState,
    killed_state,
    running_state,
    unlisted,
    unlisted_parent,
)
from headwater_broker.numbers import is_natural
from headwater_streams.base.plural import quantity

_POLL_S = 0.05
_LISTED_WITHIN_S = 5.0


def data_dir(home: Path) -> Path:
    """Where a home's stack keeps its data by default."""
    return home / "stack"


@dataclass(frozen=True)
class Started:
    """A stack that was started, or was found running.

    Attributes:
        state: Its processes and addresses.
        already_running: True if it was there before.
        started_again: Names of its processes that had ended while others went on.
        was_killed: Whether the stack before it was killed, and its state file was still there.
    """

    state: StackState
    already_running: bool
    started_again: tuple[str, ...] = ()
    was_killed: bool = False


def differences(spec: StackSpec, running: StackState) -> list[tuple[str, object, str]]:
    """How a running stack differs from the requested one: the setting, what was requested, what the stack has."""
    brokers = sorted(running.brokers, key=lambda each: each.id or 0)
    embeds = any(each.role == "zookeeper" for each in running.members)
    first = brokers[0].address if brokers else ""
    differing: list[tuple[str, object, str]] = []
    if len(brokers) != len(spec.broker_ids):
        differing.append(("stack.brokers", len(spec.broker_ids), quantity(len(brokers), "broker")))
    if spec.port and not first.endswith(f":{spec.port}"):
        differing.append(("stack.port", spec.port, f"its first broker at {first}"))
    if running.host and spec.host != running.host:
        differing.append(("stack.host", spec.host, f"the address {running.host}"))
    if spec.coordinator != running.coordinator:
        differing.append(("stack.coordinator", spec.coordinator, f"the coordinator {running.coordinator}"))
    elif spec.zookeeper and (embeds or spec.zookeeper != running.zookeeper):
        differing.append(("stack.zookeeper", spec.zookeeper, f"ZooKeeper at {running.zookeeper}"))
    has_registry = any(each.role == "registry" for each in running.members)
    if spec.registry_port is not None and not has_registry:
        differing.append(("stack.registry", "true", "no schema registry"))
    return differing


def other_properties(spec: StackSpec, running: StackState) -> list[tuple[str, str, str]]:
    """The broker properties that a running stack was not started with: the name, what was requested, what it has."""
    before = running.properties
    if before is None:
        return []
    return [
        (name, value, before.get(name, "its default"))
        for name, value in sorted(spec.properties.items())
        if before.get(name) != value
    ]


def start_detached(spec: StackSpec) -> Started:
    """Start a stack that goes on when this process ends.

    One that already runs over that data is left alone, except that its missing processes are started again.

    Raises:
        UserError: If it does not come up, with the reason and exit status of `headwater up --foreground`.
    """
    running = running_state(spec.data) or _listed_again(spec.data)
    if running is not None and running.missing:
        missing = tuple(member.name for member in running.missing)
        completed = _complete(spec, running)
        if completed is not None:
            return Started(completed, already_running=True, started_again=missing)
    elif running is not None:
        return Started(running, already_running=True)
    was_killed = killed_state(spec.data) is not None
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
        state = _await_ready(spec, parent, log_path, log_start)
        return Started(state, already_running=False, was_killed=was_killed)
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
    parent = state.pid if state is not None else unlisted_parent(data)
    if parent is None:
        return False
    began = start_ticks(parent)
    _signal(parent, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s + 5
    while began is not None and start_ticks(parent) == began:
        if time.monotonic() > deadline:
            # The kernel ends the children with their parent.
            _signal(parent, signal.SIGKILL)
        time.sleep(_POLL_S)
    return True


def bootstrap_of(home: Path) -> str:
    """The addresses of the brokers that run over a home.

    Raises:
        UserError: If none do.
    """
    address = known_bootstrap(home)
    if not address:
        parent = unlisted_parent(data_dir(home))
        if parent is not None:
            raise UserError(unlisted(data_dir(home), parent))
        raise UserError(
            f"no stack runs over {home}: start one with headwater up, or give --bootstrap HOST:PORT"
        )
    return address


def known_bootstrap(home: Path) -> str:
    """The addresses of the brokers that run over a home; empty if none do."""
    state = running_state(data_dir(home))
    return state.bootstrap if state is not None else ""


def known_registry(home: Path) -> str:
    """The URL of the schema registry that runs in a home's stack; empty if none does."""
    state = running_state(data_dir(home))
    return state.registry if state is not None else ""


def _complete(spec: StackSpec, before: StackState) -> StackState | None:
    """Makes a running stack start its missing processes; None if it ends meanwhile, as it does without any broker.

    Raises:
        UserError: A process does not come up.
    """
    ended = [broker for broker in before.brokers if not broker.is_alive]
    for broker in ended:
        _check_port(broker)
    if ended:
        _signal(before.pid, START_MISSING)
    former = {broker.pid for broker in ended}
    deadline = time.monotonic() + spec.ready_timeout_s
    while before.is_alive:
        state = running_state(spec.data)
        if state is not None and not state.missing:
            return state
        for broker in state.brokers if state is not None else ():
            if not broker.is_alive and broker.pid not in former:
                log = spec.data / f"broker-{broker.id}" / "broker.log"
                raise UserError(f"{broker.name} was started again, and ended again: see {log}")
        if time.monotonic() > deadline:
            names = ", ".join(member.name for member in (state or before).missing)
            raise UserError(
                f"the stack over {spec.data} runs without {names}, which did not start again in "
                f"{spec.ready_timeout_s:.0f} s: headwater down, then headwater up, starts everything anew"
            )
        time.sleep(_POLL_S)
    return None


def _check_port(broker: Member) -> None:
    """Makes sure that a broker could listen again where it did."""
    if not broker.address:
        return
    error = refusal(*parse_address(broker.address))
    if error is not None and error.errno == errno.EADDRINUSE:
        raise PortInUseError(
            f"{broker.name} has ended, and another process listens on {broker.address}: stop that one first"
        )


def _listed_again(data: Path) -> StackState | None:
    """Makes a stack write its stack.json again, if it is gone or damaged; None if no stack runs, or it is starting."""
    parent = unlisted_parent(data)
    if parent is None:
        return None
    _signal(parent, START_MISSING)
    deadline = time.monotonic() + _LISTED_WITHIN_S
    while (state := running_state(data)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return state


def absent_brokers(data: Path, ids: Collection[int]) -> str:
    """A sentence about brokers that have data here and do not run; empty if there are none."""
    folders = {path.parts[-3] for path in data.glob("broker-*/log/meta.properties")}
    numbers = {int(number) for each in folders if is_natural(number := each.removeprefix("broker-"))}
    absent = sorted(numbers - set(ids))
    if not absent or not ids:
        return ""
    named = f"broker {absent[0]}" if len(absent) == 1 else f"brokers {', '.join(map(str, absent))}"
    first = min(*ids, *absent)
    start = f"headwater up --brokers {max(*ids, *absent) - first + 1}"
    if first != 1:
        start += f" --set broker.id={first}"
    return (
        f"{data} has data of {named}, too, and partitions that are there cannot be read: headwater down, then {start}, "
        "starts all of them"
    )


def _signal(parent: int, number: signal.Signals) -> None:
    """Sends a signal to a stack's parent process; does nothing if it has ended.

    Raises:
        UserError: It may not be signalled.
    """
    try:
        os.kill(parent, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise UserError(f"process {parent} belongs to another user: do this as that user") from error


def _command(spec: StackSpec) -> list[str]:
    """`headwater up --foreground` with every setting of the spec spelled out."""
    command = [sys.executable, "-P", "-m", "headwater.cli", "up", "--foreground"]
    command += ["--data", str(spec.data), "--host", spec.host, "--port", str(spec.port)]
    command += ["--brokers", str(len(spec.broker_ids)), "--coordinator", spec.coordinator]
    command += ["--zookeeper", spec.zookeeper]
    if spec.registry_port is not None:
        command += ["--registry", "--registry-port", str(spec.registry_port)]
    properties = {BROKER_ID: str(spec.broker_ids[0]), **spec.properties}
    return command + [part for item in properties.items() for part in ("--set", "=".join(item))]


def _await_ready(
    spec: StackSpec, parent: subprocess.Popen[bytes], log_path: Path, log_start: int
) -> StackState:
    """Wait for the ready line; the parent has deadlines of its own, so it prints one or ends."""
    assert parent.stdout is not None
    with parent.stdout as stdout:
        line = stdout.readline()
    if line.startswith(b"ready "):
        state = running_state(spec.data)
        if state is not None:
            return state
    status = parent.wait()
    lines = lines_since(log_path, log_start)
    message = lines[-1].removeprefix("headwater: ") if lines else f"the stack ended with status {status}"
    raise UserError(message, status if status > 0 else 1)
