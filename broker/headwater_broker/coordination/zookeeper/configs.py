"""Dynamic configuration of topics, brokers, clients, users and addresses."""

from __future__ import annotations

from collections.abc import Mapping

from kazoo.exceptions import NodeExistsError, NoNodeError

from headwater_broker.coordination.model import ConfigKind
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.notifications import NotificationLog
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession


class ConfigStore:
    """Configuration under `/config`, each change published to `/config/changes`."""

    def __init__(self, session: ZooKeeperSession, changes: NotificationLog) -> None:
        self._session = session
        self._config_changes = changes

    def get_config(self, kind: ConfigKind, name: str) -> dict[str, str]:
        """See `Coordinator.get_config`."""
        path = znodes.config(kind, name)
        znode = self._session.get(path)
        return znodes.decode_config(path, znode.data) if znode is not None else {}

    def configs(self, kind: ConfigKind) -> dict[str, dict[str, str]]:
        """See `Coordinator.configs`."""
        names = [znodes.config_name(kind, path) for path in self._paths(kind)]
        nodes = self._session.get_many(znodes.config(kind, name) for name in names)
        values = {
            name: znodes.decode_config(path, nodes[path].data)
            for name in names
            if (path := znodes.config(kind, name)) in nodes
        }
        return {name: config for name, config in values.items() if config}

    def set_config(self, kind: ConfigKind, name: str, values: Mapping[str, str]) -> None:
        """See `Coordinator.set_config`."""
        path, data = znodes.config(kind, name), znodes.encode_config(values)
        try:
            self._session.set(path, data)
        except NoNodeError:
            self._session.ensure(path.rpartition("/")[0])
            try:
                self._session.create(path, data)
            except NodeExistsError:  # somebody else was first: the last writer wins
                self._session.set(path, data)
        entity_path = path.removeprefix("/config/")
        self._config_changes.publish(znodes.encode({"version": 2, "entity_path": entity_path}))

    def _paths(self, kind: ConfigKind) -> list[str]:
        if kind is not ConfigKind.USER_CLIENT:
            root = f"/config/{kind.value}"
            return [f"{root}/{child}" for child in self._session.children(root)]
        users = [f"/config/users/{user}/clients" for user in self._session.children("/config/users")]
        clients = self._session.children_many(users)
        return [f"{path}/{client}" for path in users for client in clients[path]]
