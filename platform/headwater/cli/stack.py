"""`headwater up`, `down` and `status`: the local stack."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    HomeOption,
    JsonOption,
    duration_text,
    print_json,
    print_line,
    print_table,
    waiting,
)
from headwater.config import load_settings
from headwater.errors import EXIT_FAILED, UsageError
from headwater.running.mirrors import MIRROR_COLUMNS, mirror_problems, mirror_rows, saved_mirrors
from headwater.stack.disks import disk_problem, lost_records, offline_partitions
from headwater.stack.local import (
    absent_brokers,
    data_dir,
    differences,
    other_properties,
    start_detached,
    stop,
)
from headwater.stack.processes import resident_bytes
from headwater.stack.spec import stack_spec
from headwater.stack.state import (
    Member,
    StackState,
    killed_state,
    read_end,
    running_state,
    unlisted,
    unlisted_parent,
)
from headwater.stack.supervisor import Supervisor
from headwater_broker.shown import escaped

DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data folder; by default HOME/stack.", file_okay=False),
]


def up(
    home: HomeOption = DEFAULT_HOME,
    data: DataOption = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and stop everything when told to end.")
    ] = False,
    brokers: Annotated[int | None, typer.Option(metavar="N", help="How many brokers.")] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The first broker's port; 0 for any free one.")
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="The address to listen on.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A broker property by Kafka's name; may be repeated."
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,...", help="An ensemble in place of the embedded one."),
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option(metavar="zookeeper|memory", help="Who keeps the shared state.")
    ] = None,
    registry: Annotated[
        bool | None, typer.Option("--registry/--no-registry", help="Start a schema registry, too.")
    ] = None,
    registry_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The registry's port, 8081; 0 for any free one.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Start ZooKeeper and one or more brokers on this machine.

    Returns once clients can produce; headwater down stops them. A stack that
    runs already is left as it is, but for brokers of it that have ended: they
    are started again. Other brokers, another address, other properties or
    another coordinator than it has need headwater down first, which is told.
    With --foreground the command stays, prints one line, ready HOST:PORT, and
    ends everything when it ends.

    Exit status: 0 fine, 2 bad usage, 3 port in use, 4 ZooKeeper or Java.

    \b
    Examples:
      headwater up
      headwater up --brokers 3 --set num.partitions=6
      headwater up --foreground --coordinator memory --port 0
      headwater up --registry
    """
    if zookeeper is not None and coordinator is None:
        coordinator = "zookeeper"
    if coordinator == "memory" and zookeeper is None:
        zookeeper = ""
    flags = {
        "stack.host": host,
        "stack.port": port,
        "stack.brokers": brokers,
        "stack.zookeeper": zookeeper,
        "stack.coordinator": coordinator,
        "stack.registry": registry,
        "stack.registry_port": registry_port,
    }
    loaded = load_settings(os.environ, flags)
    if registry_port is not None and not loaded.settings.stack.registry:
        raise UsageError(
            "--registry-port is of the registry that --registry starts: add that, or leave it out"
        )
    spec = stack_spec(loaded.settings, (data or data_dir(home)).absolute(), assignments or ())
    if foreground:
        absent = absent_brokers(spec.data, spec.broker_ids)
        if absent:
            _tell(absent)
        Supervisor(spec, os.environ, on_ready=_print_ready, tell=_tell).run()
        return
    with waiting("starting the stack"):
        started = start_detached(spec)
    for key, requested, running in differences(spec, started.state) if started.already_running else ():
        if loaded.is_chosen(key):
            _tell(
                f"{loaded.name_of(key)} {requested} is for a stack that starts, and this one has {running}: "
                "run headwater down first"
            )
    for name, requested, running in other_properties(spec, started.state) if started.already_running else ():
        _tell(
            f"{name}={requested} is for a stack that starts, and this one has {running}: run headwater down first"
        )
    absent = absent_brokers(spec.data, [each.id for each in started.state.brokers if each.id is not None])
    if absent:
        _tell(absent)
    for name in started.started_again:
        _tell(f"{name} had ended, and runs again")
    if started.was_killed:
        _tell(f"the stack over {spec.data} had been killed, and runs again")
    if json_output:
        print_json(
            {
                "already_running": started.already_running,
                "started_again": list(started.started_again),
                **_described(started.state),
            }
        )
    else:
        print_line(f"{'already running' if started.already_running else 'ready'} {started.state.bootstrap}")


def down(home: HomeOption = DEFAULT_HOME, data: DataOption = None, json_output: JsonOption = False) -> None:
    """Stop the stack: brokers first, then ZooKeeper. Its data stays.

    \b
    Example:
      headwater down
    """
    folder = (data or data_dir(home)).absolute()
    stopped = stop(folder, load_settings(os.environ).settings.stack.stop_timeout_s)
    if json_output:
        print_json({"stopped": stopped})
    else:
        print_line("stopped" if stopped else f"no stack runs over {folder}")


def status(home: HomeOption = DEFAULT_HOME, data: DataOption = None, json_output: JsonOption = False) -> None:
    """Show what runs, where it listens and how much memory it takes.

    Mirrors of this home are shown with what they have still to copy, whether
    the stack runs or not.

    Exit status: 0 if the stack runs, 1 if not, or if one of its processes has ended.

    \b
    Examples:
      headwater status
      headwater status --json
    """
    folder = (data or data_dir(home)).absolute()
    state = running_state(folder)
    mirrors = saved_mirrors(home)
    of_mirrors = {"mirrors": mirrors} if mirrors else {}
    if json_output:
        print_json(
            {"running": False, **({"ended": end} if (end := read_end(folder)) else {}), **of_mirrors}
            if state is None
            else {"running": True, **_described(state), "problems": _problems(folder), **of_mirrors}
        )
    elif state is None:
        end = read_end(folder)
        why = f": the last one ended, as {escaped(end)}" if end else ""
        parent = unlisted_parent(folder)
        if parent is not None:
            print_line(unlisted(folder, parent))
        elif killed_state(folder) is not None:
            print_line(
                f"no stack runs over {folder}: the last one was killed, and headwater up starts it again"
            )
        else:
            print_line(f"no stack runs over {folder}{why}")
    else:
        rows = []
        for member in state.members:
            memory_bytes = resident_bytes(member.pid) if member.is_alive else None
            name = member.role if member.id is None else f"{member.role} {member.id}"
            memory_mb = None if memory_bytes is None else round(memory_bytes / 1e6)
            rows.append((name, member.address, member.pid, memory_mb, member.condition))
        print_table(("process", "address", "pid", "MB", "state"), rows, empty="")
        if state.zookeeper and not any(member.role == "zookeeper" for member in state.members):
            print_line(f"ZooKeeper: {state.zookeeper}")
        print_line(f"up for {duration_text(time.time() - state.started_at_ms / 1000)}; data in {folder}")
    if mirrors and not json_output:
        print_table(MIRROR_COLUMNS, mirror_rows(mirrors), empty="")
    for problem in mirror_problems(mirrors):
        _tell(problem)
    for member in state.missing if state is not None else ():
        _tell(_plight(member))
    for problem in _problems(folder) if state is not None else ():
        _tell(problem)
    if state is None or state.missing:
        raise typer.Exit(EXIT_FAILED)


def _plight(member: Member) -> str:
    """Describes the state of a process that does not serve."""
    if member.condition == "starting":
        return f"{member.name} is starting"
    if member.role == "broker":
        return (
            f"{member.name} at {member.address} has ended, and what it alone holds cannot be read: headwater up "
            "starts it again"
        )
    return f"{member.name} at {member.address} has ended: the stack is starting it again"


def _problems(data: Path) -> list[str]:
    """What is wrong with the data of a stack that runs, in sentences."""
    state = running_state(data)
    ids = [] if state is None else [each.id for each in state.brokers if each.id is not None]
    sentences = [disk_problem(data), absent_brokers(data, ids)]
    return [*filter(None, sentences), *lost_records(data), *offline_partitions(data)]


def _described(state: StackState) -> dict[str, object]:
    return {
        "bootstrap": state.bootstrap,
        "registry": state.registry or None,
        "coordinator": state.coordinator,
        "zookeeper": state.zookeeper,
        "pid": state.pid,
        "started_at_ms": state.started_at_ms,
        "processes": [
            {
                "role": member.role,
                "id": member.id,
                "address": member.address,
                "pid": member.pid,
                "alive": member.is_alive,
                "resident_bytes": resident_bytes(member.pid) if member.is_alive else None,
            }
            for member in state.members
        ],
    }


def _print_ready(address: str) -> None:
    print_line(f"ready {address}", flush=True)


def _tell(sentence: str) -> None:
    print_line(f"headwater: {escaped(sentence)}", file=sys.stderr, flush=True)
