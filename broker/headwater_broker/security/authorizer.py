"""Who may do what. Decides as Kafka's `AclAuthorizer` does; the rules come from shared state."""

from collections.abc import Collection, Iterable, Mapping

from headwater_broker.security.acl import (
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from headwater_broker.security.principal import Principal

_EVERYBODY = f"User:{WILDCARD}"
_REMEMBERED = 20_000
_LONGEST_NAME = 255
"""Decisions about longer names are not remembered: strangers may ask for names far longer than any topic's."""

_IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (
        *(Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""Operations that an ALLOW of another one allows too. A DENY implies nothing."""

Acls = Mapping[ResourcePattern, Collection[AclEntry]]


class Authorizer:
    """Decides by rules; decisions are remembered until the rules change.

    Attributes:
        is_active: Whether anything can be refused: there are rules, or what has no rule is refused.
    """

    def __init__(self, super_users: Iterable[Principal] = (), *, allow_without_acl: bool = True) -> None:
        """Makes an authorizer without rules.

        Args:
            super_users: Those who may do everything (`super.users`).
            allow_without_acl: What holds for a resource that no rule is about
                (`allow.everyone.if.no.acl.found`).
        """
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._literal: dict[tuple[ResourceType, str], tuple[AclEntry, ...]] = {}
        self._prefixed: dict[ResourceType, dict[str, tuple[AclEntry, ...]]] = {}
        self._decisions: dict[tuple[Principal, str, Operation, ResourceType, str], bool] = {}
        self.is_active = not allow_without_acl

    def replace(self, acls: Acls) -> None:
        """Takes the rules that hold from now on."""
        self._literal = {}
        self._prefixed = {}
        for pattern, entries in acls.items():
            if pattern.pattern_type is PatternType.LITERAL:
                self._literal[pattern.resource_type, pattern.name] = tuple(entries)
            else:
                self._prefixed.setdefault(pattern.resource_type, {})[pattern.name] = tuple(entries)
        self._decisions = {}
        self.is_active = bool(self._literal or self._prefixed) or not self._allow_without_acl

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether somebody may do something with one resource.

        A DENY that matches wins over every ALLOW.

        Args:
            principal: Who.
            host: From which address.
            operation: What.
            resource_type: With what kind of resource.
            name: Its name.
        """
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            if len(name) > _LONGEST_NAME:
                return decision
            if len(self._decisions) >= _REMEMBERED:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        entries = self._entries(resource_type, name)
        if not entries:
            return self._allow_without_acl
        mine = [each for each in entries if _applies(each, principal, host)]
        if any(
            each.permission is Permission.DENY and each.operation in (operation, Operation.ALL)
            for each in mine
        ):
            return False
        enough = (*_IMPLIED_BY.get(operation, (operation,)), Operation.ALL)
        return any(each.permission is Permission.ALLOW and each.operation in enough for each in mine)

    def _entries(self, resource_type: ResourceType, name: str) -> list[AclEntry]:
        entries = [
            *self._literal.get((resource_type, name), ()),
            *(self._literal.get((resource_type, WILDCARD), ()) if name != WILDCARD else ()),
        ]
        for prefix, prefix_entries in self._prefixed.get(resource_type, {}).items():
            if name.startswith(prefix):
                entries += prefix_entries
        return entries

    def allows_some(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether somebody may do something with at least one resource of a type, existing or not.

        As Kafka decides it (KIP-679): what no rule is about counts only if it is allowed to everybody.
        """
        if principal in self._super_users:
            return True

        def names(patterns: Mapping[str, tuple[AclEntry, ...]], permission: Permission) -> set[str]:
            return {
                name
                for name, entries in patterns.items()
                for each in entries
                if each.permission is permission
                and each.operation in (operation, Operation.ALL)
                and _applies(each, principal, host)
            }

        literal = {name: entries for (kind, name), entries in self._literal.items() if kind is resource_type}
        prefixed = self._prefixed.get(resource_type, {})
        denied, denied_prefixes = names(literal, Permission.DENY), names(prefixed, Permission.DENY)
        if WILDCARD in denied:
            return False
        if self._allow_without_acl:
            return True

        def is_cut_off(name: str) -> bool:
            return any(name.startswith(prefix) for prefix in denied_prefixes)

        allowed, allowed_prefixes = names(literal, Permission.ALLOW), names(prefixed, Permission.ALLOW)
        return any(not is_cut_off(prefix) for prefix in allowed_prefixes) or any(
            name == WILDCARD or (name not in denied and not is_cut_off(name)) for name in allowed
        )

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """What somebody may do with a resource, as Kafka's bit field: bit n for operation n."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def _applies(entry: AclEntry, principal: Principal, host: str) -> bool:
    return entry.principal in (_EVERYBODY, str(principal)) and entry.host in (WILDCARD, host)
