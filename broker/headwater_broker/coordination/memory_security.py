"""Access rules and delegation tokens of the coordinator in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater_broker.coordination.memory_cluster import MemoryCluster
from headwater_broker.coordination.model import ChangeKind
from headwater_broker.security.acl import AclEntry, ResourcePattern


class MemorySecurity:
    """The part of `MemoryCoordinator` about security."""

    _cluster: MemoryCluster

    def acls(self) -> dict[ResourcePattern, frozenset[AclEntry]]:
        """See `Coordinator.acls`."""
        with self._cluster.lock:
            return dict(self._cluster.durable.acls)

    def update_acls(
        self, pattern: ResourcePattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> frozenset[AclEntry]:
        """See `Coordinator.update_acls`."""
        acls = self._cluster.durable.acls
        with self._cluster.changing():
            present = acls.get(pattern, frozenset())
            changed = change(present)
            if changed == present:
                return changed
            if changed:
                acls[pattern] = changed
            else:
                del acls[pattern]
        self._cluster.report(ChangeKind.ACLS)
        return changed

    def tokens(self) -> dict[str, dict[str, Any]]:
        """See `Coordinator.tokens`."""
        with self._cluster.lock:
            return {token_id: dict(value) for token_id, value in self._cluster.durable.tokens.items()}

    def put_token(self, token_id: str, value: Mapping[str, Any]) -> None:
        """See `Coordinator.put_token`."""
        with self._cluster.changing():
            self._cluster.durable.tokens[token_id] = dict(value)
        self._cluster.report(ChangeKind.TOKENS)

    def remove_token(self, token_id: str) -> None:
        """See `Coordinator.remove_token`."""
        with self._cluster.changing():
            if self._cluster.durable.tokens.pop(token_id, None) is None:
                return
        self._cluster.report(ChangeKind.TOKENS)
