"""Whether a partition can be used, and why not."""

from __future__ import annotations

import logging
from typing import NoReturn

from headwater_broker.log.errors import PartitionOfflineError, StorageError

_LOGGER = logging.getLogger(__name__)


class Health:
    """What the parts of one partition's log agree on: once offline, always offline, and said once.

    Attributes:
        name: Of the partition, for messages.
        error: Why it is offline, or None.
    """

    __slots__ = ("error", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: PartitionOfflineError | None = None

    def check(self) -> None:
        """Raises why the partition is offline, if it is."""
        if self.error is not None:
            raise self.error

    def take_offline(self, error: PartitionOfflineError) -> None:
        """Stops the partition for good, and tells the operator."""
        self.error = error
        _LOGGER.error("%s is offline: %s", self.name, error)

    def fail(self, what: str, error: OSError) -> NoReturn:
        """Stops the partition because the operating system refused something.

        Raises:
            StorageError: Always.
        """
        reason = error.strerror or error
        failure = StorageError(f"{what}: {reason}: {self.name} is offline until the broker is restarted")
        self.take_offline(failure)
        raise failure from error
