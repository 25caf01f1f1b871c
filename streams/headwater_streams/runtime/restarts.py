"""After which faults a job is started again, and after which pauses."""

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

RestartAfter = Literal["passing", "always", "never"]


class Fault(Enum):
    """What ended a job's query, as far as another start is concerned; `runtime.faults` tells them apart."""

    AGAIN = auto()
    """Nothing is wrong: the query has to begin anew, as a rebuild was swapped in or rows are to be left out."""
    PASSES = auto()
    """It goes away without the job: a broker that is away, another's commit in between."""
    UNKNOWN = auto()
    """Nobody knows whether it goes away."""
    STAYS = auto()
    """A person, or the input, has to change: a check, a value, lost records, a damaged file."""
    REFUSED = auto()
    """The job is wrong, or not what its last run was."""


@dataclass(frozen=True)
class BackOff:
    """Pauses that double from try to try, each shortened at random by up to half.

    Attributes:
        first_s: The pause after the first failure.
        most_s: The longest pause.
    """

    first_s: float = 1.0
    most_s: float = 60.0

    def pause_s(self, failures: int, rng: random.Random) -> float:
        """The pause after so many failures in a row."""
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30)) * rng.uniform(0.5, 1.0)

    @property
    def forgets_after_s(self) -> float:
        """How long a job must have run for its next failure to count as a first one, if it had nothing to commit."""
        return 10 * self.most_s


@dataclass(frozen=True)
class Restarts:
    """After which faults a job is started again.

    Attributes:
        back_off: The pauses.
        after: `"passing"`: after a fault that passes as often as it comes, and a few times after one of which nobody
            knows; `"always"`: after each but a refusal, as often as it comes; `"never"`.
        tries: With `"passing"`, how often in a row after faults of which nobody knows.
    """

    back_off: BackOff = BackOff()
    after: RestartAfter = "passing"
    tries: int = 3

    def pause_s(self, fault: Fault, failures: int, unknown: int, rng: random.Random) -> float | None:
        """The pause before the job is started again; None if it is not.

        Args:
            fault: The fault; not `Fault.AGAIN`, which is no failure.
            failures: How many there were in a row, this one included.
            unknown: How many of these are `Fault.UNKNOWN`.
            rng: What shortens the pause.
        """
        if self.after == "never" or fault is Fault.REFUSED:
            return None
        is_tried = fault is Fault.PASSES or (fault is Fault.UNKNOWN and unknown <= self.tries)
        return self.back_off.pause_s(failures, rng) if is_tried or self.after == "always" else None
