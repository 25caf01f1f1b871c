"""Time that stands still until a test moves it."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class FixedClock:
    """A clock that shows what it was set to.

    What a broker counts by the clock (quotas, the ends of sessions, timestamps) is then the same however busy the
    machine is; what it waits for (long polls, a muted connection) still takes its time.

    >>> clock = FixedClock()
    >>> clock.advance(1.5)
    >>> clock.now_ms() - START_MS, clock.monotonic() - START_MS / 1000
    (1500, 1.5)
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970."""
        return self.ms

    def monotonic(self) -> float:
        """The same in seconds."""
        return self.ms / 1000

    def advance(self, seconds: float) -> None:
        """Lets time go by."""
        self.ms += round(seconds * 1000)
