"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read, kept in shared state."""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import Committed, CoordinationError, TopicPartition
from headwater_broker.groups import NO_GENERATION, GroupError
from headwater_broker.server.apis.membership import GroupRunner, group_error_code
from headwater_broker.server.core import Request, Response
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH

_GROUPS_FROM = 8
_NOTHING = Committed(offset=-1)


class GroupOffsetApis:
    """Answers for groups that this broker coordinates."""

    def __init__(self, node: Node, runner: GroupRunner) -> None:
        self._node = node
        self._runner = runner
        node.core.register(OFFSET_COMMIT, self.offset_commit)
        node.core.register(OFFSET_FETCH, self.offset_fetch)
        node.core.register(OFFSET_DELETE, self.offset_delete)

    # -- commit ----------------------------------------------------------------------------------------

    async def offset_commit(self, request: Request) -> Response:
        """Stores the offsets of a member, or of anybody where the group has no members."""
        body = request.body
        error = self._runner.refusal(body.group_id)
        if error is GroupError.NONE:
            error = self._runner.groups.check_offset_commit(
                self._runner.now_ms(),
                body.group_id,
                body.member_id,
                request.get("generation_id_or_member_epoch", NO_GENERATION),
                request.get("group_instance_id"),
            )
        if error is not GroupError.NONE:
            return _committed(body.topics, {}, group_error_code(error))
        errors: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, Committed] = {}
        now_ms = self._node.clock.now_ms()
        for topic in body.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                code = self._check(key, partition)
                if code is ErrorCode.none:
                    offsets[key] = Committed(
                        partition.committed_offset,
                        getattr(partition, "committed_leader_epoch", -1),
                        partition.committed_metadata or "",
                        now_ms,
                    )
                else:
                    errors[key] = code
        if offsets:
            try:
                await self._node.ask(self._node.coordinator.commit_offsets, body.group_id, offsets)
            except CoordinationError:
                # Kafka's code for "the offsets could not be stored now": clients try again.
                return _committed(body.topics, errors, ErrorCode.coordinator_not_available)
        return _committed(body.topics, errors, ErrorCode.none)

    def _check(self, key: TopicPartition, partition: Any) -> ErrorCode:
        topic = self._node.cluster.topics.get(key[0])
        if topic is None or key[1] not in topic.partitions:
            return ErrorCode.unknown_topic_or_partition
        text = partition.committed_metadata or ""
        if len(text.encode()) > self._node.settings.offset_metadata_max_bytes:
            return ErrorCode.offset_metadata_too_large
        return ErrorCode.none

    # -- fetch -----------------------------------------------------------------------------------------

    async def offset_fetch(self, request: Request) -> Response:
        """Committed offsets; -1 where there is none."""
        if request.version < _GROUPS_FROM:
            return await self._fetch(request.body.group_id, request.body.topics)
        groups = []
        for group in request.body.groups:
            groups.append({"group_id": group.group_id, **await self._fetch(group.group_id, group.topics)})
        return {"groups": groups}

    async def _fetch(self, group_id: str, topics: Any) -> dict[str, Any]:
        refusal = self._runner.refusal(group_id)
        if refusal is not GroupError.NONE:
            return _fetch_error(topics, group_error_code(refusal))
        asked: list[TopicPartition] | None = None
        if topics is not None:
            asked = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
        try:
            found = await self._node.ask(self._node.coordinator.fetch_offsets, group_id, asked)
        except CoordinationError:
            return _fetch_error(topics, ErrorCode.coordinator_load_in_progress)
        keys = sorted(found) if asked is None else asked
        return {
            "topics": _by_topic({key: _fetched(key[1], found.get(key, _NOTHING)) for key in keys}),
            "error_code": ErrorCode.none,
        }

    # -- delete ----------------------------------------------------------------------------------------

    async def offset_delete(self, request: Request) -> Response:
        """Forgets offsets of topics that no member of the group reads."""
        body = request.body
        group_id: str = body.group_id
        coordinator = self._node.coordinator
        error = self._runner.refusal(group_id)
        try:
            if error is GroupError.NONE:
                stored = group_id in await self._node.ask(coordinator.groups)
                error = self._runner.groups.check_offset_deletion(group_id, stored=stored)
            if error is not GroupError.NONE:
                return {"error_code": group_error_code(error), "topics": []}
            answers: dict[TopicPartition, Response] = {}
            doomed: list[TopicPartition] = []
            for topic in body.topics:
                code = ErrorCode.none
                if self._runner.groups.is_subscribed(group_id, topic.name):
                    code = ErrorCode.group_subscribed_to_topic
                for partition in topic.partitions:
                    key = (topic.name, partition.partition_index)
                    answers[key] = {"partition_index": key[1], "error_code": code}
                    if code is ErrorCode.none:
                        doomed.append(key)
            await self._node.ask(coordinator.delete_offsets, group_id, doomed)
        except CoordinationError:
            return {"error_code": ErrorCode.coordinator_not_available, "topics": []}
        return {"error_code": ErrorCode.none, "topics": _by_topic(answers)}


def _committed(topics: Any, errors: Mapping[TopicPartition, ErrorCode], code: ErrorCode) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": errors.get((topic.name, partition.partition_index), code),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in topics
        ]
    }


def _fetched(index: int, committed: Committed, code: ErrorCode = ErrorCode.none) -> Response:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": code,
    }


def _fetch_error(topics: Any, code: ErrorCode) -> dict[str, Any]:
    """An error for the whole group, also told for each partition: version 1 has no other place for it."""
    answers = {
        (topic.name, index): _fetched(index, _NOTHING, code)
        for topic in topics or ()
        for index in topic.partition_indexes
    }
    return {"topics": _by_topic(answers), "error_code": code}


def _by_topic(answers: Mapping[TopicPartition, Response]) -> list[Response]:
    topics: dict[str, list[Response]] = {}
    for (topic, _), answer in answers.items():
        topics.setdefault(topic, []).append(answer)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
