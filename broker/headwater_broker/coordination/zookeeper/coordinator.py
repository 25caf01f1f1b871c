"""The coordinator that keeps shared state in ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from kazoo.exceptions import NodeExistsError

from headwater_broker.coordination.errors import CoordinationError
from headwater_broker.coordination.model import Change, ChangeKind, new_cluster_id
from headwater_broker.coordination.zookeeper import acls, tokens, znodes
from headwater_broker.coordination.zookeeper.acls import AclStore
from headwater_broker.coordination.zookeeper.brokers import BrokerRegistry, wall_clock_ms
from headwater_broker.coordination.zookeeper.configs import ConfigStore
from headwater_broker.coordination.zookeeper.members import MemberStore
from headwater_broker.coordination.zookeeper.naming import unescape
from headwater_broker.coordination.zookeeper.notifications import NotificationLog
from headwater_broker.coordination.zookeeper.offsets import OffsetStore
from headwater_broker.coordination.zookeeper.session import (
    DEFAULT_SESSION_TIMEOUT_MS,
    SessionState,
    ZooKeeperSession,
)
from headwater_broker.coordination.zookeeper.tokens import TokenStore
from headwater_broker.coordination.zookeeper.topics import TopicStore

_RETRY_S = 1.0

_STATES = {
    SessionState.DISCONNECTED: ChangeKind.DISCONNECTED,
    SessionState.CONNECTED: ChangeKind.CONNECTED,
    SessionState.LOST: ChangeKind.SESSION_LOST,
    SessionState.RESTORED: ChangeKind.SESSION_RESTORED,
}


class ZooKeeperCoordinator(
    BrokerRegistry, TopicStore, ConfigStore, AclStore, TokenStore, OffsetStore, MemberStore
):
    """`Coordinator` over ZooKeeper: the stores' methods over one session, which this class owns and
    watches.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Prepares a coordinator; `start` connects it.

        Args:
            hosts: `host:port[,host:port...][/chroot]`.
            session_timeout_ms: what to ask the server for; it grants 2 to 20 of its ticks.
            wall_ms: time of day, stored with registrations.
        """
        session = ZooKeeperSession(hosts, session_timeout_ms=session_timeout_ms)
        isr_changes = NotificationLog(session, znodes.ISR_CHANGES, znodes.ISR_CHANGE_PREFIX)
        config_changes = NotificationLog(session, znodes.CONFIG_CHANGES, znodes.CONFIG_CHANGE_PREFIX)
        BrokerRegistry.__init__(self, session, wall_ms)
        TopicStore.__init__(self, session, isr_changes)
        ConfigStore.__init__(self, session, config_changes)
        AclStore.__init__(self, session)
        TokenStore.__init__(self, session)
        OffsetStore.__init__(self, session)
        MemberStore.__init__(self, session, wall_ms)
        self._callbacks: list[Callable[[Change], None]] = []
        self._last_topics: frozenset[str] | None = None
        self._retry: threading.Timer | None = None
        session.subscribe(self._on_session)

    def start(self, timeout_s: float = 15.0) -> None:
        """See `Coordinator.start`."""
        self._session.start(timeout_s)
        try:
            self._session.ensure(*znodes.PERSISTENT, *acls.PERSISTENT, *tokens.PERSISTENT)
        except CoordinationError:
            self._session.stop()
            raise

    def stop(self) -> None:
        """See `Coordinator.stop`."""
        if self._retry is not None:
            self._retry.cancel()
        self._session.stop()

    def watch(self, callback: Callable[[Change], None]) -> None:
        """See `Coordinator.watch`."""
        self._callbacks.append(callback)
        if len(self._callbacks) > 1:
            return
        session = self._session
        session.watch_children(znodes.BROKER_IDS, lambda _: self._report(ChangeKind.BROKERS))
        session.watch_children(znodes.CONTROLLER, lambda _: self._report(ChangeKind.CONTROLLER))
        session.watch_children(znodes.DELETE_TOPICS, lambda _: self._report(ChangeKind.DELETIONS))
        session.watch_children(znodes.TOPICS, self._on_topics)
        self._isr_changes.watch(self._on_isr_changes)
        self._config_changes.watch(self._on_config_changes)
        self.watch_acls(lambda: self._report(ChangeKind.ACLS))
        self.watch_tokens(lambda: self._report(ChangeKind.TOKENS))

    def last_answer_monotonic(self) -> float:
        """See `Coordinator.last_answer_monotonic`."""
        return self._session.last_answer()

    @property
    def session_timeout_ms(self) -> int:
        """See `Coordinator.session_timeout_ms`."""
        return self._session.timeout_ms

    @property
    def connected(self) -> bool:
        """See `Coordinator.connected`."""
        return self._session.connected

    def cluster_id(self) -> str:
        """See `Coordinator.cluster_id`."""
        path = znodes.CLUSTER_ID
        node = self._session.get(path)
        if node is None:
            with suppress(NodeExistsError):  # if another broker was first, its id counts
                self._session.create(path, znodes.encode_cluster_id(new_cluster_id()))
            node = self._session.get(path)
        return str(znodes.decode(path, node.data if node is not None else b"")["id"])

    def complete_topic_deletion(self, name: str) -> None:
        """See `Coordinator.complete_topic_deletion`."""
        self.delete_topic_offsets(name)
        self.remove_topic(name)

    def _report(self, kind: ChangeKind, name: str | None = None) -> None:
        for callback in self._callbacks:
            callback(Change(kind, name))

    def _on_session(self, state: SessionState) -> None:
        if state in {SessionState.CONNECTED, SessionState.RESTORED} and not self.restore_registration():
            self._retry = threading.Timer(
                _RETRY_S, self._session.call_later, [lambda: self._on_session(state)]
            )
            self._retry.daemon = True
            self._retry.start()
            return
        self._report(_STATES[state])

    def _on_topics(self, children: list[str]) -> None:
        topics = frozenset(unescape(child) for child in children)
        changed = topics ^ self._last_topics if self._last_topics is not None else None
        self._last_topics = topics
        for name in changed or [
            None
        ]:  # none differs: deleted and created again, or anything while we were away
            self._report(ChangeKind.TOPICS, name)

    def _on_isr_changes(self, published: list[bytes] | None) -> None:
        if published is None:
            self._report(ChangeKind.TOPICS)
            return
        values = [znodes.decode(znodes.ISR_CHANGES, data) for data in published]
        for name in {str(partition["topic"]) for value in values for partition in value["partitions"]}:
            self._report(ChangeKind.TOPICS, name)

    def _on_config_changes(self, published: list[bytes] | None) -> None:
        if published is None:
            self._report(ChangeKind.CONFIGS)
            return
        for data in published:
            kind, _, name = str(znodes.decode(znodes.CONFIG_CHANGES, data)["entity_path"]).partition("/")
            self._report(ChangeKind.CONFIGS, f"{kind}/{unescape(name)}")
