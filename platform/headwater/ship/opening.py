"""Opens the files that the patterns match, and names those that cannot be opened."""

import errno
import os
import resource
from collections.abc import Callable, Collection
from contextlib import suppress

from headwater.errors import reason
from headwater.ship.expansion import Refused
from headwater.ship.tail import FileKey

_SPARE = 64
"""How many descriptors are left to the brokers' connections, the journal and the spool."""
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


class Opener:
    """Opens files, and reports once for each why it cannot be read.

    Attributes:
        moved: Whether a file's name had passed to another file when it was opened: a new look is due.
    """

    def __init__(self, say: Callable[[str], None], *, again: bool) -> None:
        """Prepare.

        Args:
            say: Takes a sentence for people.
            again: What cannot be read is tried again later.
        """
        self.moved = False
        self._say = say
        self._again = "; it is tried again" if again else ""
        self._unreadable: set[str] = set()
        self._folders: set[str] = set()
        self._short = False
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._last = None if most == resource.RLIM_INFINITY else most - min(_SPARE, most // 4)
        self._most = most

    def open(self, path: str, key: FileKey) -> int | None:
        """Opens a file that a pattern matched; None if it cannot be read, or its name has passed to another file."""
        try:
            fd = self._open(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(path, error)
            return None
        self._unreadable.discard(path)
        if _is(fd, key):
            return fd
        self.moved = True
        return None

    def open_beside(self, path: str, key: FileKey) -> int | None:
        """Opens a file that no pattern names; None if it cannot be read, which is not reported, or is another file."""
        with suppress(OSError):
            fd = self._open(path)
            return fd if _is(fd, key) else None
        return None

    def refused(self, paths: Collection[str], elsewhere: Refused) -> set[str]:
        """What could not be read.

        Args:
            paths: The files that are to be read.
            elsewhere: What could not be looked at in the search for them; it is reported, too.
        """
        for path, error in elsewhere.items():
            if path not in self._folders:
                self._report(path, error)
        self._folders = set(elsewhere)
        self._unreadable &= {*paths, *elsewhere}
        self._short = self._short and bool(self._unreadable)
        return set(self._unreadable)

    def _open(self, path: str) -> int:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if self._last is not None and fd >= self._last:
            os.close(fd)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return fd

    def _report(self, path: str, error: OSError) -> None:
        is_new = path not in self._unreadable
        self._unreadable.add(path)
        if error.errno not in _TOO_MANY:
            if is_new:
                self._say(f"cannot read {path}: {reason(error)}{self._again}")
        elif not self._short:
            self._short = True
            self._say(
                f"cannot read {path} and what comes after it: each file that is followed is open, and this process "
                f"may open {self._most} files; raise that, as with ulimit -n{self._again}"
            )


def _is(fd: int, key: FileKey) -> bool:
    """Whether an open file is the one of a key; it is closed otherwise."""
    info = os.fstat(fd)
    if (info.st_dev, info.st_ino) == key:
        return True
    os.close(fd)
    return False
