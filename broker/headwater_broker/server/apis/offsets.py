"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: questions to a partition's log."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.log import Isolation, LogError, PartitionLog, Slices, TimestampAndOffset
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_SPOKEN_FROM = {_LATEST: 0, _EARLIEST: 0, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
"""The first version of ListOffsets that knows each of them."""

_EVER_MS = 2**63 - 1
_NOTHING = TimestampAndOffset(-1, -1, -1)


class OffsetApis:
    """Answers from the logs of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.core.register(LIST_OFFSETS, self.list_offsets)
        node.core.register(OFFSET_FOR_LEADER_EPOCH, self.offset_for_leader_epoch)
        node.core.register(DELETE_RECORDS, self.delete_records)

    def list_offsets(self, request: Request) -> Response | Awaitable[Response]:
        """Offsets by timestamp, or by one of the negative numbers that mean the ends of the log."""
        return self._node.core.work.answer(request.connection, self._list(request))

    def _list(self, request: Request) -> Slices[Response]:
        isolation = Isolation(1 if request.get("isolation_level", 0) == 1 else 0)

        counts = Counter(
            (topic.name, partition.partition_index)
            for topic in request.body.topics
            for partition in topic.partitions
        )

        def answer(topic: Any, partition: Any) -> Slices[dict[str, Any]]:
            index = partition.partition_index
            epoch = getattr(partition, "current_leader_epoch", -1)
            try:
                if request.version and counts[topic.name, index] > 1:
                    raise ApiError(ErrorCode.invalid_request, f"{topic.name}-{index} is named twice")
                if partition.timestamp < 0 and request.version < _SPOKEN_FROM.get(
                    partition.timestamp, 1 << 15
                ):
                    raise ApiError(ErrorCode.unsupported_version, f"{partition.timestamp} is no timestamp")
                log = self._log(topic.name, index, epoch)
                if request.version == 0:
                    offsets = self._find_by_files(request, log, partition.timestamp)[
                        : max(0, partition.max_num_offsets)
                    ]
                    return {
                        "partition_index": index,
                        "error_code": ErrorCode.none,
                        "old_style_offsets": offsets,
                    }
                result = yield from _find(log, partition.timestamp, isolation)
                if partition.timestamp == _EARLIEST and log.missing:
                    result = self._after_a_loss(log, result, request)
            except (LogError, ApiError) as error:
                return {"partition_index": index, "error_code": error_code(error)}
            return {
                "partition_index": index,
                "error_code": ErrorCode.none,
                "timestamp": result.timestamp_ms,
                "offset": result.offset,
                "leader_epoch": result.leader_epoch,
            }

        topics = []
        for topic in request.body.topics:
            partitions = []
            for partition in topic.partitions:
                partitions.append((yield from answer(topic, partition)))
                yield
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _after_a_loss(
        self, log: PartitionLog, earliest: TimestampAndOffset, request: Request
    ) -> TimestampAndOffset:
        """The earliest offset for a client that has just been told that the offsets at its position are lost.

        It may have read the records before them, so that for once it goes on behind them.
        """
        client_id = request.header.client_id
        offset = self._node.core.resets.take(request.connection, client_id, log.topic, log.partition)
        if offset is None or offset <= earliest.offset:
            return earliest
        return TimestampAndOffset(earliest.timestamp_ms, offset, log.epoch_at(offset))

    def _find_by_files(self, request: Request, log: PartitionLog, timestamp_ms: int) -> list[int]:
        if timestamp_ms == _EARLIEST:
            return [self._after_a_loss(log, log.earliest(), request).offset]
        before_ms = _EVER_MS if timestamp_ms == _LATEST else timestamp_ms
        return log.offsets_before(before_ms, now_ms=self._node.clock.now_ms())

    def offset_for_leader_epoch(self, request: Request) -> Response | Awaitable[Response]:
        """Where an epoch ended, by which a consumer sees that a log was cut under it."""

        def answer(topic: Any, partition: Any) -> dict[str, Any]:
            index = partition.partition
            try:
                log = self._log(topic.topic, index, getattr(partition, "current_leader_epoch", -1))
                end = log.end_of_epoch(partition.leader_epoch)
            except (LogError, ApiError) as error:
                return {"partition": index, "error_code": error_code(error)}
            return {
                "partition": index,
                "error_code": ErrorCode.none,
                "leader_epoch": end.leader_epoch,
                "end_offset": end.end_offset,
            }

        slices = _each(request.body.topics, answer, name_field="topic")
        return self._node.core.work.answer(request.connection, slices)

    async def delete_records(self, request: Request) -> Response:
        """Moves logs' starts forward; saved at once, so that a crash brings nothing back."""

        def answer(topic: Any, partition: Any) -> dict[str, Any]:
            index = partition.partition_index
            try:
                log = self._log(topic.name, index, -1)
                if not log.config.deletes:
                    message = (
                        f"records of {topic.name}-{index} cannot be deleted: its cleanup.policy is not delete"
                    )
                    raise ApiError(ErrorCode.policy_violation, message)
                start = log.delete_records(partition.offset)
            except (LogError, ApiError) as error:
                return {"partition_index": index, "error_code": error_code(error), "low_watermark": -1}
            return {"partition_index": index, "error_code": ErrorCode.none, "low_watermark": start}

        response = await self._node.core.work.done(request.connection, _each(request.body.topics, answer))
        self._node.logs.checkpoint()
        return response

    def _log(self, topic: str, partition: int, current_leader_epoch: int) -> PartitionLog:
        log = self._node.logs.get(topic, partition)
        if log is None:
            raise ApiError(self._node.cluster.why_not_here(topic, partition))
        if current_leader_epoch >= 0 and current_leader_epoch != log.leader_epoch:
            is_old = current_leader_epoch < log.leader_epoch
            raise ApiError(ErrorCode.fenced_leader_epoch if is_old else ErrorCode.unknown_leader_epoch)
        return log


def _find(log: PartitionLog, timestamp_ms: int, isolation: Isolation) -> Slices[TimestampAndOffset]:
    if timestamp_ms == _LATEST:
        return log.latest(isolation)
    if timestamp_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return log.earliest()
    if timestamp_ms == _MAX_TIMESTAMP:
        match = yield from log.find_max_timestamp()
        # As Kafka does it: the record with the greatest timestamp of all, or nothing where it may not be read yet.
        return match if match is not None and match.offset < log.latest(isolation).offset else _NOTHING
    if timestamp_ms == _LATEST_TIERED:
        return _NOTHING
    return (yield from log.find_timestamp(timestamp_ms, isolation)) or _NOTHING


def _each(
    topics: Any, answer: Callable[[Any, Any], dict[str, Any]], *, name_field: str = "name"
) -> Slices[Response]:
    answers = []
    for topic in topics:
        partitions = []
        for partition in topic.partitions:
            partitions.append(answer(topic, partition))
            yield
        answers.append({name_field: getattr(topic, name_field), "partitions": partitions})
        yield
    return {"topics": answers}
