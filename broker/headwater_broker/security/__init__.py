"""Who clients are and what they may do: principals, access rules, passwords, tokens, quotas.

Decisions only: no I/O, no clock, no Kafka error codes. What is stored is stored by `coordination`; `server`
asks and answers.
"""

from headwater_broker.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from headwater_broker.security.authorizer import Acls, Authorizer
from headwater_broker.security.principal import ANONYMOUS, Principal, parse_principal

__all__ = [
    "ANONYMOUS",
    "CLUSTER_NAME",
    "SUPPORTED_OPERATIONS",
    "AclEntry",
    "AclFilter",
    "Acls",
    "Authorizer",
    "Operation",
    "PatternType",
    "Permission",
    "Principal",
    "ResourcePattern",
    "ResourceType",
    "parse_principal",
]
