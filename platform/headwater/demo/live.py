"""The live part: the jobs run while the events arrive, chunk by chunk, and one of them is started anew midway."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headwater.demo.events import TOPICS, Event, ReplayPlan
from headwater.demo.home import DemoHome
from headwater.demo.journal import Journal
from headwater.demo.producer import Replay, ReplayProgress, value_of
from headwater.demo.show import Pulse, Show
from headwater.demo.watch import Watch
from headwater.errors import UserError
from headwater.running.environment import JobEnvironment, find_jobs
from headwater.stack.local import data_dir
from headwater.stack.state import running_state
from headwater_streams.base.errors import StreamsError
from headwater_streams.runtime.query import explain
from headwater_streams.runtime.restarts import Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.spark.spark_errors import AnyJvmError

MODULE = "jobs/flights.py"
FIRST_VERSION = "jobs/first_version/delay_by_carrier.py"
WINDOWED = "delay_by_carrier"

LIVE = (
    f"{MODULE}:clean_departures",
    f"{MODULE}:clean_arrivals",
    f"{MODULE}:join_flights",
    FIRST_VERSION,
    "jobs/weather.py",
)
_TRIGGER_S = 2.0
_POLL_S = 0.1
_PATIENCE_S = 300.0
_AGAIN = "the same command goes on from here"


@dataclass(frozen=True)
class LiveOptions:
    """What another demo does otherwise while events arrive.

    Attributes:
        jobs: The modules of the jobs that run.
        producer: Makes the Kafka client of its properties.
        value: Gives the value that an event is sent with in a chunk.
        before_chunk: Called before a chunk is sent, once the jobs have taken the one before.
        beside: Called about once a second; it raises when something that is needed has ended.
    """

    jobs: tuple[str, ...] = LIVE
    producer: Callable[[dict[str, Any]], Any] = Producer
    value: Callable[[Event, int], bytes] = value_of
    before_chunk: Callable[[int], None] = lambda _: None
    beside: Callable[[], None] = lambda: None


class LivePart:
    """Runs the jobs and the replay until everything that is to be sent was read by every job."""

    def __init__(
        self,
        environment: JobEnvironment,
        home: DemoHome,
        plan: ReplayPlan,
        journal: Journal,
        watch: Watch,
        show: Show,
        front: str,
        options: LiveOptions,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            environment: The session, the leases, the brokers.
            home: The demo's home.
            plan: What to send.
            journal: What was sent.
            watch: What the jobs committed.
            show: Shows how it goes.
            front: The brokers that the events are sent to, host:port.
            options: What this demo does otherwise.
        """
        self._front = front
        self._options = options
        self._environment = environment
        self._home = home
        self._plan = plan
        self._journal = journal
        self._watch = watch
        self._show = show
        self._starts = home.folder / "starts"
        self._last_check_s = 0.0

    def run(self, rate: float) -> None:
        """Start the jobs, send what is left, wait for the jobs, stop them.

        Raises:
            UserError: A job failed, or the stack or Spark ended; the same command goes on.
        """
        try:
            runner = JobRunner(
                self._environment.context,
                find_jobs(self._options.jobs),
                lease=self._environment.leases,
                restarts=Restarts(),
            )
            runner.start(interval_s=_TRIGGER_S)
            self._note_start("all")
            try:
                with self._show.replay(len(self._plan.slices), self._journal.next_slice) as pulse:
                    self._replay(runner, rate, pulse)
                    self._await_jobs(runner, pulse)
            finally:
                runner.stop()
        except StreamsError as error:
            raise UserError(f"{error}; {_AGAIN}") from error
        except (AnyJvmError, ConnectionError) as error:
            raise UserError(f"Spark's JVM ended while the jobs ran; {_AGAIN}") from error

    def restarts(self) -> list[str]:
        """The jobs that were started anew after the first event was sent and before the last; `all` after a stop."""
        return [
            start["job"]
            for start in map(json.loads, _lines(self._starts))
            if 0 < start["slice"] < len(self._plan.slices)
        ]

    def _replay(self, runner: JobRunner, rate: float, pulse: Pulse) -> None:
        middle = self._plan.chunks // 2

        def at_chunk(chunk: int) -> None:
            if chunk == middle and not self.restarts():
                runner.restart(WINDOWED, interval_s=_TRIGGER_S)
                self._note_start(WINDOWED)
                self._show.say(f"{WINDOWED} was stopped and started again while events arrive")
            self._await_jobs(runner, pulse, one_chunk_ahead=True)
            self._options.before_chunk(chunk)

        replay = Replay(
            self._plan,
            self._journal,
            self._front,
            rate=rate,
            producer=self._options.producer,
            value=self._options.value,
            check=lambda: self._check(runner),
        )
        replay.run(at_chunk, lambda progress: self._beat(pulse, progress))

    def _await_jobs(self, runner: JobRunner, pulse: Pulse, *, one_chunk_ahead: bool = False) -> None:
        """Wait until every job has read what was produced.

        Args:
            runner: The jobs.
            pulse: Shows how far they are.
            one_chunk_ahead: The jobs behind tables need only have read what was there at the last call.
        """
        produced = self._journal.delivered + self._journal.unreported
        rows = self._watch.rows_until() if one_chunk_ahead else None
        last_versions, deadline_s = -1, 0.0
        while behind := self._watch.behind(produced, rows):
            self._check(runner)
            self._beat(pulse)
            versions = sum(history.next_version for history in self._watch.tables.values())
            if versions != last_versions:
                last_versions, deadline_s = versions, time.monotonic() + _PATIENCE_S
            if time.monotonic() > deadline_s:
                raise UserError(
                    f"no job committed for {_PATIENCE_S:.0f} s, and {', '.join(behind)} lack events; {_AGAIN}"
                )
            time.sleep(_POLL_S)

    def _beat(self, pulse: Pulse, progress: ReplayProgress | None = None) -> None:
        sent = sum(map(self._journal.produced, TOPICS))
        pulse.beat(sent, self._watch.records_read(), progress)

    def _check(self, runner: JobRunner) -> None:
        """Raise if a job, the stack or Spark ended."""
        if running_state(data_dir(self._home.root)) is None:
            log = data_dir(self._home.root) / "up.log"
            raise UserError(f"the stack ended while the jobs ran (see {log}); {_AGAIN}")
        now_s = time.monotonic()
        if now_s - self._last_check_s < 1:
            return
        self._last_check_s = now_s
        self._options.beside()
        try:
            runner.watch(0)
        except (StreamsError, AnyJvmError, ConnectionError):
            raise
        except Exception as error:
            raise UserError(f"a job failed: {explain(error)}; {_AGAIN}") from error

    def _note_start(self, job: str) -> None:
        with self._starts.open("a") as file:
            file.write(json.dumps({"job": job, "slice": self._journal.next_slice}) + "\n")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
