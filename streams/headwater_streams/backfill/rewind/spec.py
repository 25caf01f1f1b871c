"""What a rewind is about, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from headwater_streams.backfill.values import ranges_from_json, ranges_to_json
from headwater_streams.backfill.whole import WholePlan
from headwater_streams.ledger.entry import Ranges


@dataclass(frozen=True, kw_only=True)
class RewindPlan(WholePlan):
    """A rewind: table, checkpoint and offsets put back to an earlier version, from which the next generation goes on.

    Attributes:
        version: The version of the target that it is put back to.
        batch: The last batch that the table has then.
        ranges: What the job will read again.
    """

    mode = "rewind"

    version: int
    batch: int
    ranges: Ranges

    @property
    def asked(self) -> Mapping[str, Any]:
        """What was asked for: the version."""
        return {self.mode: self.version}

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored and printed."""
        return super().to_json() | {"ranges": ranges_to_json(self.ranges)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The plan as it was stored."""
        return replace(super().from_json(value), ranges=ranges_from_json(value["ranges"]))
