"""Producer ids: each is given out once in the life of a cluster."""

from headwater_broker.coordination import Coordinator
from headwater_broker.server.node import Node


class ProducerIds:
    """Hands out ids from blocks that no other broker has."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._next = 0
        self._end = 0

    async def next(self) -> int:
        """An id that nobody has.

        Raises:
            CoordinationError: Shared state, from which blocks of them come, does not answer.
        """
        coordinator: Coordinator = self._node.coordinator
        while self._next == self._end:
            start, length = await self._node.ask(coordinator.allocate_producer_ids)
            # Another request may have fetched a block meanwhile: use it up before this one.
            if self._next == self._end:
                self._next, self._end = start, start + length
        producer_id = self._next
        self._next += 1
        return producer_id
