"""A file for other processes of the same user, whose text must not stay anywhere.

On Linux it has no name on any disk: it is memory of this process, which others open by `/proc`, and it is gone with
this process, however that ends. Only the same user, and root, may open it. Elsewhere, and for processes on other
machines, it is a file that its owner alone may read, which is removed when this process ends.
"""

import atexit
import os
import re
import socket
import tempfile
from functools import cache
from pathlib import Path

_FOLDER = "client-secrets"


@cache
def private_file(text: str, folder: Path | None = None) -> Path:
    """The path of a file with a text, one for each text and folder.

    Args:
        text: The text.
        folder: A folder that processes of other machines see, too; None: they all run on this one.
    """
    if folder is None and hasattr(os, "memfd_create"):
        return _in_memory(text)
    return _on_disk(text, Path(tempfile.mkdtemp(prefix="headwater-")) if folder is None else folder)


def _in_memory(text: str) -> Path:
    descriptor = os.memfd_create("headwater")
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        file.write(text)
    # The descriptor stays open: the memory is freed with the last one.
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def _on_disk(text: str, folder: Path) -> Path:
    private = folder / _FOLDER
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    machine = re.sub(r"[^\w.]", "_", socket.gethostname())
    _remove_of_ended(private, machine)
    # mkstemp makes a file that its owner alone may read.
    descriptor, name = tempfile.mkstemp(prefix=f"{machine}-{os.getpid()}-", dir=private)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    atexit.register(_remove_own, Path(name), os.getpid())
    return Path(name)


def _remove_own(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # and not a fork of the process that made it
        path.unlink(missing_ok=True)


def _remove_of_ended(private: Path, machine: str) -> None:
    """Removes what processes of this machine left that were killed."""
    for path in private.glob(f"{machine}-*-*"):
        pid = path.name.removeprefix(f"{machine}-").partition("-")[0]
        if pid.isdecimal() and not _runs(int(pid)):
            path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
