"""A driver that dies where it is told to: `child.py BOOTSTRAP HOME once [HOME...] | forever | STEP NTH`.

`once` is all that there is, in one home after the other, to the end.

At the NTH time that a step is reached, of whatever job, the process ends as by kill -9; its JVM then finds out alone.
So it does when all is read and the step did not come.
"""

import os
import sys
import threading
import time
from pathlib import Path

from killed_jobs import both, clean, final, pairs, per_minute, runs

from headwater.running.leases import lease_factory
from headwater.running.pytest_plugin import SMALL_BATCHES
from headwater.stack.session import spark_session
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home

_QUICK_START = SMALL_BATCHES | {"spark.driver.memory": "512m"}
_STOPPED = 9
_IDLE_S = 5


class Trap:
    """Ends the process at a step."""

    def __init__(self, step: str, nth: int) -> None:
        self._step, self._left = step, nth
        self._lock = threading.Lock()
        self._latest = 0.0

    def __call__(self, job: str, step: str, batch: int) -> None:
        with self._lock:
            self._latest = time.monotonic()
            if step == self._step:
                self._left -= 1
                if self._left == 0:
                    _die(step)

    def look(self) -> None:
        """Ends the process when there is nothing to do any more."""
        with self._lock:
            if time.monotonic() - self._latest > _IDLE_S:
                _die("idle")


def _die(why: str) -> None:
    print(why, flush=True)
    os._exit(_STOPPED)


def main(bootstrap: str, home: Path, mode: str, *more: str) -> None:
    """Runs the jobs, until the trap is sprung or all is read."""
    session = spark_session(home, app_name="killed", cores=2, extra=_QUICK_START)
    if mode == "once":
        for each in (home, *map(Path, more)):
            runner = _runner(StageContext(session, Home(each), KafkaSource(bootstrap)))
            runner.run_once()
            runner.stop()
        session.stop()
        return
    trap = Trap(mode, int(more[0]) if more else 0)
    runner = _runner(StageContext(session, Home(home), KafkaSource(bootstrap), step=trap))
    runner.start(interval_s=0.1)
    while True:
        runner.watch(1)
        trap.look()


def _runner(context: StageContext) -> JobRunner:
    more = (runs, both, final) if "HEADWATER_DRIVER_KILLS" in os.environ else ()
    return JobRunner(
        context,
        [bind(job) for job in (clean, per_minute, pairs, *more)],
        lease=lease_factory(context.home.root, ""),
        upkeep=Upkeep(every=3, files_kept_h=1),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
