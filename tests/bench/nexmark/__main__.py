"""Nexmark: `make bench-nexmark`, or `python -m nexmark [--events N] [--rounds R] [--queries Q] [--contenders C]`.

Prints a table on standard error and one JSON object on standard output. Everything runs on one machine: a broker in a
process of its own, Spark and Flink sharing its cores, one contender at a time, in turns. Each starts from nothing in
each round, so its planning and its start are in its figures; the state of a query that has ended, which Spark keeps for
minutes, is dropped before the next one runs in the same heap. The rows of all contenders are compared in each round;
the bench fails where they differ. A contender that does not end in time is left out. `--profile` tells where the
processor time of the last round goes (`profile`).

- `count`, `table`: the library with `late="count"` and `late="table"` (where a query keeps state).
- `plain`: the same query in plain PySpark; `plain_same`: with the same writes (see `plain`).
- `flink`: Apache Flink's SQL into Parquet, with checkpoints once a second.

`rows_per_s` counts the events of the topics that a query reads; `cpu_s_per_million` is the processor time of all
processes that ran it; `state_bytes` the most that its operators kept; `latency` is from an event to a table that can
be read. Ratios are of medians, of rows/s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater.stack.java import find_java
from headwater.stack.session import java_conf, spark_session
from headwater_streams.plan.job import Late
from headwater_streams.spark.gateway import jvm_class
from headwater_streams.storage.home import Home
from nexmark import flink, flink_fetch, library, plain, profile
from nexmark.latency import latencies
from nexmark.rows import canonical, compare
from nexmark.topics import Filled, fill
from support.measured import Run, measure
from support.processes import running

Outcome = tuple[Run, pa.Table | ds.Dataset]
CONTENDERS = ("plain", "count", "plain_same", "table", "flink")
_PAIRS = (
    ("count", "plain"),
    ("count", "plain_same"),
    ("table", "plain_same"),
    ("count", "flink"),
    ("plain", "flink"),
)


class Bench:
    """The contenders over filled topics."""

    def __init__(
        self, spark: SparkSession, address: str, filled: Filled, folder: Path, names: list[str]
    ) -> None:
        self._spark, self._address, self._filled, self._folder = spark, address, filled, folder
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._jvm = gateway.proc.pid
        self._jobs = library.jobs()
        self._names = names
        self._left_out: set[tuple[str, str]] = set()
        library.prepare(folder / "side")

    def rows(self, query: str) -> int:
        """The events that a query reads."""
        return sum(self._filled.rows[kind] for kind in plain.QUERIES[query].inputs)

    def contenders(self, query: str, cluster: flink.Flink | None) -> dict[str, Callable[[], Outcome]]:
        """What runs a query, by name."""
        found: dict[str, Callable[[], Outcome]] = {
            "plain": lambda: self._plain(query, same_writes=False),
            "count": lambda: self._library(query, "count"),
            "plain_same": lambda: self._plain(query, same_writes=True),
        }
        if plain.QUERIES[query].stateful:
            found["table"] = lambda: self._library(query, "table")
        if cluster is not None:
            found["flink"] = lambda: cluster.run(query, self._address)
        return {
            name: found[name] for name in self._names if name in found and (query, name) not in self._left_out
        }

    def round(
        self,
        query: str,
        cluster: flink.Flink | None,
        shares: dict[str, profile.Shares] | None = None,
    ) -> dict[str, Run]:
        """Runs every contender once and compares what they wrote.

        Args:
            query: Its name.
            cluster: Flink's.
            shares: Gets the parts of each contender's processor time, where it is given.

        Raises:
            RowsDifferError: They wrote different rows.
        """
        last_ms = min(self._filled.last_ms[kind] for kind in plain.QUERIES[query].inputs)
        runs: dict[str, Run] = {}
        first: tuple[str, pa.Table] | None = None
        for name, contender in self.contenders(query, cluster).items():
            recorded: contextlib.AbstractContextManager[profile.Shares] = contextlib.nullcontext({})
            if shares is not None:
                jvm = cluster.worker if cluster is not None and name == "flink" else self._jvm
                recorded = profile.recorded(jvm)
            self._forget_state()
            try:
                with recorded as found:
                    run, written = contender()
            except flink_fetch.DidNotEndError as error:
                _say(f"{query:4} {name:11} {error}")
                self._left_out.add((query, name))
                continue
            if shares is not None:
                shares[name] = found
            rows = canonical(query, written, last_ms)
            runs[name] = replace(run, result_rows=rows.num_rows)
            if first is None:
                first = name, rows
            else:
                compare(query, *first, name, rows)
            _say(f"{query:4} {name:11} {run.seconds:7.2f} s  {rows.num_rows} rows")
            shutil.rmtree(self._folder / "run", ignore_errors=True)
        return runs

    def latency(self, cluster: flink.Flink | None, rate: int, seconds: int) -> dict[str, Any]:
        """Event-to-table times."""
        folder = self._folder / "latency"
        job = self._jobs["q0"]
        return latencies(self._spark, self._address, job, cluster, folder, rate=rate, seconds=seconds)

    def _forget_state(self) -> None:
        """Drops the state of ended queries: 430 MB of another contender's (q18) made a run one of full collections."""
        jvm_class(self._spark, "org.apache.spark.sql.execution.streaming.state.StateStore").stop()
        jvm_class(self._spark, "java.lang.System").gc()

    def _plain(self, query: str, *, same_writes: bool) -> Outcome:
        folder = self._folder / "run"
        side = Home(self._folder / "side").table(library.SIDE_TABLE)
        run = measure(
            self._jvm,
            lambda: (plain.run(self._spark, self._address, folder, query, side, same_writes=same_writes), {}),
        )
        return run, DeltaTable(str(folder / "result")).to_pyarrow_table()

    def _library(self, query: str, late: Late) -> Outcome:
        home, job = self._folder / "run", self._jobs[query]
        if job.lookups:
            library.prepare(home)
        run = measure(self._jvm, lambda: library.run(self._spark, self._address, home, job, late))
        kinds = plain.QUERIES[query].inputs
        names = ["untimed"] if "untimed" in job.inputs else list(kinds)
        wanted = {name: self._filled.rows[kind] for name, kind in zip(names, kinds, strict=True)}
        library.check_account(home, job, wanted)
        return run, DeltaTable(str(Home(home).table(job.target.name))).to_pyarrow_table()


def figures(rows: int, runs: dict[str, list[Run]]) -> dict[str, Any]:
    """What is told of a query, from the runs of each contender."""
    seconds = {name: statistics.median(run.seconds for run in found) for name, found in runs.items()}
    ratios = {
        f"{ours}/{peer}": round(seconds[peer] / seconds[ours], 3)
        for ours, peer in _PAIRS
        if {ours, peer} <= set(seconds)
    }
    told = {
        name: {
            "rows_per_s": round(rows / seconds[name]),
            "cpu_s_per_million": round(statistics.median(run.cpu_s for run in found) / rows * 1e6, 2),
            "state_bytes": max(run.state_bytes for run in found),
            "runs": [
                {
                    key: round(value, 2) if isinstance(value, float) else value
                    for key, value in asdict(run).items()
                }
                for run in found
            ],
        }
        for name, found in runs.items()
    }
    compared = next(iter(runs.values()))[0].result_rows
    return {"rows": rows, "rows_compared": compared, "ratio": ratios, "contenders": told}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The figures for people."""
    heads = [
        *(f"{name} k/s" for name in CONTENDERS),
        *(f"{ours}/{peer}" for ours, peer in _PAIRS),
        "cpu s/M count, plain, flink",
        "state MB count, plain, flink",
    ]
    lines = [f"| query | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for query, found in results.items():
        by = found["contenders"]
        cells = [f"{by[name]['rows_per_s'] / 1000:.1f}" if name in by else "-" for name in CONTENDERS]
        cells += [
            f"{found['ratio'][f'{a}/{b}']:.2f}" if f"{a}/{b}" in found["ratio"] else "-" for a, b in _PAIRS
        ]
        three = [by.get(name) for name in ("count", "plain", "flink")]
        cells.append(", ".join(f"{one['cpu_s_per_million']:.1f}" if one else "-" for one in three))
        cells.append(", ".join(f"{one['state_bytes'] / 1e6:.1f}" if one else "-" for one in three))
        lines.append(f"| {query} | {' | '.join(cells)} |")
    return "\n".join(lines)


@contextlib.contextmanager
def maybe_flink(folder: Path, *, wanted: bool, cores: int, java_options: str) -> Iterator[flink.Flink | None]:
    """Flink's cluster; None where it is not wanted or not to be had, which is told."""
    with contextlib.ExitStack() as stack:
        cluster = None
        if wanted:
            folder.mkdir()
            try:
                cluster = stack.enter_context(
                    flink.running_flink(folder, cores=cores, java_options=java_options)
                )
            except flink_fetch.NoFlinkError as error:
                _say(f"without Flink: {error}")
        yield cluster


def versions(cluster: flink.Flink | None) -> dict[str, str]:
    """What ran."""
    java = str(find_java(os.environ).executable)
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr.partition("\n")[0]
    found = {"python": sys.version.split()[0], "java": told}
    found |= {name: version(name) for name in ("pyspark", "delta-spark")}
    return found | (
        {"apache-flink": flink_fetch.VERSION, **flink_fetch.jars()} if cluster is not None else {}
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000, help="of all three kinds together")
    parser.add_argument("--rounds", type=int, default=2, help="after one to warm up, which is not counted")
    parser.add_argument("--queries", default=",".join(plain.QUERIES), help="names, with commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=2000, help="events a second, for event-to-table times")
    parser.add_argument(
        "--seconds", type=int, default=20, help="how long such times are taken; 0: not at all"
    )
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="names, with commas")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also a round in which Java Flight Recorder samples each contender",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process of it stays behind
    cores, queries = os.cpu_count() or 1, arguments.queries.split(",")
    names = arguments.contenders.split(",")
    load, about = os.getloadavg(), {"cores": cores, "seed": arguments.seed}
    with (
        tempfile.TemporaryDirectory() as name,
        running(Path(name) / "log", "--coordinator", "memory") as (_, address, _),
    ):
        folder = Path(name)
        filled = fill(address, arguments.events, arguments.seed)
        _say(f"filled: {filled.rows}, {filled.value_bytes / 1e6:.0f} MB")
        options = profile.OPTION if arguments.profile else ""
        ours = java_conf({}, {}) if options else {}
        extra = {name: f"{collector} {options}" for name, collector in ours.items()}
        spark = spark_session(folder, app_name="nexmark", cores=cores, extra=extra)
        results: dict[str, dict[str, Any]] = {}
        profiles: dict[str, dict[str, profile.Shares]] = {}
        try:
            with maybe_flink(
                folder / "flink", wanted="flink" in names, cores=cores, java_options=options
            ) as cluster:
                bench = Bench(spark, address, filled, folder, names)
                ran = versions(cluster)
                for query in queries:
                    rounds = [bench.round(query, cluster) for _ in range(arguments.rounds)]
                    if arguments.profile:
                        profiles[query] = {}
                    rounds.append(bench.round(query, cluster, profiles.get(query)))
                    counted = rounds[1:] or rounds
                    runs = {name: [each[name] for each in counted] for name in rounds[-1]}
                    results[query] = figures(bench.rows(query), runs)
                    _say(table(results).splitlines()[-1])
                    if arguments.profile:
                        _say(profile.table({query: profiles[query]}))
                if arguments.seconds:
                    about["latency"] = bench.latency(cluster, arguments.rate, arguments.seconds)
        finally:
            spark.stop()
    about |= {"events": filled.rows, "versions": ran, "load": {"before": load, "after": os.getloadavg()}}
    _say(table(results))
    if profiles:
        about["profiles"] = profiles
        _say(profile.table(profiles))
    print(json.dumps(about | {"queries": results}, indent=2))


if __name__ == "__main__":
    main()
