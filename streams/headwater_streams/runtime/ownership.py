"""The interface by which a running job owns its inputs and shows its progress; the platform implements it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


class Lease(Protocol):
    """A job's hold on its input partitions, ended by `release()` or by the loss of its session."""

    def claim(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Claims partitions beside those already held.

        Raises:
            OwnershipError: Another driver holds one; the message names it.
        """

    def publish(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Shows the next offset of each partition, as a consumer group's commits are shown."""

    def is_held(self) -> bool:
        """Whether the hold is certain at this moment; false once the session may be over."""

    def release(self) -> None:
        """Gives everything back."""


class NoLease:
    """The lease of a job that nobody could run twice: a test's."""

    def claim(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Claims nothing."""

    def publish(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Shows nothing."""

    def is_held(self) -> bool:
        """Always true."""
        return True

    def release(self) -> None:
        """Does nothing."""


LeaseFactory = Callable[[str], Lease]
"""Makes the lease of a job, by the job's name."""
