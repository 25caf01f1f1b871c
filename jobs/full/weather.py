"""`clean_weather` of `jobs/weather.py`, of reports whose schema is in a registry; for `headwater demo --full`."""

from pyspark.sql import DataFrame

import headwater as hw

weather = hw.topic("weather", registry=True, event_time="observed_at")


@hw.job(target=hw.delta("silver.weather"), dedup=hw.by_offset(origin=True))
@hw.check("has_airport", "origin IS NOT NULL")
def clean_weather(weather: DataFrame) -> DataFrame:
    """Hourly reports, each once; what a newer version of the schema adds is left out."""
    return weather.select("origin", "observed_at", "temp", "humid", "wind_speed", "precip", "visib")
