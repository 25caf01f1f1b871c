"""Access rules: what they are about, what they say, and how filters find them.

The numbers are Kafka's on the wire, the names those of its JSON in ZooKeeper (`SecurityUtils`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

WILDCARD = "*"
"""Any resource of a type, any host; `User:*` is any principal."""

CLUSTER_NAME = "kafka-cluster"
"""The one resource of the type CLUSTER."""


class _Named(IntEnum):
    """A number on the wire with a name in camel case, such as `TransactionalId`."""

    @property
    def title(self) -> str:
        """The name as ZooKeeper's JSON has it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ResourceType(_Named):
    """What a rule is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How a resource's name is meant; ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    """What somebody wants to do."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(_Named):
    """What a rule says."""

    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE),
            *(Operation.ALTER, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
        ),
        ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE),
        ResourceType.CLUSTER: (
            *(Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS),
            *(Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE),
        ),
        ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
        ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
        ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    }
)
"""What can be done with a resource of each type (Kafka's `AclEntry.supportedOperations`)."""


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources that rules are about: one by name, all (`*`), or all whose names begin alike."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """One rule.

    Attributes:
        principal: Such as `User:alice`; `User:*` is everybody.
        host: An address; `*` is any.
        operation: What is allowed or denied; ALL is everything.
        permission: ALLOW or DENY.
    """

    principal: str
    host: str
    operation: Operation
    permission: Permission


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Finds rules. None, and ANY, stand for whatever there is."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether rules of this pattern are meant; MATCH means all that would apply to the name."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether this rule is meant."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )
