"""What becomes of each request about a transaction: a state machine without I/O and without a clock.

It decides what Kafka 3.9's `TransactionCoordinator` decides, with two differences. Offsets of groups are part of the
transaction's own state, since they are kept in shared state and not in a log that could take a marker. And a request is
refused that was left in a buffer when its client gave up the connection and repeated it over a newer one: it belongs to
a transaction that has ended. As long as a client holds its connections, it may use them in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater_broker.transactions.errors import ProducerIdNeeded, TransactionError, TransactionRefused
from headwater_broker.transactions.state import (
    NO_EPOCH,
    PendingOffset,
    Producer,
    TopicPartition,
    Transaction,
    TransactionState,
    is_exhausted,
)

_COMPLETE = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Origin(NamedTuple):
    """Where a request came from.

    Attributes:
        connection: Greater than the number of every connection that was accepted before.
        has_left: Whether the client has closed it by now, so that nobody waits for the answer.
    """

    connection: int = 0
    has_left: bool = False


HERE = Origin()
"""A request that came over no connection."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A decision that is to be stored, and then given to `TransactionCoordinator.apply`.

    Attributes:
        transactional_id: Whose.
        before: The state that it was made in; None for a new id.
        after: The new state; None: the id is forgotten.
    """

    transactional_id: str
    before: Transaction | None
    after: Transaction | None


@dataclass(slots=True)
class _Slot:
    """A transactional id.

    Attributes:
        current: What is stored.
        pending: What is being stored; nothing else is decided meanwhile.
        newest: Number of the newest connection that a request about the id came over.
    """

    current: Transaction | None
    pending: Transition | None = None
    newest: int = 0


@dataclass(slots=True)
class TransactionCoordinator:
    """All transactional ids that one broker coordinates.

    A method that decides returns a `Transition`, or None where there is nothing to change, or raises
    `TransactionRefused`. Until a transition has been applied or abandoned, its id is refused with
    CONCURRENT_TRANSACTIONS.

    Attributes:
        max_timeout_ms: Kafka's transaction.max.timeout.ms.
        expiration_ms: Kafka's transactional.id.expiration.ms.
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _pending_offsets: dict[str, Counter[TopicPartition]] = field(default_factory=dict)

    # -- what is stored ----------------------------------------------------------------------------

    def load(self, transactions: Iterable[Transaction]) -> list[Transaction]:
        """Takes what was stored before.

        Returns:
            Those that are decided but not complete: their caller goes on where the last one stopped.
        """
        prepared = []
        for transaction in transactions:
            self._slots[transaction.transactional_id] = _Slot(transaction)
            self._count_offsets(transaction, 1)
            if transaction.state.is_prepared:
                prepared.append(transaction)
        return prepared

    def unload(self, transactional_ids: Iterable[str]) -> None:
        """Gives ids up: another broker coordinates them."""
        for transactional_id in transactional_ids:
            slot = self._slots.pop(transactional_id, None)
            if slot is not None:
                self._count_offsets(slot.current, -1)

    def apply(self, transition: Transition) -> None:
        """The transition has been stored: it is the state now."""
        slot = self._slots.get(transition.transactional_id)
        if slot is None or slot.pending is not transition:
            return  # the id was unloaded meanwhile
        slot.pending = None
        slot.current = transition.after
        self._count_offsets(transition.before, -1)
        self._count_offsets(transition.after, 1)
        if transition.after is None:
            del self._slots[transition.transactional_id]

    def abandon(self, transition: Transition) -> None:
        """The transition could not be stored: all is as before."""
        slot = self._slots.get(transition.transactional_id)
        if slot is not None and slot.pending is transition:
            slot.pending = None
            if slot.current is None:
                del self._slots[transition.transactional_id]

    def get(self, transactional_id: str) -> Transaction | None:
        """What is stored under an id."""
        slot = self._slots.get(transactional_id)
        return None if slot is None else slot.current

    # -- requests of producers ---------------------------------------------------------------------

    def init_producer(
        self,
        now_ms: int,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None = None,
        fresh_id: int | None = None,
    ) -> Transition:
        """A producer takes the id over, or goes on after an error (`expected`, KIP-360).

        Where the transition aborts a transaction that is open, the producer is to be told
        CONCURRENT_TRANSACTIONS, and asks again.

        Args:
            now_ms: The wall clock.
            transactional_id: The id.
            timeout_ms: How long its transactions may take.
            expected: What the producer was until now, if it says so.
            fresh_id: A producer id that nobody has.

        Raises:
            ProducerIdNeeded: `fresh_id` is needed and was not given.
            TransactionRefused: See the class.
        """
        if not transactional_id:
            raise TransactionRefused(TransactionError.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self.max_timeout_ms:
            raise TransactionRefused(
                TransactionError.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {timeout_ms} ms is not between 1 and {self.max_timeout_ms}",
            )
        slot = self._slots.get(transactional_id)
        if slot is None:
            if fresh_id is None:
                raise ProducerIdNeeded
            slot = self._slots[transactional_id] = _Slot(None)
            created = Transaction(
                transactional_id, Producer(fresh_id, 0), timeout_ms, TransactionState.EMPTY, now_ms
            )
            return self._decide(slot, transactional_id, created)
        current = self._settled(slot)
        if expected is not None and not _may_hold(current, expected):
            raise _fenced(current, expected)
        if current.state.is_prepared:
            raise _concurrent(current)
        if current.state is TransactionState.ONGOING:
            return self._decide(slot, transactional_id, _fence(current, now_ms))
        producer, last_epoch, previous_id = current.producer, NO_EPOCH, current.producer.producer_id
        if is_exhausted(producer.epoch) and (expected is None or expected.epoch == producer.epoch):
            if fresh_id is None:
                raise ProducerIdNeeded
            renewed = Producer(fresh_id, 0)
            last_epoch = producer.epoch if expected is not None else NO_EPOCH
        elif expected is None:
            renewed = Producer(producer.producer_id, producer.epoch + 1)
        elif expected.epoch == producer.epoch:
            renewed, last_epoch = Producer(producer.producer_id, producer.epoch + 1), producer.epoch
        elif expected.epoch == current.last_epoch:
            # The answer to the same request was lost.
            renewed, last_epoch, previous_id = producer, current.last_epoch, current.previous_producer_id
        else:
            raise _fenced(current, expected)
        after = Transaction(
            transactional_id,
            renewed,
            timeout_ms,
            TransactionState.EMPTY,
            now_ms,
            last_epoch=last_epoch,
            previous_producer_id=previous_id if previous_id != renewed.producer_id else -1,
        )
        return self._decide(slot, transactional_id, after)

    def add(
        self,
        now_ms: int,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition] = (),
        groups: Collection[str] = (),
        origin: Origin = HERE,
    ) -> Transition | None:
        """Partitions and groups become part of the transaction, which begins with them."""
        slot = self._slot_of(transactional_id, producer)
        current = self._settled(slot, origin)
        if current.state.is_prepared:
            raise _concurrent(current)
        if current.state is TransactionState.ONGOING:
            if current.partitions.issuperset(partitions) and current.groups.issuperset(groups):
                return None
            after = replace(
                current,
                updated_ms=now_ms,
                partitions=current.partitions.union(partitions),
                groups=current.groups.union(groups),
            )
        else:
            after = replace(
                current,
                state=TransactionState.ONGOING,
                updated_ms=now_ms,
                started_ms=now_ms,
                partitions=frozenset(partitions),
                groups=frozenset(groups),
                offsets={},
            )
        return self._decide(slot, transactional_id, after)

    def stage_offsets(
        self,
        now_ms: int,
        transactional_id: str,
        producer: Producer,
        group: str,
        offsets: Mapping[TopicPartition, PendingOffset],
        origin: Origin = HERE,
    ) -> Transition:
        """A group's offsets become part of the transaction, and are committed with it."""
        slot = self._slot_of(transactional_id, producer)
        current = self._settled(slot, origin)
        if current.state.is_prepared:
            raise _concurrent(current)
        if current.state is not TransactionState.ONGOING or group not in current.groups:
            raise TransactionRefused(
                TransactionError.TRANSACTION_ABORTABLE,
                f"group {group!r} is not part of a transaction of {transactional_id!r}",
            )
        merged = {**current.offsets, group: {**current.offsets.get(group, {}), **offsets}}
        return self._decide(slot, transactional_id, replace(current, updated_ms=now_ms, offsets=merged))

    def drop_offsets(
        self, transactional_id: str, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> Transition | None:
        """Offsets that a group is deleted with are no longer part of the transaction, if that is open.

        Args:
            transactional_id: Whose transaction.
            group: The group.
            partitions: Of these only; None: all of them.

        Returns:
            None where the transaction has none of them.
        """
        slot = self._slots.get(transactional_id)
        current = None if slot is None or slot.pending is not None else slot.current
        if slot is None or current is None or current.state is not TransactionState.ONGOING:
            return None
        staged = current.offsets.get(group, {})
        remaining = (
            {} if partitions is None else {key: each for key, each in staged.items() if key not in partitions}
        )
        if len(remaining) == len(staged):
            return None
        others = {name: offsets for name, offsets in current.offsets.items() if name != group}
        after = replace(current, offsets={**others, group: remaining} if remaining else others)
        return self._decide(slot, transactional_id, after)

    def end(
        self,
        now_ms: int,
        transactional_id: str,
        producer: Producer,
        *,
        commit: bool,
        origin: Origin = HERE,
    ) -> Transition | None:
        """The producer ends its transaction; None where that is what has happened already."""
        slot = self._slot_of(transactional_id, producer)
        current = self._settled(slot, origin)
        target = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if current.state is TransactionState.ONGOING:
            after = replace(current, state=target, updated_ms=now_ms)
            return self._decide(slot, transactional_id, after if commit else replace(after, offsets={}))
        if current.state is target:
            raise _concurrent(current)
        if current.state is _COMPLETE[target]:
            return None
        raise TransactionRefused(
            TransactionError.INVALID_TXN_STATE,
            f"the transaction of {transactional_id!r} cannot be {'committed' if commit else 'aborted'}: it is in "
            f"the state {current.state.title}",
        )

    def check_write(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> None:
        """Whether a producer may begin to write to a partition (KIP-890).

        Raises:
            TransactionRefused: The partition is not part of the transaction, which would hang there for ever.
        """
        slot = self._slot_of(transactional_id, producer)
        current = slot.current
        if current is not None and current.state.is_prepared:
            raise _concurrent(current)
        if current is None or partition not in current.partitions:
            raise TransactionRefused(
                TransactionError.TRANSACTION_ABORTABLE,
                f"partition {partition[0]}-{partition[1]} is not part of a transaction of {transactional_id!r}",
            )

    # -- what follows ------------------------------------------------------------------------------

    def complete(self, now_ms: int, transactional_id: str) -> Transition | None:
        """Everybody has been told how the transaction ended; None where there is nothing to complete."""
        slot = self._slots.get(transactional_id)
        if slot is None or slot.pending is not None:
            return None
        current = slot.current
        if current is None or not current.state.is_prepared:
            return None
        after = replace(
            current,
            state=_COMPLETE[current.state],
            updated_ms=now_ms,
            partitions=frozenset(),
            groups=frozenset(),
            offsets={},
        )
        return self._decide(slot, transactional_id, after)

    def time_out(self, now_ms: int) -> list[Transition]:
        """Aborts transactions that have been open for too long, and fences their producers."""
        return [
            self._decide(slot, transactional_id, _fence(current, now_ms))
            for transactional_id, slot in self._slots.items()
            if (current := slot.current) is not None
            and slot.pending is None
            and current.state is TransactionState.ONGOING
            and current.started_ms + current.timeout_ms < now_ms
        ]

    def expire(self, now_ms: int) -> list[Transition]:
        """Forgets ids that nothing has been heard of for long."""
        return [
            self._decide(slot, transactional_id, None)
            for transactional_id, slot in self._slots.items()
            if (current := slot.current) is not None
            and slot.pending is None
            and current.state is not TransactionState.ONGOING
            and not current.state.is_prepared
            and current.updated_ms + self.expiration_ms <= now_ms
        ]

    # -- questions ---------------------------------------------------------------------------------

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        """Partitions whose committed offset may change by a transaction that is open or not complete."""
        return self._pending_offsets.get(group, ())

    def staging(self, group: str) -> list[str]:
        """Ids whose transaction has offsets of a group."""
        return [each.transactional_id for each in self.transactions() if group in each.offsets]

    def groups_with_offsets(self) -> Collection[str]:
        """Groups that have offsets in a transaction that is open or not complete."""
        return self._pending_offsets.keys()

    def describe(self, transactional_id: str) -> Transaction:
        """What is stored under an id.

        Raises:
            TransactionRefused: Nothing is stored.
        """
        if not transactional_id:
            raise TransactionRefused(TransactionError.INVALID_REQUEST, "the transactional id is empty")
        transaction = self.get(transactional_id)
        if transaction is None:
            raise TransactionRefused(
                TransactionError.TRANSACTIONAL_ID_NOT_FOUND,
                f"there is no transactional id {transactional_id!r}",
            )
        return transaction

    def transactions(self) -> list[Transaction]:
        """All of them."""
        return [slot.current for slot in self._slots.values() if slot.current is not None]

    # -- helpers -----------------------------------------------------------------------------------

    def _slot_of(self, transactional_id: str, producer: Producer) -> _Slot:
        """The id's slot, if the producer holds it."""
        if not transactional_id:
            raise TransactionRefused(TransactionError.INVALID_REQUEST, "the transactional id is empty")
        slot = self._slots.get(transactional_id)
        if slot is None or slot.current is None or slot.current.producer.producer_id != producer.producer_id:
            raise TransactionRefused(
                TransactionError.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id!r} is not that of producer {producer.producer_id}",
            )
        if slot.current.producer.epoch != producer.epoch:
            raise _fenced(slot.current, producer)
        return slot

    def _settled(self, slot: _Slot, origin: Origin = HERE) -> Transaction:
        """What is stored in the slot, unless something else is being stored or the request is a late one."""
        if slot.pending is not None or slot.current is None:
            raise TransactionRefused(
                TransactionError.CONCURRENT_TRANSACTIONS, "the last step of the transaction is being stored"
            )
        if origin.has_left and origin.connection < slot.newest:
            raise _concurrent(slot.current)
        slot.newest = max(slot.newest, origin.connection)
        return slot.current

    def _decide(self, slot: _Slot, transactional_id: str, after: Transaction | None) -> Transition:
        slot.pending = Transition(transactional_id, slot.current, after)
        return slot.pending

    def _count_offsets(self, transaction: Transaction | None, change: int) -> None:
        if transaction is None:
            return
        for group, offsets in transaction.offsets.items():
            counts = self._pending_offsets.setdefault(group, Counter())
            for partition in offsets:
                counts[partition] += change
                if not counts[partition]:
                    del counts[partition]
            if not counts:
                del self._pending_offsets[group]


def _fence(current: Transaction, now_ms: int) -> Transaction:
    """Aborts an open transaction under a new epoch, which is never told to anybody: its producer is out."""
    producer = Producer(current.producer.producer_id, current.producer.epoch + 1)
    return replace(
        current,
        producer=producer,
        state=TransactionState.PREPARE_ABORT,
        updated_ms=now_ms,
        offsets={},
        last_epoch=NO_EPOCH,
    )


def _may_hold(current: Transaction, expected: Producer) -> bool:
    """Whether a producer that goes on after an error may be the one that holds the id."""
    return expected.producer_id == current.producer.producer_id or (
        expected.producer_id == current.previous_producer_id and is_exhausted(expected.epoch)
    )


def _fenced(current: Transaction, producer: Producer) -> TransactionRefused:
    return TransactionRefused(
        TransactionError.PRODUCER_FENCED,
        f"transactional id {current.transactional_id!r} is held by producer {current.producer.producer_id} with "
        f"epoch {current.producer.epoch}, not by {producer.producer_id} with epoch {producer.epoch}",
    )


def _concurrent(current: Transaction) -> TransactionRefused:
    return TransactionRefused(
        TransactionError.CONCURRENT_TRANSACTIONS,
        f"the transaction of {current.transactional_id!r} is in the state {current.state.title}",
    )
