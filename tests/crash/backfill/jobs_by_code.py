"""The jobs whose tables are repaired, rebuilt and rewound: each is made for a code, a number that its rows tell.

A code decides which rows there are (one of some residue is rejected, or left out) and what stands in them, so that no
row of one code is a row of another. `backfill_model` says the same in plain Python.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.plan.job import Job, bind

_SCHEMA, _MOST = "who STRING, n INT, at TIMESTAMP", {"max_ahead": "3650 days", "max_offsets_per_batch": 400}
clicks = hw.topic("clicks", schema=_SCHEMA, event_time="at", watermark="20 minutes", **_MOST)
# Of joins and sessions that soon are whole, so that most of them can be repaired.
asked = hw.topic("clicks", schema=_SCHEMA, event_time="at", watermark="2 minutes", **_MOST)
replies = hw.topic(
    "replies", schema="n INT, replied_at TIMESTAMP", event_time="replied_at", watermark="2 minutes", **_MOST
)


def clean(code: int) -> Job:
    """A row-by-row job: `silver.clicks`."""

    @hw.job(name="clean", target=hw.delta("silver.clicks"), dedup=hw.by_offset())
    @hw.check(f"code_{code}", f"n % {7 + code % 5} <> 0")
    def clean(clicks: DataFrame) -> DataFrame:
        return clicks.select("n", "who", F.lit(code).alias("code"))

    return bind(clean)


def per_minute(code: int) -> Job:
    """A job of tumbling windows behind an ingest table: `gold.per_minute`."""

    @hw.job(
        name="per_minute",
        target=hw.delta("gold.per_minute", keys=["who", "window_start"], mode="update"),
        dedup=hw.by_offset(),
    )
    @hw.check(f"code_{code}", f"code = {code}", on="output", action="warn")
    def per_minute(clicks: DataFrame) -> DataFrame:
        kept = clicks.filter(F.col("n") % (7 + code % 5) != 0)
        return hw.tumbling(kept, "at", "1 minute", by=["who"]).agg(
            F.count("*").alias("clicks"),
            F.sum("n").alias("total"),
            F.max(F.when(F.col("n") % 2 == 0, F.col("n"))).alias("even"),
            F.max(F.when(F.col("n") % 2 == 1, F.col("n"))).alias("odd"),
            F.max(F.lit(code)).alias("code"),
        )

    return bind(per_minute)


def replied(code: int) -> Job:
    """A join of clicks with their replies behind two ingest tables: `gold.replied`."""

    @hw.job(name="replied", target=hw.delta("gold.replied"), dedup=hw.by_offset())
    @hw.check(f"code_{code}", f"code = {code}", on="output", action="warn")
    def replied(asked: DataFrame, replies: DataFrame) -> DataFrame:
        kept = asked.filter(F.col("n") % (7 + code % 5) != 0)
        found = hw.join(
            kept, replies, on=["n"], left_time="at", right_time="replied_at", within="1 minute", how="inner"
        )
        return found.select("n", "who", F.lit(code).alias("code"))

    return bind(replied)


def visits(code: int) -> Job:
    """A job of session windows, each written once it is closed, behind an ingest table: `gold.visits`."""

    @hw.job(name="visits", target=hw.delta("gold.visits"), dedup=hw.by_offset())
    @hw.check(f"code_{code}", f"code = {code}", on="output", action="warn")
    def visits(asked: DataFrame) -> DataFrame:
        kept = asked.filter(F.col("n") % (7 + code % 5) != 0).filter(F.col("n") % 40 < 25 + code % 5)
        return hw.session(kept, "at", "30 seconds", by=["who"]).agg(
            F.min("n").alias("first"),
            F.max("n").alias("last"),
            F.sum("n").alias("total"),
            F.max(F.lit(code)).alias("code"),
        )

    return bind(visits)


cleaned = hw.table("silver.clicks")


def onward(code: int) -> Job:
    """A job behind the table of `clean`: `gold.onward`, which tells the codes of both."""

    @hw.job(name="onward", target=hw.delta("gold.onward"))
    @hw.check(f"code_{code}", f"code = {code}", on="output", action="warn")
    def onward(cleaned: DataFrame) -> DataFrame:
        return cleaned.select("n", "who", F.col("code").alias("fed"), F.lit(code).alias("code"))

    return bind(onward)


JOBS = {"clean": clean, "per_minute": per_minute, "replied": replied, "visits": visits, "onward": onward}
