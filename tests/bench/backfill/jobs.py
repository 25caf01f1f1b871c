"""The jobs. Found by `headwater_streams.loader`, like any job module."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import Job
from operators.topic import SCHEMA, TIME

TOPIC, TABLE, WINDOWS = "readings", "silver.readings", "gold.by_device"
WINDOWS_OF_TOPIC = "gold.by_device_of_topic"
WINDOW, WATERMARK = "5 minutes", "10 minutes"
CONDITIONS = {
    "has_device": "device IS NOT NULL",
    "device_is_one": "device RLIKE '^dev-[0-9]{4}$'",
    "kind_is_known": "kind IN ('temperature', 'humidity', 'pressure')",
    "unit_is_of_kind": "(kind = 'temperature') = (unit = 'C')",
    "value_is_sane": "value BETWEEN -50000 AND 1100000",
}
SPLIT_OF = 16
"""A device of so many is left out."""

readings = hw.topic(TOPIC, schema=SCHEMA, event_time=TIME)
timed = hw.topic(TOPIC, schema=SCHEMA, event_time=TIME, watermark=WATERMARK)
cleaned = hw.table(TABLE, event_time=TIME, watermark=WATERMARK)


@hw.job(target=hw.delta(TABLE), dedup=hw.by_offset())
@hw.check("has_device", CONDITIONS["has_device"])
@hw.check("device_is_one", CONDITIONS["device_is_one"])
@hw.check("kind_is_known", CONDITIONS["kind_is_known"])
@hw.check("unit_is_of_kind", CONDITIONS["unit_is_of_kind"])
@hw.check("value_is_sane", CONDITIONS["value_is_sane"])
def clean(readings: DataFrame) -> DataFrame:
    """The readings of most devices, in thousandths."""
    return shaped(readings)


@hw.job(target=hw.delta(WINDOWS, keys=["device", "window_start"], mode="update"))
def by_device(cleaned: DataFrame) -> DataFrame:
    """What each device told in five minutes; no sums of fractions, which depend on the order."""
    return hw.tumbling(cleaned, TIME, WINDOW, by=["device"]).agg(*folded())


@hw.job(target=hw.delta(WINDOWS_OF_TOPIC, keys=["device", "window_start"], mode="update"), late="count")
def by_device_of_topic(timed: DataFrame) -> DataFrame:
    """The same of the topic itself: its records are read and parsed, and none of them is written."""
    return hw.tumbling(shaped(timed), TIME, WINDOW, by=["device"]).agg(*folded())


def shaped(rows: DataFrame) -> DataFrame:
    """What `clean` makes of rows, and the hand-written query, too."""
    kept = rows.filter(f"CAST(substring(device, 5) AS INT) % {SPLIT_OF} <> 0")
    return kept.withColumn("value", F.round(F.col("value") * 1000).cast("long")).withColumn(
        "note", F.upper("note")
    )


def folded() -> list:
    """The aggregates of the windows."""
    return [
        F.count("*").alias("readings"),
        F.sum("value").alias("total"),
        F.min("value").alias("least"),
        F.max("value").alias("greatest"),
    ]


def declared() -> dict[str, Job]:
    """The jobs by their names."""
    return {job.name: job for job in load_jobs([str(Path(__file__))])}
