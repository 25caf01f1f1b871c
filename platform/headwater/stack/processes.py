"""Child processes that never outlive their parent, and what a process's number tells."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1


def start_child(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    ignored_signals: Sequence[signal.Signals] = (),
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when this one dies, however it dies.

    The child stays in this process's group and reads nothing. Call it from a thread that lives as long as the
    process does: to prctl(2) the thread that forked is the parent.

    Args:
        command: The program and its arguments.
        stdout: Where its standard output goes.
        stderr: Where its standard error goes.
        ignored_signals: Signals that it is to ignore from its start on.
    """
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        # The function makes a few system calls and takes no lock, so a fork beside other threads is safe.
        preexec_fn=_before_exec(tuple(ignored_signals)),  # noqa: PLW1509
    )


def _before_exec(ignored_signals: tuple[signal.Signals, ...]) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Between fork and prctl the parent may already be gone.
        if os.getppid() != parent:
            os._exit(1)
        for each in ignored_signals:
            signal.signal(each, signal.SIG_IGN)

    return before_exec


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none, or a zombie.

    Together with its number this names a process for good: numbers are used again, the pair is not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # proc(5): the command, in parentheses, may itself hold spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def resident_bytes(pid: int) -> int | None:
    """The resident memory of a process; None if there is none."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
