"""Whether a partition can be read and written, and why not."""

from __future__ import annotations

import errno
import logging
from typing import NoReturn

from headwater_broker.log.errors import PartitionOfflineError, StorageError

_LOGGER = logging.getLogger(__name__)

_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EACCES,
        errno.EPERM,
        errno.EAGAIN,
    }
)
"""Errors after which the system has done nothing, and which may be gone later."""


def is_passing(error: OSError) -> bool:
    """Whether the system refused a step without doing it, so that it may be tried again.

    After anything else (EIO above all) nobody knows what the file holds. So it is after every failed fsync, whatever
    the error: Linux marks the pages as clean and tells it once (https://wiki.postgresql.org/wiki/Fsync_Errors).
    """
    return error.errno in _PASSING


class Health:
    """What the parts of one partition's log agree on: whether it may be written, and whether it may be read.

    A partition that cannot be read is offline, for good; that is logged once. One that cannot be written can still be
    read. It takes no records until the disk has room or, where nobody knows what the disk holds, until the broker is
    restarted.

    Attributes:
        name: Of the partition, for messages.
        error: Why nothing may be appended, or None.
        offline: Why nothing may be read either, or None.
        is_passing: Whether `error` is worth another attempt.
        is_failing: Whether a write was refused since the last one that was not.
    """

    __slots__ = ("error", "is_failing", "is_passing", "name", "offline")

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: PartitionOfflineError | None = None
        self.offline: PartitionOfflineError | None = None
        self.is_passing = False
        self.is_failing = False

    def check(self) -> None:
        """Raises why the partition cannot be read, if it cannot."""
        if self.offline is not None:
            raise self.offline.again()

    def check_writable(self) -> None:
        """Raises why the partition takes no records, if it takes none."""
        if self.error is not None:
            raise self.error.again()

    def take_offline(self, error: PartitionOfflineError) -> PartitionOfflineError:
        """Stops the partition for good, and tells the operator; returns the error to raise."""
        self.close(error)
        _LOGGER.error("%s is offline: %s", self.name, error)
        return error

    def close(self, error: PartitionOfflineError) -> None:
        """Stops the partition for good, without a word."""
        self.error = self.offline = error.again()
        self.is_passing = False

    def stop(self, error: PartitionOfflineError) -> None:
        """Takes no more records until the broker is restarted, without a word."""
        self.error = error.again()
        self.is_passing = False

    def refuse(self, what: str, error: OSError, *, is_unknown: bool = False) -> StorageError:
        """Takes no more records, and tells the operator; what there is can be read.

        Args:
            what: What the operating system refused.
            error: What it said.
            is_unknown: Nobody knows what the file holds now, whatever the system said.

        Returns:
            The error to raise.
        """
        reason = error.strerror or error
        if self.offline is not None:
            return StorageError(f"{what}: {reason}")
        is_first = not self.is_failing
        self.is_failing = True
        self.is_passing = is_passing(error) and not is_unknown
        if self.is_passing:
            failure = StorageError(
                f"{what}: {reason}: {self.name} takes no records until that works again; those it has can be read"
            )
        else:
            failure = StorageError(
                f"{what}: {reason}: {self.name} takes no records until the broker is restarted; those it has can be "
                "read"
            )
        self.error = failure.again()
        if is_first or not self.is_passing:
            _LOGGER.error("%s", failure)
        return failure

    def try_again(self) -> None:
        """Takes records again, if the refusal was one that may pass."""
        if self.is_passing:
            self.error = None
            self.is_passing = False

    def note_written(self) -> None:
        """A write went well after one that was refused."""
        self.is_failing = False
        _LOGGER.info("%s takes records again", self.name)

    def fail(self, what: str, error: OSError) -> NoReturn:
        """Stops the partition because the operating system refused something that it cannot do without.

        Raises:
            StorageError: Always.
        """
        reason = error.strerror or error
        raise self.take_offline(
            StorageError(f"{what}: {reason}: {self.name} is offline until the broker is restarted")
        ) from error
