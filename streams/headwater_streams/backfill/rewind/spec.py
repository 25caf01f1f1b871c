"""What a rewind is about, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from headwater_streams.backfill.values import ranges_from_json, ranges_to_json
from headwater_streams.backfill.whole import WholePlan
from headwater_streams.base.ledger_entry import Ranges


@dataclass(frozen=True, kw_only=True)
class RewindPlan(WholePlan):
    """A rewind: table, checkpoint and offsets put back to an earlier version, from which the next generation goes on.

    Attributes:
        version: The version of the target that it is put back to.
        batch: The last batch that the table has then.
        origin: The generation of that batch, whose checkpoint is gone on with.
        ranges: What the job will read again.
        versions: The versions of the job's other tables that have the same batch as their last.
    """

    mode: ClassVar[str] = "rewind"

    version: int
    batch: int
    origin: int
    ranges: Ranges
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def back_to(self) -> dict[str, int]:
        """The version that each of the job's tables is put back to, side tables left out; the target is the last."""
        return {**self.versions, self.target: self.version}

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
        known = {"origin": value["base_generation"], **value}  # which older plans do not name
        return replace(super().from_json(known), ranges=ranges_from_json(value["ranges"]))
