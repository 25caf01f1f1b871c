"""The flights that left New York: cleaned, windowed and joined.

    departures (topic) -> clean_departures -> silver.departures -+-> delay_by_carrier -> gold.delay_by_carrier
                                                                 +-> join_flights -----> gold.flights
    arrivals (topic) ---> clean_arrivals ---> silver.arrivals ---+

Events come out of order and at least once; their origin headers say which of them came before.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

departures = hw.topic(
    "departures",
    schema=(
        "flight_id STRING, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
        "departed_at TIMESTAMP, delay_minutes INT"
    ),
    event_time="departed_at",
)
arrivals = hw.topic(
    "arrivals", schema="flight_id STRING, landed_at TIMESTAMP, air_time INT", event_time="landed_at"
)

departed = hw.table("silver.departures", event_time="departed_at", watermark="30 minutes")

# A flight may land most of a day after it left, and its events may be hours late.
left = hw.table("silver.departures", event_time="departed_at", watermark="8 hours")
landed = hw.table("silver.arrivals", event_time="landed_at", watermark="8 hours")


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset(origin=True))
@hw.check("has_flight_id", "flight_id IS NOT NULL")
@hw.check("has_carrier", "carrier IS NOT NULL")
@hw.check("delay_sane", "avg(delay_minutes) < 600", on="input", level="batch", action="warn")
def clean_departures(departures: DataFrame) -> DataFrame:
    """Departures that took place; one that did not has no `departed_at` and goes to quarantine."""
    return departures


@hw.job(target=hw.delta("silver.arrivals"), dedup=hw.by_offset(origin=True))
@hw.check("has_flight_id", "flight_id IS NOT NULL")
@hw.check("has_been_in_the_air", "air_time > 0")
def clean_arrivals(arrivals: DataFrame) -> DataFrame:
    """Arrivals, each once."""
    return arrivals


@hw.job(
    target=hw.delta("gold.delay_by_carrier", keys=["carrier", "window_start"], mode="update"), late="table"
)
@hw.check("counts_something", "departures > 0", on="output", action="fail")
def delay_by_carrier(departed: DataFrame) -> DataFrame:
    """How late each carrier's flights left, hour by hour; hours that are still open are in it."""
    return hw.tumbling(departed, "departed_at", "1 hour", by=["carrier"]).agg(
        F.count("*").alias("departures"),
        F.avg("delay_minutes").alias("avg_delay"),
        F.max("delay_minutes").alias("max_delay"),
    )


@hw.job(target=hw.delta("gold.flights"), late="table")
@hw.check("landed_after_it_left", "landed_at > departed_at", on="output", action="fail")
def join_flights(left: DataFrame, landed: DataFrame) -> DataFrame:
    """Each flight that left and landed, with both ends."""
    return hw.join(
        left, landed, on=["flight_id"], left_time="departed_at", right_time="landed_at", within="24 hours"
    )
