"""Guards of the APIs about groups, their offsets, and transactions."""

import dataclasses
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.security import Operation, ResourceType
from headwater_broker.server.answers import no_coordinator, undescribed_group, undescribed_transaction
from headwater_broker.server.core import Handler, Request, Response
from headwater_broker.server.guards.access import (
    CODES,
    FEW,
    Answer,
    Caller,
    Guard,
    adding,
    awaited,
    both,
    each,
    narrowed,
    parted,
    split,
    then,
    whole,
)
from headwater_broker.server.slices import unhurried
from headwater_broker.wire import apis

_GROUP = ResourceType.GROUP
_TOPIC = ResourceType.TOPIC
_TRANSACTION = ResourceType.TRANSACTIONAL_ID
_GROUPS_FROM = 8


def _group_id(request: Request) -> str:
    return str(request.body.group_id)


def _transactional_id(request: Request) -> str:
    return str(request.body.transactional_id)


def _error_only(_: Request, code: ErrorCode) -> Response:
    return {"error_code": code}


def _join_refused(request: Request, code: ErrorCode) -> Response:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None if request.version >= 7 else "",
        "leader": "",
        "member_id": request.body.member_id,
        "members": [],
    }


def _sync_refused(_: Request, code: ErrorCode) -> Response:
    return {"error_code": code, "assignment": b""}


def _leave_refused(_: Request, code: ErrorCode) -> Response:
    return {"error_code": code, "members": []}


def _topic_refused(topic: Any, code: ErrorCode) -> Response:
    partitions = [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions]
    return {"name": topic.name, "partitions": partitions}


def _all_topics_refused(request: Request, code: ErrorCode) -> Response:
    return {"topics": [_topic_refused(topic, code) for topic in request.body.topics]}


_READ_TOPICS = each(_TOPIC, Operation.READ, "topics", "topics", _topic_refused)


def _read_group(refuse: Any) -> Guard:
    return whole(_GROUP, Operation.READ, refuse, name=_group_id)


# -- offsets -------------------------------------------------------------------------------------------


def _offset_fetch(caller: Caller, request: Request, handler: Handler) -> Answer:
    if request.version < _GROUPS_FROM:
        return _offset_fetch_one(caller, request, handler)
    groups, refused = split(
        request.body.groups, lambda group: caller.may(Operation.DESCRIBE, _GROUP, group.group_id)
    )
    allowed = []
    hidden: dict[str, list[Response]] = {}
    for group in groups:
        topics, hidden[group.group_id] = _visible(caller, group.topics)
        allowed.append(group if topics is group.topics else _with_topics(group, topics))

    def finish(answer: Response) -> Response:
        groups = [
            {**group, "topics": [*_describable(caller, group["topics"]), *hidden.get(group["group_id"], ())]}
            for group in answer["groups"]
        ]
        refusals = [
            {"group_id": group.group_id, "topics": [], "error_code": CODES[_GROUP]} for group in refused
        ]
        return {**answer, "groups": [*groups, *refusals]}

    return then(handler(narrowed(request, groups=tuple(allowed))), finish)


def _offset_fetch_one(caller: Caller, request: Request, handler: Handler) -> Answer:
    body = request.body
    if not caller.may(Operation.DESCRIBE, _GROUP, body.group_id):
        code = CODES[_GROUP]
        # Version 1 has no code for the whole.
        topics = [_unknown_offsets(topic, code) for topic in body.topics or ()] if request.version < 2 else []
        return {"topics": topics, "error_code": code}
    topics, hidden = _visible(caller, body.topics)
    return then(
        handler(narrowed(request, topics=topics)),
        lambda answer: {**answer, "topics": [*_describable(caller, answer["topics"]), *hidden]},
    )


def _with_topics(group: Any, topics: Any) -> Any:
    return dataclasses.replace(group, topics=topics)


def _visible(caller: Caller, topics: Any) -> tuple[Any, list[Response]]:
    """Those topics asked for that the caller may describe, and the answers about the others."""
    if topics is None:
        return None, []
    allowed, refused = split(topics, lambda topic: caller.may(Operation.DESCRIBE, _TOPIC, topic.name))
    return allowed, [_unknown_offsets(topic, CODES[_TOPIC]) for topic in refused]


def _describable(caller: Caller, topics: Any) -> list[Response]:
    """Where all topics were asked for, those that the caller may not describe are left out."""
    return [topic for topic in topics if caller.may(Operation.DESCRIBE, _TOPIC, topic["name"])]


def _unknown_offsets(topic: Any, code: ErrorCode) -> Response:
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
            for index in topic.partition_indexes
        ],
    }


# -- groups --------------------------------------------------------------------------------------------


def describe_groups(caller: Caller, request: Request, handler: Handler) -> Answer:
    """DESCRIBE on the group; adds what the caller may do with it, if it wants to know."""
    wants_operations = request.get("include_authorized_operations", False)

    def described(group: Response) -> Response:
        if not wants_operations or group["error_code"] != ErrorCode.none:
            return group
        return {**group, "authorized_operations": caller.operations(_GROUP, group["group_id"])}

    async def finish_many(answer: Answer, hidden: list[str]) -> Response:
        answer = await awaited(answer)
        groups = [described(group) async for group in unhurried(answer["groups"])]
        groups += [undescribed_group(group, CODES[_GROUP]) async for group in unhurried(hidden)]
        return {**answer, "groups": groups}

    def finish(answer: Response, hidden: list[str]) -> Response:
        groups = [described(group) for group in answer["groups"]]
        refused = [undescribed_group(group, CODES[_GROUP]) for group in hidden]
        return {**answer, "groups": [*groups, *refused]}

    def go_on(allowed: tuple[str, ...], hidden: list[str]) -> Answer:
        answer = handler(narrowed(request, groups=allowed))
        if len(allowed) + len(hidden) > FEW:
            return finish_many(answer, hidden)
        return then(answer, lambda answer: finish(answer, hidden))

    return parted(request.body.groups, lambda group: caller.may(Operation.DESCRIBE, _GROUP, group), go_on)


def _list_groups(caller: Caller, request: Request, handler: Handler) -> Answer:
    if caller.may_cluster(Operation.DESCRIBE):
        return handler(request)

    def finish(answer: Response) -> Response:
        groups = [
            group for group in answer["groups"] if caller.may(Operation.DESCRIBE, _GROUP, group["group_id"])
        ]
        return {**answer, "groups": groups}

    return then(handler(request), finish)


def _find_coordinator(caller: Caller, request: Request, handler: Handler) -> Answer:
    kind = (_GROUP, _TRANSACTION)[request.get("key_type", 0) == 1]
    if request.get("key_type", 0) not in (0, 1):
        return handler(request)
    keys = request.get("coordinator_keys")

    def refusal(key: str) -> Response:
        return {"key": key, **no_coordinator(CODES[kind], None)}

    if keys is None:
        key = request.body.key
        return handler(request) if caller.may(Operation.DESCRIBE, kind, key) else refusal(key)

    def go_on(allowed: tuple[str, ...], hidden: list[str]) -> Answer:
        return then(
            handler(narrowed(request, coordinator_keys=allowed)),
            lambda answer: adding(answer, "coordinators", [refusal(key) for key in hidden]),
        )

    return parted(keys, lambda key: caller.may(Operation.DESCRIBE, kind, key), go_on)


# -- transactions --------------------------------------------------------------------------------------


def _init_producer_id(caller: Caller, request: Request, handler: Handler) -> Answer:
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        is_allowed = caller.may(Operation.WRITE, _TRANSACTION, transactional_id)
        code = CODES[_TRANSACTION]
    else:
        # KIP-679: whoever may write to some topic may do so idempotently.
        is_allowed = caller.may_cluster(Operation.IDEMPOTENT_WRITE) or caller.may_some(
            Operation.WRITE, _TOPIC
        )
        code = CODES[ResourceType.CLUSTER]
    if is_allowed:
        return handler(request)
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def _add_partitions_to_txn(caller: Caller, request: Request, handler: Handler) -> Answer:
    body = request.body
    if request.version >= 4:
        if caller.may_cluster(Operation.CLUSTER_ACTION):
            return handler(request)
        return {"error_code": CODES[ResourceType.CLUSTER], "results_by_transaction": []}
    topics = body.v3_and_below_topics

    def answer(code_of: Any) -> Response:
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": index, "partition_error_code": code_of(topic)}
                        for index in topic.partitions
                    ],
                }
                for topic in topics
            ]
        }

    if not caller.may(Operation.WRITE, _TRANSACTION, body.v3_and_below_transactional_id):
        return answer(lambda _: CODES[_TRANSACTION])
    _, refused = split(topics, lambda topic: caller.may(Operation.WRITE, _TOPIC, topic.name))
    if not refused:
        return handler(request)
    # All or none of them.
    names = {topic.name for topic in refused}
    return answer(lambda topic: CODES[_TOPIC] if topic.name in names else ErrorCode.operation_not_attempted)


def _describe_producers_refused(topic: Any, code: ErrorCode) -> Response:
    partitions = [
        {"partition_index": index, "error_code": code, "active_producers": []}
        for index in topic.partition_indexes
    ]
    return {"name": topic.name, "partitions": partitions}


def _describe_transactions(caller: Caller, request: Request, handler: Handler) -> Answer:
    def describable(state: Response) -> Response:
        topics = [
            topic for topic in state["topics"] if caller.may(Operation.DESCRIBE, _TOPIC, topic["topic"])
        ]
        return {**state, "topics": topics}

    async def go_on(allowed: tuple[str, ...], hidden: list[str]) -> Response:
        answer = await awaited(handler(narrowed(request, transactional_ids=allowed)))
        states = [describable(state) async for state in unhurried(answer["transaction_states"])]
        states += [undescribed_transaction(each, CODES[_TRANSACTION]) async for each in unhurried(hidden)]
        return {**answer, "transaction_states": states}

    return parted(
        request.body.transactional_ids,
        lambda each: caller.may(Operation.DESCRIBE, _TRANSACTION, each),
        go_on,
    )


def _list_transactions(caller: Caller, request: Request, handler: Handler) -> Answer:
    def finish(answer: Response) -> Response:
        states = [
            state
            for state in answer["transaction_states"]
            if caller.may(Operation.DESCRIBE, _TRANSACTION, state["transactional_id"])
        ]
        return {**answer, "transaction_states": states}

    return then(handler(request), finish)


def _delete_groups_refused(group: str, code: ErrorCode) -> Response:
    return {"group_id": group, "error_code": code}


def _offset_delete_refused(_: Request, code: ErrorCode) -> Response:
    return {"error_code": code, "topics": []}


GROUP_GUARDS: dict[int, Guard] = {
    apis.OFFSET_COMMIT: both(_read_group(_all_topics_refused), _READ_TOPICS),
    apis.OFFSET_FETCH: _offset_fetch,
    apis.FIND_COORDINATOR: _find_coordinator,
    apis.JOIN_GROUP: _read_group(_join_refused),
    apis.HEARTBEAT: _read_group(_error_only),
    apis.LEAVE_GROUP: _read_group(_leave_refused),
    apis.SYNC_GROUP: _read_group(_sync_refused),
    apis.LIST_GROUPS: _list_groups,
    apis.DELETE_GROUPS: each(
        _GROUP, Operation.DELETE, "groups_names", "results", _delete_groups_refused, name=str
    ),
    apis.OFFSET_DELETE: both(
        whole(_GROUP, Operation.DELETE, _offset_delete_refused, name=_group_id), _READ_TOPICS
    ),
    apis.INIT_PRODUCER_ID: _init_producer_id,
    apis.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    apis.ADD_OFFSETS_TO_TXN: both(
        whole(_TRANSACTION, Operation.WRITE, _error_only, name=_transactional_id), _read_group(_error_only)
    ),
    apis.END_TXN: whole(_TRANSACTION, Operation.WRITE, _error_only, name=_transactional_id),
    apis.TXN_OFFSET_COMMIT: both(
        whole(_TRANSACTION, Operation.WRITE, _all_topics_refused, name=_transactional_id),
        both(_read_group(_all_topics_refused), _READ_TOPICS),
    ),
    apis.DESCRIBE_PRODUCERS: each(_TOPIC, Operation.READ, "topics", "topics", _describe_producers_refused),
    apis.DESCRIBE_TRANSACTIONS: _describe_transactions,
    apis.LIST_TRANSACTIONS: _list_transactions,
}
"""By API key."""
