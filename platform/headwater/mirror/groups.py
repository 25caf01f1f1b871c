"""The offsets of consumer groups, translated: exactly, as each run of a partition is known."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.mirror.end import Place
from headwater_streams.sources.mirrored import Runs

Offsets = Mapping[Place, int]


@dataclass(frozen=True)
class Mirrored:
    """A mirrored partition, as groups are translated by it.

    Attributes:
        target: Its topic and partition at the target.
        runs: Its runs.
        end: Where it ends at the target.
    """

    target: Place
    runs: Runs
    end: int


def translated(committed: Offsets, mirrored: Mapping[Place, Mirrored]) -> dict[Place, int]:
    """A group's offsets at the target, of those at the source that are of mirrored partitions.

    What is not mirrored yet is not at the target, and its group stands at the end there until it is.
    """
    return {
        mirrored[place].target: mirrored[place].runs.translated(offset, mirrored[place].end)
        for place, offset in committed.items()
        if offset >= 0 and place in mirrored
    }


def to_commit(wanted: Offsets, existing: Offsets, written: Offsets) -> dict[Place, int]:
    """Which of a group's translated offsets are written: not those that somebody moved on at the target.

    Args:
        wanted: What `translated` gives.
        existing: What the group has at the target.
        written: What this mirror wrote there last. What it wrote may be moved back, as a reset at the source does.
    """
    return {
        place: offset
        for place, offset in wanted.items()
        if existing.get(place) != offset
        and (place not in existing or offset > existing[place] or existing[place] == written.get(place))
    }
