"""Carries out what the transaction coordinator decides: its log, the markers, the groups' offsets, the time."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import NO_LEADER, Committed, CoordinationError
from headwater_broker.log import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    LogError,
    Marker,
    MayBegin,
    PartitionLog,
    RecordTooLargeError,
)
from headwater_broker.log.records import UnreadableBatchError
from headwater_broker.server.connection import Connection
from headwater_broker.server.durable import DurableWrites
from headwater_broker.server.errors import ApiError
from headwater_broker.server.group_offsets import GroupOffsets
from headwater_broker.server.internal_topics import TRANSACTION_TOPIC
from headwater_broker.server.node import Node
from headwater_broker.server.producer_ids import ProducerIds
from headwater_broker.server.transaction_log import TransactionLog
from headwater_broker.shown import MESSAGE_CHARS, shown
from headwater_broker.transactions import (
    Origin,
    PendingOffset,
    Producer,
    ProducerIdNeeded,
    TopicPartition,
    Transaction,
    TransactionCoordinator,
    TransactionError,
    TransactionRefused,
    TransactionState,
    Transition,
    partition_for,
)
from headwater_broker.transactions.records import UnreadableTransactionError

_LOG = logging.getLogger(__name__)
_RETRY_S = 0.5
_PATIENCE_S = 0.1
"""How long a request waits for the former transaction's markers; then it is told CONCURRENT_TRANSACTIONS, upon which
clients pause for 20 ms and more, ten times as long as it takes."""

_EXPIRE_EVERY_MS = 3_600_000


class TransactionRunner:
    """The transactions that this broker coordinates.

    A transaction with offsets of a group holds the group's turn from before it is decided until it is complete, so
    that no other commit comes between: applying its offsets again after a crash takes nothing back.

    Attributes:
        coordinator: What decides.
    """

    def __init__(
        self, node: Node, writes: DurableWrites, producer_ids: ProducerIds, offsets: GroupOffsets
    ) -> None:
        settings = node.settings
        self.coordinator = TransactionCoordinator(
            max_timeout_ms=settings.transaction_max_timeout_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
        )
        self._node = node
        self._writes = writes
        self._producer_ids = producer_ids
        self._offsets = offsets
        self._logs: dict[int, TransactionLog] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._storing: dict[str, asyncio.Future[None]] = {}

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Reads what was stored, and goes on with what was decided: before the first request is answered."""
        for log in list(self._node.logs):
            if log.topic == TRANSACTION_TOPIC and log.offline is None:
                try:
                    self._log_at(log.partition)
                except ApiError as error:
                    _LOG.error("%s", shown(error, MESSAGE_CHARS))
        self._spawn(self._watch_the_time())

    def stop(self) -> None:
        """Starts nothing more; what is under way goes on at the next start."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], transactional_id: str | None = None) -> None:
        """Runs something beside the requests; with an id, the requests of that id wait for it for a while."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if transactional_id is not None:
            self._finishing[transactional_id] = task
            task.add_done_callback(lambda _: self._forget_finishing(transactional_id, task))

    def _forget_finishing(self, transactional_id: str, task: asyncio.Task[None]) -> None:
        if self._finishing.get(transactional_id) is task:
            del self._finishing[transactional_id]

    async def _wait_for_the_former(self, transactional_id: str) -> None:
        """Returns once nothing else is being decided for an id, as far as that comes soon."""
        task = self._finishing.get(transactional_id)
        if task is not None:
            await asyncio.wait([task], timeout=_PATIENCE_S)
        while (storing := self._storing.get(transactional_id)) is not None:
            await asyncio.wait([storing])

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a transaction could not be gone on with", exc_info=task.exception())

    # -- where a transactional id is -------------------------------------------------------------------

    def partition_of(self, transactional_id: str) -> int | None:
        """The partition of the topic that holds an id; None while there is no topic."""
        topic = self._node.cluster.topics.get(TRANSACTION_TOPIC)
        return None if topic is None else partition_for(transactional_id, len(topic.partitions))

    def check_here(self, transactional_id: str) -> None:
        """Makes sure that this broker coordinates an id.

        Raises:
            ApiError: Another broker does, or its state cannot be read.
        """
        self._log_of(transactional_id)

    def check_spans_no_brokers(self, transactional_id: str, what: str) -> None:
        """Makes sure that no other broker coordinates an id: that one could not be asked about partitions here.

        Raises:
            ApiError: POLICY_VIOLATION, upon which clients give up at once.
        """
        partition = self.partition_of(transactional_id)
        if partition is None:
            return
        state = self._node.cluster.topics[TRANSACTION_TOPIC].partitions.get(partition)
        if state is None or state.leader in (NO_LEADER, self._node.me.broker_id):
            return
        raise ApiError(
            ErrorCode.policy_violation,
            f"transactions do not span brokers yet: {what} is on broker {self._node.me.broker_id}, and "
            f"transactional id {transactional_id!r} is coordinated by broker {state.leader}",
        )

    def _log_of(self, transactional_id: str) -> TransactionLog:
        partition = self.partition_of(transactional_id)
        if partition is None:
            raise ApiError(ErrorCode.not_coordinator, f"there is no topic {TRANSACTION_TOPIC}")
        return self._log_at(partition)

    def _log_at(self, partition: int) -> TransactionLog:
        log = self._node.logs.get(TRANSACTION_TOPIC, partition)
        existing = self._logs.get(partition)
        if existing is not None and existing.log is log:
            if log.offline is not None:
                raise ApiError(ErrorCode.coordinator_not_available, str(log.offline))
            return existing
        if existing is not None:
            del self._logs[partition]
            ids = [each.transactional_id for each in self.coordinator.transactions()]
            self.coordinator.unload(each for each in ids if self.partition_of(each) in (None, partition))
        if log is None:
            raise ApiError(ErrorCode.not_coordinator, f"{TRANSACTION_TOPIC}-{partition} is not here")
        opened = TransactionLog(log, self._writes)
        try:
            prepared = self.coordinator.load(opened.read())
        except (LogError, UnreadableTransactionError, UnreadableBatchError) as error:
            message = f"{TRANSACTION_TOPIC}-{partition} cannot be read: {error}"
            raise ApiError(ErrorCode.coordinator_not_available, message) from error
        self._logs[partition] = opened
        for transaction in sorted(prepared, key=lambda each: each.updated_ms):
            _LOG.info(
                "going on with the transaction of %s, which is in the state %s",
                shown(transaction.transactional_id),
                transaction.state.title,
            )
            self._spawn(self._resume(transaction), transaction.transactional_id)
        return opened

    async def _store(self, transition: Transition) -> None:
        """Stores a decision, which makes it final.

        Raises:
            ApiError: It could not be stored, and does not count.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._storing[transition.transactional_id] = stored
        try:
            log = self._log_of(transition.transactional_id)
            await log.append(transition, self._node.clock.now_ms())
        except BaseException as error:
            self.coordinator.abandon(transition)
            if isinstance(error, RecordTooLargeError):
                raise ApiError(ErrorCode.invalid_commit_offset_size, str(error)) from error
            if isinstance(error, LogError):
                raise ApiError(ErrorCode.coordinator_not_available, str(error)) from error
            raise
        else:
            self.coordinator.apply(transition)
        finally:
            del self._storing[transition.transactional_id]
            stored.set_result(None)

    # -- requests --------------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Producer:
        """Gives a transactional id to a producer.

        Raises:
            TransactionRefused: The coordinator refuses, or aborts an open transaction first.
            ApiError: This broker does not coordinate it, or cannot store it.
            CoordinationError: There is no producer id to be had.
        """
        self.check_here(transactional_id)
        await self._wait_for_the_former(transactional_id)
        fresh_id = None
        while True:
            try:
                transition = self.coordinator.init_producer(
                    self._node.clock.now_ms(), transactional_id, timeout_ms, expected, fresh_id
                )
                break
            except ProducerIdNeeded:
                fresh_id = await self._producer_ids.next()
        await self._store(transition)
        after = transition.after
        assert after is not None
        if after.state.is_prepared:
            self._spawn(self._finish(after, AsyncExitStack()), transactional_id)
            raise TransactionRefused(
                TransactionError.CONCURRENT_TRANSACTIONS, "the former transaction is being aborted"
            )
        return after.producer

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: list[TopicPartition],
        groups: list[str],
        connection: Connection,
    ) -> None:
        """Makes partitions and groups part of a transaction; raises as `init_producer` does."""
        self.check_here(transactional_id)
        await self._wait_for_the_former(transactional_id)
        now_ms = self._node.clock.now_ms()
        transition = self.coordinator.add(
            now_ms, transactional_id, producer, partitions, groups, _origin(connection)
        )
        if transition is not None:
            await self._store(transition)

    async def stage_offsets(
        self,
        transactional_id: str,
        producer: Producer,
        group: str,
        offsets: Mapping[TopicPartition, Committed],
        connection: Connection,
    ) -> None:
        """Makes offsets part of a transaction; raises as `init_producer` does."""
        self.check_spans_no_brokers(transactional_id, f"group {group!r}")
        self.check_here(transactional_id)
        await self._wait_for_the_former(transactional_id)
        pending = {
            key: PendingOffset(each.offset, each.leader_epoch, each.metadata, each.timestamp_ms or -1)
            for key, each in offsets.items()
        }
        now_ms = self._node.clock.now_ms()
        await self._store(
            self.coordinator.stage_offsets(
                now_ms, transactional_id, producer, group, pending, _origin(connection)
            )
        )

    def staged_groups(self) -> Collection[str]:
        """Groups that have offsets in a transaction that is open or not complete."""
        return self.coordinator.groups_with_offsets()

    async def drop_offsets(self, group: str, partitions: Collection[TopicPartition] | None = None) -> None:
        """Forgets offsets of open transactions with those that a group has committed, as Kafka's GroupMetadata does.

        Args:
            group: The group.
            partitions: Of these only; None: all of them.

        Raises:
            ApiError: It could not be stored.
        """
        for transactional_id in self.coordinator.staging(group):
            while (storing := self._storing.get(transactional_id)) is not None:
                await asyncio.wait([storing])
            transition = self.coordinator.drop_offsets(transactional_id, group, partitions)
            if transition is not None:
                await self._store(transition)

    async def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, connection: Connection
    ) -> None:
        """Decides a transaction; the rest follows by itself. Raises as `init_producer` does."""
        self.check_here(transactional_id)
        await self._wait_for_the_former(transactional_id)
        async with AsyncExitStack() as turns:
            if commit:
                await self._take_turns(transactional_id, turns)
            now_ms = self._node.clock.now_ms()
            transition = self.coordinator.end(
                now_ms, transactional_id, producer, commit=commit, origin=_origin(connection)
            )
            if transition is None:
                return
            await self._store(transition)
            assert transition.after is not None
            self._spawn(self._finish(transition.after, turns.pop_all()), transactional_id)

    def may_begin(self, transactional_id: str) -> MayBegin:
        """What Produce asks before a producer's first batch of a transaction in a partition."""

        def check(log: PartitionLog, producer_id: int, producer_epoch: int) -> None:
            self.check_spans_no_brokers(transactional_id, f"partition {log.topic}-{log.partition}")
            self.check_here(transactional_id)
            producer = Producer(producer_id, producer_epoch)
            self.coordinator.check_write(transactional_id, producer, (log.topic, log.partition))

        return check

    # -- what follows a decision -----------------------------------------------------------------------

    async def _take_turns(self, transactional_id: str, turns: AsyncExitStack) -> None:
        """Waits until no other commit of the transaction's groups is under way."""
        current = self.coordinator.get(transactional_id)
        for group in sorted(current.offsets) if current is not None else ():
            if group in self._offsets.blocked:
                message = f"shared state does not take the offsets of {group!r}"
                raise ApiError(ErrorCode.coordinator_not_available, message)
            await turns.enter_async_context(self._offsets.turns.turn(group))

    async def _resume(self, transaction: Transaction) -> None:
        turns = AsyncExitStack()
        for group in sorted(transaction.offsets):
            await turns.enter_async_context(self._offsets.turns.turn(group))
        await self._finish(transaction, turns)

    async def _finish(self, transaction: Transaction, turns: AsyncExitStack) -> None:
        """Writes markers and applies offsets until that is done, and then says so in the log."""
        async with turns:
            try:
                await self._until_done(transaction)
                await self._complete(transaction)
            except ApiError as error:
                _LOG.error(
                    "the transaction of %s stays incomplete: %s",
                    shown(transaction.transactional_id),
                    shown(error, MESSAGE_CHARS),
                )
            finally:
                self._offsets.blocked.difference_update(transaction.offsets)

    async def _until_done(self, transaction: Transaction) -> None:
        is_reported = is_marked = False
        while True:
            try:
                if not is_marked:
                    await self._write_markers(transaction)
                    is_marked = True
                await self._apply_offsets(transaction)
                return
            except (LogError, CoordinationError) as error:
                if not is_reported:
                    _LOG.warning(
                        "the transaction of %s waits: %s",
                        shown(transaction.transactional_id),
                        shown(error, MESSAGE_CHARS),
                    )
                is_reported = True
                self._offsets.blocked.update(transaction.offsets)
            await asyncio.sleep(_RETRY_S)

    async def _complete(self, transaction: Transaction) -> None:
        """Stores that nothing is left to do, again and again while the disk takes no writes: until then the id is busy.

        Raises:
            ApiError: Another broker coordinates the id now.
        """
        is_reported = False
        while True:
            now_ms = self._node.clock.now_ms()
            transition = self.coordinator.complete(now_ms, transaction.transactional_id)
            if transition is None:
                return
            try:
                await self._store(transition)
                return
            except ApiError as error:
                if error.code is not ErrorCode.coordinator_not_available:
                    raise
                if not is_reported:
                    _LOG.warning(
                        "the transaction of %s waits to be complete: %s",
                        shown(transaction.transactional_id),
                        shown(error, MESSAGE_CHARS),
                    )
                is_reported = True
                self._offsets.blocked.update(transaction.offsets)
            await asyncio.sleep(_RETRY_S)

    async def _write_markers(self, transaction: Transaction) -> None:
        log = self._log_of(transaction.transactional_id).log
        marker = Marker(transaction.state is TransactionState.PREPARE_COMMIT, log.leader_epoch)
        producer_id, epoch = transaction.producer
        writes = []
        failure: LogError | None = None
        now_ms = self._node.clock.now_ms()
        for topic, partition in sorted(transaction.partitions):
            target = self._node.logs.get(topic, partition)
            if target is None:
                continue  # deleted meanwhile
            try:
                appended = target.append_marker(producer_id, epoch, marker, now_ms=now_ms)
            except (InvalidProducerEpochError, CoordinatorFencedError) as error:
                _LOG.warning(
                    "%s-%d takes no marker: %s", shown(topic), partition, shown(error, MESSAGE_CHARS)
                )
            except LogError as error:
                failure = error
            else:
                writes.append(self._writes.wait(target, appended.last_offset + 1))
        results = await asyncio.gather(*writes, return_exceptions=True)
        failures = [each for each in results if isinstance(each, LogError)]
        if failure is not None or failures:
            raise failure or failures[0]

    async def _apply_offsets(self, transaction: Transaction) -> None:
        for group, pending in transaction.offsets.items():
            offsets = {
                key: Committed(each.offset, each.leader_epoch, each.metadata, each.timestamp_ms)
                for key, each in pending.items()
                if self._offsets.partition_exists(key)
            }
            if offsets:
                await self._offsets.commit(group, offsets)

    # -- time ------------------------------------------------------------------------------------------

    async def _watch_the_time(self) -> None:
        """Aborts what has been open for too long, and forgets ids that are not used."""
        interval_ms = self._node.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expire_ms = min(_EXPIRE_EVERY_MS, self.coordinator.expiration_ms)
        next_expiry_s = self._node.clock.monotonic() + expire_ms / 1000
        while True:
            await asyncio.sleep(interval_ms / 1000)
            now_ms = self._node.clock.now_ms()
            for transition in self.coordinator.time_out(now_ms):
                _LOG.info("the transaction of %s has timed out", shown(transition.transactional_id))
                self._spawn(self._abort(transition), transition.transactional_id)
            if self._node.clock.monotonic() >= next_expiry_s:
                next_expiry_s = self._node.clock.monotonic() + expire_ms / 1000
                for transition in self.coordinator.expire(now_ms):
                    self._spawn(self._forget(transition))

    async def _abort(self, transition: Transition) -> None:
        try:
            await self._store(transition)
        except ApiError as error:
            _LOG.error(
                "the transaction of %s cannot be aborted: %s",
                shown(transition.transactional_id),
                shown(error, MESSAGE_CHARS),
            )
            return
        assert transition.after is not None
        await self._finish(transition.after, AsyncExitStack())

    async def _forget(self, transition: Transition) -> None:
        try:
            await self._store(transition)
        except ApiError as error:
            _LOG.error(
                "transactional id %s cannot be forgotten: %s",
                shown(transition.transactional_id),
                shown(error, MESSAGE_CHARS),
            )


def _origin(connection: Connection) -> Origin:
    """Where a request came from, as of now: it may have waited."""
    return Origin(connection.number, connection.has_left())
