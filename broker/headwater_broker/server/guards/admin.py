"""Guards of the APIs about the cluster: settings, rules, quotas, users, replicas."""

from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.security import CLUSTER_NAME, Operation, ResourceType
from headwater_broker.server.core import Handler, Request, Response
from headwater_broker.server.guards.access import CODES, Answer, Caller, Guard, adding, narrowed, then, whole
from headwater_broker.server.guards.topics import cluster_operations
from headwater_broker.wire import apis

_CLUSTER = ResourceType.CLUSTER
_TOPIC_CONFIG = 2
_BROKER_CONFIGS = (4, 8)  # brokers and their loggers
_MESSAGES = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
}


def _refused(code: ErrorCode, **fields: Any) -> Response:
    return {"error_code": code, "error_message": "Cluster authorization failed.", **fields}


def _cluster(operation: Operation, refuse: Any) -> Guard:
    return whole(_CLUSTER, operation, refuse)


def _configs(operation: Operation, answered: str, **fields: Any) -> Guard:
    """Settings of a topic are the topic's, all others the cluster's."""

    def guard(caller: Caller, request: Request, handler: Handler) -> Answer:
        allowed: list[Any] = []
        refused: list[tuple[Any, ErrorCode]] = []
        for resource in request.body.resources:
            if resource.resource_type == _TOPIC_CONFIG:
                kind, name = ResourceType.TOPIC, resource.resource_name
            elif resource.resource_type in _BROKER_CONFIGS:
                kind, name = _CLUSTER, CLUSTER_NAME
            else:
                allowed.append(resource)  # the handler knows no others
                continue
            if caller.may(operation, kind, name):
                allowed.append(resource)
            else:
                refused.append((resource, CODES[kind]))
        if not refused:
            return handler(request)
        return then(
            handler(narrowed(request, resources=tuple(allowed))),
            lambda answer: adding(
                answer,
                answered,
                [
                    {
                        "error_code": code,
                        "error_message": _MESSAGES[code],
                        "resource_type": resource.resource_type,
                        "resource_name": resource.resource_name,
                        **fields,
                    }
                    for resource, code in refused
                ],
            ),
        )

    return guard


def write_markers(caller: Caller, request: Request, handler: Handler) -> Answer:
    """For whoever may change the cluster, as for other brokers."""
    if any(caller.may(each, _CLUSTER, CLUSTER_NAME) for each in (Operation.ALTER, Operation.CLUSTER_ACTION)):
        return handler(request)
    code = CODES[_CLUSTER]
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": index, "error_code": code}
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.body.markers
        ]
    }


def describe_cluster(caller: Caller, request: Request, handler: Handler) -> Answer:
    """Adds what the caller may do with the cluster, if it wants to know."""
    answer = handler(request)
    if not request.body.include_cluster_authorized_operations:
        return answer
    return then(
        answer, lambda values: {**values, "cluster_authorized_operations": cluster_operations(caller)}
    )


def _results_of(field: str) -> Any:
    def refuse(request: Request, code: ErrorCode) -> Response:
        message = "Cluster authorization failed."
        count = len(getattr(request.body, field))
        return {
            "results": [{"error_code": code, "error_message": message} for _ in range(count)],
            "filter_results": [
                {"error_code": code, "error_message": message, "matching_acls": []} for _ in range(count)
            ],
        }

    return refuse


def _alter_log_dirs_refused(request: Request, code: ErrorCode) -> Response:
    partitions: dict[str, list[int]] = {}
    for directory in request.body.dirs:
        for topic in directory.topics:
            partitions.setdefault(topic.name, []).extend(topic.partitions)
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [{"partition_index": each, "error_code": code} for each in indexes],
            }
            for name, indexes in partitions.items()
        ]
    }


def _elect_leaders_refused(request: Request, code: ErrorCode) -> Response:
    # Version 0 has no code for the whole.
    return _refused(
        code,
        replica_election_results=[
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": index, "error_code": code, "error_message": None}
                    for index in topic.partitions
                ],
            }
            for topic in request.body.topic_partitions or ()
        ],
    )


def _reassignments_refused(request: Request, code: ErrorCode) -> Response:
    # Java's client looks for each partition that it asked about.
    return _refused(
        code,
        responses=[
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": code, "error_message": None}
                    for each in topic.partitions
                ],
            }
            for topic in request.body.topics
        ],
    )


def _scram_refused(request: Request, code: ErrorCode) -> Response:
    names = {each.name for each in (*request.body.deletions, *request.body.upsertions)}
    return {"results": [_refused(code, user=name) for name in sorted(names)]}


def _quotas_refused(request: Request, code: ErrorCode) -> Response:
    return {
        "entries": [
            _refused(
                code,
                entity=[
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in entry.entity
                ],
            )
            for entry in request.body.entries
        ]
    }


def _with(**fields: Any) -> Any:
    return lambda _request, code: _refused(code, **fields)


ADMIN_GUARDS: dict[int, Guard] = {
    apis.DESCRIBE_ACLS: _cluster(Operation.DESCRIBE, _with(resources=[])),
    apis.CREATE_ACLS: _cluster(Operation.ALTER, _results_of("creations")),
    apis.DELETE_ACLS: _cluster(Operation.ALTER, _results_of("filters")),
    apis.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS, "results", configs=[]),
    apis.ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS, "responses"),
    apis.INCREMENTAL_ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS, "responses"),
    apis.ALTER_REPLICA_LOG_DIRS: _cluster(Operation.ALTER, _alter_log_dirs_refused),
    apis.DESCRIBE_LOG_DIRS: _cluster(Operation.DESCRIBE, _with(results=[])),
    apis.ELECT_LEADERS: _cluster(Operation.ALTER, _elect_leaders_refused),
    apis.ALTER_PARTITION_REASSIGNMENTS: _cluster(Operation.ALTER, _reassignments_refused),
    apis.LIST_PARTITION_REASSIGNMENTS: _cluster(Operation.DESCRIBE, _with(topics=[])),
    apis.DESCRIBE_CLIENT_QUOTAS: _cluster(Operation.DESCRIBE_CONFIGS, _with(entries=None)),
    apis.ALTER_CLIENT_QUOTAS: _cluster(Operation.ALTER_CONFIGS, _quotas_refused),
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(Operation.DESCRIBE, _with(results=[])),
    apis.ALTER_USER_SCRAM_CREDENTIALS: _cluster(Operation.ALTER, _scram_refused),
    apis.WRITE_TXN_MARKERS: write_markers,
    apis.UPDATE_FEATURES: _cluster(Operation.ALTER, _with(results=[])),
}
"""By API key."""
