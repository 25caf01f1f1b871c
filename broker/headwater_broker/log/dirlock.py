"""One broker for each log directory."""

from __future__ import annotations

import fcntl
import os

from headwater_broker.log.errors import LogDirError, LogDirLockedError

LOCK_NAME = ".lock"


class DirectoryLock:
    """Kafka's own lock file, locked the way that Java does it, so that the two brokers see each other."""

    def __init__(self, directory: str) -> None:
        """Takes the lock.

        Raises:
            LogDirLockedError: A broker runs on this directory.
            LogDirError: The directory cannot be written.
        """
        try:
            self._fd = os.open(f"{directory}/{LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LogDirError(f"cannot use the log directory {directory}: {error.strerror}") from error
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise LogDirLockedError(
                f"another broker is running on {directory}: stop it, or give this one a directory of its own"
            ) from error

    def release(self) -> None:
        """Lets the next broker in."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
