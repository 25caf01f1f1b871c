"""The clock and the loop of the group coordinator."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.groups import GroupConfig, GroupCoordinator, GroupError, Reply
from headwater_broker.server.node import Node

_SHORTEST_NAP_S = 0.005
_LOOK_EVERY_S = 0.5


def group_error_code(error: GroupError) -> ErrorCode:
    """Kafka's code for a decision of the group coordinator."""
    return ErrorCode[error.name.lower()]


class GroupRunner:
    """Gives the group coordinator the time, and its replies to those who wait for them.

    Attributes:
        groups: The coordinator.
    """

    def __init__(self, node: Node) -> None:
        settings = node.settings
        self.groups = GroupCoordinator(
            GroupConfig(
                initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
                min_session_timeout_ms=settings.group_min_session_timeout_ms,
                max_session_timeout_ms=settings.group_max_session_timeout_ms,
                max_size=settings.group_max_size,
            )
        )
        self._node = node
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._brokers = node.cluster.brokers
        self.run(self._follow_brokers())

    def now_ms(self) -> int:
        """The coordinator's clock, which never runs backwards."""
        return int(self._node.clock.monotonic() * 1000)

    def refusal(self, group_id: str) -> GroupError:
        """NONE where this broker coordinates the group, else why it does not answer for it."""
        broker = self._node.cluster.group_coordinator(group_id)
        if broker is None:
            # No broker is registered, this one neither: its session has ended and is being replaced.
            return GroupError.NONE if group_id in self.groups else GroupError.COORDINATOR_NOT_AVAILABLE
        if broker.broker_id == self._node.cluster.broker_id:
            return GroupError.NONE
        self.deliver(self.groups.unload(group_id, self.now_ms()))
        return GroupError.NOT_COORDINATOR

    def deliver(self, replies: list[Reply]) -> None:
        """Hands replies to those who wait for them, and sets the alarm for the next deadline."""
        for reply in replies:
            future = reply.token
            if isinstance(future, asyncio.Future) and not future.done():
                future.set_result(reply.response)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.groups.next_deadline_ms()
        if deadline_ms is not None:
            delay_s = max((deadline_ms - self.now_ms()) / 1000, _SHORTEST_NAP_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def run(self, upkeep: Coroutine[Any, Any, None]) -> None:
        """Runs something beside the requests until `stop`."""
        self._tasks.append(asyncio.get_running_loop().create_task(upkeep))

    def stop(self) -> None:
        """Sets no more alarms."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _tick(self) -> None:
        self._timer = None
        self.deliver(self.groups.tick(self.now_ms()))

    async def _follow_brokers(self) -> None:
        """Gives up groups that another broker coordinates since brokers came or went.

        Its members do not ask here again while their JoinGroup is parked.
        """
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._node.cluster.brokers is not self._brokers:
                self._brokers = self._node.cluster.brokers
                for group_id in self.groups.group_ids():
                    self.refusal(group_id)
