r"""Who runs, who waits for whom, when a job is started again, and what the end is: a state machine without Spark.

    pending ---> starting ---> running ---> done               with `once`: it has read what is there
       ^            |  \          |   \---> failed, refused    so do the other parts of its job; what reads its tables,
       |            |   v         |                            directly or by way of others, is blocked (`stopping` till
       |            | filling ----|---> pending                its query has stopped); all others go on
       |            v             v
    (AGAIN)      waiting ---> starting                         after a pause, if the fault may pass

`filling` is a look-up's table that reads first what is there, for a job that has never run. `AGAIN` is no failure.

A part is started once all parts whose tables it reads have been: with `once` it waits until they are done. A part that
waits for its fault to pass stops nobody: who reads its tables has nothing to read meanwhile.

The runner asks `next` what to do, does it, and reports what came of it. Times are arguments, in seconds of any clock.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater_streams.runtime.restarts import Fault, Restarts

EndState = Literal["done", "failed", "refused", "blocked", "stopped"]
State = Literal["pending", "starting", "filling", "running", "waiting", "stopping"] | EndState
_RUNS = ("starting", "filling", "running")
_WORST_FIRST: tuple[EndState, ...] = ("failed", "refused", "blocked", "stopped", "done")
_VERBS = {"failed": "failed", "refused": "was refused", "blocked": "is blocked"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """What runs as a query: a job, or a part that the library makes of one.

    Attributes:
        name: Its name.
        job: The job, as it was declared.
        reads: The parts whose tables it reads, each with the table.
        fills: Whether it is to read first what is there: a new job looks things up in its table.
    """

    name: str
    job: str
    reads: Mapping[str, str] = field(default_factory=dict)
    fills: bool = False


@dataclass(frozen=True)
class End:
    """How a part ended, and why, unless it is done."""

    state: EndState
    why: str | None = None


@dataclass(frozen=True)
class Start:
    """Start a part's query; `to_end`: over what is there now."""

    name: str
    to_end: bool


@dataclass(frozen=True)
class Stop:
    """Stop a part's query at a batch boundary."""

    name: str


@dataclass
class _Standing:
    state: State = "pending"
    end: End | None = None
    why: str | None = None
    failures: int = 0
    unknown: int = 0  # of these failures, those of which nobody knows whether they pass
    due_s: float = 0.0
    since_s: float | None = None
    is_full: bool = False
    has_run: bool = False

    def forget(self) -> None:
        """Ends a row of failures."""
        self.failures = self.unknown = 0


class Schedule:
    """The parts of a command, and how each stands."""

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        once: bool,
        restarts: Restarts | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Takes the parts of a command.

        Args:
            parts: Each behind those that it reads.
            once: Whether each runs over what is there, one after the other, and is not tried again.
            restarts: When one is started again; None: never.
            rng: What shortens pauses.
        """
        self._parts = {part.name: part for part in parts}
        self._standings = {name: _Standing() for name in self._parts}
        self._once, self._restarts = once, None if once else restarts
        self._rng = rng or random.Random()
        self._to_stop: list[str] = []
        self._blocked: list[str] = []
        self._stops = False

    def next(self, now_s: float) -> Start | Stop | None:
        """What is to be done now; None: nothing, until something is reported or time has passed."""
        while self._to_stop:
            name = self._to_stop.pop(0)
            if self.is_stopping(name):
                return Stop(name)
        if self._stops or (self._once and any(self.runs(name) for name in self._parts)):
            return None
        for name, standing in self._standings.items():
            if self._is_ready(name, now_s):
                standing.state = "starting"
                return Start(name, to_end=self._once or self._fills(name))
        return None

    def started(self, name: str, now_s: float) -> None:
        """Reports that a part's query was started."""
        standing = self._standings[name]
        fills = self._fills(name)
        standing.state, standing.since_s, standing.why = "filling" if fills else "running", now_s, None
        standing.has_run = standing.has_run or not fills

    def committed(self, name: str) -> None:
        """Reports that a part committed a batch since it was started: its next failure is a first one."""
        self._standings[name].forget()

    def ended(self, name: str) -> None:
        """Reports that a part's query ended without a fault."""
        standing = self._standings[name]
        if standing.state == "filling":
            standing.state, standing.is_full = "pending", True
        else:
            self._end(
                name, End("done") if self._once else End("stopped", "its query was stopped from outside")
            )

    def failed(self, name: str, fault: Fault, why: str, now_s: float) -> float | None:
        """Reports what ended a part's query, or kept it from starting.

        Args:
            name: The part.
            fault: What it is.
            why: The same as the end of a sentence.
            now_s: The time.

        Returns:
            The pause before it is started again, 0 if it is not to run any more and has not failed; None if it has.
        """
        standing = self._standings[name]
        if fault is Fault.AGAIN:
            if self._stops:
                self._end(name, End("stopped"))
            else:
                standing.state = "pending"
            return 0.0
        if self._restarts is not None:
            ran_s = 0.0 if standing.since_s is None else now_s - standing.since_s
            if ran_s >= self._restarts.back_off.forgets_after_s:
                standing.forget()
        standing.failures, standing.since_s = standing.failures + 1, None
        standing.unknown += fault is Fault.UNKNOWN
        pause_s = None
        if self._restarts is not None:
            pause_s = self._restarts.pause_s(fault, standing.failures, standing.unknown, self._rng)
        if pause_s is not None and self._stops:
            self._end(name, End("stopped", f"it was to be started again: {why}"))
            return 0.0
        if pause_s is not None:
            standing.state, standing.due_s, standing.why = "waiting", now_s + pause_s, why
            return pause_s
        state: EndState = "refused" if fault is Fault.REFUSED else "failed"
        self._end(name, End(state, why))
        self._block(name, state)
        return None

    def stopped(self, name: str) -> None:
        """Reports that a part's query was stopped, as `Stop` or `stop` wanted."""
        standing = self._standings[name]
        standing.state = "running"
        self._end(name, standing.end or End("stopped"))

    def stop(self) -> dict[str, str]:
        """Begins nothing any more; what waits or has not begun is stopped. Queries that run are to be stopped.

        Returns:
            The parts that were to begin, or to begin again, without being asked, each with what it waited for.
        """
        self._stops = True
        whys = {name: f"it waited to be started again: {why}" for name, why in self.waiting.items()}
        if not self._once:
            whys |= dict.fromkeys(self.pending, "it had not begun")
        for name, standing in self._standings.items():
            if standing.state in ("waiting", "pending", "starting"):
                self._end(name, End("stopped", whys.get(name)))
        return whys

    def take_blocked(self) -> list[str]:
        """The parts that were blocked since this was asked last."""
        blocked, self._blocked = self._blocked, []
        return blocked

    def runs(self, name: str) -> bool:
        """Whether a part is being started or has a query that is to go on."""
        return self._standings[name].state in _RUNS

    def is_reading_to_the_end(self, name: str) -> bool:
        """Whether a part's query ends by itself when it has read what is there."""
        return self.runs(name) and (self._once or self._fills(name))

    def is_stopping(self, name: str) -> bool:
        """Whether a part's query is to be stopped."""
        return self._standings[name].state == "stopping"

    def has_run(self, name: str) -> bool:
        """Whether a part was started in this command, beyond reading first what is there."""
        return self._standings[name].has_run

    @property
    def stops(self) -> bool:
        """Whether nothing is to begin any more, see `stop`."""
        return self._stops

    @property
    def is_filling(self) -> bool:
        """Whether something reads first what is there, for which others may wait."""
        return any(standing.state in ("starting", "filling") for standing in self._standings.values())

    @property
    def is_over(self) -> bool:
        """Whether all has ended."""
        return all(standing.state in _WORST_FIRST for standing in self._standings.values())

    @property
    def pending(self) -> dict[str, tuple[str, ...]]:
        """The parts that have not begun, each with those that it waits for."""
        return {
            name: tuple(other for other in self._parts[name].reads if not self._has_come(other))
            for name, standing in self._standings.items()
            if standing.state == "pending"
        }

    @property
    def waiting(self) -> dict[str, str | None]:
        """The parts that wait to be started again, and why."""
        return {name: each.why for name, each in self._standings.items() if each.state == "waiting"}

    @property
    def ends(self) -> dict[str, End]:
        """How each part ended that is not to run any more."""
        return {name: each.end for name, each in self._standings.items() if each.end is not None}

    @property
    def jobs(self) -> dict[str, tuple[str, End]]:
        """How each job ended of which something did: the part that says most, and its end."""
        ended: dict[str, tuple[str, End]] = {}
        for name, end in self.ends.items():
            job = self._parts[name].job
            before = ended.get(job)
            if before is None or _WORST_FIRST.index(end.state) < _WORST_FIRST.index(before[1].state):
                ended[job] = (name, end)
        return ended

    def _is_ready(self, name: str, now_s: float) -> bool:
        standing = self._standings[name]
        is_due = standing.state == "waiting" and standing.due_s <= now_s
        return (standing.state == "pending" or is_due) and all(map(self._has_come, self._parts[name].reads))

    def _has_come(self, name: str) -> bool:
        """Whether who reads a part's tables can begin."""
        standing = self._standings[name]
        return standing.state == "done" if self._once else standing.has_run

    def _fills(self, name: str) -> bool:
        return not self._once and self._parts[name].fills and not self._standings[name].is_full

    def _end(self, name: str, end: End) -> None:
        standing = self._standings[name]
        standing.state, standing.end = end.state, end

    def _block(self, cause: str, state: EndState) -> None:
        """Blocks the other parts of a job that has ended, and whatever reads a table of one of these, and so on."""
        root = self._parts[cause].job
        causes = [cause]
        while causes:
            cause = causes.pop(0)
            job = self._parts[cause].job
            for name, part in self._parts.items():
                if self._standings[name].end is not None:
                    continue
                if part.job == job:
                    why = f"its part {cause} {_VERBS[state]}" if job == root else self._standings[cause].why
                elif cause in part.reads:
                    why = f"{job}, which writes {part.reads[cause]}, {_VERBS[state]}"
                    if job != root:
                        why = (
                            f"{job}, which writes {part.reads[cause]}, is blocked, as {root} {_VERBS[state]}"
                        )
                else:
                    continue
                self._block_one(name, why or "")
                causes.append(name)

    def _block_one(self, name: str, why: str) -> None:
        standing = self._standings[name]
        has_query = standing.state in ("filling", "running")
        self._end(name, End("blocked", why))
        standing.why = why
        self._blocked.append(name)
        if has_query:
            standing.state = "stopping"
            self._to_stop.append(name)
