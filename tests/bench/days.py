"""What is read and written of a table of 1,000 days: `python tests/bench/days.py [--days N] [--rows N]`, as JSON.

A row job over partitions of days, sorted by customer, and an updating window job of it, without a broker. Counted are
the files that each commit takes away and adds, those that a look for keys opens, and those that Spark reads for the
affected rows of a repair; each beside the files of the table. Nothing is asserted but the rows and the audit.

- `merge`: three orders of two days, late by years, into the updating table.
- `repair`: the offsets of two days, planned, run, proved and swapped in.
- `rollback`: the same taken back.
- `expiry`: one more day, by which one day is too old.
- `compaction`: upkeep's sorting of what these left.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.stack.session import spark_session
from headwater_streams import backfill
from headwater_streams.delta import live_files
from headwater_streams.delta.clustering import clustered_by, compact_clustered
from headwater_streams.delta.file_swap import FileSwap
from headwater_streams.delta.live_files import all_files
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

FIRST = datetime(2020, 1, 1, 12, tzinfo=UTC)
ORDERS, DAILY = "silver.orders", "gold.daily"
orders = hw.topic(
    "orders",
    schema="order_id BIGINT, customer_id STRING, cents BIGINT, placed_at TIMESTAMP",
    event_time="placed_at",
    watermark="1 day",
    max_ahead="5000 days",
)
placed = hw.table(ORDERS, event_time="placed_at", watermark="5000 days")


def clean(days: int, factor: int = 1) -> Job:
    """The row job; with a factor the one that mends it."""
    target = hw.delta(
        ORDERS, partition_by=["days(placed_at)"], cluster_by=["customer_id"], keep=f"{days} days"
    )

    @hw.job(name="clean", target=target, dedup=hw.by_offset())
    def function(orders: DataFrame) -> DataFrame:
        return orders.withColumn("cents", F.col("cents") * F.lit(factor))

    return bind(function)


@hw.job(
    target=hw.delta(
        DAILY, keys=["customer_id", "window_start"], mode="update", partition_by=["days(window_start)"]
    )
)
def daily(placed: DataFrame) -> DataFrame:
    return hw.tumbling(placed, "placed_at", "1 day", by=["customer_id"]).agg(F.sum("cents").alias("cents"))


def _order(number: int, day: int) -> dict[str, Any]:
    at = (FIRST + timedelta(days=day)).isoformat()
    return {"order_id": number, "customer_id": f"c{number % 97}", "cents": number % 1_000, "placed_at": at}


@contextmanager
def _opened() -> Iterator[list[Path]]:
    """The data files that looks for keys open meanwhile."""
    files: list[Path] = []
    holds: Callable[..., bool] = live_files._holds

    def noting(file: Path, *more: Any) -> bool:
        files.append(file)
        return holds(file, *more)

    with mock.patch.object(live_files, "_holds", noting):
        yield files


def _last(driver: JobDriver, table: str, since: int) -> dict[str, int]:
    """What the commits since a version took away and added."""
    made = [*commits(driver.home.table(table), since=since)]
    return {
        "files": len(all_files(driver.home.table(table), next_commit(driver.home.table(table)) - 1)),
        "removed": sum(commit.removed_files for commit in made),
        "added": sum(len(commit.added_paths) for commit in made),
    }


def measure(folder: Path, days: int, rows: int) -> dict[str, Any]:
    """The figures.

    Args:
        folder: An empty folder.
        days: How many days the table has.
        rows: How many rows each has.
    """
    found: dict[str, Any] = {"days": days, "rows": days * rows}
    spark = spark_session(folder / "spark", app_name="days")
    try:
        driver = JobDriver(spark, folder / "home", [clean(days + 1), bind(daily)])
        now = FIRST + timedelta(days=days + 3)
        sent = [_order(day * rows + n, day) for day in range(days) for n in range(rows)]
        driver.send("orders", *sent, timestamp=now)
        found["first_batch_s"] = _timed(driver.run)

        since = next_commit(driver.home.table(DAILY))
        driver.send("orders", _order(1, 10), _order(2, 10), _order(3, days // 2), timestamp=now)
        with _opened() as opened:
            took_s = _timed(driver.run)
        found["merge"] = {**_last(driver, DAILY, since), "opened": len(opened), "s": took_s}

        mended, context = clean(days + 1, 100), driver.context
        planned = backfill.plan(context, mended, offsets={"orders": {0: (20 * rows, 22 * rows)}})
        affected = planned.affected.condition()
        swap = FileSwap(spark, driver.home.table(ORDERS))
        read = len(swap.frame().filter(affected).inputFiles())
        ran_s = _timed(lambda: backfill.run(context, planned.id, mended))
        proved_s = _timed(lambda: backfill.verify(context, planned.id, mended))
        since = next_commit(driver.home.table(ORDERS))
        swapped_s = _timed(lambda: backfill.swap(context, planned.id))
        found["repair"] = {
            **_last(driver, ORDERS, since), "read": read, "run_s": ran_s, "verify_s": proved_s, "swap_s": swapped_s
        }  # fmt: skip
        since = next_commit(driver.home.table(ORDERS))
        took_s = _timed(lambda: backfill.rollback(context, planned.id))
        found["rollback"] = {**_last(driver, ORDERS, since), "s": took_s}

        since = next_commit(driver.home.table(ORDERS))
        driver.send("orders", _order(4, days + 2), timestamp=now)
        took_s = _timed(driver.run)
        found["expiry"] = {**_last(driver, ORDERS, since), "s": took_s, "batch_added": 1}

        since, path = next_commit(driver.home.table(ORDERS)), driver.home.table(ORDERS)
        took_s = _timed(lambda: compact_clustered(spark, path, clustered_by(path)))
        found["compaction"] = {**_last(driver, ORDERS, since), "s": took_s}
        found["findings"] = driver.audit()
    finally:
        spark.stop()
    return found


def _timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return round(time.monotonic() - started, 2)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=50, help="of each day")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), options.days, options.rows), indent=2))


if __name__ == "__main__":
    main()
