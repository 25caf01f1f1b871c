"""`by_offset()`: removes records that were delivered again, by their coordinates alone."""

from dataclasses import dataclass

from headwater_streams.base.errors import JobDefinitionError


@dataclass(frozen=True)
class ByOffset:
    """Each (topic, partition, offset) counts once, whatever was retried, rewound or sent again.

    Attributes:
        origin: Honour the headers `headwater-origin-cluster|topic|partition|offset`, in which a shipper says where a
            record first stood, and what `headwater mirror` keeps of that for records without them; a record sent again
            under a new offset is then recognised.
        max_jump: An origin offset further than this beyond all seen offsets of its partition is not believed: the
            record goes to quarantine, and its offset is not remembered.
    """

    origin: bool = False
    max_jump: int = 10_000_000

    def __post_init__(self) -> None:
        if self.max_jump < 1:
            raise JobDefinitionError("by_offset(max_jump=...) must be 1 or more")

    @property
    def by_headers(self) -> bool:
        """Whether headers say which records are the same."""
        return self.origin


def by_offset(*, origin: bool = False, max_jump: int = 10_000_000) -> ByOffset:
    """Declares deduplication by offset; see `ByOffset` for the arguments."""
    return ByOffset(origin, max_jump)
