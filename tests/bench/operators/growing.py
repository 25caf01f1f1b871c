"""The contenders over the growing topic: at each size, in turns, what each took for what came since."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater_streams.ledger.log import commits, commits_backwards, seen_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from operators import jobs, plain
from operators.topic import Topic
from support.measured import measure

PAIRS = (
    ("by_offset", "none"),
    ("origin", "none"),
    ("drop_duplicates", "plain"),
    ("drop_duplicates_memory", "plain"),
    ("by_offset", "drop_duplicates"),
    ("checks", "none"),
    ("warned", "none"),
    ("rejecting", "none"),
    ("bounded", "none"),
    ("of_batches", "none"),
    ("unique", "none"),
    ("none", "plain"),
)


class WrongRowsError(Exception):
    """A contender's table does not have the rows that the topic has."""


@dataclass(frozen=True)
class Step:
    """What a contender took at one size.

    Attributes:
        rows: What it read.
        batches_s: The sum of its batches, from trigger to commit, as Spark's progress tells.
        add_batch_s: Of that, the batch itself, without Spark's planning of it and its logs.
        seconds: With the query's planning and start.
        cpu_s: Processor time of the JVM and of Python, over `seconds`.
        state: What it keeps now.
    """

    rows: int
    batches_s: float
    add_batch_s: float
    seconds: float
    cpu_s: float
    state: Mapping[str, int]


class Growing:
    """The contenders, each with a home of its own."""

    def __init__(self, spark: SparkSession, address: str, topic: Topic, folder: Path) -> None:
        """Args: the session, the broker, the topic that will grow, an empty folder."""
        self._spark, self._address, self._topic, self._folder = spark, address, topic, folder
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._jvm = gateway.proc.pid
        self._jobs = jobs.jobs_over(topic.name)
        self._read: dict[str, int] = {}

    def step(self, name: str) -> Step:
        """One contender over what came since its last turn.

        Raises:
            WrongRowsError: Its table has other rows than the topic.
        """
        told: list[Mapping[str, Any]] = []

        def run() -> tuple[list[Mapping[str, Any]], Mapping[str, int]]:
            told.extend(self._run(name))
            return told, {}

        found = measure(self._jvm, run)
        batches = [batch for batch in told if batch["numInputRows"]]
        before, self._read[name] = self._read.get(name, 0), self._topic.rows
        self._check(name)
        return Step(
            self._topic.rows - before,
            sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000,
            sum(batch["durationMs"]["addBatch"] for batch in batches) / 1000,
            found.seconds,
            found.cpu_s,
            self._state(name, batches[-1]),
        )

    def _run(self, name: str) -> list[Mapping[str, Any]]:
        home = self._folder / name
        if name in plain.CONTENDERS:
            return plain.run(self._spark, self._address, self._topic.name, home, name)
        context = StageContext(self._spark, Home(home), KafkaSource(self._address))
        runner = JobRunner(context, [self._jobs[name]])
        runner.run_once()
        return [told for query in runner.queries.values() for told in query.progress(-1)]

    def _table(self, name: str) -> Path:
        home = self._folder / name
        if name in plain.CONTENDERS:
            return home / plain.TABLE
        return Home(home).table(self._jobs[name].target.name)

    def _check(self, name: str) -> None:
        written = sum(commit.rows_added for commit in commits(self._table(name)))
        rejected = -(-self._topic.rows // jobs.REJECTED_OF) if name == "rejecting" else 0
        if written != self._topic.rows - rejected:
            raise WrongRowsError(
                f"{name}: {written} rows in its table; {self._topic.rows} in the topic, {rejected} to reject"
            )

    def _state(self, name: str, last: Mapping[str, Any]) -> dict[str, int]:
        if name in plain.CONTENDERS:
            return plain.state_of(last)
        table = self._table(name)
        entry = next(commit.entry for commit in commits_backwards(table) if commit.entry is not None)
        seen = seen_of(table, entry.job, entry.generation) or {}
        kept = len(json.dumps(seen, separators=(",", ":"))) if seen else 0
        intervals = sum(len(pairs) for pairs in seen.values())
        return {"rows": intervals, "ledger_bytes": kept, "entry_bytes": len(entry.to_json())}


def grow(growing: Growing, topic: Topic, sizes: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
    """All contenders at each size, the one who begins changing; the figures of each size."""
    found = []
    for place, size in enumerate(sizes):
        topic.grow(size)
        turn = place % len(names)
        steps = {}
        for name in (*names[turn:], *names[:turn]):
            steps[name] = growing.step(name)
            print(f"{size / 1e6:5.1f} M  {name:22} {_told(steps[name])}", file=sys.stderr, flush=True)
        told = {name: _told(steps[name]) for name in names}
        found.append({"rows": size, "load": os.getloadavg()[0], "contenders": told})
    return found


def _told(step: Step) -> dict[str, Any]:
    return {
        "rows_per_s": round(step.rows / step.batches_s),
        "cpu_us_per_row": round(step.cpu_s / step.rows * 1e6, 2),
        "batches_s": round(step.batches_s, 2),
        "add_batch_s": round(step.add_batch_s, 2),
        "seconds": round(step.seconds, 2),
        "state": dict(step.state),
    }


def ratios(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Of rows/s and of CPU a row: the first of a pair by the second, the medians over the sizes; more is better."""
    names = set(found[0]["contenders"])
    told: dict[str, dict[str, float]] = {"rows_per_s": {}, "cpu": {}}
    for ours, peer in PAIRS:
        if {ours, peer} <= names:
            each = [(one["contenders"][ours], one["contenders"][peer]) for one in found]
            name = f"{ours}/{peer}"
            told["rows_per_s"][name] = _median([a["rows_per_s"] / b["rows_per_s"] for a, b in each])
            told["cpu"][name] = _median([b["cpu_us_per_row"] / a["cpu_us_per_row"] for a, b in each])
    return told


def _median(found: list[float]) -> float:
    return round(statistics.median(found), 3)
