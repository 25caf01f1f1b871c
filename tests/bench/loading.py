"""Figures of `headwater load`, as one JSON object: `python tests/bench/loading.py [--records N] [--rounds N]`.

N records of JSON, some 150 bytes each, stand in a topic of four partitions. Each contender reads all of them and writes
four columns, in one session with the same settings, in turns; the median of the rounds counts, and a first one, to let
Java compile, does not. Broker and Spark share the machine's cores. Nothing is asserted of times: compare runs on the
same machine only. `cpu_us` is the processor time of Spark's process for a record, and `broker_cpu_us` the broker's.
Where two contenders wrote another number of rows, it ends with an error.

- `table`: `hw.load` into a table: decoded, one check, coordinates, account, chunks of `--chunk-mb` megabytes.
- `files`: the same into a folder of Parquet files.
- `by_hand`: a batch of Spark's own Kafka source, `from_json` and a filter, written to a Delta table; no coordinates, no
  quarantine, no account, and nothing that goes on where it was cut off.
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
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.stack.session import spark_session
from support.processes import cpu_s, running

_TOPIC, _PARTITIONS, _MEGABYTE = "clicks", 4, 1024 * 1024
_SCHEMA = "page STRING, visitor STRING, at TIMESTAMP, n INT"

clicks = hw.topic(_TOPIC, schema=_SCHEMA)


@hw.job(target=hw.delta("silver.clicks"))
@hw.check("has_page", "page IS NOT NULL")
def taken(clicks: DataFrame) -> DataFrame:
    """Clicks but each hundredth."""
    return clicks.filter("n % 100 <> 0")


def fill(bootstrap: str, records: int) -> int:
    """Sends the records; returns the bytes of their values."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    size = 0
    for n in range(records):
        value = json.dumps(
            {
                "page": f"/shop/item/{n * 7919 % 100_003}",
                "visitor": f"{n * 104_729:040x}",
                "at": f"2024-03-04T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z",
                "n": n,
            }
        ).encode()
        size += len(value)
        while True:
            try:
                producer.produce(_TOPIC, value, partition=n % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    return size


def by_hand(spark: SparkSession, bootstrap: str, folder: Path) -> int:
    """The batch in plain PySpark; returns how many rows it wrote."""
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", _TOPIC)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    rows = raw.select(F.from_json(F.col("value").cast("string"), _SCHEMA).alias("row")).select("row.*")
    rows.filter("page IS NOT NULL AND n % 100 <> 0").write.format("delta").save(str(folder))
    return spark.read.format("delta").load(str(folder)).count()


def contenders(
    spark: SparkSession, home: Path, bootstrap: str, chunk_bytes: int
) -> dict[str, Callable[[int], int]]:
    """Each writes the rows anew, under the number that it is given, and returns how many they were."""

    def load(into: str) -> int:
        done = hw.load(_TOPIC, job=taken, into=into, home=home, bootstrap=bootstrap, chunk_bytes=chunk_bytes)
        return done.accounting["written"]

    return {
        "table": lambda number: load(f"history.clicks_{number}"),
        "files": lambda number: load(f"parquet:{home / f'files_{number}'}"),
        "by_hand": lambda number: by_hand(spark, bootstrap, home / f"by_hand_{number}"),
    }


def figures(folder: Path, records: int, rounds: int, chunk_bytes: int) -> dict[str, Any]:
    """The figures of all contenders."""
    with running(folder / "broker", "--coordinator", "memory") as (serving, bootstrap, _):
        size = fill(bootstrap, records)
        spark = spark_session(folder, app_name="loading")
        gateway: Any = spark.sparkContext._gateway  # type: ignore[attr-defined]
        pids = {"cpu_us": gateway.proc.pid, "broker_cpu_us": serving.pid}
        took: dict[str, list[float]] = {}
        used_s: dict[str, dict[str, list[float]]] = {}
        try:
            for number in range(rounds + 1):
                wrote = {}
                each = [*contenders(spark, folder, bootstrap, chunk_bytes).items()]
                for name, write in each[number % len(each) :] + each[: number % len(each)]:
                    before_s = {each: cpu_s(pid) for each, pid in pids.items()}
                    began = time.perf_counter()
                    wrote[name] = write(number)
                    took.setdefault(name, []).append(time.perf_counter() - began)
                    for each, pid in pids.items():
                        used = cpu_s(pid) - before_s[each]
                        used_s.setdefault(name, {}).setdefault(each, []).append(used)
                if len({*wrote.values()}) != 1:
                    raise SystemExit(f"they wrote different rows: {wrote}")
                print(f"round {number}: {took}", file=sys.stderr, flush=True)
        finally:
            spark.stop()
    result: dict[str, Any] = {"records": records, "megabytes": round(size / _MEGABYTE, 1)}
    for name, seconds in took.items():
        median_s = statistics.median(seconds[1:])
        result[name] = {
            "first_s": round(seconds[0], 2),
            "warm_s": round(median_s, 2),
            "records_per_s": round(records / median_s),
            "mb_per_s": round(size / _MEGABYTE / median_s, 1),
            **{
                each: round(statistics.median(used[1:]) / records * 1e6, 1)
                for each, used in used_s[name].items()
            },
        }
    return result


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="that are counted")
    parser.add_argument("--chunk-mb", type=int, default=512)
    arguments = parser.parse_args()
    machine: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()}
    with tempfile.TemporaryDirectory() as folder:
        found = figures(Path(folder), arguments.records, arguments.rounds, arguments.chunk_mb * _MEGABYTE)
    print(json.dumps(machine | found, indent=2))


if __name__ == "__main__":
    main()
