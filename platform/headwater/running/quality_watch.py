"""What `jobs run` does about quality beside its jobs: suites when they are due, alarms when a check breaks or is well.

It never stops a job: what goes wrong here is a warning, and is tried again.
"""

import json
import logging
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.config.load import load_settings
from headwater_streams.quality.alarms import Alarm, AlarmState, Schedule, alarms
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
_FIRST_LOOK = timedelta(days=7)
_COLUMNS = "table check outcome kind job batch version judged failed observed sample".split()  # noqa: SIM905

Deliver = Callable[[Alarm], None]
"""Tells somebody; raises where that could not be done."""


def by_command(command: str) -> Deliver:
    """Runs a command for each alarm, in a shell; it gets the alarm as JSON on its standard input."""

    def deliver(alarm: Alarm) -> None:
        done = subprocess.run(  # noqa: S602 - the person's own command, from their settings
            command,
            shell=True,
            input=json.dumps(alarm.to_json()),
            text=True,
            timeout=_TAKES_AT_MOST_S,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise OSError(f"{command!r} ended with status {done.returncode}: {done.stderr.strip()[-200:]}")

    return deliver


def by_webhook(url: str) -> Deliver:
    """Posts each alarm as JSON to an address."""

    def deliver(alarm: Alarm) -> None:
        request = urllib.request.Request(  # noqa: S310 - an address of http or https, which the settings check
            url, json.dumps(alarm.to_json()).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_TAKES_AT_MOST_S):  # noqa: S310 - as above
            pass

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
    def deliveries(self) -> list[Deliver]:
        """The ways in which alarms are delivered."""
        ways = [by_command(self.command)] if self.command else []
        return [*ways, by_webhook(self.webhook)] if self.webhook else ways


class AlarmBell:
    """Looks at new results, and delivers what is news in them."""

    def __init__(
        self,
        home: Home,
        deliveries: Sequence[Deliver],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._home, self._deliveries, self._now = home, deliveries, now
        self._path = home.root / "quality" / "alarms.json"
        self._since = now() - _FIRST_LOOK
        self._delivered: dict[int, set[tuple[str, str, str]]] = {}

    def look(self) -> bool:
        """Delivers what is news; says whether everything was delivered."""
        from headwater_streams.quality.results import history

        if not self._deliveries:
            return True
        found: list[Mapping[str, Any]] = history(self._home, since=self._since, columns=_COLUMNS).to_pylist()
        state = self._state()
        for alarm in alarms(state, found):
            if not self._deliver(alarm):
                return False
            state = state.after(alarm)
            self._keep(state)
        if found:  # results of two jobs may be committed a little out of order
            self._since = max(self._since, found[-1]["at"] - timedelta(minutes=10))
        return True

    def _deliver(self, alarm: Alarm) -> bool:
        """Delivers an alarm in every way that it was not delivered yet."""
        key, is_done = (alarm.table, alarm.check, f"{alarm.state} {alarm.at}"), True
        for place, deliver in enumerate(self._deliveries):
            done = self._delivered.setdefault(place, set())
            if key in done:
                continue
            try:
                deliver(alarm)
                done.add(key)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                _log.warning("alarm not delivered, and tried again: %s (%s)", alarm.sentence, error)
                is_done = False
        return is_done

    def _keep(self, state: AlarmState) -> None:
        from headwater_streams.storage.files import make_folder
        from headwater_streams.storage.records import write_record

        make_folder(self._path.parent)
        write_record(self._path, state)

    def _state(self) -> AlarmState:
        from headwater_streams.storage.files import exists
        from headwater_streams.storage.records import read_record

        return read_record(self._path, AlarmState) if exists(self._path) else AlarmState()


class QualityWatch:
    """Runs suites and rings the bell, from the loop that watches the jobs; each in a thread of its own."""

    def __init__(
        self,
        home: Home,
        jobs: "Sequence[Job]",
        settings: WatchSettings,
        run_suite: "Callable[[Job], int]",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: the home; the jobs; what is watched; what judges a job's table, and gives its version; the clock."""
        self._home, self._jobs, self._settings, self._run, self._clock = (
            home,
            jobs,
            settings,
            run_suite,
            clock,
        )
        self._bell = AlarmBell(home, settings.deliveries)
        self._began = {job.name: clock() for job in jobs}
        self._judged = {job.name: -1 for job in jobs}
        self._look_at = clock()
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """Begins what is due; returns at once."""
        if self._thread is not None and self._thread.is_alive():
            return
        due = [job for job in self._jobs if self._is_due(job)]
        looks = bool(self._settings.deliveries) and self._clock() >= self._look_at
        if due or looks:
            self._thread = threading.Thread(
                target=self._work, args=(due,), name="headwater-quality", daemon=True
            )
            self._thread.start()

    def finish(self) -> None:
        """Waits for what was begun, and looks once more: a job may have ended by a check."""
        if self._thread is not None:
            self._thread.join(_TAKES_AT_MOST_S)
        self._look()

    def _is_due(self, job: "Job") -> bool:
        from headwater_streams.ledger.log import next_commit

        schedule = self._settings.schedule
        if schedule == _NO_SUITES:
            return False
        return schedule.is_due(
            waited_s=self._clock() - self._began[job.name],
            version=next_commit(self._home.table(job.target.name)) - 1,
            judged_version=self._judged[job.name],
        )

    def _work(self, due: "Sequence[Job]") -> None:
        for job in due:
            self._began[job.name] = self._clock()
            try:
                self._judged[job.name] = self._run(job)
            except Exception as error:  # a suite may raise whatever Spark does
                _log.warning("the suite of %s did not run: %s", job.target.name, error)
        self._look()

    def _look(self) -> None:
        try:
            is_done = self._bell.look()
        except Exception as error:
            _log.warning("the results of checks could not be looked at: %s", error)
            is_done = False
        self._look_at = self._clock() + (_LOOK_EVERY_S if is_done else _AGAIN_AFTER_S)


def quality_watch(home: "Path", spark: "SparkSession", jobs: "Sequence[Job]") -> QualityWatch:
    """What `jobs run` watches, as the settings say."""
    settings = load_settings(os.environ).settings.quality
    minutes, commits = float(settings.every_minutes), settings.after_commits
    schedule = Schedule(every_s=minutes * 60 if minutes else None, commits=commits or None)
    watched = WatchSettings(schedule, settings.alarm_command, settings.alarm_webhook)

    def judge(job: "Job") -> int:
        from headwater_streams.quality.run import run_suite
        from headwater_streams.quality.suite_rows import keep_result

        result = run_suite(spark, home, job.target.name, checks=job.checks, keys=job.target.keys)
        keep_result(Home(home), result)
        return result.version

    return QualityWatch(Home(home), jobs, watched, judge)
