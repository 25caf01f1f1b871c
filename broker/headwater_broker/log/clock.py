"""Time as an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Both of the clocks that a broker needs."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970, for what is stored."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, for what is waited for."""
        ...


class SystemClock:
    """The machine's own."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
