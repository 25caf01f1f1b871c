"""Delegation tokens under `/delegation_token`, in Kafka's layout. What a token holds is `security`'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.notifications import NotificationLog
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession

TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105 - a path

PERSISTENT = (TOKENS, TOKEN_CHANGES)


class TokenStore:
    """Tokens by id; each change is published."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._token_changes = NotificationLog(session, TOKEN_CHANGES, "token_change_")

    def tokens(self) -> dict[str, dict[str, Any]]:
        """See `Coordinator.tokens`."""
        paths = {f"{TOKENS}/{token_id}": token_id for token_id in self._session.children(TOKENS)}
        nodes = self._session.get_many(paths)
        return {paths[path]: znodes.decode(path, znode.data) for path, znode in nodes.items()}

    def put_token(self, token_id: str, value: Mapping[str, Any]) -> None:
        """See `Coordinator.put_token`."""
        path, data = f"{TOKENS}/{token_id}", znodes.encode(dict(value))
        try:
            self._session.set(path, data)
        except NoNodeError:
            try:
                self._session.create(path, data)
            except NodeExistsError:  # somebody else was first: the last writer wins
                self._session.set(path, data)
        self._token_changes.publish(token_id.encode())

    def remove_token(self, token_id: str) -> None:
        """See `Coordinator.remove_token`."""
        if self._session.delete(f"{TOKENS}/{token_id}"):
            self._token_changes.publish(token_id.encode())

    def watch_tokens(self, changed: Callable[[], None]) -> None:
        """Calls back whenever some token has changed."""

        def call(_published: list[bytes] | None) -> None:
            changed()

        self._token_changes.watch(call)
