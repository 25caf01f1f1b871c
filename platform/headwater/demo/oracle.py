"""What every table must hold, computed by DuckDB straight from the data set's CSV.

Shares nothing with the jobs, nor with the plan of the replay: a mistake there cannot hide here.
"""

import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import duckdb

_FLIGHTS = """
create table flights as
select
    concat_ws('-', carrier, flight, origin, printf('%04d%02d%02d', year, month, day), sched_dep_time) as
    flight_id, carrier, flight::integer as flight, tailnum, origin, dest, air_time::integer as air_time,
    dep_time is not null as left_the_ground, case when dep_time is not null then time_hour +
    to_minutes(minute + dep_delay) end as departed_at, dep_delay::integer as delay_minutes
from read_csv(?, header = true, nullstr = 'NA', types = {'time_hour': 'TIMESTAMP', 'tailnum': 'VARCHAR'})
where month = ? and day <= ?
"""

_WEATHER = """
create table weather as
select origin, time_hour as observed_at, temp, humid, wind_speed, precip, visib
from read_csv(?, header = true, nullstr = 'NA', types = {'time_hour': 'TIMESTAMP'})
"""

# Each hour after the data set's end has a report without a measurement, for time to go on.
_HOURS_WITHOUT = """
insert into weather (origin, observed_at)
select origin, unnest(generate_series(max(observed_at) + interval 1 hour, timestamp '2014-01-02', interval 1 hour))
from weather group by origin
"""

_EXPECTED = {
    "silver.departures": """
        select flight_id, carrier, flight, tailnum, origin, dest, departed_at, delay_minutes
        from flights where left_the_ground""",
    "silver.departures__quarantine": """
        select flight_id from flights where not left_the_ground""",
    "silver.arrivals": """
        select flight_id, departed_at + to_minutes(air_time::bigint) as landed_at, air_time
        from flights where air_time is not null""",
    "gold.delay_by_carrier": """
        select carrier, date_trunc('hour', departed_at) as window_start,
            date_trunc('hour', departed_at) + interval 1 hour as window_end,
            count(*) as departures, avg(delay_minutes) as avg_delay, max(delay_minutes) as max_delay
        from flights where left_the_ground group by all""",
    "gold.flights": """
        select flight_id, carrier, flight, tailnum, origin, dest, departed_at, delay_minutes,
            departed_at + to_minutes(air_time::bigint) as landed_at, air_time
        from flights where left_the_ground and air_time is not null""",
    "silver.weather": """
        from weather where observed_at >= make_timestamp(2013, getvariable('month'), 1, 0, 0, 0)
            and observed_at <= (select max(departed_at) + interval 4 hours from flights)""",
    "gold.departures_weather": """
        select flights.* exclude (air_time, left_the_ground), weather.* exclude (origin)
        from flights left join weather on weather.origin = flights.origin
            and observed_at between departed_at - interval 3 hours and departed_at
        where left_the_ground
        qualify row_number() over (partition by flight_id order by observed_at desc) = 1""",
}


@dataclass(frozen=True)
class Expectation:
    """A table's expected shape: its key, and its own columns with their DuckDB types, in order."""

    keys: tuple[str, ...]
    columns: dict[str, str]


_FLIGHT_COLUMNS = {
    "flight_id": "VARCHAR",
    "carrier": "VARCHAR",
    "flight": "INTEGER",
    "tailnum": "VARCHAR",
    "origin": "VARCHAR",
    "dest": "VARCHAR",
    "departed_at": "TIMESTAMP WITH TIME ZONE",
    "delay_minutes": "INTEGER",
}
_REPORT_COLUMNS = {"observed_at": "TIMESTAMP WITH TIME ZONE"} | dict.fromkeys(
    ("temp", "humid", "wind_speed", "precip", "visib"), "DOUBLE"
)
_ARRIVAL_COLUMNS = {"landed_at": "TIMESTAMP WITH TIME ZONE", "air_time": "INTEGER"}

EXPECTATIONS = {
    "silver.departures": Expectation(("flight_id",), _FLIGHT_COLUMNS),
    "silver.arrivals": Expectation(("flight_id",), {"flight_id": "VARCHAR"} | _ARRIVAL_COLUMNS),
    "gold.delay_by_carrier": Expectation(
        ("carrier", "window_start"),
        {
            "carrier": "VARCHAR",
            "window_start": "TIMESTAMP WITH TIME ZONE",
            "window_end": "TIMESTAMP WITH TIME ZONE",
            "departures": "BIGINT",
            "avg_delay": "DOUBLE",
            "max_delay": "INTEGER",
        },
    ),
    "gold.flights": Expectation(("flight_id",), _FLIGHT_COLUMNS | _ARRIVAL_COLUMNS),
    "silver.weather": Expectation(("origin", "observed_at"), {"origin": "VARCHAR"} | _REPORT_COLUMNS),
    "gold.departures_weather": Expectation(("flight_id",), _FLIGHT_COLUMNS | _REPORT_COLUMNS),
}

# A delay above this is one that the first version of gold.delay_by_carrier cuts.
_FIRST_VERSION_CUTS_ABOVE_MINUTES = 180

WindowKeys = frozenset[tuple[str, str]]


class Oracle:
    """The CSV of the first days of a month in a database of its own, with a view of each table as it must be."""

    def __init__(self, archive: Path, month: int, days: int = 31) -> None:
        """Load the first `days` of `month` (1 to 12) from the zipped CSV `archive`, and the weather beside it."""
        self.connection = duckdb.connect()
        self.connection.execute("set TimeZone = 'UTC'")
        with tempfile.TemporaryDirectory() as folder:
            csv = Path(folder) / "flights.csv"
            with zipfile.ZipFile(archive) as zipped, zipped.open(csv.name) as packed, csv.open("wb") as copy:
                shutil.copyfileobj(packed, copy)
            self.connection.execute(_FLIGHTS, [str(csv), month, days])
        self.connection.execute(_WEATHER, [str(archive.parent / "weather.csv")])
        self.connection.execute(_HOURS_WITHOUT)
        self.connection.execute(f"set variable month = {month:d}")
        self.connection.execute("create schema expected")
        for name, query in _EXPECTED.items():
            self.connection.execute(f"create view {expected_view(name)} as {query}")

    def flights_that_never_left(self) -> frozenset[str]:
        """The flight ids that belong into the quarantine of departures."""
        rows = self.connection.execute(f"from {expected_view('silver.departures__quarantine')}").fetchall()
        return frozenset(flight_id for (flight_id,) in rows)

    def windows_the_first_version_gets_wrong(self) -> WindowKeys:
        """Carrier and window start of each hour with a delay that the job's first version cuts."""
        view = expected_view("gold.delay_by_carrier")
        rows = self.connection.execute(
            f"select carrier, window_start::varchar from {view} where max_delay > ?",
            [_FIRST_VERSION_CUTS_ABOVE_MINUTES],
        ).fetchall()
        return frozenset((carrier, start) for carrier, start in rows)


def expected_view(table: str) -> str:
    """The quoted name of the view that holds what `table` must hold."""
    return f'expected."{table}"'
