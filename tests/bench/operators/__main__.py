"""Single operators: `make bench-operators`, or `python -m operators [--millions M,M,...] [--batches N]`.

Prints tables on standard error and one JSON object on standard output; nothing is asserted but that every contender
wrote the rows that it should. Everything runs on one machine, the broker in a process of its own.

- `growing`: at each size of the topic, of each contender (see `operators`): `rows_per_s` of its batches, as Spark's
  progress times them; `cpu_us_per_row` of the JVM and Python together, with the query's planning and start; `state`,
  what it keeps: of a job the intervals and bytes of `seen` in its ledger, of `dropDuplicates` Spark's own account.
- `ratio`: medians over the sizes, more is better: rows/s, and CPU a row turned round.
- `smallest`: batches of one record, in milliseconds: Spark's durations, and from the producer to the commit's file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.stack.session import spark_session
from operators import growing, jobs, plain, smallest
from operators.topic import Topic
from support.processes import running

_DEFAULT = ("none", "by_offset", "origin", "checks", "rejecting", "warned", "plain", "drop_duplicates")
_WARM_ROWS = 200_000
_EXTRA = {"spark.sql.streaming.numRecentProgressUpdates": "2000"}


def growing_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Rows/s, CPU and state of each contender at each size."""
    sizes = [f"{one['rows'] / 1e6:g} M" for one in found]
    lines = [f"| contender | {' | '.join(f'{size}: k/s, us CPU, state' for size in sizes)} |"]
    lines.append(f"|---|{'--:|' * len(sizes)}")
    for name in found[0]["contenders"]:
        cells = []
        for one in found:
            told = one["contenders"][name]
            kept = told["state"]
            state = kept.get("ledger_bytes", kept.get("memory_bytes", 0) + kept.get("file_bytes", 0))
            cells.append(f"{told['rows_per_s'] / 1000:.1f}, {told['cpu_us_per_row']:.1f}, {_bytes(state)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} B"


def ratio_table(ratios: Mapping[str, Mapping[str, float]]) -> str:
    """The ratios, one line each."""
    lines = ["| ratio | rows/s | CPU |", "|---|--:|--:|"]
    lines += [
        f"| {pair} | {value:.2f} | {ratios['cpu'][pair]:.2f} |"
        for pair, value in ratios["rows_per_s"].items()
    ]
    return "\n".join(lines)


def smallest_table(found: Mapping[str, Any]) -> str:
    """The times of batches of one record, p50 / p99 in milliseconds."""
    told = {name: of for name, of in found.items() if isinstance(of, Mapping)}
    phases = [name for name, of in next(iter(told.values())).items() if isinstance(of, Mapping)]
    lines = [f"| ms, p50 / p99 | {' | '.join(told)} |", f"|---|{'--:|' * len(told)}"]
    for phase in phases:
        cells = [f"{of[phase]['p50']} / {of[phase]['p99']}" for of in told.values()]
        lines.append(f"| {phase.removesuffix('_ms')} | {' | '.join(cells)} |")
    lines.append(f"| CPU a batch | {' | '.join(str(of['cpu_ms_a_batch']) for of in told.values())} |")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _growing(
    spark: SparkSession, address: str, folder: Path, seed: int, sizes: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    warm = Topic(address, "warm", seed)
    growing.grow(growing.Growing(spark, address, warm, folder / "warm"), warm, [_WARM_ROWS], names)
    topic = Topic(address, jobs.TOPIC, seed)
    found = growing.grow(growing.Growing(spark, address, topic, folder / "growing"), topic, sizes, names)
    ratios = growing.ratios(found)
    _say(f"{growing_table(found)}\n\n{ratio_table(ratios)}\n")
    about = {"value_bytes_per_row": round(topic.value_bytes / topic.rows)}
    return about | {"growing": found, "ratio": ratios}


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--millions", default="0.5,1,1.5", help="sizes of the topic, growing; empty: none")
    parser.add_argument("--contenders", default=",".join(_DEFAULT), help="names, with commas")
    parser.add_argument("--batches", type=int, default=40, help="of one record that are counted; 0: none")
    parser.add_argument("--warm", type=int, default=30, help="of one record that are not counted")
    parser.add_argument("--one-by-one", default=",".join(smallest.CONTENDERS), help="names, with commas")
    parser.add_argument(
        "--interval-s", type=float, default=0.1, help="the trigger's, for batches of one record"
    )
    parser.add_argument("--memory", default="2g", help="the heap of Spark's driver")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process of it stays behind
    cores = os.cpu_count() or 1
    sizes = [round(float(size) * 1e6) for size in arguments.millions.split(",") if size]
    names = arguments.contenders.split(",")
    unknown = set(names) - {*jobs.jobs_over("any"), *plain.CONTENDERS}
    if unknown or sizes != sorted(set(sizes)):
        parser.error(f"unknown contenders: {sorted(unknown)}" if unknown else "--millions must grow")
    figures: dict[str, Any] = {"cores": cores, "seed": arguments.seed, "heap": arguments.memory}
    figures["versions"] = {name: version(name) for name in ("pyspark", "delta-spark")}
    load = os.getloadavg()
    with (
        tempfile.TemporaryDirectory() as name,
        running(Path(name) / "log", "--coordinator", "memory") as (_, address, _),
    ):
        folder = Path(name)
        extra = _EXTRA | {"spark.driver.memory": arguments.memory}
        spark = spark_session(folder, app_name="operators", cores=cores, extra=extra)
        try:
            if sizes:
                figures |= _growing(spark, address, folder, arguments.seed, sizes, names)
            if arguments.batches:
                figures["smallest"] = smallest.smallest(
                    spark,
                    address,
                    folder / "smallest",
                    arguments.one_by_one.split(","),
                    warm=arguments.warm,
                    batches=arguments.batches,
                    interval_s=arguments.interval_s,
                    seed=arguments.seed,
                )
                _say(smallest_table(figures["smallest"]))
        finally:
            spark.stop()
    figures["load"] = {"before": load, "after": os.getloadavg()}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
