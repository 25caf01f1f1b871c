"""Which process made a registration, so that a dead one's is known to be stale before its session expires."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_START_TIME_FIELD = 22  # of proc(5)'s stat, counted from 1


class Liveness(Enum):
    """What can be said about a process from here."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"
    """It runs, or ran, on another machine or in another pid namespace."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, told apart from a later one with the same pid and from those of other machines.

    Attributes:
        machine: boot id and pid namespace.
        pid: process id in that namespace.
        started: clock ticks from boot to its start.
    """

    machine: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> ProcessIdentity:
        """This process."""
        pid = os.getpid()
        return cls(_machine(), pid, _start_ticks(pid) or 0)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ProcessIdentity:
        """Reads what `to_json` wrote."""
        return cls(str(value["machine"]), int(value["pid"]), int(value["started"]))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    def liveness(self) -> Liveness:
        """Whether the process still runs; `GONE` only where that is certain."""
        if self.machine != _machine():
            return Liveness.UNKNOWN
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return Liveness.GONE
        except PermissionError:
            pass  # somebody else's process: it is there
        started = _start_ticks(self.pid)
        if started is None:  # /proc hides it from us (hidepid), or it ended just now
            return Liveness.UNKNOWN
        return Liveness.ALIVE if started == self.started else Liveness.GONE


def _machine() -> str:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot_id}/{Path('/proc/self/ns/pid').readlink()}"


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name, field 2, may itself hold spaces and brackets: count from its last bracket.
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    if state in "ZX":  # a zombie holds no connection any more
        return -1
    return int(rest[_START_TIME_FIELD - 4])
