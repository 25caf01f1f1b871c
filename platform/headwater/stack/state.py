"""`stack.json`: which processes make up a running stack, kept in its data folder; `stack.lock`: the one that started
them; `stack.ended`: why it ended."""

import json
import os
import signal
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from headwater.stack.processes import start_ticks

_FILE = "stack.json"
_LOCK = "stack.lock"
_DIGEST = "digest"
_ENDED = "stack.ended"

START_MISSING = signal.SIGURG
"""Makes a stack's parent process start its missing brokers. By default the signal does nothing: an older version, which
does not handle it, may have started the stack."""


@dataclass(frozen=True)
class Member:
    """One process of a stack.

    Attributes:
        role: `zookeeper`, `broker` or `registry`.
        id: The broker's number; None for the others.
        address: The address that clients use; empty until it is ready.
        pid: Its process number.
        start_ticks: When that process started, so that a number used again is not mistaken for it.
    """

    role: str
    id: int | None
    address: str
    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks

    @property
    def name(self) -> str:
        """Its name in messages."""
        if self.role == "registry":
            return "the schema registry"
        return "ZooKeeper" if self.id is None else f"{self.role} {self.id}"

    @property
    def condition(self) -> str:
        """`up`, `starting` or `ended`."""
        if not self.is_alive:
            return "ended"
        return "up" if self.address else "starting"


@dataclass(frozen=True)
class StackState:
    """A stack as its parent process last recorded it.

    Attributes:
        pid: The parent's process number.
        start_ticks: When the parent started.
        ready: Whether clients can produce.
        started_at_ms: When it was ready, in milliseconds since the epoch; 0 before.
        coordinator: `zookeeper` or `memory`.
        zookeeper: ZooKeeper's address, embedded or not; empty with the memory coordinator.
        members: The child processes.
        host: The address that the brokers were started with; empty if an older version wrote this.
        properties: The broker properties that it was started with; None if an older version wrote this.
    """

    pid: int
    start_ticks: int
    ready: bool
    started_at_ms: int
    coordinator: str
    zookeeper: str
    members: tuple[Member, ...]
    host: str = ""
    properties: Mapping[str, str] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the parent process still runs."""
        return start_ticks(self.pid) == self.start_ticks

    @property
    def brokers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role == "broker")

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers that run, as a Kafka client takes them."""
        return ",".join(broker.address for broker in self.brokers if broker.condition == "up")

    @property
    def registry(self) -> str:
        """The schema registry's URL; empty if there is none that runs."""
        for member in self.members:
            if member.role == "registry" and member.condition == "up":
                return f"http://{member.address}"
        return ""

    @property
    def missing(self) -> tuple[Member, ...]:
        """The processes that have ended while others went on, or have been started again and are not ready."""
        return tuple(member for member in self.members if member.condition != "up")


def read_state(data: Path) -> StackState | None:
    """What the data folder's stack.json says; None if there is none, or if it is not what was written."""
    try:
        fields = json.loads((data / _FILE).read_text(encoding="utf-8"))
        digest = fields.pop(_DIGEST, None)  # older versions wrote none
        if digest not in (None, _digest_of(fields)):
            return None
        members = tuple(Member(**member) for member in fields.pop("members"))
        return StackState(**fields, members=members)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def running_state(data: Path) -> StackState | None:
    """The state of the stack that runs on this data folder; None if none does, or is not ready."""
    state = read_state(data)
    return state if state is not None and state.ready and state.is_alive else None


def killed_state(data: Path) -> StackState | None:
    """The state of a stack whose parent process was killed: one that was stopped, or failed, has removed its state."""
    state = read_state(data)
    return state if state is not None and not state.is_alive else None


def write_state(data: Path, state: StackState) -> None:
    """Replace stack.json in one step."""
    fresh = data / f"{_FILE}.{os.getpid()}.new"
    try:
        fields = asdict(state)
        fields[_DIGEST] = _digest_of(fields)
        fresh.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        fresh.replace(data / _FILE)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _digest_of(fields: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def open_lock(data: Path) -> IO[str]:
    """The file that the parent process of a stack holds locked; whoever has locked it writes itself into it.

    Raises:
        OSError: The data folder may not be written to.
    """
    return (data / _LOCK).open("a+", encoding="utf-8")


def note_parent(lock: IO[str]) -> None:
    """Writes this process into the lock that it holds, by which a stack is found if stack.json is damaged."""
    with suppress(OSError):  # of a full disk
        lock.truncate(0)
        lock.write(f"{os.getpid()} {start_ticks(os.getpid())}\n")
        lock.flush()


def unlisted_parent(data: Path) -> int | None:
    """The process number of the parent of a stack that runs, or starts, while no stack.json says so."""
    state = read_state(data)
    if state is not None and state.is_alive:
        return None
    try:
        pid, ticks = map(int, (data / _LOCK).read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return None
    return pid if start_ticks(pid) == ticks else None


def unlisted(data: Path, pid: int) -> str:
    """The sentence for such a stack."""
    file = data / _FILE
    return f"a stack runs over {data} as process {pid}, but {file} is gone or damaged: headwater up writes it again"


def write_end(data: Path, reason: str) -> None:
    """Records why a stack that was ready ended by itself; if the disk does not take that, only its log says so."""
    with suppress(OSError):
        (data / _ENDED).write_text(f"{reason}\n", encoding="utf-8")


def read_end(data: Path) -> str:
    """Why the last stack over this data ended by itself; empty if it did not, or another was started since."""
    try:
        return (data / _ENDED).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def remove_end(data: Path) -> None:
    """Forget why the last stack ended."""
    (data / _ENDED).unlink(missing_ok=True)


def remove_state(data: Path) -> None:
    """Forget the stack; the data stays."""
    (data / _FILE).unlink(missing_ok=True)
