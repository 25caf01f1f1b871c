"""The memory that large requests may take while they come in: Kafka's `queued.max.request.bytes`."""

from collections.abc import Iterator
from typing import Protocol

_UNSAID_BYTES = 64 << 20
"""Without a limit a hundred clients that send slowly could fill the memory; a request is larger only by a setting of
its client, and is worked off as soon as it is whole."""

_PATIENCE_S = 10.0
_LONGEST_S = 60.0


class Holder(Protocol):
    """One that reads requests."""

    last_active: float

    def give_back(self) -> bool:
        """Lets go of memory that no request is in, if there is any."""

    def read_on(self) -> None:
        """Goes on reading, as there is room again."""

    def refuse(self, reason: str) -> None:
        """Closes the connection and says why in the log."""


class RequestMemory:
    """Counts requests that are larger than the buffer that every connection has, while they come in.

    As in Kafka's memory pool, a request that may begin is taken whole, so that the limit is passed by one request at
    most. Smaller requests are read in any case, where Kafka reads nothing more from anybody.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._held: dict[Holder, tuple[int, float]] = {}
        self._waiting: dict[Holder, float] = {}
        self._used_bytes = 0
        self.configure(limit_bytes)

    def configure(self, limit_bytes: int) -> None:
        """Takes a new limit from now on; 0 or less: this broker's own."""
        self._limit_bytes = limit_bytes if limit_bytes > 0 else _UNSAID_BYTES

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    @property
    def used_bytes(self) -> int:
        """Of all requests."""
        return self._used_bytes

    def take(self, holder: Holder, size: int, now_s: float) -> bool:
        """Makes room for a request; if there is none, `read_on` is called when there may be."""
        held, _ = self._held.get(holder, (0, now_s))
        if size <= held:
            return True
        if self._used_bytes - held >= self._limit_bytes:
            for other in list(self._held):
                if other is not holder and other.give_back() and self._used_bytes - held < self._limit_bytes:
                    break
            else:
                self._waiting.setdefault(holder, now_s)
                return False
        self._waiting.pop(holder, None)
        self._held[holder] = (size, now_s)
        self._used_bytes += size - held
        return True

    def release(self, holder: Holder) -> None:
        """Gives back what a holder has, and lets the others have it."""
        self._waiting.pop(holder, None)
        entry = self._held.pop(holder, None)
        if entry is None:
            return
        self._used_bytes -= entry[0]
        if self._used_bytes < self._limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for each, since_s in waiting.items():
                if self._used_bytes < self._limit_bytes:
                    each.read_on()
                else:
                    self._waiting[each] = since_s

    def overdue(self, now_s: float) -> Iterator[Holder]:
        """Who keeps the others waiting: its request stands still, or takes very long."""
        if min(self._waiting.values(), default=now_s) > now_s - _PATIENCE_S:
            return
        for holder, (_, since_s) in list(self._held.items()):
            if holder.last_active < now_s - _PATIENCE_S or since_s < now_s - _LONGEST_S:
                yield holder
