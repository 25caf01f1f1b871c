"""Who may ask for what: guards before the handlers of all APIs off the hot path.

While nobody can be refused anything a request costs one test of an attribute. Produce and Fetch ask by
themselves.
"""

from functools import partial

from headwater_broker.server.core import Handler, Request
from headwater_broker.server.guards.access import Answer, Caller, Guard
from headwater_broker.server.guards.admin import ADMIN_GUARDS, describe_cluster
from headwater_broker.server.guards.groups import GROUP_GUARDS, describe_groups
from headwater_broker.server.guards.topics import (
    TOPIC_GUARDS,
    DeleteTopicsGuard,
    MetadataGuard,
    create_topics,
)
from headwater_broker.server.node import Node
from headwater_broker.server.security import SecurityState
from headwater_broker.wire import apis

__all__ = ["guard_apis"]


def guard_apis(node: Node) -> None:
    """Puts a guard before every handler that is registered and needs one."""
    # These also tell the caller what it may do, which it may ask while everything is allowed.
    always: dict[int, Guard] = {
        apis.METADATA: MetadataGuard(
            node.cluster, node.core.work, may_create_automatically=node.settings.auto_create_topics_enable
        ),
        apis.DESCRIBE_CLUSTER: describe_cluster,
        apis.DESCRIBE_GROUPS: describe_groups,
    }
    sometimes: dict[int, Guard] = {
        **TOPIC_GUARDS,
        **GROUP_GUARDS,
        **ADMIN_GUARDS,
        apis.CREATE_TOPICS: create_topics,
        apis.DELETE_TOPICS: DeleteTopicsGuard(node.cluster),
    }
    for key, guard in always.items():
        node.core.wrap(key, partial(_always, node.security, guard))
    for key, guard in sometimes.items():
        node.core.wrap(key, partial(_while_active, node.security, guard))


def _always(state: SecurityState, guard: Guard, handler: Handler) -> Handler:
    return lambda request: guard(Caller(state, request.connection), request, handler)


def _while_active(state: SecurityState, guard: Guard, handler: Handler) -> Handler:
    authorizer = state.authorizer

    def guarded(request: Request) -> Answer:
        if not authorizer.is_active:
            return handler(request)
        return guard(Caller(state, request.connection), request, handler)

    return guarded
