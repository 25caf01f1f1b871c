"""What can go wrong with shared state, by what the caller can do about it."""

# Named by what happened, not `...Error`: callers read `except AlreadyOwned`.
# ruff: noqa: N818

from __future__ import annotations

from typing import ClassVar


class CoordinationError(Exception):
    """Base of every error of this package.

    Attributes:
        retriable: True where the same call may succeed later without anybody changing the input.
    """

    retriable: ClassVar[bool] = False


class CoordinatorUnavailable(CoordinationError):
    """ZooKeeper did not answer in time or the connection is down; whether the call took effect is not
    known.
    """

    retriable = True


class SessionLost(CoordinatorUnavailable):
    """The session expired: every ephemeral node made by it is gone."""


class Conflict(CoordinationError):
    """Somebody else changed the same state first: read it again and decide anew."""

    retriable = True


class AlreadyExists(CoordinationError):
    """What was to be created is there already."""


class DoesNotExist(CoordinationError):
    """What was asked for is not there."""


class BrokerIdInUse(CoordinationError):
    """Another live broker is registered under the same id."""


class AlreadyOwned(CoordinationError):
    """A partition, or a member's name, is held by somebody else.

    Attributes:
        holder: the member that holds it, as it named itself.
    """

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class LeaseLost(CoordinationError):
    """The lease is no longer held: stop, because another holder may have begun."""


class CorruptState(CoordinationError):
    """Stored state cannot be read; the message names the place and quotes the bytes."""
