"""The live job's time from the producer to the commit, alone and beside a backfill of its older rows."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from backfill import jobs
from backfill.planning import JOB_FILE, command, environment
from headwater.running.environment import job_settings
from headwater_streams import backfill
from headwater_streams.backfill.progress import Progress
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from operators.topic import Topic

_PATIENCE_S = 300


@dataclass
class _Stretch:
    """A stretch of time in which the live job's rows are counted."""

    kind: str
    start_s: float
    end_s: float = 0.0


class BackfillFailedError(Exception):
    """The process that ran the backfill did not end well."""


def beside(
    spark: SparkSession,
    address: str,
    topic: Topic,
    folder: Path,
    *,
    rate: int,
    seconds: float,
    rounds: int,
) -> dict[str, Any]:
    """In turns alone and beside a backfill, in one run of the live job; each round's backfill is a new one.

    Args:
        spark: The session of the live job.
        address: The broker.
        topic: The topic, filled with the rows that the backfills read again.
        folder: An empty folder.
        rate: Events a second that come in meanwhile, one by one.
        seconds: How long rows are counted alone, in each round.
        rounds: How many rounds.

    Raises:
        BackfillFailedError: See the class.
    """
    home = Home(folder)
    context = StageContext(spark, home, KafkaSource(address))
    job = jobs.declared()["clean"]
    JobRunner(context, [job]).run_once()
    settings = job_settings()
    upkeep = Upkeep(settings.compact_every, settings.files_kept_h, settings.log_kept_days)
    runner = JobRunner(context, [job], copy_every=settings.ledger_copy_every, upkeep=upkeep)
    table = home.table(job.target.name)
    first = next_commit(table)
    runner.start(interval_s=settings.trigger_interval_s)
    stretches: list[_Stretch] = []
    old = topic.rows
    ranges = {jobs.TOPIC: {0: (0, old // 2), 1: (0, old // 2)}}
    ran_s = []
    try:
        with trickle(topic, rate):
            runner.watch(seconds)  # so that both are warm
            for _ in range(rounds):
                stretches.append(_Stretch("alone", time.time()))
                runner.watch(seconds)
                stretches[-1].end_s = time.time()
                planned = backfill.plan(context, job, offsets=ranges, reference=f"{JOB_FILE}:clean")
                stretches.append(_Stretch("beside", time.time()))
                ran_s.append(_run(runner, home, planned.id, address))
                stretches[-1].end_s = time.time()
                backfill.abort(home, planned.id)
                runner.watch(seconds / 4)
        runner.watch(5)
    finally:
        runner.stop()
    times = _times(table, first)
    found: dict[str, Any] = {"rate": rate, "rows_read_again": old, "backfill_s": [round(s, 1) for s in ran_s]}
    for kind in ("alone", "beside"):
        each = [_between(times, one) for one in stretches if one.kind == kind]
        found[kind] = {
            "rows": sum(map(len, each)),
            "p50_ms": round(statistics.median(_cut(one, 50) for one in each)),
            "p99_ms": round(statistics.median(_cut(one, 99) for one in each)),
        }
    found["ratio"] = {
        name: round(found["beside"][f"{name}_ms"] / found["alone"][f"{name}_ms"], 2)
        for name in ("p50", "p99")
    }
    return found


def _run(runner: JobRunner, home: Home, backfill_id: str, address: str) -> float:
    """Runs a backfill as a command beside the live job; gives how long it took, its session's start with it."""
    made = command("run", backfill_id, "--json", "--home", str(home.root), "--bootstrap", address)
    started = time.monotonic()
    process = subprocess.Popen(made, env=environment(), stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            runner.watch(0.5)
    finally:
        process.terminate()
        process.wait()
    progress = BackfillFolder(home, backfill_id).read(Progress)
    if process.returncode or progress is None or progress.state != "done":
        raise BackfillFailedError(f"{backfill_id}: status {process.returncode}, {progress}")
    return time.monotonic() - started


@contextmanager
def trickle(topic: Topic, rate: int) -> Iterator[None]:
    """Produces at the rate while the block runs, and waits until the broker has all of it."""
    over = threading.Event()

    def produce() -> None:
        started, number = time.monotonic(), 0
        while not over.wait(max(0.0, started + number / rate - time.monotonic())):
            topic.one_soon()
            number += 1

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_PATIENCE_S)
        topic.flush()


def _times(table: Path, first: int) -> list[tuple[float, float]]:
    """When each record was produced and how long it took until its commit, in seconds, from a version on."""
    found = []
    for commit in commits(table, since=first):
        if not commit.is_append:
            continue  # a compaction
        seen_s = (table / "_delta_log" / f"{commit.version:020}.json").stat().st_mtime_ns / 1e9
        for path in commit.added_paths:
            times = pq.read_table(table / path, columns=["_timestamp"])["_timestamp"]
            micros = pc.cast(pc.cast(times, "timestamp[us]"), "int64").to_pylist()
            found += [(at_us / 1e6, seen_s - at_us / 1e6) for at_us in micros]
    return found


def _between(times: Sequence[tuple[float, float]], stretch: _Stretch) -> list[float]:
    return [took_s * 1000 for at_s, took_s in times if stretch.start_s <= at_s < stretch.end_s]


def _cut(found: Sequence[float], percent: int) -> float:
    return statistics.quantiles(found, n=100, method="inclusive")[percent - 1]
