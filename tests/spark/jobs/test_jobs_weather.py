"""The departures of a day with the last hourly weather of their airport, against DuckDB's ASOF JOIN over the CSV."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from amount import drawn_seed
from headwater.config import shipped_dir
from headwater.demo.flights import Flight, archive_path, read_month
from headwater_streams.ledger.audit import audit_home
from headwater_streams.loader import load_jobs
from headwater_streams.testing import JobDriver

DAY = datetime(2013, 2, 8, tzinfo=UTC)  # the day of a storm: rows without weather, flights hours late
_MEASURED = ("temp", "humid", "wind_speed", "precip", "visib")
_EXPECTED = """
select flight_id, if(near, time_hour, null), if(near, temp, null) from (
    select l.flight_id, r.time_hour, r.temp, r.time_hour >= l.departed_at - interval 3 hours as near
    from departures l asof left join weather r on l.origin = r.origin and l.departed_at >= r.time_hour
)
"""


def _departure(flight: Flight, departed_at: datetime) -> dict[str, Any]:
    return {
        "flight_id": flight.flight_id, "carrier": flight.carrier, "flight": flight.flight, "origin": flight.origin,
        "departed_at": departed_at.isoformat(),
    }  # fmt: skip


def test_departures_weather_each_departure_has_the_last_report_of_its_airport(
    drive: Callable[..., JobDriver],
) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    left = [(f, at) for f in read_month(2) if (at := f.departed_at) and DAY <= at < DAY + timedelta(days=1)]
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(
            "create table weather as select origin, time_hour::timestamp as time_hour, temp, humid, wind_speed, "
            "precip, visib from read_csv(?, header = true, nullstr = 'NA') where time_hour between ? and ?",
            [str(archive_path().parent / "weather.csv"), DAY - timedelta(hours=6), DAY + timedelta(days=2)],
        )
        connection.execute(
            "create table departures (flight_id varchar, origin varchar, departed_at timestamp)"
        )
        connection.executemany(
            "insert into departures values (?, ?, ?)",
            [(f.flight_id, f.origin, at.replace(tzinfo=None)) for f, at in left],
        )
        reports = connection.execute("from weather").fetchall()
        expected = connection.execute(_EXPECTED).fetchall()

    flights, weather = (load_jobs([str(shipped_dir("jobs") / name)]) for name in ("flights.py", "weather.py"))
    driver = drive(*[job for job in flights if job.name == "clean_departures"], *weather)
    events = [(at, "departures", _departure(f, at)) for f, at in left]
    for origin, observed_at, *values in reports:
        at = observed_at.replace(tzinfo=UTC)
        report = {
            "origin": origin,
            "observed_at": at.isoformat(),
            **dict(zip(_MEASURED, values, strict=True)),
        }
        events.append((at, "weather", report))
    events.sort(key=lambda event: event[0] + timedelta(minutes=rng.randrange(120)))
    cut = rng.randrange(len(events) // 4, len(events) // 2)
    for part in (events[:cut], events[cut:]):
        for topic in ("departures", "weather"):
            values = [value for _, of, value in part if of == topic]
            driver.send(topic, *values, timestamp=DAY + timedelta(days=2))
        driver.run()
    got = driver.rows("gold.departures_weather", "flight_id", "observed_at", "temp")
    assert got == sorted(expected, key=repr)
    assert len(got) == len(left) > 400
    assert not [sentence for audit in audit_home(driver.home) for sentence in audit.findings]
