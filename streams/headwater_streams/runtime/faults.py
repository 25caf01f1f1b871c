"""Which faults pass by themselves, and how long a job waits before it is tried again after one."""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater_streams.base.errors import LeaseLostError, SourceReplacedError, StreamsError, UnavailableError
from headwater_streams.delta.delta_table import conflicts
from headwater_streams.spark.spark_errors import full_text, is_of_values

# Classes of Kafka's Java client and of the JVM, as they stand in Spark's messages and stack traces.
_AWAY = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|Network|NotLeaderOrFollower|LeaderNotAvailable|"
    r"BrokerNotAvailable|CoordinatorNotAvailable|KafkaStorage|UnknownServer)Exception"
    r"|Timeout of [\d.]+ ?ms expired|Timed out waiting for a node assignment|timed out at \d+ after \d+ attempt"
    r"|Call\(callName=\w+[^)]*\) timed out|Cannot fetch record for offset \d+ in \d+ milliseconds"
    r"|No resolvable bootstrap urls|java\.net\.(ConnectException|SocketException|NoRouteToHostException)"
)
_LOST = re.compile(
    r"DATA_LOSS|data may have been (lost|missed)|OffsetOutOfRangeException|UnknownTopicOrPartitionException"
    r"|Some of partitions .* do not exist|GAP_IN|INCORRECT_START_OFFSET|INITIAL_OFFSET_NOT_FOUND"
)


def passes(error: BaseException) -> bool:
    """Whether the fault goes away without the job, so that it may be tried again: nothing of it was committed."""
    if isinstance(error, UnavailableError | LeaseLostError | SourceReplacedError):
        return True
    if isinstance(error, StreamsError):
        return False
    return isinstance(error, conflicts()) or away(error) is not None


def away(error: BaseException) -> str | None:
    """What an error says of a broker that does not answer, without the classes around it; None if it says nothing."""
    text = full_text(error)
    match = _AWAY.search(text)
    if match is None or is_of_values(error):  # whose message may quote a line of a log
        return None
    line = text[match.start() :].splitlines()[0]
    return line.removeprefix("org.apache.kafka.common.errors.").strip()


def speaks_of_loss(error: BaseException) -> bool:
    """Whether Spark says that input is gone; it does not say which range."""
    if isinstance(error, StreamsError) or not _LOST.search(full_text(error)):
        return False
    return not is_of_values(error)  # whose message may quote a line of a log


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


@dataclass
class _Trouble:
    failures: int = 0
    due_s: float | None = None


@dataclass
class Restarts:
    """Which jobs wait to be tried again.

    Attributes:
        back_off: The pauses; None: no job is tried again.
        clock: A clock in seconds.
        rng: What shortens the pauses.
    """

    back_off: BackOff | None = None
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    _jobs: dict[str, _Trouble] = field(default_factory=dict)

    def after(self, job: str, error: BaseException) -> float | None:
        """Notes a failure; returns the pause before the job is due again, None if it is not to be tried again."""
        if self.back_off is None or not passes(error):
            return None
        trouble = self._jobs.setdefault(job, _Trouble())
        trouble.failures += 1
        pause_s = self.back_off.pause_s(trouble.failures, self.rng)
        trouble.due_s = self.clock() + pause_s
        return pause_s

    def take_due(self) -> list[str]:
        """The jobs to be tried again now; they are not waiting any more."""
        due = [j for j, t in self._jobs.items() if t.due_s is not None and t.due_s <= self.clock()]
        for job in due:
            self._jobs[job].due_s = None
        return due

    def worked(self, job: str) -> None:
        """Notes that a job committed a batch: its next failure is a first one."""
        self._jobs.pop(job, None)
