"""A batch of one record, from the producer to a Delta table, in a job that runs on and is warm."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.running.environment import job_settings
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from operators import jobs, plain
from operators.topic import Topic
from support.processes import cpu_s

CONTENDERS = ("plain", "by_offset", "checks")
_PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
_PATIENCE_S = 300

Told = Callable[[], Sequence[Mapping[str, Any]]]
"""Spark's account of the batches so far."""


class NotOneRecordError(Exception):
    """A batch had another number of records than one, so its time says nothing."""


def smallest(
    spark: SparkSession,
    address: str,
    folder: Path,
    names: list[str],
    *,
    warm: int,
    batches: int,
    interval_s: float,
    seed: int,
) -> dict[str, Any]:
    """Each contender in turn, over a topic of its own, one record at a time.

    Args:
        spark: The session.
        address: The broker.
        folder: An empty folder.
        names: The contenders.
        warm: Batches that are not counted.
        batches: Batches that are.
        interval_s: The trigger's interval, of which a record waits half on average; each makes Spark ask the broker
            for its offsets, which is part of the CPU time.
        seed: Of the pauses between records.
    """
    found: dict[str, Any] = {"batches": batches, "interval_s": interval_s}
    rng = random.Random(seed)
    for name in names:
        topic = Topic(address, f"one-by-one-{name}", seed, partitions=1)
        topic.one_more()
        home = folder / name
        if name == "plain":
            table, running = home / plain.TABLE, _plain(spark, address, topic.name, home, interval_s)
        else:
            job = jobs.jobs_over(topic.name)[name]
            table = Home(home).table(job.target.name)
            running = _library(spark, address, home, job, interval_s)
        with running as (told, look):
            _wait(table, 0, look)
            took_ms, used_s = [], 0.0
            for number in range(warm + batches):
                if number == warm:
                    used_s = _cpu_s(spark)
                _pause(rng.uniform(0.05, 0.05 + interval_s), look)
                version, produced_s = next_commit(table), time.time()
                topic.one_more()
                took_ms.append((_wait(table, version, look) - produced_s) * 1000)
            used_s = _cpu_s(spark) - used_s
            time.sleep(0.5)  # Spark tells of a batch after its commit
            accounts = told()[-batches:]
        found[name] = _told(accounts, took_ms[-batches:])
        found[name]["cpu_ms_a_batch"] = round(used_s / batches * 1000)
    return found


def _told(accounts: Sequence[Mapping[str, Any]], took_ms: list[float]) -> dict[str, Any]:
    wrong = [account["numInputRows"] for account in accounts if account["numInputRows"] != 1]
    if wrong or len(accounts) != len(took_ms):
        raise NotOneRecordError(f"{len(accounts)} batches for {len(took_ms)} records; other sizes: {wrong}")
    found: dict[str, Any] = {"produce_to_commit_ms": _percentiles(took_ms)}
    for phase in _PHASES:
        found[f"{phase}_ms"] = _percentiles([a["durationMs"].get(phase, 0) for a in accounts])
    return found


def _percentiles(found: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return {"p50": round(cuts[49]), "p99": round(cuts[98])}


def _cpu_s(spark: SparkSession) -> float:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return cpu_s(gateway.proc.pid) + time.process_time()


@contextmanager
def _plain(
    spark: SparkSession, address: str, topic: str, home: Path, interval_s: float
) -> Iterator[tuple[Told, Callable[[], None]]]:
    writer = plain.into_delta(plain.rows(spark, address, topic), home)
    query = writer.trigger(processingTime=f"{interval_s} seconds").start()

    def look() -> None:
        if (error := query.exception()) is not None:
            raise error

    try:
        yield lambda: [dict(told) for told in query.recentProgress if told["numInputRows"]], look
    finally:
        query.stop()


@contextmanager
def _library(
    spark: SparkSession, address: str, home: Path, job: Job, interval_s: float
) -> Iterator[tuple[Told, Callable[[], None]]]:
    """The job as `headwater jobs run` runs it, with its ledger, progress and upkeep."""
    settings = job_settings()
    runner = JobRunner(
        StageContext(spark, Home(home), KafkaSource(address)),
        [job],
        copy_every=settings.ledger_copy_every,
        progress_every_s=settings.progress_every_s,
        upkeep=Upkeep(settings.compact_every, settings.files_kept_h, settings.log_kept_days),
    )
    runner.start(interval_s=interval_s)
    try:
        yield lambda: runner.queries[job.name].progress(-1), lambda: runner.watch(0)
    finally:
        runner.stop()


def _wait(table: Path, version: int, look: Callable[[], None]) -> float:
    """When the first commit with rows from this version on was there."""
    deadline_s, looked_s = time.monotonic() + _PATIENCE_S, time.monotonic()
    while True:
        for commit in commits(table, since=version):
            if commit.is_append:
                log = table / "_delta_log" / f"{commit.version:020}.json"
                return log.stat().st_mtime_ns / 1e9
        now_s = time.monotonic()
        if now_s > deadline_s:
            raise TimeoutError(f"{table}: no commit with rows from version {version} on in {_PATIENCE_S} s")
        if now_s - looked_s > 0.5:
            look()
            looked_s = now_s
        time.sleep(0.005)


def _pause(seconds: float, look: Callable[[], None]) -> None:
    until_s = time.monotonic() + seconds
    look()
    time.sleep(max(0.0, until_s - time.monotonic()))
