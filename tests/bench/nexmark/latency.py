"""From an event to a table that can be read: bids at a steady rate, each passed through (q0), triggers once a second.

A row's time is from its record's timestamp, set when it was handed to the producer, until the commit that holds it is
in the table's folder; of Flink until the file that holds it has its name.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from nexmark import flink, plain
from nexmark.generator import Generator, text_of
from nexmark.topics import PARTITIONS, TIME, make_topics

_PATIENCE_S = 60


def latencies(
    spark: SparkSession,
    address: str,
    job: Job,
    cluster: flink.Flink | None,
    folder: Path,
    *,
    rate: int,
    seconds: int,
) -> dict[str, Any]:
    """Each contender in turn, over a topic of its own, after as many seconds that are not counted.

    Args:
        spark: The session.
        address: The broker.
        job: The library's job of q0.
        cluster: Flink's, if it takes part.
        folder: An empty folder for tables.
        rate: Events a second.
        seconds: How long rows are counted.
    """
    found: dict[str, Any] = {"rate": rate, "seconds": seconds}
    contenders = {"plain": lambda topic, home: _plain(spark, address, topic, home)}
    contenders["library"] = lambda topic, home: _library(spark, address, topic, home, job)
    if cluster is not None:
        contenders["flink"] = lambda topic, home: cluster.passing(address, topic, home)
    for name, running in contenders.items():
        topic, home = f"nexmark-latency-{name}", folder / name
        make_topics(address, [topic])
        with running(topic, home) as visible:
            since_ms = _feed(address, topic, rate=rate, seconds=seconds)
            times_ms = _await(visible, 2 * rate * seconds)
        counted = [seen_ms - at_ms for seen_ms, at_ms in times_ms if at_ms >= since_ms]
        cuts = statistics.quantiles(counted, n=100)
        found[name] = {"rows": len(counted), "p50_ms": round(cuts[49]), "p99_ms": round(cuts[98])}
    return found


Visible = Callable[[], list[tuple[float, float]]]
"""When each row could be read, and its record's timestamp, in milliseconds."""


@contextmanager
def _plain(spark: SparkSession, address: str, topic: str, home: Path) -> Iterator[Visible]:
    rows = plain.passing(spark, address, topic)
    writer = rows.writeStream.format("delta").trigger(processingTime="1 second")
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "result"))
    try:
        yield lambda: _of_table(home / "result", "timestamp")
    finally:
        query.stop()


@contextmanager
def _library(spark: SparkSession, address: str, topic: str, home: Path, job: Job) -> Iterator[Visible]:
    inputs = {name: replace(declared, name=topic) for name, declared in job.inputs.items()}
    runner = JobRunner(StageContext(spark, Home(home), KafkaSource(address)), [replace(job, inputs=inputs)])
    runner.start(interval_s=1.0)
    try:
        yield lambda: _of_table(Home(home).table(job.target.name), "_timestamp")
    finally:
        runner.stop()


def _of_table(table: Path, column: str) -> list[tuple[float, float]]:
    found = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        seen_ms = commit.stat().st_mtime_ns / 1e6
        for line in commit.read_text(encoding="utf-8").splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                times = pq.read_table(table / added["path"], columns=[column])[column]
                found += [
                    (seen_ms, at_us / 1000) for at_us in times.cast("timestamp[us]").cast("int64").to_pylist()
                ]
    return found


def _feed(address: str, topic: str, *, rate: int, seconds: int) -> float:
    """Produces at the rate for twice the time; gives when the second half began."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    events = (event for event in Generator(1).events(2 * 2 * rate * seconds) if event.kind == "bid")
    started = time.time()
    for number, event in zip(range(2 * rate * seconds), events, strict=False):
        while (wait_s := started + number / rate - time.time()) > 0:
            producer.poll(min(wait_s, 0.005))
        value = json.dumps(event.fields | {TIME: text_of(event.at_ms)}).encode()
        producer.produce(topic, value, partition=number % PARTITIONS, timestamp=int(time.time() * 1000))
    if producer.flush(30):
        raise TimeoutError("the broker did not take all events in half a minute")
    return (started + seconds) * 1000


def _await(visible: Visible, rows: int) -> list[tuple[float, float]]:
    deadline_s = time.monotonic() + _PATIENCE_S
    while len(found := visible()) < rows:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{len(found)} of {rows} rows can be read after {_PATIENCE_S} s")
        time.sleep(1)
    return found
