"""Forgets committed offsets that have served their time, and groups that nothing is left of (KIP-211)."""

import asyncio
import logging
from contextlib import suppress

from headwater_broker.coordination import AlreadyOwned, CoordinationError
from headwater_broker.groups import GroupError, OffsetUse
from headwater_broker.server.group_offsets import StagedOffsets
from headwater_broker.server.group_runner import GroupRunner
from headwater_broker.server.node import Node
from headwater_broker.shown import MESSAGE_CHARS, shown

_LOG = logging.getLogger(__name__)
_MS_A_MINUTE = 60_000


class OffsetRetention:
    """Looks, every `offsets.retention.check.interval.ms`, at the groups that this broker coordinates.

    The time when a group lost its last member is kept with the group. For a group that the coordinator does not
    know, the time counts from the first sweep that met it: its members may be ZooKeeper consumers or jobs, which keep
    its offsets while they are registered, and tell nobody when they go.
    """

    def __init__(self, node: Node, runner: GroupRunner, staged: StagedOffsets) -> None:
        self._node = node
        self._runner = runner
        self._staged = staged
        self._first_seen_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                await self.sweep()
            except CoordinationError as error:
                _LOG.warning("expired offsets stay for now: %s", shown(error, MESSAGE_CHARS))
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
        for group_id in self._runner.groups.idle_groups():
            if group_id not in mine:
                await self._forget(group_id)

    async def _forget(self, group_id: str) -> None:
        """Forgets a group without members and offsets."""
        coordinator = self._node.coordinator
        async with self._runner.deleting(group_id):
            if await self._node.ask(coordinator.groups, [group_id]):
                return  # offsets were committed meanwhile
            if group_id in self._staged.staged_groups():
                return  # a transaction may yet commit some
            if self._runner.groups.delete(group_id) is GroupError.NONE:
                with suppress(AlreadyOwned):
                    await self._node.ask(coordinator.delete_group, group_id)
                    self._runner.records.forgotten(group_id)

    async def _sweep_group(self, group_id: str) -> None:
        node = self._node
        retention_ms = node.settings.offsets_retention_minutes * _MS_A_MINUTE
        now_ms = node.clock.now_ms()
        async with self._runner.turns.turn(group_id):
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
                _LOG.info("forgetting %d expired offsets of group %s", len(expired), shown(group_id))
                await node.ask(node.coordinator.delete_offsets, group_id, expired)
                self._runner.records.deleted(group_id, expired)
