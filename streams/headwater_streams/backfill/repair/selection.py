"""The range that a person asks for, before it is offsets and windows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import Span, micros, ranges_to_json
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.moments import iso

Moment = str | datetime
Rows = Literal["quarantined", "late"]


@dataclass(frozen=True)
class Selection:
    """One of these, or none of them for all that the job has read; every range is half-open.

    Attributes:
        offsets: Topic -> partition -> (start, end).
        timestamps: Of the records.
        event_time: Of the input's event-time column.
        since_version: What the job committed after this version of its target.
        rows: The records in quarantine, from the first to the last of each partition; or the late rows, with the
            windows that lack them.
    """

    offsets: Ranges | None = None
    timestamps: Span | None = None
    event_time: Span | None = None
    since_version: int | None = None
    rows: Rows | None = None

    @classmethod
    def of(
        cls,
        offsets: Ranges | None,
        timestamps: tuple[Moment, Moment] | None,
        event_time: tuple[Moment, Moment] | None,
        since_version: int | None,
        rows: Rows | None = None,
    ) -> "Selection":
        """Checks what was asked for.

        Raises:
            BackfillError: More than one kind of range is given, or one is empty or turned round.
        """
        given = [x for x in (offsets, timestamps, event_time, since_version, rows) if x is not None]
        if len(given) > 1:
            raise BackfillError(
                "give one of offsets, timestamps, event time, since version and rows, not several"
            )
        if rows is not None and rows not in get_args(Rows):
            raise BackfillError(f"rows={rows!r} is neither 'quarantined' nor 'late'")
        for topic, partitions in (offsets or {}).items():
            for partition, (start, end) in partitions.items():
                if not 0 <= start < end:
                    raise BackfillError(
                        f"{topic} {partition}: [{start}, {end}) is no range of offsets; the end is exclusive"
                    )
        if offsets is not None and not any(offsets.values()):
            raise BackfillError("no offsets are given; write topic:partition=start-end")
        times = _span("timestamps", timestamps), _span("event time", event_time)
        return cls(offsets, *times, since_version, rows)

    def to_json(self) -> Mapping[str, Any]:
        """What was asked for, for the plan."""
        if self.offsets is not None:
            return {"offsets": ranges_to_json(self.offsets)}
        if self.timestamps is not None:
            return {"timestamps": [iso(t) for t in self.timestamps]}
        if self.event_time is not None:
            return {"event_time": [iso(t) for t in self.event_time]}
        if self.since_version is not None:
            return {"since_version": self.since_version}
        if self.rows is not None:
            return {"rows": self.rows}
        return {"all": True}


def _span(what: str, pair: tuple[Moment, Moment] | None) -> Span | None:
    if pair is None:
        return None
    if isinstance(pair, str) or len(pair) != 2:
        raise BackfillError(f"{what}: {pair!r} is not a pair of times, (start, end)")
    try:
        start, end = micros(pair[0]), micros(pair[1])
    except ValueError as error:
        raise BackfillError(f"{what}: {error}; write 2013-01-01T10:00:00Z") from error
    if start >= end:
        raise BackfillError(f"{what}: [{iso(start)}, {iso(end)}) holds nothing; the end is exclusive")
    return start, end
