"""DescribeProducers, DescribeTransactions and ListTransactions: what an operator asks."""

from collections.abc import Awaitable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.log import LogError, Slices
from headwater_broker.server.answers import undescribed_transaction
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.transactions import Transaction, TransactionRefused, TransactionState
from headwater_broker.wire.apis import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS

_STATES = {state.title: state for state in TransactionState}
_STATES_NEVER_STORED = frozenset({"Dead", "PrepareEpochFence"})


class TransactionAdminApis:
    """Answers from the coordinator's state and the logs'."""

    def __init__(self, node: Node, transactions: TransactionRunner) -> None:
        self._node = node
        self._transactions = transactions
        node.core.register(DESCRIBE_PRODUCERS, self.describe_producers)
        node.core.register(DESCRIBE_TRANSACTIONS, self.describe_transactions)
        node.core.register(LIST_TRANSACTIONS, self.list_transactions)

    def describe_producers(self, request: Request) -> Response | Awaitable[Response]:
        """The producers that a partition remembers."""
        return self._node.core.work.answer(request.connection, self._describe_producers(request.body.topics))

    def _describe_producers(self, topics: Any) -> Slices[Response]:
        answers = []
        for topic in topics:
            partitions = []
            for index in dict.fromkeys(topic.partition_indexes):
                partitions.append(self._producers(topic.name, index))
                yield
            answers.append({"name": topic.name, "partitions": partitions})
            yield
        return {"topics": answers}

    def _producers(self, topic: str, partition: int) -> Response:
        answer: dict[str, Any] = {"partition_index": partition, "error_code": ErrorCode.none}
        log = self._node.logs.get(topic, partition)
        if log is None:
            return answer | {
                "error_code": self._node.cluster.why_not_here(topic, partition),
                "active_producers": [],
            }
        try:
            producers = list(log.producers())
        except LogError as error:
            return answer | {
                "error_code": error_code(error),
                "error_message": str(error),
                "active_producers": [],
            }
        return answer | {
            "active_producers": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": entry.producer_epoch,
                    "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
                    "last_timestamp": entry.last_timestamp_ms,
                    "coordinator_epoch": entry.coordinator_epoch,
                    "current_txn_start_offset": entry.transaction_first_offset,
                }
                for producer_id, entry in producers
            ]
        }

    def describe_transactions(self, request: Request) -> Response | Awaitable[Response]:
        """What is stored under transactional ids."""
        ids = request.body.transactional_ids
        return self._node.core.work.answer(request.connection, self._describe_transactions(ids))

    def _describe_transactions(self, ids: Any) -> Slices[Response]:
        states = []
        for each in ids:
            states.append(self._describe(each))
            yield
        return {"transaction_states": states}

    def _describe(self, transactional_id: str) -> Response:
        try:
            self._transactions.check_here(transactional_id)
            transaction = self._transactions.coordinator.describe(transactional_id)
        except (ApiError, TransactionRefused) as error:
            return undescribed_transaction(transactional_id, error_code(error))
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(transaction.partitions):
            topics.setdefault(topic, []).append(partition)
        return {
            "error_code": ErrorCode.none,
            "transactional_id": transactional_id,
            "transaction_state": transaction.state.title,
            "transaction_timeout": transaction.timeout_ms,
            "transaction_start_time": transaction.started_ms,
            "producer_id": transaction.producer.producer_id,
            "producer_epoch": transaction.producer.epoch,
            "topics": [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
        }

    def list_transactions(self, request: Request) -> Response:
        """The transactional ids that this broker coordinates, as far as they pass the filters."""
        body = request.body
        names = body.state_filters
        states = {_STATES[name] for name in names if name in _STATES}
        producer_ids = set(body.producer_id_filters)
        longer_ms = request.get("duration_filter", -1)
        now_ms = self._node.clock.now_ms()

        def is_requested(each: Transaction) -> bool:
            return (
                (not names or each.state in states)
                and (not producer_ids or each.producer.producer_id in producer_ids)
                and (longer_ms < 0 or now_ms - each.started_ms > longer_ms)
            )

        return {
            "error_code": ErrorCode.none,
            "unknown_state_filters": [
                name for name in names if name not in _STATES and name not in _STATES_NEVER_STORED
            ],
            "transaction_states": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer.producer_id,
                    "transaction_state": each.state.title,
                }
                for each in self._transactions.coordinator.transactions()
                if is_requested(each)
            ],
        }
