"""The first version of `delay_by_carrier`, as it ran until somebody asked about the worst delays.

It takes a delay of more than three hours for a typing error and cuts it, so every hour with such a flight
has too low an average and maximum. `jobs/flights.py` has the version that replaced it; the demo runs this one
first and mends its table by a backfill.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

_LONGEST_DELAY_MINUTES = 180

departed = hw.table("silver.departures", event_time="departed_at", watermark="30 minutes")


@hw.job(
    target=hw.delta("gold.delay_by_carrier", keys=["carrier", "window_start"], mode="update"), late="table"
)
def delay_by_carrier(departed: DataFrame) -> DataFrame:
    """How late each carrier's flights left, hour by hour, none by more than three hours."""
    delay_minutes = F.least("delay_minutes", F.lit(_LONGEST_DELAY_MINUTES))
    return hw.tumbling(departed, "departed_at", "1 hour", by=["carrier"]).agg(
        F.count("*").alias("departures"),
        F.avg(delay_minutes).alias("avg_delay"),
        F.max(delay_minutes).alias("max_delay"),
    )
