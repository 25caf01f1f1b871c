"""Points in time, in microseconds since the epoch."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(time_us: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC.

    Example:
        >>> iso(1_357_034_400_000_000)
        '2013-01-01T10:00:00Z'
    """
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds").replace(
        "+00:00", "Z"
    )
