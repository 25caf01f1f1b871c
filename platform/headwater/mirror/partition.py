"""A partition that is mirrored, as the mirror and the lane that copies it both see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from uuid import UUID

from headwater.mirror.batches import Copying
from headwater.mirror.end import Place
from headwater_streams.sources.mirrored import Runs

_REST_S = 0.5


@dataclass
class Partition:
    """A partition that is mirrored.

    Attributes:
        place: Where it is at the source.
        topic_id: The id of its topic at the source; None where the source's brokers give none.
        here: Its topic at the target.
        runs: What is known of its offsets.
        lane: The broker of the source that led it when it was last asked.
        copying: Where it stands; None: the target is to be asked.
        rests_until_s: When the target is to be asked, by the monotonic clock.
        mirrored_to: The offset of the source up to which the target has acknowledged all; None before the first look.
        acknowledged: Where the target ended then.
        passed: The offset of the source up to which a mirror has seen all, also what it had not to copy; None where
            none is known to have begun.
        source_end: Where the source ended when it was last asked, as far as its transactions are committed or aborted.
        open: How many offsets stood behind that, of transactions that were open.
        records: How many records this process has mirrored.
        served: When the source last had records of it, by a clock of the lane's turns.
        halted: Why it does not go on; empty where it does.
    """

    place: Place
    topic_id: UUID | None
    here: str
    runs: Runs
    lane: int = -1
    copying: Copying | None = None
    rests_until_s: float = 0.0
    mirrored_to: int | None = None
    acknowledged: int = 0
    passed: int | None = None
    source_end: int | None = None
    open: int = 0
    records: int = 0
    served: int = 0
    halted: str = ""

    @property
    def target(self) -> Place:
        """Where it is at the target."""
        return self.here, self.place[1]

    def reached(self, there: int) -> None:
        """Takes note that all up to an offset of the source is mirrored."""
        self.mirrored_to, self.passed = there, max(self.passed or 0, there)

    def rest(self) -> None:
        """Has it wait a moment, and then go on where the target ends."""
        self.copying, self.rests_until_s = None, monotonic() + _REST_S


@dataclass
class Work:
    """What a lane is to do; changed by the mirror, read by the lane.

    Attributes:
        partitions: By their places at the source.
    """

    partitions: dict[Place, Partition] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def assign(self, partitions: Mapping[Place, Partition]) -> None:
        """Replaces what is to be done."""
        with self.lock:
            self.partitions = dict(partitions)

    def now(self) -> dict[Place, Partition]:
        """What is to be done."""
        with self.lock:
            return dict(self.partitions)
