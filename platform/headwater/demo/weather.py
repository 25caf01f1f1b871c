"""The hourly weather at New York's airports in 2013, as reports, from the data set's own CSV."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headwater.demo.flights import Flight, archive_path

_MISSING = "NA"
_HOUR = timedelta(hours=1)
MEASURED = ("temp", "humid", "wind_speed", "precip", "visib")
CLOSING = timedelta(hours=4)
"""How long after the last departure reports still come: its answer is final when the weather is two hours on."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an airport's station observed at an hour; None for what it did not measure."""

    origin: str
    observed_at: datetime
    values: tuple[float | None, ...]


def read_weather(month: int, flights: Iterable[Flight]) -> list[Report]:
    """The reports from the first of a month (1 to 12) until some hours after the last departure.

    The data set ends on 30 December. Each hour after that has a report without a measurement, for no departure's
    answer would be final if no report came any more.
    """
    since = datetime(2013, month, 1, tzinfo=UTC)
    until = max(at for flight in flights if (at := flight.departed_at) is not None) + CLOSING
    with (archive_path().parent / "weather.csv").open(newline="") as file:
        everything = [_report(row) for row in csv.DictReader(file)]
    last = {report.origin: report.observed_at for report in sorted(everything, key=_place)}
    for origin, observed_at in last.items():
        while (observed_at := observed_at + _HOUR) <= until:
            everything.append(Report(origin, observed_at, (None,) * len(MEASURED)))
    return sorted((r for r in everything if since <= r.observed_at <= until), key=_place)


def _place(report: Report) -> tuple[str, datetime]:
    return report.origin, report.observed_at


def _report(row: dict[str, str]) -> Report:
    values = tuple(None if row[name] == _MISSING else float(row[name]) for name in MEASURED)
    return Report(row["origin"], datetime.fromisoformat(row["time_hour"]), values)
