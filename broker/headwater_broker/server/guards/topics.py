"""Guards of the APIs about topics and their records."""

import inspect
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.log import Slices, finished
from headwater_broker.security import Operation, ResourceType
from headwater_broker.server.answers import names_topics
from headwater_broker.server.cluster import ClusterView
from headwater_broker.server.core import Handler, Request, Response
from headwater_broker.server.guards.access import (
    CODES,
    FEW,
    Answer,
    Caller,
    Guard,
    adding,
    awaited,
    each,
    narrowed,
    parted,
    then,
)
from headwater_broker.server.slices import Work, unhurried
from headwater_broker.wire.apis import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
)

_TOPIC = ResourceType.TOPIC
_REFUSED = CODES[_TOPIC]


def _partitions(topic: Any, code: ErrorCode, **fields: Any) -> list[Response]:
    return [
        {"partition_index": partition.partition_index, "error_code": code, **fields}
        for partition in topic.partitions
    ]


def _list_offsets_refused(topic: Any, code: ErrorCode) -> Response:
    return {"name": topic.name, "partitions": _partitions(topic, code, timestamp=-1, offset=-1)}


def _delete_records_refused(topic: Any, code: ErrorCode) -> Response:
    return {"name": topic.name, "partitions": _partitions(topic, code, low_watermark=-1)}


def _create_partitions_refused(topic: Any, code: ErrorCode) -> Response:
    return {"name": topic.name, "error_code": code, "error_message": "The topic authorization is failed."}


def _offset_for_leader_epoch(caller: Caller, request: Request, handler: Handler) -> Answer:
    if caller.may_cluster(Operation.CLUSTER_ACTION):
        return handler(request)  # a follower
    return _DESCRIBED_EPOCHS(caller, request, handler)


def _epochs_refused(topic: Any, code: ErrorCode) -> Response:
    partitions = [
        {"partition": each.partition, "error_code": code, "leader_epoch": -1, "end_offset": -1}
        for each in topic.partitions
    ]
    return {"topic": topic.topic, "partitions": partitions}


_DESCRIBED_EPOCHS = each(
    _TOPIC, Operation.DESCRIBE, "topics", "topics", _epochs_refused, name=lambda topic: topic.topic
)


class MetadataGuard:
    """Hides topics that the caller may not describe, and says what it may do with the others."""

    def __init__(self, cluster: ClusterView, work: Work, *, may_create_automatically: bool) -> None:
        self._cluster = cluster
        self._work = work
        self._may_create = may_create_automatically

    def __call__(self, caller: Caller, request: Request, handler: Handler) -> Answer:
        requested = request.body.topics
        if requested is None or (request.version == 0 and not requested) or not names_topics(request):
            return then(handler(request), lambda answer: self._finish(caller, request, answer, []))
        if len(requested) > FEW:
            return self._answer_many(caller, request, handler)
        allowed, refused = finished(self._split(caller, request))
        answer = handler(narrowed(request, topics=allowed))
        return then(
            answer, lambda answer: self._finish(caller, request, _about(answer, request, allowed), refused)
        )

    async def _answer_many(self, caller: Caller, request: Request, handler: Handler) -> Response:
        """Others come first."""
        connection = request.connection
        allowed, refused = await self._work.done(connection, self._split(caller, request))
        answer = handler(narrowed(request, topics=allowed))
        if inspect.isawaitable(answer):
            answer = await answer
        answer = _about(answer, request, allowed)
        return await self._work.done(connection, self._finish_slices(caller, request, answer, refused))

    def _split(self, caller: Caller, request: Request) -> Slices[tuple[tuple[Any, ...], list[Response]]]:
        """Topics that the caller may know of, and answers about the others."""
        allowed: list[Any] = []
        refused: list[Response] = []
        for number, topic in enumerate(request.body.topics):
            if number % FEW == FEW - 1:
                yield
            name = self._name(topic)
            if name is None or self._shows(caller, request, name):
                allowed.append(topic)
            else:
                refused.append(_hidden(topic))
        return tuple(allowed), refused

    def _name(self, topic: Any) -> str | None:
        """The name of a topic asked for by name or id; None for an id that there is not."""
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is None:
            return str(topic.name or "")
        state = self._cluster.topic_by_id(topic_id)
        return None if state is None else state.name

    def _shows(self, caller: Caller, request: Request, name: str) -> bool:
        if not caller.may(Operation.DESCRIBE, _TOPIC, name):
            return False
        return not self._would_create(request, name) or self._creates(caller, name)

    def _would_create(self, request: Request, name: str) -> bool:
        client_allows = request.get("allow_auto_topic_creation", True)
        return bool(self._may_create and client_allows and name not in self._cluster.topics)

    @staticmethod
    def _creates(caller: Caller, name: str) -> bool:
        return caller.may_cluster(Operation.CREATE) or caller.may(Operation.CREATE, _TOPIC, name)

    @staticmethod
    def _finish_slices(
        caller: Caller, request: Request, answer: Response, refused: list[Response]
    ) -> Slices[Response]:
        tells = request.get("include_topic_authorized_operations", False)
        topics = []
        for number, topic in enumerate(answer["topics"]):
            if number % FEW == FEW - 1:
                yield
            name = topic["name"]
            if (
                name is not None
                and topic["error_code"] == ErrorCode.none
                and not caller.may(Operation.DESCRIBE, _TOPIC, name)
            ):
                continue
            if tells and name is not None:
                topic = {**topic, "topic_authorized_operations": caller.operations(_TOPIC, name)}
            topics.append(topic)
        answer = {**answer, "topics": [*topics, *refused]}
        if request.get("include_cluster_authorized_operations", False):
            answer |= {"cluster_authorized_operations": cluster_operations(caller)}
        return answer

    def _finish(self, *about: Any) -> Response:
        return finished(self._finish_slices(*about))


def _about(answer: Response, request: Request, allowed: Sequence[Any]) -> Response:
    """The answer; in version 0 no topics at all means every topic."""
    return answer if allowed or request.version > 0 else {**answer, "topics": []}


def cluster_operations(caller: Caller) -> int:
    """What the caller may do with the cluster, nothing if it may not even ask."""
    if not caller.may_cluster(Operation.DESCRIBE):
        return 0
    return caller.operations(ResourceType.CLUSTER, "kafka-cluster")


def _hidden(topic: Any) -> Response:
    """Does not even tell whether there is such a topic. An id is no secret, but then the name is."""
    topic_id = getattr(topic, "topic_id", None)
    return {
        "error_code": _REFUSED,
        "name": topic.name if topic_id is None else None,
        "topic_id": topic_id,
        "partitions": [],
    }


def create_topics(caller: Caller, request: Request, handler: Handler) -> Answer:
    """CREATE on the cluster or on the topic; the settings are told to those who may see them."""
    may_all = caller.may_cluster(Operation.CREATE)

    async def go_on(allowed: tuple[Any, ...], refused: list[Any]) -> Response:
        answer = await awaited(handler(narrowed(request, topics=allowed)))
        topics = [_created(caller, topic) async for topic in unhurried(answer["topics"])]
        topics += [_creation_refused(topic) async for topic in unhurried(refused)]
        return {**answer, "topics": topics}

    return parted(
        request.body.topics, lambda topic: may_all or caller.may(Operation.CREATE, _TOPIC, topic.name), go_on
    )


def _created(caller: Caller, topic: Response) -> Response:
    if topic["error_code"] != ErrorCode.none or caller.may(Operation.DESCRIBE_CONFIGS, _TOPIC, topic["name"]):
        return topic
    return {
        **topic,
        "topic_config_error_code": _REFUSED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _creation_refused(topic: Any) -> Response:
    return {
        "name": topic.name,
        "topic_id": None,
        "error_code": _REFUSED,
        "error_message": "Authorization failed.",
        "configs": [],
    }


class DeleteTopicsGuard:
    """DELETE on the topic; whoever may not describe it does not learn the name of an id."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def __call__(self, caller: Caller, request: Request, handler: Handler) -> Answer:
        field = "topics" if request.version >= 6 else "topic_names"

        async def go_on(allowed: tuple[Any, ...], refused: list[Any]) -> Response:
            answer = await awaited(handler(narrowed(request, **{field: allowed})))
            return adding(
                answer, "responses", [self._refused(caller, topic) async for topic in unhurried(refused)]
            )

        return parted(getattr(request.body, field), lambda topic: self._may(caller, topic), go_on)

    def _name_and_id(self, topic: Any) -> tuple[str | None, Any]:
        name, topic_id = (topic, None) if isinstance(topic, str) else (topic.name, topic.topic_id)
        if name is None and topic_id is not None:
            state = self._cluster.topic_by_id(topic_id)
            name = None if state is None else state.name
        return name, topic_id

    def _may(self, caller: Caller, topic: Any) -> bool:
        name, _ = self._name_and_id(topic)
        return name is None or caller.may(Operation.DELETE, _TOPIC, name)

    def _refused(self, caller: Caller, topic: Any) -> Response:
        name, topic_id = self._name_and_id(topic)
        is_hidden = topic_id is not None and (
            name is None or not caller.may(Operation.DESCRIBE, _TOPIC, name)
        )
        return {
            "name": None if is_hidden else name,
            "topic_id": topic_id,
            "error_code": _REFUSED,
            "error_message": None,
        }


TOPIC_GUARDS: dict[int, Guard] = {
    LIST_OFFSETS: each(_TOPIC, Operation.DESCRIBE, "topics", "topics", _list_offsets_refused),
    DELETE_RECORDS: each(_TOPIC, Operation.DELETE, "topics", "topics", _delete_records_refused),
    OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    CREATE_PARTITIONS: each(_TOPIC, Operation.ALTER, "topics", "results", _create_partitions_refused),
}
"""By API key, but for the guards that are classes: those need the view of the cluster."""
