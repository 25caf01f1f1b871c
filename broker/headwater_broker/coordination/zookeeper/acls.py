"""Access rules under `/kafka-acl` and `/kafka-acl-extended`, in Kafka's layout (`ZkData.scala`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from headwater_broker.coordination.errors import Conflict, CorruptState
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.naming import escape, unescape
from headwater_broker.coordination.zookeeper.notifications import NotificationLog
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession
from headwater_broker.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

LITERAL = "/kafka-acl"
PREFIXED = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"
_CHANGE_PREFIX = "acl_changes_"
_TRIES = 10

_TYPES = tuple(each for each in ResourceType if each is not ResourceType.ANY)

PERSISTENT = (
    *(f"{root}/{each.title}" for root in (LITERAL, PREFIXED) for each in _TYPES),
    LITERAL_CHANGES,
    PREFIXED_CHANGES,
)


class AclStore:
    """Rules by resource pattern; each change is published as Kafka's brokers expect it."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._literal_changes = NotificationLog(session, LITERAL_CHANGES, _CHANGE_PREFIX)
        self._prefixed_changes = NotificationLog(session, PREFIXED_CHANGES, _CHANGE_PREFIX)

    def acls(self) -> dict[ResourcePattern, frozenset[AclEntry]]:
        """See `Coordinator.acls`."""
        parents = {
            (pattern_type, each): f"{root}/{each.title}"
            for pattern_type, root in ((PatternType.LITERAL, LITERAL), (PatternType.PREFIXED, PREFIXED))
            for each in _TYPES
        }
        children = self._session.children_many(list(parents.values()))
        patterns = {
            f"{path}/{child}": ResourcePattern(resource_type, unescape(child), pattern_type)
            for (pattern_type, resource_type), path in parents.items()
            for child in children[path]
        }
        nodes = self._session.get_many(patterns)
        return {patterns[path]: _decode(path, znode.data) for path, znode in nodes.items()}

    def update_acls(
        self, pattern: ResourcePattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> frozenset[AclEntry]:
        """See `Coordinator.update_acls`."""
        path = _path(pattern)
        for _ in range(_TRIES):
            znode = self._session.get(path)
            present = frozenset() if znode is None else _decode(path, znode.data)
            changed = change(present)
            if changed == present:
                return changed
            try:
                if znode is None:
                    self._session.create(path, _encode(changed))
                elif changed:
                    self._session.set(path, _encode(changed), znode.version)
                elif not self._session.delete(path, znode.version):
                    continue
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue
            self._publish_acl(pattern)
            return changed
        raise Conflict(f"the access rules of {path} are being changed by others all the time; try again")

    def watch_acls(self, changed: Callable[[], None]) -> None:
        """Calls back whenever some rules have changed."""
        for log in (self._literal_changes, self._prefixed_changes):
            log.watch(partial(_call, changed))

    def _publish_acl(self, pattern: ResourcePattern) -> None:
        if pattern.pattern_type is PatternType.LITERAL:
            self._literal_changes.publish(f"{pattern.resource_type.name}:{pattern.name}".encode())
            return
        self._prefixed_changes.publish(
            znodes.encode(
                {
                    "version": 1,
                    "resourceType": pattern.resource_type.name,
                    "name": pattern.name,
                    "patternType": pattern.pattern_type.name,
                }
            )
        )


def _call(changed: Callable[[], None], _published: list[bytes] | None) -> None:
    changed()


def _path(pattern: ResourcePattern) -> str:
    root = LITERAL if pattern.pattern_type is PatternType.LITERAL else PREFIXED
    return f"{root}/{pattern.resource_type.title}/{escape(pattern.name)}"


def _encode(entries: Iterable[AclEntry]) -> bytes:
    return znodes.encode(
        {
            "version": 1,
            "acls": [
                {
                    "principal": each.principal,
                    "permissionType": each.permission.title,
                    "operation": each.operation.title,
                    "host": each.host,
                }
                for each in sorted(entries)
            ],
        }
    )


_OPERATIONS = {each.title: each for each in Operation}
_PERMISSIONS = {each.title: each for each in Permission}


def _decode(path: str, data: bytes) -> frozenset[AclEntry]:
    if not data:
        return frozenset()
    value = znodes.decode(path, data)
    try:
        if value["version"] != 1:
            raise ValueError(value["version"])
        return frozenset(
            AclEntry(
                each["principal"],
                each["host"],
                _OPERATIONS[each["operation"]],
                _PERMISSIONS[each["permissionType"]],
            )
            for each in value["acls"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{path} in ZooKeeper holds no access rules: {data[:200]!r}") from error
