"""Committed offsets of the groups that this broker coordinates: who may commit, and in which order."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import Committed, CoordinationError, TopicPartition
from headwater_broker.groups import NO_GENERATION, UNKNOWN_MEMBER_ID, GroupError
from headwater_broker.log import Slices
from headwater_broker.server.group_runner import GroupRunner, group_error_code
from headwater_broker.server.node import Node

PARTITIONS_AT_ONCE = 200
"""So many partitions are checked before others get their turn: half a millisecond."""

NO_RETENTION_MS = -1
"""What a client sends that leaves the retention of its offsets to the broker."""


_STORABLE_BYTES = 256 * 1024
"""Half of what goes to ZooKeeper in one piece. Kafka refuses what its offsets topic does not take, with this code."""


class StagedOffsets(Protocol):
    """Offsets that groups will have committed once open transactions have been."""

    def staged_groups(self) -> Collection[str]:
        """Groups that have any."""

    async def drop_offsets(self, group: str, partitions: Collection[TopicPartition] | None = None) -> None:
        """Forgets a group's; see `TransactionRunner.drop_offsets`."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits.

    Attributes:
        group_id: The group.
        member_id: "" for whoever is no member: a simple consumer, an operator, an old transactional producer.
        generation: Of the member's assignment.
        instance_id: `group.instance.id` of a static member.
        is_transactional: Whether the offsets are part of a transaction (TxnOffsetCommit).
    """

    group_id: str
    member_id: str = UNKNOWN_MEMBER_ID
    generation: int = NO_GENERATION
    instance_id: str | None = None
    is_transactional: bool = False

    @property
    def is_stranger(self) -> bool:
        """Whether it is no member of the group: a simple consumer, or an operator."""
        return self.generation < 0 and not self.member_id and self.instance_id is None


@dataclass(slots=True)
class Admission:
    """What of a request may be committed.

    Attributes:
        offsets: What to store.
        errors: What is wrong with the other partitions.
    """

    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


class GroupOffsets:
    """Checks commits and stores them; one instance serves all APIs of a broker.

    Attributes:
        blocked: Groups with a committed transaction whose offsets shared state does not take: nobody else's are
            taken either, since they are to come later.
        turns: For whoever writes offsets of a group.
    """

    def __init__(self, node: Node, runner: GroupRunner) -> None:
        self._node = node
        self._runner = runner
        self.blocked: set[str] = set()
        self.turns = runner.turns

    def admit_slices(
        self, committer: Committer, topics: Iterable[Any], retention_ms: int = NO_RETENTION_MS
    ) -> Slices[Admission]:
        """Checks a commit: the partitions first, then the member, as Kafka does.

        Args:
            committer: Who commits.
            topics: The topics of an OffsetCommit or TxnOffsetCommit request.
            retention_ms: How long the client wants the offsets kept.
        """
        admission = Admission()
        now_ms = self._node.clock.now_ms()
        expires_ms = None if retention_ms == NO_RETENTION_MS else now_ms + retention_ms
        for topic in topics:
            for number, partition in enumerate(topic.partitions):
                if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                    yield
                key = (topic.name, partition.partition_index)
                metadata = partition.committed_metadata or ""
                if not self.partition_exists(key):
                    admission.errors[key] = ErrorCode.unknown_topic_or_partition
                elif _utf16_length(metadata) > self._node.settings.offset_metadata_max_bytes:
                    admission.errors[key] = ErrorCode.offset_metadata_too_large
                elif len(metadata.encode(errors="replace")) > _STORABLE_BYTES:
                    admission.errors[key] = ErrorCode.invalid_commit_offset_size
                else:
                    epoch = getattr(partition, "committed_leader_epoch", -1)
                    stamp_ms = getattr(partition, "commit_timestamp", -1)  # version 1 only
                    admission.offsets[key] = Committed(
                        partition.committed_offset,
                        epoch,
                        metadata,
                        now_ms if stamp_ms < 0 else stamp_ms,
                        expires_ms,
                    )
            yield
        error = self._check(committer)
        if error is not GroupError.NONE:
            code = group_error_code(error)
            refused = [key for key, why in admission.errors.items() if why is not _UNKNOWN]
            admission.errors.update(dict.fromkeys([*refused, *admission.offsets], code))
            admission.offsets.clear()
        return admission

    async def store(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed], *, unless_registered: bool = False
    ) -> ErrorCode:
        """Stores offsets that were admitted, after those that were admitted before.

        Args:
            group_id: The group.
            offsets: What was admitted.
            unless_registered: Whether members that no coordinator runs, ZooKeeper consumers or a streaming
                job, keep others from committing.

        Returns:
            NONE, UNKNOWN_MEMBER_ID where such members are there, or COORDINATOR_NOT_AVAILABLE where shared
            state does not answer: clients try again.
        """
        if not offsets:
            return ErrorCode.none
        if group_id in self.blocked:
            return ErrorCode.coordinator_not_available
        coordinator = self._node.coordinator
        async with self.turns.turn(group_id):
            try:
                if unless_registered:
                    registered = await self._node.ask(coordinator.members, group_id)
                    if registered:
                        return ErrorCode.unknown_member_id
                await self.commit(group_id, offsets)
            except CoordinationError:
                return ErrorCode.coordinator_not_available
        return ErrorCode.none

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Stores offsets for whoever has the group's turn.

        Raises:
            CoordinationError: Shared state does not answer.
        """
        await self._node.ask(self._node.coordinator.commit_offsets, group_id, offsets)
        self._runner.records.committed(group_id, offsets)

    async def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets offsets.

        Raises:
            CoordinationError: Shared state does not answer.
        """
        async with self.turns.turn(group_id):
            doomed = list(partitions)
            await self._node.ask(self._node.coordinator.delete_offsets, group_id, doomed)
            self._runner.records.deleted(group_id, doomed)

    def partition_exists(self, key: TopicPartition) -> bool:
        """Whether the cluster has such a partition."""
        topic = self._node.cluster.topics.get(key[0])
        return topic is not None and key[1] in topic.partitions

    def _check(self, committer: Committer) -> GroupError:
        refusal = self._runner.refusal(committer.group_id)
        if refusal is not GroupError.NONE:
            return refusal
        return self._runner.groups.check_offset_commit(
            self._runner.now_ms(),
            committer.group_id,
            committer.member_id,
            committer.generation,
            committer.instance_id,
            transactional=committer.is_transactional,
        )


def committed_slices(
    topics: Iterable[Any], errors: Mapping[TopicPartition, ErrorCode], code: ErrorCode
) -> Slices[Mapping[str, Any]]:
    """The answer to an OffsetCommit or TxnOffsetCommit request.

    Args:
        topics: The request's.
        errors: What is wrong with some of its partitions.
        code: What is to be said of the others.
    """
    answers = []
    for topic in topics:
        partitions = []
        for number, partition in enumerate(topic.partitions):
            if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                yield
            index = partition.partition_index
            partitions.append({"partition_index": index, "error_code": errors.get((topic.name, index), code)})
        answers.append({"name": topic.name, "partitions": partitions})
        yield
    return {"topics": answers}


_UNKNOWN = ErrorCode.unknown_topic_or_partition


def _utf16_length(text: str) -> int:
    """Kafka counts the length of a Java string against `offset.metadata.max.bytes`."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
