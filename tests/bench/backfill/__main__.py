"""Backfills: `make bench-backfill`, or `python -m backfill [--parts speed,beside,planning,swapping] [--millions M]`.

Prints tables on standard error and one JSON object on standard output; nothing is asserted but that every contender
wrote the rows that it should and every verdict passed. See `backfill` for the parts.

- `speed`: medians over the rounds: seconds, CPU time of the JVM and Python together, rows/s; the ratios, of rows/s
  more is better, of `verify/run` less.
- `beside`: milliseconds, and what they are beside a backfill by what they are alone; of each stretch its own p50 and
  p99, medians over the stretches.
- `planning`: seconds of each plan, the first one of its kind and the median.
- `swapping`: of each swap the time of the whole verb (`swap_s`), for how long the job was held (`held_s`, where it is
  held at all), the longest pause between two batches of the job around it and the median one, the bytes of data files
  that the commit names and that did not exist before, and of the commit itself; `run_s` and `verify_s` beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill import beside, jobs, planning, speed, swapping
from headwater.stack.session import spark_session
from operators.topic import PARTITIONS, Topic
from support.processes import running

PARTS = ("speed", "beside", "planning", "swapping")
_ROWS_PER_S = 1000
"""Rows of one second of event time."""
_WARM_ROWS = 100_000
_NOTE = "measured in the ordinary way, by the ordinary people; nothing more to add to it this time"


def speed_table(found: Mapping[str, Any]) -> str:
    """Rows/s of each contender, and the ratios."""
    lines = ["| job, step | s | k rows/s | CPU s |", "|---|--:|--:|--:|"]
    for name, of in found.items():
        for step, told in of["steps"].items():
            lines.append(
                f"| {name}, {step} | {told['seconds']:.1f} | {told['rows_per_s'] / 1000:.0f} | {told['cpu_s']:.1f} |"
            )
    lines += ["", "| job, ratio | |", "|---|--:|"]
    for name, of in found.items():
        lines += [f"| {name}, {pair} | {value:.2f} |" for pair, value in of["ratio"].items()]
    return "\n".join(lines)


def beside_table(found: Mapping[str, Any]) -> str:
    """The live job's times alone and beside a backfill."""
    lines = ["| produce to commit, ms | p50 | p99 | rows |", "|---|--:|--:|--:|"]
    for kind in ("alone", "beside"):
        told = found[kind]
        lines.append(f"| {kind} | {told['p50_ms']} | {told['p99_ms']} | {told['rows']} |")
    lines.append(f"| ratio | {found['ratio']['p50']} | {found['ratio']['p99']} | |")
    return "\n".join(lines)


def planning_table(found: Mapping[str, Any]) -> str:
    """Seconds of each plan."""
    lines = [f"| plan over {found['partitions']} partitions | first, s | median, s |", "|---|--:|--:|"]
    for kind, told in found.items():
        if isinstance(told, Mapping):
            lines.append(f"| {kind} | {told['first_s']} | {told['median_s']} |")
    return "\n".join(lines)


def swapping_table(found: Mapping[str, Any]) -> str:
    """What each swap took and wrote."""
    columns = ("swap_s", "held_s", "longest_pause_of_batches_s", "data_bytes_written", "log_bytes_written")
    lines = [f"| table, swap | GB | {' | '.join(columns)} |", f"|---|--:|{'--:|' * len(columns)}"]
    for size in ("small", "large"):
        gigabytes = found[size]["table_bytes"] / 1e9
        for kind in ("rebuild", "repair"):
            cells = [str(found[size][kind].get(column, "")) for column in columns]
            lines.append(f"| {size}, {kind} | {gigabytes:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _speed(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    rows = round(arguments.millions * 1e6)
    found: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for name, count, rounds in (("warm", _WARM_ROWS, 1), ("speed", rows, arguments.rounds)):
        with _filled(folder / name, arguments, count) as (spark, address, topic):
            about = {"value_bytes_per_row": round(topic.value_bytes / topic.rows)}
            _say(f"{name}: {count} rows of {about['value_bytes_per_row']} bytes")
            found = speed.speed(
                spark,
                address,
                folder / name,
                rows=count,
                rounds=rounds,
                contenders=arguments.contenders.split(","),
                names=arguments.jobs.split(","),
            )
    return about | {"jobs": found}


def _beside(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    rows = round(arguments.beside_millions * 1e6)
    with _filled(folder, arguments, rows) as (spark, address, topic):
        return beside.beside(
            spark,
            address,
            topic,
            folder,
            rate=arguments.rate,
            seconds=arguments.seconds,
            rounds=arguments.beside_rounds,
        )


def _planning(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    rows = 20 * arguments.partitions
    with _filled(folder, arguments, rows, arguments.partitions) as (spark, address, _):
        return planning.planning(
            spark,
            address,
            folder,
            partitions=arguments.partitions,
            rows=rows,
            rounds=arguments.plans,
            by_time=arguments.by_time,
        )


def _swapping(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    rows = arguments.swapped_rows
    with _filled(folder, arguments, rows) as (spark, address, topic):
        return swapping.swapping(spark, address, topic, folder, rows=rows, gigabytes=arguments.gigabytes)


@contextmanager
def _filled(
    folder: Path, arguments: argparse.Namespace, rows: int, partitions: int = PARTITIONS
) -> Iterator[tuple[SparkSession, str, Topic]]:
    """A broker with the topic of so many rows: the session, the broker's address, the topic."""
    with running(folder / "log", "--coordinator", "memory") as (_, address, _):
        topic = Topic(
            address, jobs.TOPIC, arguments.seed, partitions, rows_per_s=_ROWS_PER_S, headers=False, note=_NOTE
        )
        topic.grow(rows)
        yield _session(folder, arguments), address, topic


def _session(folder: Path, arguments: argparse.Namespace) -> SparkSession:
    extra = {"spark.driver.memory": arguments.memory}
    return spark_session(folder, app_name="backfill", cores=os.cpu_count() or 1, extra=extra)


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="names, with commas")
    parser.add_argument("--millions", type=float, default=10, help="speed: events of the topic")
    parser.add_argument("--rounds", type=int, default=1, help="speed: how often everything is run")
    parser.add_argument(
        "--contenders", default=",".join(speed.CONTENDERS[1:]), help="speed: names, with commas"
    )
    parser.add_argument(
        "--jobs",
        default=",".join(speed.JOBS),
        help="speed: names, with commas; by_device reads what clean writes",
    )
    parser.add_argument("--beside-millions", type=float, default=3, help="beside: rows that are read again")
    parser.add_argument("--rate", type=int, default=100, help="beside: events a second")
    parser.add_argument("--seconds", type=float, default=30, help="beside: how long rows are counted alone")
    parser.add_argument("--beside-rounds", type=int, default=2, help="beside: how many backfills")
    parser.add_argument("--partitions", type=int, default=1000, help="planning: of the topic")
    parser.add_argument("--plans", type=int, default=5, help="planning: of each kind")
    parser.add_argument("--by-time", action="store_true", help="planning: a range of timestamps, too")
    parser.add_argument("--gigabytes", type=float, default=10, help="swapping: of the large table")
    parser.add_argument("--swapped-rows", type=int, default=2_000_000, help="swapping: of both tables")
    parser.add_argument("--memory", default="2g", help="the heap of Spark's driver")
    parser.add_argument(
        "--folder", type=Path, help="where everything is written; by default a temporary folder"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    parts = set(arguments.parts.split(","))
    unknown = (parts - set(PARTS)) | (set(arguments.contenders.split(",")) - set(speed.CONTENDERS[1:]))
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process of it stays behind
    figures: dict[str, Any] = {"cores": os.cpu_count(), "seed": arguments.seed, "heap": arguments.memory}
    figures["versions"] = {name: version(name) for name in ("pyspark", "delta-spark")}
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        try:
            if "speed" in parts:
                figures["speed"] = _speed(folder / "speed", arguments)
                _say(speed_table(figures["speed"]["jobs"]))
            if "beside" in parts:
                figures["beside"] = _beside(folder / "beside", arguments)
                _say(beside_table(figures["beside"]))
            if "planning" in parts:
                figures["planning"] = _planning(folder / "planning", arguments)
                _say(planning_table(figures["planning"]))
            if "swapping" in parts:
                figures["swapping"] = _swapping(folder / "swapping", arguments)
                _say(swapping_table(figures["swapping"]))
        finally:
            _session(folder, arguments).stop()
    figures["load"] = {"before": load, "after": os.getloadavg()}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
