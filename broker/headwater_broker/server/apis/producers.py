"""InitProducerId: ids by which idempotent producers are told apart."""

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import CoordinationError
from headwater_broker.server.core import Request, Response
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import INIT_PRODUCER_ID


class ProducerApis:
    """Hands out producer ids from blocks that no other broker has."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._next = 0
        self._end = 0
        node.core.register(INIT_PRODUCER_ID, self.init_producer_id)

    async def init_producer_id(self, request: Request) -> Response:
        """A new id with epoch 0. There are no transactions yet, so a transactional id is refused."""
        if request.body.transactional_id is not None:
            return _refused(ErrorCode.invalid_request)
        while self._next == self._end:
            try:
                start, length = await self._node.ask(self._node.coordinator.allocate_producer_ids)
            except CoordinationError:
                return _refused(ErrorCode.coordinator_load_in_progress)
            # Another request may have fetched a block meanwhile: use it up before this one.
            if self._next == self._end:
                self._next, self._end = start, start + length
        producer_id = self._next
        self._next += 1
        return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}


def _refused(code: ErrorCode) -> Response:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
