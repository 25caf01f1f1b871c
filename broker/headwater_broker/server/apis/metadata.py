"""ApiVersions, Metadata, DescribeCluster and FindCoordinator: who is there and who leads what."""

import logging
from collections.abc import Awaitable, Iterable, Iterator, Set
from inspect import isawaitable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import (
    NO_LEADER,
    BrokerInfo,
    CoordinationError,
    PartitionState,
    TopicState,
)
from headwater_broker.log import Slices, finished
from headwater_broker.server.answers import names_topics, no_coordinator
from headwater_broker.server.apis.topics import TopicAdmin
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTION_TOPIC
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.shown import MESSAGE_CHARS, shown
from headwater_broker.wire import APIS
from headwater_broker.wire.apis import API_VERSIONS, DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA

_LOG = logging.getLogger(__name__)
_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS = 1, 2
_GROUP_KEY = 0
_TRANSACTION_KEY = 1


_FEW = 100
"""So many topics are described at once."""

_NOBODY: frozenset[int] = frozenset()


class MetadataApis:
    """Answers from the view of the cluster; only creating a missing topic takes time."""

    def __init__(self, node: Node, topics: TopicAdmin, transactions: TransactionRunner) -> None:
        self._node = node
        self._me = frozenset({node.me.broker_id})
        self._topics = topics
        self._transactions = transactions
        core = node.core
        core.register(API_VERSIONS, lambda _: core.api_versions())
        core.register(METADATA, self.metadata)
        core.register(DESCRIBE_CLUSTER, self.describe_cluster)
        core.register(FIND_COORDINATOR, self.find_coordinator)
        assert APIS.keys() >= core.answered

    # -- Metadata --------------------------------------------------------------------------------------

    def metadata(self, request: Request) -> Response | Awaitable[Response]:
        """Brokers and topics. A topic asked for by name that is missing is created, if that is allowed."""
        cluster = self._node.cluster
        requested = request.body.topics
        if requested is not None and not names_topics(request):
            described = [
                _missing(each.name or "", ErrorCode.invalid_request, each.topic_id) for each in requested
            ]
            return self._metadata(request, described)
        if requested is None or (request.version == 0 and not requested):
            topics = [topic for _, topic in sorted(cluster.topics.items())]
            return self._answer(request, len(topics), map(self._describe, topics))
        may_create = self._node.settings.auto_create_topics_enable and request.get(
            "allow_auto_topic_creation", True
        )
        if may_create and len(requested) > _FEW:
            return self._make_and_describe_many(request)
        if may_create:
            missing = finished(self._missing(request))
            if missing:
                return self._create_and_describe(request, missing)
        return self._answer(request, len(requested), (self._describe_one(each, {}) for each in requested))

    def _missing(self, request: Request) -> Slices[list[str]]:
        """Topics that are to be made."""
        missing = []
        for number, each in enumerate(request.body.topics):
            if number % _FEW == _FEW - 1:
                yield
            is_named = getattr(each, "topic_id", None) is None and each.name is not None
            if is_named and each.name not in self._node.cluster.topics:
                missing.append(each.name)
        return missing

    async def _make_and_describe_many(self, request: Request) -> Response:
        missing = await self._node.core.work.done(request.connection, self._missing(request))
        if missing:
            return await self._create_and_describe(request, missing)
        requested = request.body.topics
        answer = self._answer(request, len(requested), (self._describe_one(each, {}) for each in requested))
        return await answer if isinstance(answer, Awaitable) else answer

    def _answer(
        self, request: Request, count: int, topics: Iterator[Response]
    ) -> Response | Awaitable[Response]:
        """Others come first where there are thousands of topics."""
        if count <= _FEW:
            return self._metadata(request, list(topics))

        def slices() -> Slices[Response]:
            described = []
            for topic in topics:
                described.append(topic)
                yield
            return self._metadata(request, described)

        return self._node.core.work.answer(request.connection, slices())

    async def _create_and_describe(self, request: Request, missing: list[str]) -> Response:
        """Whoever makes a topic by asking for it is told to ask again.

        Apache Kafka answers so before the leader is there (`AutoTopicCreationManager`), and its clients count on
        it: one that asks after a topic that it just deleted takes a described topic for the deleted one.
        """
        errors = dict.fromkeys(missing, ErrorCode.leader_not_available)
        for name in missing:
            try:
                await self._topics.create_automatically(name)
            except ApiError as error:
                errors[name] = error_code(error)
        requested = request.body.topics
        answer = self._answer(
            request, len(requested), (self._describe_one(each, errors) for each in requested)
        )
        return await answer if isinstance(answer, Awaitable) else answer

    def _describe_one(self, entry: Any, errors: dict[str, ErrorCode]) -> Response:
        cluster = self._node.cluster
        topic_id = getattr(entry, "topic_id", None)
        if topic_id is not None:  # Java's client then sends an empty name
            topic = cluster.topic_by_id(topic_id)
            if topic is None:
                return _missing(None, ErrorCode.unknown_topic_id, topic_id)
            return self._describe(topic)
        name = entry.name or ""
        topic = cluster.topics.get(name)
        if name in errors or topic is None:
            return _missing(name, errors.get(name, self._topics.why_missing(name)))
        return self._describe(topic)

    def _metadata(self, request: Request, topics: list[Response]) -> Response:
        listener = request.connection.listener
        return {
            "brokers": [_broker(broker, listener) for broker in self._brokers().values()],
            "cluster_id": self._node.cluster.cluster_id,
            "controller_id": self._node.cluster.controller_id,
            "topics": topics,
        }

    def _brokers(self) -> dict[int, BrokerInfo]:
        """Live brokers; this one is alive in any case, also while its session is being restored."""
        return {**self._node.cluster.brokers, self._node.me.broker_id: self._node.me}

    def _describe(self, topic: TopicState) -> Response:
        live = self._brokers().keys()
        return {
            "error_code": ErrorCode.none,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [
                _partition(index, state, live - self._without_disk(topic.name, index))
                for index, state in sorted(topic.partitions.items())
            ],
        }

    # -- the others ------------------------------------------------------------------------------------

    def describe_cluster(self, request: Request) -> Response:
        """Brokers and the controller; KRaft's controllers are not brokers of ours."""
        cluster = self._node.cluster
        answer = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "endpoint_type": 1,
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller_id,
            "brokers": [
                _broker(broker, request.connection.listener, id_field="broker_id")
                for broker in self._brokers().values()
            ],
        }
        kind = request.get("endpoint_type", _BROKER_ENDPOINTS)
        if kind != _BROKER_ENDPOINTS:
            code = ErrorCode.unsupported_endpoint_type
            message = f"Unsupported endpoint type {kind}"
            if kind == _CONTROLLER_ENDPOINTS:
                code = ErrorCode.mismatched_endpoint_type
                message = (
                    "The request was sent to an endpoint of type BROKER, "
                    "but we wanted an endpoint of type CONTROLLER"
                )
            answer |= {"error_code": code, "error_message": message, "brokers": []}
        return answer

    def find_coordinator(self, request: Request) -> Response | Awaitable[Response]:
        """The brokers that coordinate groups, or transactional ids."""
        key_type = request.get("key_type", _GROUP_KEY)
        topics = self._node.cluster.topics
        if key_type == _TRANSACTION_KEY and TRANSACTION_TOPIC not in topics:
            return self._create_and_find(request, TRANSACTION_TOPIC, key_type)
        # Among several brokers, the leader of a group's partition coordinates it. Without the topic another broker
        # would, and the group would move once there is one.
        if key_type == _GROUP_KEY and OFFSETS_TOPIC not in topics and len(self._node.cluster.brokers) > 1:
            return self._create_and_find(request, OFFSETS_TOPIC, key_type)
        return self._find_coordinator(request, key_type)

    async def _create_and_find(self, request: Request, topic: str, key_type: int) -> Response:
        try:
            await self._topics.create_internal(topic)
        except (ApiError, CoordinationError) as error:
            _LOG.warning("%s cannot be created: %s", topic, shown(error, MESSAGE_CHARS))
        answer = self._find_coordinator(request, key_type)
        return await answer if isawaitable(answer) else answer

    def _find_coordinator(self, request: Request, key_type: int) -> Response | Awaitable[Response]:
        keys = request.get("coordinator_keys")
        if keys is None:
            return self._coordinator(request, request.body.key, key_type)
        return self._find_coordinators(request, keys, key_type)

    async def _find_coordinators(self, request: Request, keys: Iterable[str], key_type: int) -> Response:
        coordinators = [
            {"key": key, **self._coordinator(request, key, key_type)} async for key in unhurried(keys)
        ]
        return {"coordinators": coordinators}

    def _coordinator(self, request: Request, key: str, key_type: int) -> Response:
        if key_type == _GROUP_KEY:
            broker = self._node.cluster.group_coordinator(key)
        elif key_type == _TRANSACTION_KEY:
            broker = self._transaction_coordinator(key)
        else:
            message = f"coordinators of type {key_type} are not known: 0 is a group's, 1 a transaction's"
            return no_coordinator(ErrorCode.invalid_request, message)
        if broker is None:
            return no_coordinator(ErrorCode.coordinator_not_available, "no live broker coordinates it")
        endpoint = broker.endpoint(request.connection.listener)
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "node_id": broker.broker_id,
            "host": endpoint.host,
            "port": endpoint.port,
        }

    def _without_disk(self, topic: str, partition: int) -> Set[int]:
        """This broker, if the partition's disk fails; nobody else can know of others'."""
        log = self._node.logs.get(topic, partition)
        is_missing = log is None and (topic, partition) in self._node.cluster.missing
        is_offline = log is not None and log.offline is not None
        return self._me if is_missing or is_offline else _NOBODY

    def _transaction_coordinator(self, transactional_id: str) -> BrokerInfo | None:
        """Whoever leads the partition of the internal topic that holds the id."""
        partition = self._transactions.partition_of(transactional_id)
        if partition is None:
            return None
        state = self._node.cluster.topics[TRANSACTION_TOPIC].partitions.get(partition)
        return None if state is None else self._brokers().get(state.leader)


def _broker(broker: BrokerInfo, listener: str, *, id_field: str = "node_id") -> Response:
    endpoint = broker.endpoint(listener)
    return {id_field: broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}


def _partition(index: int, state: PartitionState, live: Set[int]) -> Response:
    is_led = state.leader in live
    return {
        "error_code": ErrorCode.none if is_led else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": state.leader if is_led else NO_LEADER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [replica for replica in state.replicas if replica not in live],
    }


def _missing(name: str | None, code: ErrorCode, topic_id: Any = None) -> Response:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}
