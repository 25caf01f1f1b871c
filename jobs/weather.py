"""The weather in which the flights left New York.

    silver.departures (of flights.py) ----------------------+
    weather (topic) ---> clean_weather ---> silver.weather -+-> departures_weather -> gold.departures_weather

Weather is observed once an hour at each airport, and a report may come up to two hours behind another: a departure
waits until no earlier report of its airport can come any more, then gets the last one before it.
"""

from pyspark.sql import DataFrame

import headwater as hw

weather = hw.topic(
    "weather",
    schema=(
        "origin STRING, observed_at TIMESTAMP, temp DOUBLE, humid DOUBLE, wind_speed DOUBLE, precip DOUBLE, "
        "visib DOUBLE"
    ),
    event_time="observed_at",
)
departed = hw.table("silver.departures", event_time="departed_at")
observed = hw.table("silver.weather", event_time="observed_at", watermark="2 hours")


@hw.job(target=hw.delta("silver.weather"), dedup=hw.by_offset(origin=True))
@hw.check("has_airport", "origin IS NOT NULL")
def clean_weather(weather: DataFrame) -> DataFrame:
    """Hourly reports, each once."""
    return weather


@hw.job(target=hw.delta("gold.departures_weather"))
def departures_weather(departed: DataFrame, observed: DataFrame) -> DataFrame:
    """Each departure with the last report of its airport, if there is one of the last three hours."""
    return hw.as_of(
        departed,
        observed,
        by=["origin"],
        left_time="departed_at",
        right_time="observed_at",
        tolerance="3 hours",
    )
