"""The jobs whose driver is killed: rows with quarantine, windows with late rows, a join whose one side is a topic.

In the long form also count windows, a union of two topics, and windows that only count their late rows.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

_PER_BATCH = int(os.environ.get("HEADWATER_PER_BATCH", "40"))

clicks = hw.topic(
    "clicks",
    schema="who STRING, n INT, at TIMESTAMP",
    event_time="at",
    watermark="5 minutes",
    max_offsets_per_batch=_PER_BATCH,
)
orders = hw.topic(
    "orders",
    schema="who STRING, ordered_at TIMESTAMP",
    event_time="ordered_at",
    watermark="5 minutes",
    max_offsets_per_batch=_PER_BATCH,
)
good = hw.table("silver.clicks", event_time="at", watermark="5 minutes")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
@hw.check("has_who", "who IS NOT NULL")
def clean(clicks: DataFrame) -> DataFrame:
    return clicks.filter(F.col("n") % 7 != 0).select("who", "n", "at")


@hw.job(target=hw.delta("gold.per_minute", keys=["who", "window_start"], mode="update"))
def per_minute(good: DataFrame) -> DataFrame:
    return hw.tumbling(good, "at", "1 minute", by=["who"]).agg(
        F.count("*").alias("clicks"), F.sum("n").alias("total")
    )


@hw.job(target=hw.delta("gold.runs"))
def runs(good: DataFrame) -> DataFrame:
    return hw.count_window(good, "at", 7, by=["who"]).agg(F.sum("n").alias("total"))


@hw.job(target=hw.delta("gold.final"), late="count")
def final(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 minute", by=["who"]).agg(F.sum("n").alias("total"))


@hw.job(target=hw.delta("silver.both"), dedup=hw.by_offset(origin=True))
def both(clicks: DataFrame, orders: DataFrame) -> DataFrame:
    ordered = orders.select("who", F.col("ordered_at").alias("at"))
    return hw.union(clicks.filter("n % 5 <> 0"), ordered, allow_missing=True)


@hw.job(target=hw.delta("gold.pairs"), dedup=hw.by_offset())
def pairs(good: DataFrame, orders: DataFrame) -> DataFrame:
    return hw.join(good, orders, on=["who"], left_time="at", right_time="ordered_at", within="30 seconds")
