"""The queries through the library, as `headwater jobs run --once` would run them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headwater_streams.ledger.log import commits
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import Job, Late
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from nexmark.topics import SIDE_ROWS

SIDE_TABLE = "nexmark.side_input"


class BadAccountError(Exception):
    """A job found rows late or bad, or its account does not hold what the topics do."""


def jobs() -> dict[str, Job]:
    """The jobs by the names of their queries."""
    return {job.name: job for job in load_jobs([str(Path(__file__).with_name("jobs.py"))])}


def prepare(home: Path) -> None:
    """Makes the table of q13's side input."""
    numbers = range(SIDE_ROWS)
    side = pa.table({"key": pa.array(numbers, pa.int64()), "value": [str(number) for number in numbers]})
    write_deltalake(str(Home(home).table(SIDE_TABLE)), side)


class Steps:
    """How long a job's steps took: between two that it names, by the name of the later one."""

    def __init__(self) -> None:
        self.took_ms: Counter[str] = Counter()
        self._last_s = time.monotonic()

    def __call__(self, job: str, step: str, batch: int) -> None:
        """Notes a step, as `StageContext.step`."""
        now_s = time.monotonic()
        kind = "ingest" if "__ingest_" in job else "job"
        self.took_ms[f"{kind}: until {step}"] += round((now_s - self._last_s) * 1000)
        self._last_s = now_s


def run(
    spark: SparkSession, address: str, home: Path, job: Job, late: Late
) -> tuple[list[Mapping[str, Any]], Mapping[str, int]]:
    """Runs a job over what the topics hold; gives Spark's account of its batches, and the job's own steps."""
    steps = Steps()
    context = StageContext(spark, Home(home), KafkaSource(address), steps)
    runner = JobRunner(context, [replace(job, late=late)])
    runner.run_once()
    return [told for query in runner.queries.values() for told in query.progress(-1)], steps.took_ms


def check_account(home: Path, job: Job, wanted: Mapping[str, int]) -> None:
    """Checks that a job read each row of its inputs, and took none for late or bad.

    Args:
        home: Where it ran.
        job: The job.
        wanted: The rows of each input, by the function's parameter.

    Raises:
        BadAccountError: It did not.
    """
    found: dict[str, dict[str, int]] = {}
    for commit in commits(Home(home).table(job.target.name)):
        for name, terms in (commit.entry.accounting if commit.entry else {}).items():
            for term, rows in terms.items():
                totals = found.setdefault(name, {})
                totals[term] = totals.get(term, 0) + rows
    for name, rows in wanted.items():
        terms = found.get(name, {})
        if terms.get("read") != rows or terms.get("late", 0) or terms.get("quarantined", 0):
            raise BadAccountError(
                f"{job.name}, {name}: {rows} rows in the topic, and the ledger says {terms}"
            )
