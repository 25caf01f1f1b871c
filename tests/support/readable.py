"""Whether something can be read: `select.select` takes no descriptor above 1,023, and a long run has more."""

from __future__ import annotations

import select
from typing import Protocol


class HasDescriptor(Protocol):
    """A socket, a pipe."""

    def fileno(self) -> int:
        """Its descriptor."""


def is_readable(source: HasDescriptor, within_s: float = 0.0) -> bool:
    """Whether bytes, or the end, have come, or come within so long."""
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    return bool(poll.poll(within_s * 1000))
