"""Forgets committed offsets that have served their time, and groups that nothing is left of (KIP-211)."""

import asyncio
import logging

from headwater_broker.coordination import CoordinationError
from headwater_broker.groups import OffsetUse
from headwater_broker.server.group_offsets import GroupOffsets
from headwater_broker.server.group_runner import GroupRunner
from headwater_broker.server.node import Node

_LOG = logging.getLogger(__name__)
_MS_A_MINUTE = 60_000


class OffsetRetention:
    """Looks, every `offsets.retention.check.interval.ms`, at the groups that this broker coordinates.

    Kafka writes down when a group lost its last member. Here a group that this broker has seen no member of,
    because it was restarted or took the group over, counts from the time it was first looked at: its members
    may be on their way back, and their offsets are not lost to a restart. Groups of ZooKeeper consumers and
    running jobs keep theirs while anybody is registered.
    """

    def __init__(self, node: Node, runner: GroupRunner, offsets: GroupOffsets) -> None:
        self._node = node
        self._runner = runner
        self._offsets = offsets
        self._first_seen_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                await self.sweep()
            except CoordinationError as error:
                _LOG.warning("expired offsets stay for now: %s", error)
            except Exception:
                _LOG.exception("expiring offsets failed")
            await asyncio.sleep(self._node.settings.offsets_retention_check_interval_ms / 1000)

    async def sweep(self) -> None:
        """Forgets what is due now.

        Raises:
            CoordinationError: Shared state does not answer.
        """
        stored = await self._node.ask(self._node.coordinator.groups)
        mine = {group for group in stored if self._node.cluster.coordinates(group)}
        idle = {group for group in mine if not stored[group]}
        self._first_seen_ms = {group: ms for group, ms in self._first_seen_ms.items() if group in idle}
        for group_id in sorted(idle):
            await self._sweep_group(group_id)
        self._runner.groups.forget_idle(in_use=mine)

    async def _sweep_group(self, group_id: str) -> None:
        node = self._node
        retention_ms = node.settings.offsets_retention_minutes * _MS_A_MINUTE
        now_ms = node.clock.now_ms()
        async with self._offsets.turn(group_id):
            committed = await node.ask(node.coordinator.fetch_offsets, group_id)
            use = self._runner.groups.offset_use(group_id, self._runner.now_ms())
            if use is None:
                seen_ms = self._first_seen_ms.setdefault(group_id, now_ms)
                use = OffsetUse(idle_ms=None, read_topics=frozenset())
            else:
                self._first_seen_ms.pop(group_id, None)
                seen_ms = 0
            expired = [
                tp
                for tp, each in committed.items()
                if each.timestamp_ms is not None
                and use.is_expired(
                    tp[0], max(each.timestamp_ms, seen_ms), each.expires_ms, now_ms, retention_ms
                )
            ]
            if expired:
                _LOG.info("forgetting %d expired offsets of group %r", len(expired), group_id)
                await node.ask(node.coordinator.delete_offsets, group_id, expired)
