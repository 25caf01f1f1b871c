"""The jobs of `jobs/flights.py` that read topics, with a check of how late events come; for `headwater demo --full`."""

from pyspark.sql import DataFrame

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

# Some events are always hours late; more than these in one batch are those of a shipper that stood still.
_MOST_LATE = 20


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset(origin=True))
@hw.check("has_flight_id", "flight_id IS NOT NULL")
@hw.check("has_carrier", "carrier IS NOT NULL")
@hw.check("delay_sane", "avg(delay_minutes) < 600", on="input", level="batch", action="warn")
@hw.check("in_time", hw.expect.on_time("departed_at", "1 hour"), action="warn", at_most=_MOST_LATE)
def clean_departures(departures: DataFrame) -> DataFrame:
    """Departures that took place; one that did not has no `departed_at` and goes to quarantine."""
    return departures


@hw.job(target=hw.delta("silver.arrivals"), dedup=hw.by_offset(origin=True))
@hw.check("has_flight_id", "flight_id IS NOT NULL")
@hw.check("has_been_in_the_air", "air_time > 0")
@hw.check("in_time", hw.expect.on_time("landed_at", "1 hour"), action="warn", at_most=_MOST_LATE)
def clean_arrivals(arrivals: DataFrame) -> DataFrame:
    """Arrivals, each once."""
    return arrivals
