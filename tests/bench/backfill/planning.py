"""`plan` over a topic of many partitions: in a session that is there, and as a command, whose session starts first."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill import jobs
from headwater_streams import backfill
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home

JOB_FILE = Path(__file__).with_name("jobs.py")


def command(*arguments: str) -> list[str]:
    """`headwater backfill` as a process."""
    return [sys.executable, "-m", "headwater.cli", "backfill", *arguments]


def environment() -> dict[str, str]:
    """What such a process needs to load the jobs of this bench."""
    folders = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}


def _told(what: str, seconds: float) -> None:
    print(f"{what:26} {seconds:6.2f} s", file=sys.stderr, flush=True)


def planning(
    spark: SparkSession, address: str, folder: Path, *, partitions: int, rows: int, rounds: int, by_time: bool
) -> dict[str, Any]:
    """Plans of a job that has read the whole topic; medians over the rounds, the first of them told apart.

    Args:
        spark: The session.
        address: The broker, with the topic.
        folder: An empty folder.
        partitions: How many partitions the topic has.
        rows: How many rows.
        rounds: How often each plan is made.
        by_time: Whether a range of timestamps is planned, too, which reads all records.
    """
    home = Home(folder)
    context = StageContext(spark, home, KafkaSource(address))
    job = jobs.declared()["clean"]
    started = time.monotonic()
    JobRunner(context, [job]).run_once()
    _told("live", time.monotonic() - started)
    kinds: dict[str, Callable[[], Any]] = {
        "all": lambda: backfill.plan(context, job),
        "offsets of one partition": lambda: backfill.plan(context, job, offsets={jobs.TOPIC: {0: (0, 1)}}),
        "rebuild": lambda: backfill.plan_rebuild(context, job),
    }
    if by_time:
        kinds["timestamps"] = lambda: backfill.plan(context, job, timestamps=("2000-01-01", "2100-01-01"))
    made = command(
        "plan", f"{JOB_FILE}:clean", "--all", "--json", "--home", str(folder), "--bootstrap", address
    )
    kinds["all, as a command"] = lambda: subprocess.run(
        made, env=environment(), check=True, stdout=subprocess.DEVNULL
    )
    found: dict[str, Any] = {"partitions": partitions, "rows": rows}
    for kind, plan in kinds.items():
        took_s = []
        for _ in range(rounds):
            started = time.monotonic()
            plan()
            took_s.append(time.monotonic() - started)
            _told(kind, took_s[-1])
        found[kind] = {"first_s": round(took_s[0], 2), "median_s": round(statistics.median(took_s), 2)}
    return found
