"""The offsets of consumer groups, translated: exactly, as each run of a partition is known."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headwater.mirror.end import TIMEOUT_S, End, Place, why_refused
from headwater_streams.sources.mirrored import Runs

OWN_GROUPS = "headwater-mirror-"
"""How the groups begin under which mirrors show their progress; they are not mirrored."""

_HAS_MEMBERS = ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "GROUP_SUBSCRIBED_TO_TOPIC")
"""A group that runs at the target moves its own offsets."""

Offsets = Mapping[Place, int]


@dataclass(frozen=True)
class Mirrored:
    """A mirrored partition, as groups are translated by it.

    Attributes:
        target: Its topic and partition at the target.
        runs: Its runs.
        end: Where it ends at the target.
        reached: The offset of the source up to which it is mirrored.
    """

    target: Place
    runs: Runs
    end: int
    reached: int


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


class GroupOffsets:
    """Has groups stand at the target where they stand at the source, and the mirror's own group where the mirror does.

    Args:
        source: What is mirrored.
        target: What it is mirrored into.
        follows: Whether a group's offsets are translated; None: no group's.
        tell: Takes a sentence for people; the same one many times.
    """

    def __init__(
        self,
        source: End,
        target: End,
        follows: Callable[[str], bool] | None,
        tell: Callable[[str], None],
    ) -> None:
        self._source, self._target, self._follows, self._tell = source, target, follows, tell
        self._written: dict[str, dict[Place, int]] = {}

    def passed(self) -> dict[Place, int]:
        """The offsets of the source up to which a mirror into the target has seen all, as its group has them."""
        return self._committed(self._source, self._own)

    @property
    def _own(self) -> str:
        return f"{OWN_GROUPS}{self._target.layout.cluster_id}"

    def follow(self, mirrored: Mapping[Place, Mirrored]) -> None:
        """Writes the offsets of each group that moved.

        Raises:
            AwayError: A coordinator cannot answer now.
            KafkaException: Brokers cannot answer now.
        """
        if mirrored:
            self._commit(self._source, self._own, {place: each.reached for place, each in mirrored.items()})
        if self._follows is None:
            return
        listed = self._source.admin().list_consumer_groups(request_timeout=TIMEOUT_S).result()
        for group in sorted(each.group_id for each in listed.valid):
            if group.startswith(OWN_GROUPS) or not self._follows(group):
                continue
            wanted = translated(self._committed(self._source, group), mirrored)
            if not wanted:
                continue
            existing = self._committed(self._target, group)
            new = to_commit(wanted, existing, self._written.get(group, {}))
            if new and self._commit(self._target, group, new):
                self._written.setdefault(group, {}).update(new)

    def _committed(self, end: End, group: str) -> dict[Place, int]:
        try:
            return end.committed(group)
        except KafkaException as error:
            self._tell(
                f"the offsets of group {group} at {end.cluster.bootstrap} are not known: {why_refused(error)}"
            )
            return {}

    def _commit(self, end: End, group: str, offsets: Offsets) -> bool:
        """Commits a group's offsets; False where it has members, or the brokers refuse."""
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        future = end.admin().alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group]
        try:
            future.result()
        except KafkaException as error:
            why = why_refused(error)
            if error.args[0].name() not in _HAS_MEMBERS:
                self._tell(f"the offsets of group {group} are not written to {end.cluster.bootstrap}: {why}")
            return False
        return True
