"""One shipper of a name at a time: two would send each line twice, under different coordinates."""

import fcntl
import hashlib
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import UserError, reason


@contextmanager
def only_one(folder: Path, bootstrap: str, topic: str, name: str) -> Iterator[None]:
    """Holds a shipper's lock: on its folder, and on Linux on this machine, as another shipper may have another home.

    Args:
        folder: Its own folder; made if it is not there.
        bootstrap: The brokers.
        topic: Where its lines go.
        name: Its name.

    Raises:
        UserError: Another one holds it, or the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {reason(error)}; "
            "run it as the user that owns it, or give this one another --home"
        ) from error
    with lock, socket.socket(socket.AF_UNIX) as machine_lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if sys.platform == "linux":
                identity = f"{bootstrap}\n{topic}\n{name}"
                machine_lock.bind(
                    f"\0headwater-ship-{hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()}"
                )
        except OSError as error:
            raise UserError(
                f"a shipper named {name} ships to {topic} already: stop it, or give this one another --name"
            ) from error
        yield
