"""DescribeLogDirs and AlterReplicaLogDirs: which partition is on which disk."""

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.log import LogDirError, LogError, Move, PartitionLog
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS

_LOG = logging.getLogger(__name__)


class LogDirApis:
    """Answers from this broker's log directories."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.core.register(DESCRIBE_LOG_DIRS, self.describe_log_dirs)
        node.core.register(ALTER_REPLICA_LOG_DIRS, self.alter_replica_log_dirs)

    def describe_log_dirs(self, request: Request) -> Response:
        """Tells the size of partitions, directory by directory; of all of them where none are named."""
        topics = request.body.topics
        requested = None
        if topics is not None:
            requested = {(topic.topic, partition) for topic in topics for partition in topic.partitions}
        logs = self._node.logs
        results: list[dict[str, Any]] = [
            {"error_code": ErrorCode.kafka_storage_error, "log_dir": path, "topics": []}
            for path in logs.failed_directories
        ]
        for directory in logs.directories:
            if directory.failure is not None:
                continue
            entries = [(log, False) for log in logs.within(directory)]
            entries += [
                (log, True) for log in logs if log.move is not None and log.move.target == directory.path
            ]
            by_topic: dict[str, list[dict[str, Any]]] = {}
            for log, is_future in entries:
                if requested is None or (log.topic, log.partition) in requested:
                    by_topic.setdefault(log.topic, []).append(_describe(log, is_future=is_future))
            total_bytes, usable_bytes = directory.disk_bytes()
            results.append(
                {
                    "error_code": ErrorCode.none,
                    "log_dir": directory.path,
                    "topics": [{"name": name, "partitions": each} for name, each in by_topic.items()],
                    "total_bytes": total_bytes,
                    "usable_bytes": usable_bytes,
                }
            )
        return {"error_code": ErrorCode.none, "results": results}

    async def alter_replica_log_dirs(self, request: Request) -> Response:
        """Starts moves, or remembers where partitions are to be made; answers before they are done."""
        answers: dict[str, list[dict[str, Any]]] = {}
        async for directory in unhurried(request.body.dirs):
            async for topic in unhurried(directory.topics):
                async for partition in unhurried(topic.partitions):
                    code = self._choose(topic.name, partition, directory.path)
                    answers.setdefault(topic.name, []).append(
                        {"partition_index": partition, "error_code": code}
                    )
        return {"results": [{"topic_name": name, "partitions": each} for name, each in answers.items()]}

    def _choose(self, topic: str, partition: int, path: str) -> ErrorCode:
        node = self._node
        try:
            if (topic, partition) in node.cluster.missing:
                raise ApiError(ErrorCode.kafka_storage_error)
            move = node.logs.choose(topic, partition, path)
        except LogDirError:
            return ErrorCode.log_dir_not_found
        except (LogError, ApiError) as error:
            return error_code(error)
        if node.logs.get(topic, partition) is None:
            # The partition will be made there. Kafka answers with the same codes.
            state = node.cluster.topics.get(topic)
            is_known = state is not None and partition in state.partitions
            return ErrorCode.replica_not_available if is_known else ErrorCode.unknown_topic_or_partition
        if move is not None:
            node.core.spawn(self._run(move))
        return ErrorCode.none

    async def _run(self, move: Move) -> None:
        try:
            await self._node.ask(move.run)
            while move.complete():
                await self._node.ask(move.run)
        except Exception:
            _LOG.exception("moving %s to %s failed", move.name, move.target)


def _describe(log: PartitionLog, *, is_future: bool) -> dict[str, Any]:
    size_bytes = log.size_bytes
    if is_future and log.move is not None:
        return {
            "partition_index": log.partition,
            "partition_size": log.move.copied_bytes,
            "offset_lag": log.log_end_offset - log.move.copied_offset,
            "is_future_key": True,
        }
    return {
        "partition_index": log.partition,
        "partition_size": size_bytes,
        # Kafka's lag is how far the log's end is behind the high watermark. Here it is how many offsets are lost.
        "offset_lag": sum(each.end_offset - each.start_offset for each in log.missing),
        "is_future_key": False,
    }
