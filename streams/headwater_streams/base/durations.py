"""Durations as people write them in jobs: "30 minutes", "1 hour", "2 days 6 hours"."""

import re
from datetime import timedelta

from headwater_streams.base.errors import JobDefinitionError

_UNITS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_PART = re.compile(r"([0-9]+)\s*([a-z]+?)s?(?:\s+|$)")


def parse_duration(text: str) -> timedelta:
    """Parses a positive duration with fixed units (no months or years: their length varies).

    Raises:
        JobDefinitionError: The text is not a duration; the message lists the units.

    Example:
        >>> parse_duration("2 days 6 hours")
        datetime.timedelta(days=2, seconds=21600)
    """
    rest, total = str(text).strip().lower(), timedelta()  # 90 is no duration either
    while rest:
        part = _PART.match(rest)
        if part is None or part[2] not in _UNITS:
            raise JobDefinitionError(
                f"{text!r} is not a duration; write a number and one of {', '.join(f'{unit}s' for unit in _UNITS)}"
            )
        total += int(part[1]) * _UNITS[part[2]]
        rest = rest[part.end() :]
    if not total:
        raise JobDefinitionError(f"{text!r} is not a duration above zero; write for example '30 minutes'")
    return total


def interval_sql(duration: timedelta) -> str:
    """The duration as a Spark SQL interval literal, exact to the microsecond."""
    return f"INTERVAL '{duration / timedelta(seconds=1):.6f}' SECOND"


def in_micros(duration: timedelta) -> int:
    """The duration in microseconds."""
    return round(duration / timedelta(microseconds=1))
