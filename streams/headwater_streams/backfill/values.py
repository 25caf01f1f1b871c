"""What the plans of all backfills are made of: moments, ranges of offsets, batches of the live job.

Every range is half-open. Times are microseconds since the epoch in the program and ISO 8601 in a stored plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.record import Part, Record

PLAN_FORMAT = 2
"""Of stored plans. Those of format 1 have no ids of topics, so a topic that was made again since is not noticed."""

Span = tuple[int, int]
"""A half-open stretch of event time in microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FolderRecord(Record):
    """A record in a backfill's folder: `<FILE>.json`."""

    __slots__ = ()

    FILE: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class LiveBatchId(Part):
    """A batch of the live job, and the part of its offsets that belongs to the backfill."""

    WHAT = "a batch of a plan"

    generation: int
    batch: int
    ranges: Ranges

    def to_json(self) -> dict[str, Any]:
        """The batch as a plan has it."""
        return {"generation": self.generation, "batch": self.batch, "ranges": ranges_to_json(self.ranges)}

    @classmethod
    def from_json(cls, value: Any) -> "LiveBatchId":
        """The batch that stands in a plan."""
        known = cls.checked(value)
        return cls(
            generation=known["generation"], batch=known["batch"], ranges=ranges_from_json(known["ranges"])
        )


def micros(moment: str | datetime) -> int:
    """A moment as microseconds since the epoch; without an offset it is taken for UTC.

    Raises:
        ValueError: It is no time, or the text is not ISO 8601.
    """
    if not isinstance(moment, str | datetime):
        raise ValueError(f"{moment!r} is no time")
    if isinstance(moment, str) and moment.isdigit() and len(moment) != len("20130101"):
        raise ValueError(
            f"{moment!r} is a number and no time"
        )  # as Python reads it, of the year of its first digits
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise ValueError(f"{moment!r} is no time of ISO 8601") from None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return (parsed - _EPOCH) // timedelta(microseconds=1)


def ranges_to_json(ranges: Ranges) -> dict[str, dict[str, list[int]]]:
    """Ranges with string keys, partitions in order."""
    return {
        topic: {str(partition): list(pair) for partition, pair in sorted(partitions.items())}
        for topic, partitions in sorted(ranges.items())
    }


def ranges_from_json(value: Mapping[str, Mapping[str, list[int]]]) -> dict[str, dict[int, tuple[int, int]]]:
    """The inverse of `ranges_to_json`."""
    return {
        topic: {int(partition): (pair[0], pair[1]) for partition, pair in partitions.items()}
        for topic, partitions in value.items()
    }
