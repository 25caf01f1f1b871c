"""The clock, the loop and the memory of the group coordinator."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import CoordinationError
from headwater_broker.groups import (
    GroupConfig,
    GroupCoordinator,
    GroupError,
    Reply,
    Save,
    decode_group,
    encode_group,
)
from headwater_broker.server.cluster import GroupPlaces
from headwater_broker.server.group_records import GroupRecords
from headwater_broker.server.group_turns import GroupTurns
from headwater_broker.server.node import Node
from headwater_broker.shown import MESSAGE_CHARS, shown
from headwater_broker.wire.codec import LEGACY_STRING_BYTES

_LOG = logging.getLogger(__name__)
_SHORTEST_NAP_S = 0.005
_LOOK_EVERY_S = 0.5
_LATE_MS = 50
_GRACE_MS = 50
_MAX_KEPT_BYTES = 512 * 1024
"""The most that is kept of one group: it holds some thousands of members, which are much alike."""


def group_error_code(error: GroupError) -> ErrorCode:
    """Kafka's code for a decision of the group coordinator."""
    return ErrorCode[error.name.lower()]


class GroupRunner:
    """Gives the group coordinator the time, its replies to those who wait for them, and its groups to shared state.

    Attributes:
        groups: The coordinator.
        turns: For whoever writes offsets of a group.
        records: The topic that tools read it all from.
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
        self.turns = GroupTurns()
        self.records = GroupRecords(node, self.turns.turn)
        self._save_turns = GroupTurns()
        self._node = node
        self._timer: asyncio.TimerHandle | None = None
        self._grace_ends_ms: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._saves: set[asyncio.Task[None]] = set()
        self._places = GroupPlaces()
        self._loaded = GroupPlaces()
        self._is_requested = asyncio.Event()
        self.run(self._follow_brokers())
        self.run(self.records.follow_topics())

    def now_ms(self) -> int:
        """The coordinator's clock, which never runs backwards."""
        return int(self._node.clock.monotonic() * 1000)

    def refusal(self, group_id: str) -> GroupError:
        """NONE where this broker coordinates the group, else why it does not answer for it."""
        # Kafka's records of groups cannot hold a longer name, nor can the versions that most tools list groups by.
        if len(group_id.encode()) > LEGACY_STRING_BYTES:
            return GroupError.INVALID_GROUP_ID
        broker = self._node.cluster.group_coordinator(group_id)
        if broker is None:
            # No broker is registered, this one neither: its session has ended and is being replaced.
            return GroupError.NONE if group_id in self.groups else GroupError.COORDINATOR_NOT_AVAILABLE
        if broker.broker_id == self._node.cluster.broker_id:
            if group_id in self.groups or self._has_loaded(group_id):
                return GroupError.NONE
            self._is_requested.set()
            return GroupError.COORDINATOR_LOAD_IN_PROGRESS
        self.deliver(self.groups.unload(group_id, self.now_ms()))
        return GroupError.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        """Whether this broker may coordinate groups that it does not know yet."""
        places, me = self._node.cluster.group_places, {self._node.cluster.broker_id}
        if places.brokers.keys() == self._loaded.brokers.keys() == me:
            return False  # whatever partitions there are now, all groups were and are here
        return bool(places.brokers) and places != self._loaded

    async def load(self) -> None:
        """Takes over the groups that this broker coordinates now and did not before.

        Raises:
            CoordinationError: Shared state does not answer.
        """
        places = self._node.cluster.group_places
        generations = await self._node.ask(self._node.coordinator.kept_groups)
        now_ms, time_of_day_ms = self.now_ms(), self._node.clock.now_ms()
        replies = []
        for group_id, data in generations.items():
            if not self._is_mine(group_id, places) or self._has_loaded(group_id):
                continue
            try:
                group, since_ms = decode_group(group_id, data)
            except ValueError as error:
                _LOG.warning(
                    "what is kept of group %s cannot be read, it starts anew: %s",
                    shown(group_id),
                    shown(error, MESSAGE_CHARS),
                )
                continue
            replies += self.groups.load(now_ms, group, max(0, time_of_day_ms - since_ms))
        self._loaded = places
        self.deliver(replies)

    def deliver(self, replies: list[Reply]) -> None:
        """Hands replies to those who wait for them, keeps what is to be kept, and sets the alarm for the next
        deadline.
        """
        for save in self.groups.take_saves():
            task = asyncio.get_running_loop().create_task(self._save(save))
            self._saves.add(task)
            task.add_done_callback(self._saves.discard)
        for reply in replies:
            future = reply.token
            if isinstance(future, asyncio.Future) and not future.done():
                future.set_result(reply.response)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms, now_ms = self.groups.next_deadline_ms(), self.now_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            self._grace_ends_ms = None
        if deadline_ms is not None:
            delay_s = max((max(deadline_ms, self._grace_ends_ms or 0) - now_ms) / 1000, _SHORTEST_NAP_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    @asynccontextmanager
    async def deleting(self, group_id: str) -> AsyncIterator[None]:
        """A turn for deleting a group: other writes about it come before or after."""
        async with self.turns.turn(group_id), self._save_turns.turn(group_id):
            yield

    def run(self, upkeep: Coroutine[Any, Any, None]) -> None:
        """Runs something beside the requests until `stop`."""
        self._tasks.append(asyncio.get_running_loop().create_task(upkeep))

    def stop(self) -> None:
        """Sets no more alarms."""
        self.records.write()
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._tasks, *self._saves):
            task.cancel()

    async def _save(self, save: Save) -> None:
        group_id = save.group.group_id
        since_ms = self._node.clock.now_ms()
        group = save.group
        data = encode_group(group, since_ms)
        if len(data) > _MAX_KEPT_BYTES:
            # Its members will have to join again; but their generation must not be another's later.
            group = replace(group, leader=None, members=())
            data = encode_group(group, since_ms)
        is_kept = True
        async with self._save_turns.turn(group_id):
            try:
                await self._node.ask(self._node.coordinator.keep_group, group_id, data)
                self.records.kept(group, since_ms)
            except CoordinationError as error:
                _LOG.warning(
                    "generation %d of group %s is not kept: %s",
                    save.group.generation,
                    shown(group_id),
                    shown(error, MESSAGE_CHARS),
                )
                is_kept = False
        self.deliver(self.groups.saved(self.now_ms(), save, is_kept=is_kept))

    def _is_mine(self, group_id: str, places: GroupPlaces) -> bool:
        broker = places.coordinator_of(group_id)
        return broker is not None and broker.broker_id == self._node.cluster.broker_id

    def _has_loaded(self, group_id: str) -> bool:
        return self._is_mine(group_id, self._loaded)

    def _tick(self) -> None:
        """Does what is due, but not before it has heard what came in while this process was held up.

        A heartbeat that lies in a socket for that long is in time: a loaded machine must cost nobody's membership.
        """
        self._timer = None
        now_ms, deadline_ms = self.now_ms(), self.groups.next_deadline_ms()
        if self._grace_ends_ms is None and deadline_ms is not None and now_ms - deadline_ms > _LATE_MS:
            self._grace_ends_ms = now_ms + _GRACE_MS
            self.deliver([])
            return
        self._grace_ends_ms = None
        self.deliver(self.groups.tick(now_ms))

    async def _follow_brokers(self) -> None:
        """Gives up groups that another broker coordinates since brokers came or went, and takes over others.

        Members of the former do not ask here again while their JoinGroup is parked.
        """
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_requested.wait(), _LOOK_EVERY_S)
            self._is_requested.clear()
            if self._node.cluster.group_places is not self._places:
                self._places = self._node.cluster.group_places
                if len(self._places.brokers) > 1:
                    self.records.copy()
                for group_id in self.groups.group_ids():
                    self.refusal(group_id)
            if self.is_loading:
                try:
                    await self.load()
                except CoordinationError as error:
                    _LOG.warning("groups cannot be loaded, trying again: %s", shown(error, MESSAGE_CHARS))
                    await asyncio.sleep(_LOOK_EVERY_S)
