"""What `jobs run` does about quality beside its jobs: suites when they are due, alarms when a check breaks or is well.

It never stops a job: what goes wrong here is a warning, and is tried again.
"""

import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from tempfile import TemporaryFile
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request

from headwater.config.load import load_settings
from headwater.running.posting import poster
from headwater_streams.quality.alarms import Alarm, AlarmState, Due, Schedule, alarms, turns
from headwater_streams.storage.home import Home

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headwater_streams.plan.job import Job

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 5.0
_AGAIN_AFTER_S = 60.0
_TAKES_AT_MOST_S = 30.0
_NO_SUITES = Schedule()
_FIRST_LOOK = timedelta(days=1)
_OUT_OF_ORDER = timedelta(minutes=10)
"""Results of two jobs may be committed a little out of order."""
_TOLD_BYTES = 200
_COLUMNS = "table check outcome kind job batch version judged failed observed sample".split()  # noqa: SIM905

Deliver = Callable[[Alarm], None]
"""Tells somebody; raises where that could not be done."""
Judge = Callable[["Job", Due], int]
"""Judges a job's table, and gives the version that was judged."""


def by_command(command: str) -> Deliver:
    """Runs a command for each alarm, in a shell; it gets the alarm as a line of JSON on its standard input."""

    def deliver(alarm: Alarm) -> None:
        # Into a file, not a pipe: what the command leaves running behind it would hold that open, and the alarm would
        # count as not delivered.
        line = f"{json.dumps(alarm.to_json())}\n".encode()
        with (
            TemporaryFile() as said,
            subprocess.Popen(  # noqa: S602 - the person's own command, from their settings
                command,
                shell=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            ) as process,
        ):
            try:
                process.communicate(line, timeout=_TAKES_AT_MOST_S)
            except subprocess.TimeoutExpired:
                # With what it has started: each try would leave that behind, and it is tried again every minute.
                os.killpg(process.pid, signal.SIGKILL)
                raise
            if process.returncode:
                said.seek(max(0, said.seek(0, os.SEEK_END) - _TOLD_BYTES))
                why = said.read().decode(errors="backslashreplace").strip()[-_TOLD_BYTES:]
                raise OSError(f"{command!r} ended with status {process.returncode}: {why}")

    return deliver


def by_webhook(url: str) -> Deliver:
    """Posts each alarm as JSON to an address."""
    opener = poster()

    def deliver(alarm: Alarm) -> None:
        body = json.dumps(alarm.to_json()).encode()
        request = Request(url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310 - http or https
        try:
            with opener.open(request, timeout=_TAKES_AT_MOST_S):
                pass
        except HTTPError as error:
            where = error.headers.get("Location") if 300 <= error.code < 400 else None
            moved = f", as it has moved to {where}: write that address" if where else ""
            raise OSError(f"the webhook answered {error.code}{moved}") from error
        except HTTPException as error:
            raise OSError(f"the webhook's answer is no HTTP: {type(error).__name__}") from error

    return deliver


@dataclass(frozen=True)
class WatchSettings:
    """What is watched.

    Attributes:
        schedule: When suites run; one without times runs none.
        command: The command for alarms; empty for none.
        webhook: The address for alarms; empty for none.
    """

    schedule: Schedule = _NO_SUITES
    command: str = ""
    webhook: str = ""

    @property
    def ways(self) -> dict[str, Deliver]:
        """The ways in which alarms are delivered, by their names."""
        ways = {"command": by_command(self.command)} if self.command else {}
        return ways | ({"webhook": by_webhook(self.webhook)} if self.webhook else {})


class AlarmBell:
    """Looks at new results, and delivers in one way what is news in them.

    Each way has a record of its own of what was said, so that one which fails keeps none of the others waiting.
    """

    def __init__(
        self,
        home: Home,
        way: str,
        deliver: Deliver,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Args: the home; the way's name; what delivers; the time."""
        self._home, self._deliver = home, deliver
        self._path = home.root / "quality" / f"alarms-{way}.json"
        self._now, self._since = now, now() - _FIRST_LOOK

    def look(self) -> bool:
        """Delivers what is news, oldest first; says whether everything was delivered.

        Another command that watches the home may be about the same news: it is left to that one.
        """
        from headwater_streams.storage.files import locked

        try:
            with locked(self._path.with_suffix(".lock"), waits=False):
                return self._look()
        except BlockingIOError:
            return True

    def _look(self) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        from headwater_streams.quality.results import history

        # A clock that was set back would not come by results until it is where it was.
        self._since = min(self._since, self._now() - _OUT_OF_ORDER)
        found = history(self._home, since=self._since, columns=_COLUMNS)
        # Results of a clock that is ahead of this one are left for when it is their time.
        found = found.filter(
            pc.less_equal(found["at"], pa.scalar(self._now() + _OUT_OF_ORDER, found["at"].type))
        )
        state = self._state()
        for alarm in alarms(state, turns(found).to_pylist()):
            try:
                self._deliver(alarm)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                _log.warning("alarm not delivered, and tried again: %s (%s)", alarm.sentence, error)
                return False
            state = state.after(alarm)
            self._keep(state)
        if found.num_rows:
            self._since = max(self._since, pc.max(found["at"]).as_py() - _OUT_OF_ORDER)
        return True

    def _keep(self, state: AlarmState) -> None:
        from headwater_streams.storage.files import make_folder
        from headwater_streams.storage.records import write_record

        make_folder(self._path.parent)
        write_record(self._path, state)

    def _state(self) -> AlarmState:
        from headwater_streams.storage.damage import DamagedFileError
        from headwater_streams.storage.files import exists
        from headwater_streams.storage.records import read_record

        if not exists(self._path):
            return AlarmState()
        try:
            return read_record(self._path, AlarmState)
        except DamagedFileError as error:
            _log.warning("checks that are broken are told once more: %s", error)
            return AlarmState()


class QualityWatch:
    """Runs suites and rings the bell, from the loop that watches the jobs; alarms do not wait for a suite that takes
    long."""

    def __init__(
        self,
        home: Home,
        jobs: "Sequence[Job]",
        settings: WatchSettings,
        judge: "Judge",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: the home; the jobs; what is watched; what judges a job's table; the clock."""
        self._home, self._jobs, self._settings = home, jobs, settings
        self._judge, self._clock = judge, clock
        self._bells = [AlarmBell(home, way, deliver) for way, deliver in settings.ways.items()]
        self._began = {job.name: clock() for job in jobs}
        self._judged = {job.name: -1 for job in jobs}
        self._look_at = clock()
        self._suites: threading.Thread | None = None
        self._ringing: threading.Thread | None = None

    def tick(self) -> None:
        """Begins what is due; returns at once."""
        if not _is_running(self._suites):
            due = [(job, what) for job in self._jobs if (what := self._due(job)) is not None]
            if due:
                self._suites = _begun(lambda: self._run_suites(due))
        if self._bells and not _is_running(self._ringing) and self._clock() >= self._look_at:
            self._ringing = _begun(self._look)

    def finish(self) -> None:
        """Waits for what was begun, and looks once more: a job may have ended by a check."""
        for thread in (self._suites, self._ringing):
            if thread is not None:
                thread.join(_TAKES_AT_MOST_S)
        self._look()

    def _due(self, job: "Job") -> Due | None:
        from headwater_streams.ledger.log import next_commit

        schedule = self._settings.schedule
        if schedule == _NO_SUITES:
            return None
        return schedule.due(
            waited_s=self._clock() - self._began[job.name],
            version=next_commit(self._home.table(job.target.name)) - 1,
            judged_version=self._judged[job.name],
            by_clock=any(check.goes_by_clock for check in job.checks),
        )

    def _run_suites(self, due: "Sequence[tuple[Job, Due]]") -> None:
        for job, what in due:
            self._began[job.name] = self._clock()
            try:
                self._judged[job.name] = self._judge(job, what)
            except Exception as error:  # a suite may raise whatever Spark does
                _log.warning("the suite of %s did not run: %s", job.target.name, error)

    def _look(self) -> None:
        is_done = True
        for bell in self._bells:
            try:
                is_done &= bell.look()
            except Exception as error:  # a table may be damaged; the others are looked at
                _log.warning("the results of checks could not be looked at: %s", error)
                is_done = False
        self._look_at = self._clock() + (_LOOK_EVERY_S if is_done else _AGAIN_AFTER_S)


def _begun(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="headwater-quality", daemon=True)
    thread.start()
    return thread


def _is_running(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()


def quality_watch(home: "Path", spark: "SparkSession", jobs: "Sequence[Job]") -> QualityWatch:
    """What `jobs run` watches, as the settings say."""
    settings = load_settings(os.environ).settings.quality
    minutes, commits = float(settings.every_minutes), settings.after_commits
    schedule = Schedule(every_s=minutes * 60 if minutes else None, commits=commits or None)
    watched = WatchSettings(schedule, settings.alarm_command, settings.alarm_webhook)

    def judge(job: "Job", due: Due) -> int:
        from headwater_streams.quality.run import judge_by_clock, run_suite
        from headwater_streams.quality.suite_rows import keep_result

        if due == "clock":
            return judge_by_clock(spark, home, job.target.name, job.checks)
        result = run_suite(spark, home, job.target.name, checks=job.checks, keys=job.target.keys)
        keep_result(Home(home), result)
        return result.version

    return QualityWatch(Home(home), jobs, watched, judge)
