"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn: what a transactional producer asks."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import TopicPartition
from headwater_broker.log import Slices
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.group_offsets import (
    PARTITIONS_AT_ONCE,
    Committer,
    GroupOffsets,
    committed_slices,
)
from headwater_broker.server.internal_topics import INTERNAL_TOPICS
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.shown import shown
from headwater_broker.transactions import Producer, TransactionRefused
from headwater_broker.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)

_LOG = logging.getLogger(__name__)
_FENCED_FROM = 2
_BATCHED_FROM = 4
_LOADING_FROM = 2
_ABORTABLE_FROM = {ADD_PARTITIONS_TO_TXN: 5, ADD_OFFSETS_TO_TXN: 4, END_TXN: 4, TXN_OFFSET_COMMIT: 4}


class TransactionApis:
    """Answers for the transactional ids that this broker coordinates."""

    def __init__(self, node: Node, transactions: TransactionRunner, offsets: GroupOffsets) -> None:
        self._node = node
        self._transactions = transactions
        self._offsets = offsets
        node.core.register(ADD_PARTITIONS_TO_TXN, self.add_partitions)
        node.core.register(ADD_OFFSETS_TO_TXN, self.add_offsets)
        node.core.register(TXN_OFFSET_COMMIT, self.offset_commit)
        node.core.register(END_TXN, self.end)

    # -- AddPartitionsToTxn ----------------------------------------------------------------------------

    async def add_partitions(self, request: Request) -> Response:
        """Makes partitions part of a transaction; from version 4 on of several, or only looks (KIP-890)."""
        body = request.body
        if request.version < _BATCHED_FROM:
            producer = Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
            requested = _partitions(body.v3_and_below_topics)
            codes = await self._add(request, body.v3_and_below_transactional_id, producer, requested)
            return {"results_by_topic_v3_and_below": _added(codes)}
        results = []
        async for each in unhurried(body.transactions):
            producer = Producer(each.producer_id, each.producer_epoch)
            requested = _partitions(each.topics)
            if each.verify_only:
                codes = await self._verify(request, each.transactional_id, producer, requested)
            else:
                codes = await self._add(request, each.transactional_id, producer, requested)
            results.append({"transactional_id": each.transactional_id, "topic_results": _added(codes)})
        return {"error_code": ErrorCode.none, "results_by_transaction": results}

    async def _add(
        self, request: Request, transactional_id: str, producer: Producer, requested: list[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        codes = await self._node.core.work.done(request.connection, _coded(requested, self._why_not))
        if any(code is not ErrorCode.none for code in codes.values()):
            not_attempted = ErrorCode.operation_not_attempted
            return {key: not_attempted if code is ErrorCode.none else code for key, code in codes.items()}
        code = ErrorCode.none
        try:
            await self._transactions.add(transactional_id, producer, requested, [], request.connection)
        except (TransactionRefused, ApiError) as error:
            code = _code(request, error)
        return dict.fromkeys(requested, code)

    def _why_not(self, key: TopicPartition) -> ErrorCode:
        if key[0] in INTERNAL_TOPICS:
            return ErrorCode.topic_authorization_failed
        if not self._offsets.partition_exists(key):
            return ErrorCode.unknown_topic_or_partition
        if self._node.logs.get(*key) is None:
            # Its marker would have to be written by that broker: see DESIGN.md, "with replication".
            _LOG.warning(
                "transactions do not span brokers yet: %s-%d is on another broker", shown(key[0]), key[1]
            )
            return ErrorCode.policy_violation
        return ErrorCode.none

    async def _verify(
        self, request: Request, transactional_id: str, producer: Producer, requested: list[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        def verified(key: TopicPartition) -> ErrorCode:
            try:
                self._transactions.check_here(transactional_id)
                self._transactions.coordinator.check_write(transactional_id, producer, key)
            except (TransactionRefused, ApiError) as error:
                return _code(request, error)
            return ErrorCode.none

        return await self._node.core.work.done(request.connection, _coded(requested, verified))

    # -- the others ------------------------------------------------------------------------------------

    async def add_offsets(self, request: Request) -> Response:
        """Makes the offsets of a group part of a transaction."""
        body = request.body
        producer = Producer(body.producer_id, body.producer_epoch)
        elsewhere = self._node.cluster.group_coordinator(body.group_id)
        if elsewhere is not None and elsewhere.broker_id != self._node.me.broker_id:
            # Its TxnOffsetCommit would go to that broker, which does not know the transaction.
            _LOG.warning(
                "transactions do not span brokers yet: group %s is coordinated by broker %d",
                shown(body.group_id),
                elsewhere.broker_id,
            )
            return {"error_code": ErrorCode.policy_violation}
        try:
            await self._transactions.add(
                body.transactional_id, producer, [], [body.group_id], request.connection
            )
        except (TransactionRefused, ApiError) as error:
            return {"error_code": _code(request, error)}
        return {"error_code": ErrorCode.none}

    async def offset_commit(self, request: Request) -> Response:
        """Keeps offsets to be committed with the transaction."""
        body = request.body
        committer = Committer(
            body.group_id,
            request.get("member_id", ""),
            request.get("generation_id", -1),
            request.get("group_instance_id"),
            is_transactional=True,
        )
        work = self._node.core.work
        slices = self._offsets.admit_slices(committer, body.topics)
        admission = await work.done(request.connection, slices)
        code = ErrorCode.none
        if admission.offsets:
            try:
                await self._transactions.stage_offsets(
                    body.transactional_id,
                    Producer(body.producer_id, body.producer_epoch),
                    body.group_id,
                    admission.offsets,
                    request.connection,
                )
            except (TransactionRefused, ApiError) as error:
                code = _offset_code(request, error)
                if code is ErrorCode.policy_violation:
                    _LOG.warning("%s", error)
        answer = committed_slices(body.topics, admission.errors, code)
        return await work.done(request.connection, answer)

    async def end(self, request: Request) -> Response:
        """Commits or aborts; the answer comes once that is decided for good."""
        body = request.body
        producer = Producer(body.producer_id, body.producer_epoch)
        try:
            await self._transactions.end(
                body.transactional_id,
                producer,
                commit=body.committed,
                connection=request.connection,
            )
        except (TransactionRefused, ApiError) as error:
            return {"error_code": _code(request, error)}
        return {"error_code": ErrorCode.none}


def _code(request: Request, error: Exception) -> ErrorCode:
    """Kafka's code, as far as the request's version knows it."""
    code = error_code(error)
    if code is ErrorCode.producer_fenced and request.version < _FENCED_FROM:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and request.version < _ABORTABLE_FROM[request.header.api_key]:
        return ErrorCode.invalid_txn_state
    return code


def _offset_code(request: Request, error: Exception) -> ErrorCode:
    """What Kafka's group coordinator makes of a refusal by the log or by the transaction coordinator."""
    code = error_code(error)
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code in (ErrorCode.concurrent_transactions, ErrorCode.not_coordinator):
        # Another code would send the producer to look for the group's coordinator, which is here.
        knows_loading = request.version >= _LOADING_FROM
        return (
            ErrorCode.coordinator_load_in_progress if knows_loading else ErrorCode.coordinator_not_available
        )
    return _code(request, error)


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _coded(
    keys: Iterable[TopicPartition], code_of: Callable[[TopicPartition], ErrorCode]
) -> Slices[dict[TopicPartition, ErrorCode]]:
    codes = {}
    for number, key in enumerate(keys):
        if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
            yield
        codes[key] = code_of(key)
    return codes


def _added(codes: Mapping[TopicPartition, ErrorCode]) -> list[Response]:
    topics: dict[str, list[Response]] = {}
    for (topic, partition), code in codes.items():
        result = {"partition_index": partition, "partition_error_code": code}
        topics.setdefault(topic, []).append(result)
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]
