"""Figures of the streams, as one JSON object: `python tests/bench/streams.py [--events N] [--seconds S] [--demo]`.

Everything runs on one machine, the broker, the producer and Spark sharing its cores. Nothing is asserted: compare
runs on the same machine only.

- `throughput`: rows/s from a topic of real departures to `silver.departures`, each job beside the same query
  in plain PySpark Structured Streaming, in turns in one session. The peers parse the same schema in the same
  mode, keep what the job keeps, write the same columns to Delta in batches of the same size; but for
  `plain_tables` they have no quarantine, and none has a ledger. `job` is the shipped job
  (`by_offset(origin=True)`), `plain_origin` reads the origin headers too and removes no duplicate,
  `plain_dedup` removes them by `dropDuplicates` (in memory, without a bound), `plain_tables` does so and
  keeps what it cannot use in a second table, with the reason, once: what the job gives but for the ledger.
  `unheaded` is the job with `by_offset()`, `plain` its peer. A ratio is the job's rows/s divided by the
  peer's, of the medians. All start from nothing in each round, so their start is in the figures. `cpu_ratio`
  is the same of the JVM's processor time, which other work on the machine moves less.
- `latency`: from a record's timestamp, set when it was handed to the producer, to the moment when the commit that
  holds its row is in the table's folder, in `silver.departures` and in `gold.delay_by_carrier`, with a steady rate
  and the jobs run by `headwater jobs run` as they are shipped (a trigger of one second).
- `demo_s`: what `headwater demo --json` says that it took (with `--demo`).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.demo.flights import Flight, read_month
from headwater.running.environment import find_jobs
from headwater.stack.session import spark_session
from headwater_streams.ledger.log import commits
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.inputs import OFFSETS_PER_BATCH
from headwater_streams.sources.reader import KafkaSource
from headwater_streams.storage.home import Home
from support.processes import cpu_s, running

TOPIC, PARTITIONS = "departures", 3
JOBS = "jobs/flights.py"
SCHEMA = (
    "flight_id STRING, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "departed_at TIMESTAMP, delay_minutes INT"
)
_PAIRS = (("job", "plain_tables"), ("job", "plain_dedup"), ("job", "plain_origin"), ("unheaded", "plain"))


@contextlib.contextmanager
def broker(data: Path) -> Iterator[str]:
    """A broker process with the topic; gives its address."""
    with running(data, "--coordinator", "memory") as (_, address, _):
        wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([wanted])[TOPIC].result(30)
        yield address


def departed(flights: list[Flight]) -> Iterator[Flight]:
    """Those that left, again and again."""
    return itertools.cycle(flight for flight in flights if flight.departed_at is not None)


def value(flight: Flight, departed_at: datetime, number: int) -> bytes:
    """A departure as the demo sends it."""
    fields = {
        "flight_id": f"{flight.flight_id}-{number}",
        "carrier": flight.carrier,
        "flight": flight.flight,
        "tailnum": flight.tailnum,
        "origin": flight.origin,
        "dest": flight.dest,
        "departed_at": departed_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "delay_minutes": flight.delay_minutes,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def origin_headers(partition: int, offset: int) -> list[tuple[str, bytes]]:
    """What says that a record is the first copy of its event."""
    values = {"cluster": "bench", "topic": TOPIC, "partition": str(partition), "offset": str(offset)}
    return [(f"headwater-origin-{name}", text.encode()) for name, text in values.items()]


def fill(address: str, flights: list[Flight], events: int) -> None:
    """Produces the topic of the throughput rounds."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "compression.type": "lz4"})
    for number, flight in zip(range(events), departed(flights), strict=False):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        assert flight.departed_at is not None
        record = value(flight, flight.departed_at, number)
        while True:
            try:
                producer.produce(
                    TOPIC, record, partition=partition, headers=origin_headers(partition, offset)
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def plain(
    spark: SparkSession, address: str, home: Path, *, origin: bool = False, dedup: bool = False
) -> list[dict[str, Any]]:
    """The peer: the job's query as anybody would write it; gives Spark's account of its batches."""
    rows = (
        _records(spark, address, headers=origin)
        .withColumn("_v", _parsed())
        .filter("_v._corrupt IS NULL AND _v.flight_id IS NOT NULL AND _v.carrier IS NOT NULL")
        .filter("_v.departed_at IS NOT NULL")
        .select("_v.*", "topic", "partition", "offset", "timestamp", *([_origin()] if origin else []))
        .drop("_corrupt")
    )
    if dedup:
        rows = rows.dropDuplicates(["_origin"])
    coordinates = {name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp")}
    writer = rows.withColumnsRenamed(coordinates).writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "plain"))
    query.awaitTermination()
    return [dict(progress) for progress in query.recentProgress]


def plain_tables(spark: SparkSession, address: str, home: Path) -> list[dict[str, Any]]:
    """The peer with both tables: rows and rejected values, each batch written once however often it is tried."""
    reasons = {
        "the value is not JSON of the schema": "_v IS NULL OR _v._corrupt IS NOT NULL",
        "departed_at is missing": "_v.departed_at IS NULL",
        "flight_id is missing": "_v.flight_id IS NULL",
        "carrier is missing": "_v.carrier IS NULL",
    }
    found = [F.when(F.expr(condition), F.lit(reason)) for reason, condition in reasons.items()]
    read = _records(spark, address, headers=True).withColumn("_origin", _origin()).dropDuplicates(["_origin"])
    judged = read.withColumn("_v", _parsed()).withColumn("reasons", F.array_compact(F.array(*found)))

    def write(batch: DataFrame, number: int) -> None:
        kept = batch.persist()
        coordinates = ["topic", "partition", "offset", "timestamp", "_origin"]
        rejected = kept.filter("size(reasons) > 0").select("reasons", "value", "headers", *coordinates)
        rows = kept.filter("size(reasons) = 0").select("_v.*", *coordinates).drop("_corrupt")
        for table, part in (("quarantine", rejected), ("plain", rows)):
            writer = part.write.format("delta").mode("append")
            writer.option("txnAppId", f"{home}/{table}").option("txnVersion", number).save(str(home / table))
        kept.unpersist()

    writer = judged.writeStream.foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    query.awaitTermination()
    return [dict(progress) for progress in query.recentProgress]


def _records(spark: SparkSession, address: str, *, headers: bool) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", str(headers).lower())
        .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
        .load()
    )


def _parsed() -> Any:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    return F.from_json(F.col("value").cast("string"), f"{SCHEMA}, _corrupt STRING", options)


def _origin() -> Any:
    def header(name: str) -> Any:
        found = F.filter("headers", lambda h: h["key"] == f"headwater-origin-{name}")
        return F.try_element_at(found, F.lit(1))["value"].cast("string")

    whole = [header("cluster").alias("cluster"), header("topic").alias("topic")]
    numbers = [
        header("partition").cast("int").alias("partition"),
        header("offset").cast("long").alias("offset"),
    ]
    return F.struct(*whole, *numbers).alias("_origin")


def ours(spark: SparkSession, address: str, home: Path, job: Job) -> list[dict[str, Any]]:
    """The job; gives Spark's account of its batches."""
    runner = JobRunner(StageContext(spark, Home(home), KafkaSource(address)), [job])
    runner.run_once()
    return [dict(p) for query in runner.queries.values() for p in query._query.recentProgress]  # type: ignore[union-attr]


def rounds(address: str, events: int, count: int, folder: Path) -> dict[str, Any]:
    """Each contender in turn, the first time to warm up."""
    spark = spark_session(folder, app_name="bench")
    (shipped,) = find_jobs([f"{JOBS}:clean_departures"])
    contenders: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
        "plain": lambda home: plain(spark, address, home),
        "plain_origin": lambda home: plain(spark, address, home, origin=True),
        "plain_dedup": lambda home: plain(spark, address, home, origin=True, dedup=True),
        "plain_tables": lambda home: plain_tables(spark, address, home),
        "job": lambda home: ours(spark, address, home, shipped),
        "unheaded": lambda home: ours(spark, address, home, replace(shipped, dedup=hw.by_offset())),
    }
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc.pid
    took_s: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    durations: dict[str, list[dict[str, int]]] = {name: [] for name in contenders}
    try:
        for number in range(-1, count):
            for name, run in contenders.items():
                home = folder / f"{name}{number}"
                started, used_s = time.monotonic(), cpu_s(jvm)
                progress = run(home)
                if number >= 0:
                    took_s[name].append(time.monotonic() - started)
                    cpu[name].append(cpu_s(jvm) - used_s)
                    durations[name] += [p["durationMs"] for p in progress if p["numInputRows"]]
                table = home / ("plain" if name.startswith("plain") else "tables/silver/departures")
                assert sum(commit.rows_added for commit in commits(table)) == events, name
    finally:
        spark.stop()
    median = {name: statistics.median(times) for name, times in took_s.items()}
    used = {name: statistics.median(times) for name, times in cpu.items()}
    return {
        "events": events,
        "cpu_us_per_row": {name: round(seconds / events * 1e6, 1) for name, seconds in used.items()},
        "cpu_ratio": {f"{job}/{peer}": round(used[peer] / used[job], 3) for job, peer in _PAIRS},
        "rows_per_s": {name: round(events / seconds) for name, seconds in median.items()},
        "ratio": {f"{job}/{peer}": round(median[peer] / median[job], 3) for job, peer in _PAIRS},
        "seconds": {name: [round(s, 2) for s in times] for name, times in took_s.items()},
        "batch_ms": {name: _means(found) for name, found in durations.items()},
    }


def _means(found: list[dict[str, int]]) -> dict[str, int]:
    return {key: round(statistics.mean(d.get(key, 0) for d in found)) for key in found[0]} if found else {}


@contextlib.contextmanager
def jobs_running(address: str, home: Path) -> Iterator[None]:
    """`headwater jobs run` as a person starts it."""
    command = [sys.executable, "-m", "headwater.cli", "jobs", "run", f"{JOBS}:clean_departures"]
    command += [f"{JOBS}:delay_by_carrier", "--bootstrap", address, "--home", str(home)]
    with (home / "jobs.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def latency(address: str, flights: list[Flight], rate: int, seconds: int, home: Path) -> dict[str, Any]:
    """A steady rate for some seconds, after as many to warm up that are not counted."""
    home.mkdir()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    source = departed(flights)
    with jobs_running(address, home):
        _await(lambda: (home / "tables/gold/delay_by_carrier/_delta_log").exists())
        started = time.time()
        counted_from_ms = (started + seconds) * 1000
        total = 2 * rate * seconds
        for number in range(total):
            while (wait_s := started + number / rate - time.time()) > 0:
                producer.poll(min(wait_s, 0.005))
            now = time.time()
            record = value(next(source), datetime.fromtimestamp(now, UTC), number)
            place, at = number % PARTITIONS, int(now * 1000)
            headers = origin_headers(place, number // PARTITIONS)
            producer.produce(TOPIC, record, partition=place, timestamp=at, headers=headers)
        producer.flush(30)
        _await(lambda: _folded(home) >= total)
    return {"rate": rate, "seconds": seconds, **_latencies(home, counted_from_ms)}


def _folded(home: Path) -> int:
    entries = [commit.entry for commit in commits(home / "tables/gold/delay_by_carrier")]
    return sum(sum(terms.get("folded", 0) for terms in e.accounting.values()) for e in entries if e)


def _latencies(home: Path, counted_from_ms: float) -> dict[str, Any]:
    """Percentiles of the time from the records' timestamps to the commits that hold their rows."""
    from deltalake import DeltaTable

    silver, gold = home / "tables/silver/departures", home / "tables/gold/delay_by_carrier"
    seen_ms = {c.entry.batch: _visible_ms(silver, c.version) for c in commits(silver) if c.entry}
    version_of = {c.entry.batch: c.version for c in commits(silver) if c.entry}
    folded_ms: dict[int, float] = {}
    for commit in commits(gold):
        for read in commit.entry.sources if commit.entry else ():
            for version in range(*(read.versions or (0, 0))):
                folded_ms[version] = _visible_ms(gold, commit.version)
    rows = DeltaTable(silver).to_pyarrow_table(columns=["_timestamp", "_batch"]).to_pylist()
    found: dict[str, list[float]] = {"silver": [], "gold": []}
    for row in rows:
        at_ms = row["_timestamp"].timestamp() * 1000
        if at_ms >= counted_from_ms:
            found["silver"].append(seen_ms[row["_batch"]] - at_ms)
            found["gold"].append(folded_ms[version_of[row["_batch"]]] - at_ms)
    return {name: _percentiles(times) for name, times in found.items()} | {
        "commits": {"silver": len(seen_ms), "gold": len(set(folded_ms.values()))}
    }


def _visible_ms(table: Path, version: int) -> float:
    return (table / "_delta_log" / f"{version:020}.json").stat().st_mtime_ns / 1e6


def _percentiles(times_ms: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times_ms, n=100)
    return {"rows": len(times_ms), "p50_ms": round(cuts[49]), "p99_ms": round(cuts[98])}


def _await(holds: Callable[[], bool], timeout_s: float = 180) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the jobs did not get there: see jobs.log in the home")
        time.sleep(0.1)


def demo_seconds(folder: Path) -> float:
    """The demo's own account of its time, for the first month."""
    command = [sys.executable, "-m", "headwater.cli", "demo", "--json", "--home", str(folder / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["seconds"])


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--demo", action="store_true", help="run the demo, too")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"cores": os.cpu_count()}
    flights = read_month(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.rounds:
            with broker(folder / "throughput-log") as address:
                fill(address, flights, arguments.events)
                figures["throughput"] = rounds(
                    address, arguments.events, arguments.rounds, folder / "throughput"
                )
        if arguments.seconds:
            with broker(folder / "latency-log") as address:
                figures["latency"] = latency(
                    address, flights, arguments.rate, arguments.seconds, folder / "latency"
                )
        if arguments.demo:
            figures["demo_s"] = demo_seconds(folder)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
