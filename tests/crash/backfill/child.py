"""A process with a Spark session that runs jobs and does backfills as it is told, and dies where it is told to.

`child.py BOOTSTRAP HOME` reads one JSON object a line, each with a `number`, and answers each with one:

    {"start": "clean", "code": 3}       runs a job from now on, in the place of what ran under its name
    {"running": "clean"}                why it ended, null while it runs
    {"read_to": "/some/file"}               appends what Spark reads of the tables to a file, from now on
    {"verb": "run", "id": ..., "job": "clean", "code": 4, "trap": ["before chunk", 1]}

A trap is sprung when its step is reached the so-manieth time in that verb: the process is ended as by kill -9, its JVM
with it or left to find out alone (`"orphan": true`).
"""

import json
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from backfill_model import SUMS
from jobs_by_code import JOBS
from pyspark.sql import functions as F

from headwater.running.leases import lease_factory
from headwater.running.pytest_plugin import SMALL_BATCHES
from headwater.stack.session import spark_session
from headwater_streams import backfill
from headwater_streams.base.errors import StreamsError
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.restarts import BackOff, Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home

# Two JVMs share the machine with readers and a broker: a thread for each thing is enough.
_QUICK_START = SMALL_BATCHES | {
    "spark.driver.memory": "700m",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",  # they close the last sessions
    "spark.driver.defaultJavaOptions": f"{SMALL_BATCHES['spark.driver.defaultJavaOptions']} -XX:+UseSerialGC",
}
_INTERVAL_S = 4.0
_READ_EVERY_S = 8.0


class Jobs:
    """The live jobs, each with a runner of its own: what ends one does not end the other."""

    def __init__(self, context: StageContext, home: Path) -> None:
        self._context, self._home = context, home
        self._runners: dict[str, JobRunner] = {}
        self._ended: dict[str, str] = {}

    def start(self, name: str, code: int) -> str | None:
        """Starts a job; says what refuses it."""
        if name in self._runners:
            self._runners.pop(name).stop()
        self._ended.pop(name, None)
        runner = JobRunner(
            self._context,
            [JOBS[name](code)],
            lease=lease_factory(self._home, ""),
            restarts=Restarts(BackOff(first_s=0.5, most_s=2)),
            upkeep=Upkeep(every=15, files_kept_h=1),
            progress_every_s=None,
        )
        try:
            runner.start(interval_s=_INTERVAL_S)
        except Exception as error:
            self._end(name, runner, error)
            return self._ended[name]
        self._runners[name] = runner
        return None

    def look(self) -> None:
        """Watches them for a moment."""
        for name, runner in list(self._runners.items()):
            try:
                runner.watch(0)
            except Exception as error:  # a job's end may be of any kind, and the test tells which are to be
                self._end(name, runner, error)
                del self._runners[name]

    def _end(self, name: str, runner: JobRunner, error: Exception) -> None:
        if not isinstance(error, StreamsError):
            traceback.print_exc()
        self._ended[name] = f"{type(error).__name__}: {error}"
        runner.stop()  # its ingest job, which goes on

    def ended(self, name: str) -> str | None:
        """Why a job ended, None while it runs."""
        return self._ended.get(name)


class Backfills:
    """Does the verbs, in a thread of its own beside the jobs."""

    def __init__(self, context: StageContext, answers: "queue.Queue[dict[str, Any]]") -> None:
        self._context, self._answers = context, answers

    def do(self, asked: dict[str, Any]) -> None:
        """Does one verb and answers."""
        context = replace(self._context, step=self._trap(asked))
        try:
            answer: dict[str, Any] = {"done": _done(context, asked)}
        except StreamsError as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        except Exception:  # the test shows it
            answer = {"failed": traceback.format_exc()}
        self._answers.put(answer | {"to": asked["number"]})

    def _trap(self, asked: dict[str, Any]) -> Any:
        wanted, left = asked.get("trap") or ("", 0)

        def step(_job: str, name: str, _batch: int) -> None:
            nonlocal left
            if name != wanted:
                return
            left -= 1
            if left:
                return
            _say({"at": name, "to": asked["number"]})
            die(orphan=bool(asked.get("orphan")))

        return step


def die(*, orphan: bool) -> None:
    """Ends this process as by kill -9, and the JVM at the same time or by what it notices alone."""
    if orphan:
        os._exit(9)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _done(context: StageContext, asked: dict[str, Any]) -> Any:
    verb, job = asked["verb"], JOBS[asked["job"]](asked["code"])
    if verb == "plan":
        make = {"repair": backfill.plan, "rebuild": backfill.plan_rebuild, "rewind": backfill.plan_rewind}
        given = dict(asked["given"])
        if "offsets" in given:
            given["offsets"] = {
                topic: {int(p): tuple(pair) for p, pair in found.items()}
                for topic, found in given["offsets"].items()
            }
        return make[asked["mode"]](context, job, **given).to_json()  # type: ignore[operator]
    if verb == "run":
        return backfill.run(context, asked["id"], job).to_json()
    if verb == "verify":
        return backfill.verify(context, asked["id"], job).to_json()
    if verb == "swap":
        return backfill.swap(context, asked["id"])
    assert verb == "rollback"
    return backfill.rollback(context, asked["id"])


def _read_on(context: StageContext, readings: Path) -> None:
    """Reads the tables with Spark, over and over, and notes what it saw."""
    while True:
        for table, sums in SUMS.items():
            path = context.home.table(table)
            if not (path / "_delta_log").exists():
                continue
            rows = context.spark.read.format("delta").load(str(path))
            seen = rows.agg(F.count("*"), *[F.expr(f"coalesce(sum({each}), 0)") for each in sums]).first()
            with readings.open("a") as file:
                file.write(json.dumps([table, *(seen or ())]) + "\n")
        time.sleep(_READ_EVERY_S)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(bootstrap: str, home: Path) -> None:
    """Does what the lines say, until there are no more."""
    session = spark_session(home, app_name="backfill", cores=1, extra=_QUICK_START)
    context = StageContext(session, Home(home), KafkaSource(bootstrap))
    asked: queue.Queue[dict[str, Any] | None] = queue.Queue()
    answers: queue.Queue[dict[str, Any]] = queue.Queue()
    jobs, backfills = Jobs(context, home), Backfills(context, answers)

    def listen() -> None:
        for line in sys.stdin:
            asked.put(json.loads(line))
        asked.put(None)

    threading.Thread(target=listen, daemon=True).start()
    _say({"ready": os.getpid()})
    while True:
        try:
            command = asked.get(timeout=0.2)
        except queue.Empty:
            command = {}
        if command is None:
            die(orphan=False)
            return
        if "read_to" in command:
            target = Path(command["read_to"])
            threading.Thread(target=_read_on, args=(context, target), daemon=True).start()
            _say({"reading": str(target), "to": command["number"]})
        elif "start" in command:
            _say({"refused": jobs.start(command["start"], command["code"]), "to": command["number"]})
        elif "running" in command:
            _say({"ended": jobs.ended(command["running"]), "to": command["number"]})
        elif "verb" in command:
            threading.Thread(target=backfills.do, args=(command,), daemon=True).start()
        jobs.look()
        while not answers.empty():
            _say(answers.get())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    main(sys.argv[1], Path(sys.argv[2]))
