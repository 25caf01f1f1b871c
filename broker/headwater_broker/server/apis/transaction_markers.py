"""WriteTxnMarkers: an operator ends a transaction in one partition, where its coordinator does not (KIP-664)."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.log import LogError, Marker
from headwater_broker.server.core import Request, Response
from headwater_broker.server.durable import DurableWrites
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.internal_topics import INTERNAL_TOPICS
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import WRITE_TXN_MARKERS


class TransactionMarkerApis:
    """Writes markers into this broker's logs, as `Admin.abortTransaction` wants them.

    A transaction can be left open like that in a directory that another broker wrote, or whose partition was away
    when its markers were due. The coordinator's own view of the transaction is not changed.
    """

    def __init__(self, node: Node, writes: DurableWrites) -> None:
        self._node = node
        self._writes = writes
        node.core.register(WRITE_TXN_MARKERS, self.write)

    async def write(self, request: Request) -> Response:
        """Answers once the markers are written, each partition for itself."""
        return {
            "markers": [
                {
                    "producer_id": marker.producer_id,
                    "topics": [
                        {"name": topic.name, "partitions": await self._write_all(marker, topic)}
                        for topic in marker.topics
                    ],
                }
                for marker in request.body.markers
            ]
        }

    async def _write_all(self, marker: Any, topic: Any) -> list[Response]:
        indexes = topic.partition_indexes
        codes = await asyncio.gather(*(self._write(marker, topic.name, index) for index in indexes))
        return [
            {"partition_index": index, "error_code": code} for index, code in zip(indexes, codes, strict=True)
        ]

    async def _write(self, marker: Any, topic: str, partition: int) -> ErrorCode:
        node = self._node
        log = node.logs.get(topic, partition)
        try:
            if topic in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.topic_authorization_failed)
            if log is None:
                raise ApiError(node.cluster.why_not_here(topic, partition))
            appended = log.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                Marker(marker.transaction_result, marker.coordinator_epoch),
                now_ms=node.clock.now_ms(),
            )
            await self._writes.wait(log, appended.last_offset + 1)
        except (LogError, ApiError) as error:
            return error_code(error)
        return ErrorCode.none
