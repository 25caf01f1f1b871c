"""Each job over all its rows: live, repaired, rebuilt, and as a query that was written by hand.

Of the row job also `parse`: the topic read and its JSON parsed by Spark, and nothing done with it.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from backfill import jobs, plain
from headwater_streams import backfill
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home
from support.measured import Run, measure

JOBS = ("clean", "by_device", "by_device_of_topic")
CONTENDERS = ("live", "repair", "rebuild", "query")
_OF_WINDOWS = "device, window_start, readings, total, least, greatest"
_COLUMNS = {
    "clean": 'id, device, "at", kind, value, unit, note, _partition, _offset',
    "by_device": _OF_WINDOWS,
    "by_device_of_topic": _OF_WINDOWS,
}


class WrongRowsError(Exception):
    """Two contenders wrote different rows, or a verdict did not pass."""


class Speed:
    """One round: a home of its own, the jobs in their order, each with its contenders."""

    def __init__(self, spark: SparkSession, address: str, home: Path) -> None:
        """Args: the session, the broker, an empty folder."""
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._spark, self._address, self._jvm = spark, address, gateway.proc.pid
        self._home = Home(home)
        self._context = StageContext(spark, self._home, KafkaSource(address))
        self._jobs = jobs.declared()
        self.runs: dict[str, dict[str, Run]] = {}

    def of(self, name: str, order: Sequence[str]) -> None:
        """Runs a job's contenders, the live job first.

        Args:
            name: The job.
            order: The others, in the order in which they have their turns; what its late rows rule out is left out.

        Raises:
            WrongRowsError: See the class.
        """
        job = self._jobs[name]
        runs = self.runs.setdefault(name, {})
        runs["live"] = self._timed("live", name, lambda: JobRunner(self._context, [job]).run_once())
        table = self._home.table(job.target.name)
        wanted = _content(table, name)
        for contender in order:
            if contender == "repair" and job.late == "count":
                continue  # no table holds its rows by event time
            if contender == "query":
                written = self._home.root / "query" / name
                runs[contender] = self._timed(contender, name, lambda to=written: self._query(name, to))
            else:
                written = self._backfill(contender, job)
            if (found := _content(written, name)) != wanted:
                raise WrongRowsError(f"{name}: live wrote {wanted} (rows, hash), {contender} {found}")
        if name == "clean":
            runs["parse"] = self._timed("parse", name, lambda: plain.parse(self._spark, self._address))

    def _query(self, name: str, written: Path) -> None:
        if name == "clean":
            plain.clean(self._spark, self._address, written)
        elif name == "by_device":
            plain.by_device(self._spark, self._home.table(jobs.TABLE), written)
        else:
            plain.by_device_of_topic(self._spark, self._address, written)

    def _backfill(self, kind: str, job: Job) -> Path:
        """Plans, runs and verifies one; gives the table of its rows."""
        runs, context = self.runs[job.name], self._context
        make: Callable[[], Any] = lambda: (backfill.plan if kind == "repair" else backfill.plan_rebuild)(  # noqa: E731
            context, job
        )
        made: list[Any] = []
        runs[f"{kind}, plan"] = self._timed(f"{kind}, plan", job.name, lambda: made.append(make()))
        (planned,) = made
        runs[kind] = self._timed(kind, job.name, lambda: backfill.run(context, planned.id, job))
        verdicts: list[backfill.Verdict] = []
        verify = f"{kind}, verify"
        runs[verify] = self._timed(
            verify, job.name, lambda: verdicts.append(backfill.verify(context, planned.id, job))
        )
        if not verdicts[0].passed:
            raise WrongRowsError(f"{job.name}, {kind}: {verdicts[0].findings}")
        folder = BackfillFolder(self._home, planned.id)
        return folder.shadow if kind == "repair" else Home(folder.rebuilt).table(job.target.name)

    def _timed(self, what: str, name: str, run: Callable[[], Any]) -> Run:
        def once() -> tuple[list[Mapping[str, Any]], Mapping[str, int]]:
            run()
            return [], {}

        found = measure(self._jvm, once)
        print(
            f"{name:18} {what:16} {found.seconds:7.2f} s, CPU {found.cpu_s:7.2f} s",
            file=sys.stderr,
            flush=True,
        )
        return found


def _content(table: Path, name: str) -> tuple[int, str]:
    """How many rows a table has, and the sum of their hashes, whatever their order."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("written", dataset_of(table))
        sums = f"SELECT count(*), sum(hash({_COLUMNS[name]})::HUGEINT) FROM written"
        ((rows, hashes),) = connection.sql(sums).fetchall()
    return int(rows), str(hashes)


def told(rounds: Sequence[Speed], rows: Mapping[str, int]) -> dict[str, Any]:
    """Medians over the rounds: seconds, CPU time and rows/s of each step, and the ratios that count.

    Args:
        rounds: The rounds.
        rows: How many rows each job reads.
    """
    found: dict[str, Any] = {}
    for name in rounds[0].runs:
        steps = {
            step: {
                "seconds": round(_median(one.runs[name][step].seconds for one in rounds), 2),
                "cpu_s": round(_median(one.runs[name][step].cpu_s for one in rounds), 2),
                "rows_per_s": round(_median(rows[name] / one.runs[name][step].seconds for one in rounds)),
            }
            for step in rounds[0].runs[name]
        }
        found[name] = {"rows": rows[name], "steps": steps, "ratio": _ratios(rounds, name)}
    return found


def _ratios(rounds: Sequence[Speed], name: str) -> dict[str, float]:
    there = rounds[0].runs[name]
    pairs = [(kind, peer) for kind in ("repair", "rebuild") for peer in ("live", "query")]
    found = {
        f"{kind}/{peer}, rows/s": _median(
            one.runs[name][peer].seconds / one.runs[name][kind].seconds for one in rounds
        )
        for kind, peer in pairs
        if {kind, peer} <= set(there)
    }
    for kind in ("repair", "rebuild"):
        if kind in there:
            found[f"{kind}, verify/run"] = _median(
                one.runs[name][f"{kind}, verify"].seconds / one.runs[name][kind].seconds for one in rounds
            )
    return {pair: round(value, 3) for pair, value in found.items()}


def _median(found: Any) -> float:
    return statistics.median(found)


def speed(
    spark: SparkSession,
    address: str,
    folder: Path,
    *,
    rows: int,
    rounds: int,
    contenders: Sequence[str],
    names: Sequence[str] = JOBS,
) -> dict[str, Any]:
    """All rounds of the jobs named over a topic that is filled; the contenders' order turns.

    Raises:
        WrongRowsError: Two contenders wrote different rows, or a verdict did not pass.
    """
    made = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        one = Speed(spark, address, folder / f"round-{number}")
        turn = number % len(contenders)
        for name in names:
            one.of(name, [*contenders[turn:], *contenders[:turn]])
        made.append(one)
    read = dict.fromkeys(names, rows)
    if "by_device" in names:
        read["by_device"], _ = _content(Home(folder / "round-0").table(jobs.TABLE), "clean")
    return told(made, read)
