"""When a child that ended is started again: at once, and if it ends again soon, after pauses that grow."""

from dataclasses import dataclass

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass
class Restarts:
    """The restarts of one child.

    Attributes:
        due_s: When it is to be started again, by the monotonic clock; None while it is not waited for.
        pause_s: How long it is waited for next.
    """

    due_s: float | None = None
    pause_s: float = 0.0

    @property
    def again(self) -> str:
        """When it is started next, for a sentence."""
        return f"again in {self.pause_s:.0f} s" if self.pause_s else "again"

    @property
    def is_news(self) -> bool:
        """Whether to report it: later failures are the same."""
        return self.pause_s <= 2 * _FIRST_PAUSE_S

    def is_waiting(self, now_s: float) -> bool:
        """Whether its pause is not over yet."""
        return self.due_s is not None and now_s < self.due_s

    def postpone(self, now_s: float) -> None:
        """Has it started after the pause, and the next pause be twice as long."""
        self.due_s = now_s + self.pause_s
        self.pause_s = min(max(2 * self.pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
