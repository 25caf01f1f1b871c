"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read, kept in shared state."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import Committed, CoordinationError, TopicPartition
from headwater_broker.groups import NO_GENERATION, UNKNOWN_MEMBER_ID, GroupError
from headwater_broker.log import Slices, finished
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError
from headwater_broker.server.group_offsets import (
    NO_RETENTION_MS,
    PARTITIONS_AT_ONCE,
    Committer,
    GroupOffsets,
    committed_slices,
)
from headwater_broker.server.group_runner import GroupRunner, group_error_code
from headwater_broker.server.node import Node
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.wire.apis import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from headwater_broker.wire.codec import milliseconds

_GROUPS_FROM = 8
_NOTHING = Committed(offset=-1)
_UNSTABLE = ErrorCode.unstable_offset_commit


class GroupOffsetApis:
    """Answers for groups that this broker coordinates."""

    def __init__(
        self, node: Node, runner: GroupRunner, offsets: GroupOffsets, transactions: TransactionRunner
    ) -> None:
        self._transactions = transactions
        self._node = node
        self._runner = runner
        self._offsets = offsets
        node.core.register(OFFSET_COMMIT, self.offset_commit)
        node.core.register(OFFSET_FETCH, self.offset_fetch)
        node.core.register(OFFSET_DELETE, self.offset_delete)

    # -- commit ----------------------------------------------------------------------------------------

    async def offset_commit(self, request: Request) -> Response:
        """Stores the offsets of a member, or of anybody where the group has no members."""
        body = request.body
        committer = Committer(
            body.group_id,
            request.get("member_id", UNKNOWN_MEMBER_ID),
            request.get("generation_id_or_member_epoch", NO_GENERATION),
            request.get("group_instance_id"),
        )
        retention = request.get("retention_time")
        retention_ms = NO_RETENTION_MS if retention is None else milliseconds(retention)
        work = self._node.core.work
        slices = self._offsets.admit_slices(committer, body.topics, retention_ms)
        are_many = sum(len(topic.partitions) for topic in body.topics) > PARTITIONS_AT_ONCE
        admission = await work.done(request.connection, slices) if are_many else finished(slices)
        stored = await self._offsets.store(
            body.group_id, admission.offsets, unless_registered=committer.is_stranger
        )
        answer = committed_slices(body.topics, admission.errors, stored)
        return await work.done(request.connection, answer) if are_many else finished(answer)

    # -- fetch -----------------------------------------------------------------------------------------

    async def offset_fetch(self, request: Request) -> Response:
        """Committed offsets; -1 where there is none."""
        connection = request.connection
        if request.version < _GROUPS_FROM:
            stable = request.get("require_stable", False)
            answer = await self._fetch(connection, request.body.group_id, request.body.topics, stable=stable)
            return answer if request.version else _as_from_zookeeper(answer)
        groups = []
        for group in request.body.groups:
            stable = request.body.require_stable
            answer = await self._fetch(connection, group.group_id, group.topics, stable=stable)
            groups.append({"group_id": group.group_id, **answer})
        return {"groups": groups}

    async def _fetch(
        self, connection: Connection, group_id: str, topics: Any, *, stable: bool
    ) -> dict[str, Any]:
        work = self._node.core.work
        refusal = self._runner.refusal(group_id)
        if refusal is not GroupError.NONE:
            return await work.done(connection, _fetch_error(topics, group_error_code(refusal)))
        requested: list[TopicPartition] | None = None
        if topics is not None:
            requested = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
        # Asked before the offsets are read: a transaction that is complete by then is in them.
        unstable = frozenset(self._transactions.coordinator.unstable_offsets(group_id)) if stable else ()
        try:
            committed = await self._node.ask(self._node.coordinator.fetch_offsets, group_id, requested)
        except CoordinationError:
            return await work.done(connection, _fetch_error(topics, ErrorCode.coordinator_load_in_progress))
        keys = sorted(committed) if requested is None else requested
        answers = (
            (key, _fetched(key[1], _NOTHING, _UNSTABLE))
            if key in unstable
            else (key, _fetched(key[1], committed.get(key, _NOTHING)))
            for key in keys
        )
        return {"topics": await work.done(connection, _by_topic(answers)), "error_code": ErrorCode.none}

    # -- delete ----------------------------------------------------------------------------------------

    async def offset_delete(self, request: Request) -> Response:
        """Forgets offsets of topics that no member of the group reads."""
        body = request.body
        group_id: str = body.group_id
        error = self._runner.refusal(group_id) if group_id else GroupError.INVALID_GROUP_ID
        try:
            if error is GroupError.NONE:
                stored = await self._node.ask(self._node.coordinator.groups, [group_id])
                is_known = group_id in stored or group_id in self._transactions.staged_groups()
                error = self._runner.groups.check_offset_deletion(group_id, stored=is_known)
            if error is not GroupError.NONE:
                return {"error_code": group_error_code(error), "topics": []}
            registered = await self._node.ask(self._node.coordinator.members, group_id)
            read = {topic for member in registered.values() for topic in member.get("subscription", ())}
            doomed: list[TopicPartition] = []
            answers = self._deletions(group_id, body.topics, read, doomed)
            topics = await self._node.core.work.done(request.connection, _by_topic(answers))
            await self._transactions.drop_offsets(group_id, doomed)
            await self._offsets.delete(group_id, doomed)
        except (ApiError, CoordinationError):
            return {"error_code": ErrorCode.coordinator_not_available, "topics": []}
        return {"error_code": ErrorCode.none, "topics": topics}

    def _deletions(
        self, group_id: str, topics: Any, read: Collection[str], doomed: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, Response]]:
        """The answers for the partitions of a request; what is to be deleted is added to `doomed`."""
        for topic in topics:
            is_read = topic.name in read or self._runner.groups.is_subscribed(group_id, topic.name)
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                code = ErrorCode.none
                if not self._offsets.partition_exists(key):
                    code = ErrorCode.unknown_topic_or_partition
                elif is_read:
                    code = ErrorCode.group_subscribed_to_topic
                else:
                    doomed.append(key)
                yield key, {"partition_index": key[1], "error_code": code}


def _as_from_zookeeper(answer: Response) -> Response:
    """Version 0, which is about offsets in ZooKeeper, has an error where there is none."""
    for topic in answer["topics"]:
        for each in topic["partitions"]:
            if each["committed_offset"] < 0 and each["error_code"] is ErrorCode.none:
                each["error_code"] = ErrorCode.unknown_topic_or_partition
    return answer


def _fetched(index: int, committed: Committed, code: ErrorCode = ErrorCode.none) -> Response:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": code,
    }


def _fetch_error(topics: Any, code: ErrorCode) -> Slices[dict[str, Any]]:
    """An error for the whole group, also told for each partition: version 1 has no other place for it."""
    answers = (
        ((topic.name, index), _fetched(index, _NOTHING, code))
        for topic in topics or ()
        for index in topic.partition_indexes
    )
    return {"topics": (yield from _by_topic(answers)), "error_code": code}


def _by_topic(answers: Iterable[tuple[TopicPartition, Response]]) -> Slices[list[Response]]:
    """Each partition's last answer, by topic."""
    topics: dict[str, dict[int, Response]] = {}
    for number, ((topic, partition), answer) in enumerate(answers):
        if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
            yield
        topics.setdefault(topic, {})[partition] = answer
    return [{"name": name, "partitions": list(partitions.values())} for name, partitions in topics.items()]
