"""Swaps of a small table and of a large one, of as many rows: time, what is written, how long the job waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from backfill.beside import trickle
from backfill.jobs import TOPIC
from headwater_streams import backfill
from headwater_streams.delta.live_files import all_files
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from operators.topic import PARTITIONS, SCHEMA, TIME, Topic

BATCHES = 4
"""Of the live job; the repair is of the rows of half of them, so that it replaces whole files."""
TABLE = "silver.padded"

readings = hw.topic(TOPIC, schema=SCHEMA, event_time=TIME)


class SwapFailedError(Exception):
    """A verdict did not pass."""


def padded(payload_bytes: int, rows_of_batch: int) -> Job:
    """A job whose rows are so large, of bytes that no codec makes smaller, the same whenever they are made."""
    key = "unhex(md5(CAST(id AS STRING)))"
    payload = f"aes_encrypt(repeat('x', {payload_bytes}), {key}, 'CBC', 'DEFAULT', {key})"

    @hw.job(name="padded", target=hw.delta(TABLE), dedup=hw.by_offset())
    def function(readings: DataFrame) -> DataFrame:
        return readings.withColumn("payload", F.expr(payload))

    limited = replace(readings, max_offsets_per_batch=rows_of_batch)
    return replace(bind(function), inputs={"readings": limited})


def swapping(
    spark: SparkSession, address: str, topic: Topic, folder: Path, *, rows: int, gigabytes: float
) -> dict[str, Any]:
    """Each table rebuilt and swapped in, then the first half of its rows repaired and swapped in.

    Args:
        spark: The session.
        address: The broker.
        topic: The topic, with as many rows as the tables shall have.
        folder: An empty folder.
        rows: How many.
        gigabytes: How large the large table shall be; the small one has a hundred bytes a row more than the topic.

    Raises:
        SwapFailedError: See the class.
    """
    found: dict[str, Any] = {"rows": rows}
    for size, payload_bytes in (("small", 100), ("large", round(gigabytes * 1e9 / rows))):
        home = Home(folder / size)
        context, job = StageContext(spark, home, KafkaSource(address)), padded(payload_bytes, rows // BATCHES)
        JobRunner(context, [job]).run_once()
        half = {topic.name: dict.fromkeys(range(PARTITIONS), (0, rows // 2 // PARTITIONS))}
        kinds: dict[str, Callable[[], Any]] = {
            "rebuild": lambda context=context, job=job: backfill.plan_rebuild(context, job),
            "repair": lambda context=context, job=job, half=half: backfill.plan(context, job, offsets=half),
        }
        table = home.table(TABLE)
        table_bytes = sum(file.size_bytes for file in all_files(table, next_commit(table) - 1))
        print(f"{size}: {table_bytes / 1e9:.2f} GB", file=sys.stderr, flush=True)
        found[size] = {"table_bytes": table_bytes}
        for kind, plan in kinds.items():
            found[size][kind] = _one(context, job, plan(), topic)
            print(f"{size}, {kind}: {found[size][kind]}", file=sys.stderr, flush=True)
    found["ratio"] = {
        f"{kind}, large/small": round(found["large"][kind]["swap_s"] / found["small"][kind]["swap_s"], 2)
        for kind in ("rebuild", "repair")
    }
    return found


def _one(context: StageContext, job: Job, planned: Any, topic: Topic) -> dict[str, Any]:
    table = context.home.table(TABLE)
    started = time.monotonic()
    backfill.run(context, planned.id, job)
    run_s = time.monotonic() - started
    started = time.monotonic()
    verdict = backfill.verify(context, planned.id, job)
    verify_s = time.monotonic() - started
    if not verdict.passed:
        raise SwapFailedError(f"{planned.id}: {verdict.findings}")
    # The job is at work meanwhile: each second a batch with some rows.
    runner = JobRunner(context, [job])
    runner.start(interval_s=0.5)
    try:
        _some_batches(runner, topic, table, 4)
        first = next_commit(table)
        there = {path.stat().st_ino for path in context.home.root.rglob("*.parquet")}
        with trickle(topic, 5), ThreadPoolExecutor(1) as pool:
            started = time.monotonic()
            swapping = pool.submit(backfill.swap, context, planned.id)
            while not swapping.done():
                runner.watch(0.1)
            swap_s, done = time.monotonic() - started, swapping.result()
        _some_batches(runner, topic, table, 4)
    finally:
        runner.stop()
    made = {commit.version: commit for commit in commits(table, since=first - 4)}
    times = [commit.timestamp_ms / 1000 for commit in made.values() if commit.entry and commit.entry.is_batch]
    pauses = sorted(b - a for a, b in pairwise(times))
    swapped = made[done["version"]]
    new = [path for path in swapped.added_paths if (table / path).stat().st_ino not in there]
    log = table / "_delta_log" / f"{swapped.version:020}.json"
    held = {"held_s": done["held_s"]} if "held_s" in done else {}
    return {
        "run_s": round(run_s, 1),
        "verify_s": round(verify_s, 1),
        "swap_s": round(swap_s, 2),
        **held,
        "files_added": len(swapped.added_paths),
        "files_removed": swapped.removed_files,
        "data_bytes_written": sum((table / path).stat().st_size for path in new),
        "log_bytes_written": log.stat().st_size,
        "longest_pause_of_batches_s": round(pauses[-1], 2),
        "median_pause_of_batches_s": round(pauses[len(pauses) // 2], 2),
    }


def _some_batches(runner: JobRunner, topic: Topic, table: Path, batches: int) -> None:
    for _ in range(batches):
        version = next_commit(table)
        topic.one_more()
        until = time.monotonic() + 120
        while next_commit(table) == version:
            runner.watch(0.1)
            if time.monotonic() > until:
                raise TimeoutError(f"{table}: no batch in two minutes")
