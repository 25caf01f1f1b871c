"""Figures of checks over time, as one JSON object: `python tests/bench/quality.py [--rows N] [--rounds N] [--parts P]`.

Everything runs on one machine; nothing is asserted. What row checks cost a job is in `make bench-operators`.

- `suite`: ten expectations over a table of a million rows, in one session: the first run, which loads
  great-expectations and compiles, and the median of the runs after it. Each run has a new version to judge.
- `history`: a year of results (ten checks, a batch a minute: 5.3 million rows), from the table to the drawn lines, as
  `headwater quality history --days 365` draws them.
- `keys`: `unique(..., within="table")` of a batch of 50,000 rows against a table of 100 files with as many rows each,
  once with keys that grow, of which most files are ruled out by their statistics, and once with keys that are random.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

import headwater as hw
from headwater_streams.quality.results import RESULTS_TABLE, SCHEMA, for_trends
from headwater_streams.quality.trend import COLUMNS, spark_line, trends
from headwater_streams.runtime.stages.check_memory import compared_rows
from headwater_streams.storage.home import Home

TABLE = "silver.readings"
_CARRIERS = np.array(["AA", "DL", "UA", "WN", "B6"])
_CHECKS = [
    hw.Check("has_carrier", hw.expect.not_null("carrier"), on="output", action="fail"),
    hw.Check("known_carrier", hw.expect.in_set("carrier", _CARRIERS.tolist()), on="output", action="fail"),
    hw.Check("sane_delay", hw.expect.between("delay", -120, 2880), on="output", action="fail"),
    hw.Check("flight_form", hw.expect.matches("flight", "^[A-Z0-9]{2}-[0-9]+$"), on="output", action="fail"),
    hw.Check("carrier_length", hw.expect.length("carrier", 2, 2), on="output", action="fail"),
    hw.Check("few_without_gate", hw.expect.null_share("gate", "10 %")),
    hw.Check("delay_on_average", "avg(delay) BETWEEN 0 AND 120", level="batch", action="fail"),
    hw.Check("fresh", hw.expect.fresh("at", "3650 days")),
    hw.Check("spread", hw.expect.drift("carrier", values=_CARRIERS.tolist())),
    hw.Check("one_flight", hw.expect.unique("flight", within="table")),
]


def rows_of(count: int, seed: int) -> pa.Table:
    """Readings of so many flights."""
    rng = np.random.default_rng(seed)
    carriers = _CARRIERS[rng.integers(0, len(_CARRIERS), count)]
    return pa.table(
        {
            "flight": pa.array(
                [f"{carrier}-{seed * count + n}" for n, carrier in enumerate(carriers.tolist())]
            ),
            "carrier": pa.array(carriers),
            "gate": pa.array(np.where(rng.random(count) < 0.05, None, "A1"), pa.string()),
            "delay": pa.array(rng.integers(-30, 120, count), pa.int32()),
            "at": pa.array(1_700_000_000_000_000 + rng.integers(0, 10**12, count), pa.timestamp("us", "UTC")),
        }
    )


def timed(rounds: int, run: Callable[[], Any]) -> dict[str, float]:
    """The first of some runs and the median of the others, in seconds; of the latter also this process's CPU time."""
    took, worked = [], []
    for _ in range(rounds + 1):
        begin, began = time.perf_counter(), time.process_time()
        run()
        took.append(time.perf_counter() - begin)
        worked.append(time.process_time() - began)
    median = statistics.median
    return {
        "first_s": round(took[0], 2),
        "warm_s": round(median(took[1:]), 2),
        "warm_cpu_s": round(median(worked[1:]), 2),
    }


def suite(folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Ten expectations over a table."""
    from headwater.stack.session import spark_session
    from headwater_streams.quality.run import run_suite

    home = Home(folder)
    for part in range(10):
        write_deltalake(str(home.table(TABLE)), rows_of(rows // 10, part), mode="append")
    spark = spark_session(folder, app_name="quality")
    try:

        def run() -> None:
            result = run_suite(spark, folder, TABLE, checks=_CHECKS)
            if not result.passed or len(result.outcomes) != len(_CHECKS) or result.rows != rows:
                raise SystemExit(f"the suite came to something else: {result.to_json()}")

        return {"rows": rows, "expectations": len(_CHECKS), **timed(rounds, run)}
    finally:
        spark.stop()


def history(folder: Path, rounds: int) -> dict[str, Any]:
    """A year of results, read and drawn."""
    home, now = Home(folder), datetime.now(UTC)
    minutes = 365 * 24 * 60
    first_us = int((now - timedelta(minutes=minutes)).timestamp()) * 1_000_000
    for month in range(12):
        write_deltalake(
            str(home.table(RESULTS_TABLE)),
            _results(first_us, minutes * month // 12, minutes * (month + 1) // 12),
            mode="append",
        )

    def draw() -> None:
        found = trends(for_trends(home, COLUMNS, since=now - timedelta(days=366)))
        if len([spark_line(trend) for trend in found]) != 10 or found[0].results != minutes:
            raise SystemExit("the history lacks results")

    return {"results": minutes * 10, **timed(rounds, draw)}


def _results(first_us: int, begin: int, end: int) -> pa.Table:
    batches, rng = np.repeat(np.arange(begin, end), 10), np.random.default_rng(begin)
    count = len(batches)
    failed = np.where(rng.random(count) < 0.01, rng.integers(1, 50, count), 0)
    columns = {
        "at": pa.array(first_us + batches * 60_000_000, pa.timestamp("us", "UTC")),
        "job": pa.repeat("departures", count),
        "table": pa.repeat("silver.departures", count),
        "check": pa.array([f"check_{n}" for n in range(10)] * (end - begin)),
        "outcome": pa.array(np.where(failed > 45, "broken", np.where(failed > 0, "within", "held"))),
        "action": pa.repeat("quarantine", count),
        "kind": pa.repeat("batch", count),
        "batch": pa.array(batches),
        "version": pa.array(batches),
        "judged": pa.array(rng.integers(900, 1100, count)),
        "failed": pa.array(failed),
        "observed": pa.array(np.where(batches % 10 == 0, "1,000 rows, and the median has 990", "")),
    }
    full = {field.name: columns.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA}
    return pa.table(full).cast(SCHEMA)


def keys(folder: Path, rounds: int) -> dict[str, Any]:
    """Keys of a batch compared with those of a table."""
    home, rule, files, size = Home(folder), hw.expect.unique("id", within="table"), 100, 50_000
    result: dict[str, Any] = {"files": files, "rows_of_each": size}
    rng = np.random.default_rng(1)
    for name in ("growing", "random"):
        for file in range(files):
            numbers = np.arange(size) + file * size if name == "growing" else rng.integers(0, 2**62, size)
            table = pa.table({"id": numbers, "value": np.zeros(size)})
            write_deltalake(str(home.table(f"silver.{name}")), table, mode="append")
        batch = np.arange(size) + files * size - 10 if name == "growing" else rng.integers(0, 2**62, size)
        rows = pa.table({"id": batch})

        def judge(table: str = f"silver.{name}", rows: pa.Table = rows) -> None:
            rule.judge(rows, compared_rows(home, table, rule, rows))

        result[name] = timed(rounds, judge)
    return result


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table that the suite judges")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted")
    parser.add_argument("--parts", default="suite,history,keys", help="names, with commas")
    arguments = parser.parse_args()
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "suite": lambda folder: suite(folder, arguments.rows, arguments.rounds),
        "history": lambda folder: history(folder, arguments.rounds),
        "keys": lambda folder: keys(folder, arguments.rounds),
    }
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()}
    for name in arguments.parts.split(","):
        if name not in parts:
            parser.error(f"no part {name!r}")
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = parts[name](Path(folder))
            print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
