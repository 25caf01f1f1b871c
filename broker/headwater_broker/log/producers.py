"""What a partition remembers of its idempotent producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_MS,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    HeaderTuple,
)
from headwater_broker.log.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from headwater_broker.log.markers import Marker
from headwater_broker.log.txnindex import AbortedTransaction

BATCHES_KEPT = 5
"""A client may have five batches in flight, so any of the last five may come again."""

_OPEN = -1
_new_tuple = tuple.__new__


class KeptBatch(NamedTuple):
    """One batch that may be sent again."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """One producer.

    Attributes:
        producer_epoch: The newest instance of it.
        batches: Its last batches, oldest first, at most `BATCHES_KEPT`.
        last_timestamp_ms: The greatest timestamp in its last batch.
        seen_ms: The broker's clock at its last batch, by which it expires (record timestamps may be replayed
            ones).
        coordinator_epoch: Of the transaction coordinator that wrote its last marker; -1 if none did.
        transaction_first_offset: First offset of its open transaction; -1 if none is open.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp_ms",
        "producer_epoch",
        "seen_ms",
        "transaction_first_offset",
    )

    def __init__(self, producer_epoch: int, seen_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches: list[KeptBatch] = []
        self.last_timestamp_ms = -1
        self.seen_ms = seen_ms
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1

    def is_next(self, producer_epoch: int, base_sequence: int) -> bool:
        """Whether a batch outside of transactions simply follows the one before.

        One that does not may still be good: see `ProducerStates.find_duplicate`.
        """
        batches = self.batches
        return (
            producer_epoch == self.producer_epoch
            and self.transaction_first_offset < 0
            and bool(batches)
            and base_sequence == (batches[-1].last_sequence + 1) & MAX_SEQUENCE
        )

    def keep(self, base_sequence: int, base_offset: int, delta: int, timestamp_ms: int, now_ms: int) -> None:
        """Takes note of a batch that was appended at `base_offset` and has `delta` more offsets."""
        batches = self.batches
        # A named tuple's own constructor takes twice as long.
        numbers = (
            base_sequence,
            (base_sequence + delta) & MAX_SEQUENCE,
            base_offset,
            base_offset + delta,
            timestamp_ms,
        )
        batches.append(_new_tuple(KeptBatch, numbers))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self.last_timestamp_ms = timestamp_ms
        self.seen_ms = now_ms

    def copy(self) -> ProducerEntry:
        """A copy, in case later changes are taken back."""
        entry = ProducerEntry(self.producer_epoch, self.seen_ms)
        entry.batches = self.batches.copy()
        entry.last_timestamp_ms = self.last_timestamp_ms
        entry.coordinator_epoch = self.coordinator_epoch
        entry.transaction_first_offset = self.transaction_first_offset
        return entry


class ProducerStates:
    """Every producer that wrote to one partition and has not expired.

    What was noted since `settle_changes` can be taken back: batches are removed from the end of a producer's list. A
    producer that changes in another way is copied before the first such change.

    Attributes:
        unstable: First offsets of transactions, in order, with the offset of their marker; -1 while there is
            none. One with a marker stays until `settle` says that consumers may see the marker.
    """

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.unstable: dict[int, int] = {}
        self.changed: dict[int, ProducerEntry | None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterable[tuple[int, ProducerEntry]]:
        """Producer ids and what is known of them."""
        return self._entries.items()

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._entries.get(producer_id)

    def put(self, producer_id: int, entry: ProducerEntry) -> None:
        """Takes an entry from a snapshot."""
        self._entries[producer_id] = entry
        first_offset = entry.transaction_first_offset
        if first_offset >= 0:
            in_order = not self.unstable or next(reversed(self.unstable)) < first_offset
            self.unstable[first_offset] = _OPEN
            if not in_order:
                self.unstable = dict(sorted(self.unstable.items()))

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or whose marker cannot be seen yet."""
        return next(iter(self.unstable), None)

    def settle_changes(self) -> None:
        """What was noted so far stays."""
        self.changed.clear()

    def take_back(self, end_offset: int, first_sequences: dict[int, int]) -> None:
        """Forgets what was noted of batches from `end_offset` on: they were not written.

        Args:
            end_offset: Where the log ends now.
            first_sequences: The sequence of each producer's first batch that was not written.
        """
        for producer_id, before in self.changed.items():
            if before is None:
                self._entries.pop(producer_id, None)
            else:
                self._entries[producer_id] = before
        self.changed.clear()
        for producer_id, first_sequence in first_sequences.items():
            entry = self._entries.get(producer_id)
            if entry is None or not entry.batches or entry.batches[-1].last_offset < end_offset:
                continue
            timestamp_ms = entry.last_timestamp_ms
            entry.batches = [batch for batch in entry.batches if batch.last_offset < end_offset]
            if not entry.batches:
                # More came at once than are kept: the one before the first of them is known by its sequence.
                sequence = (first_sequence - 1) & MAX_SEQUENCE
                last_offset = end_offset - 1
                entry.batches.append(KeptBatch(sequence, sequence, last_offset, last_offset, timestamp_ms))
            entry.last_timestamp_ms = entry.batches[-1].timestamp_ms
        self.unstable = {
            first_offset: marker_offset if marker_offset < end_offset else _OPEN
            for first_offset, marker_offset in self.unstable.items()
            if first_offset < end_offset
        }

    def _keep_before(self, producer_id: int, entry: ProducerEntry | None) -> None:
        if producer_id not in self.changed:
            self.changed[producer_id] = None if entry is None else entry.copy()

    def settle(self, end_offset: int) -> None:
        """Everything before `end_offset` can be seen now."""
        for first_offset, marker_offset in list(self.unstable.items()):
            if 0 <= marker_offset < end_offset:
                del self.unstable[first_offset]

    def find_duplicate(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        transactional: int = 0,
    ) -> KeptBatch | None:
        """Checks that a batch follows what is known of its producer.

        A producer of which nothing is known may start anywhere: its state may have expired or been deleted.

        Args:
            producer_id: The batch's.
            producer_epoch: The batch's.
            base_sequence: The batch's.
            last_sequence: The batch's.
            transactional: Not 0 where the batch belongs to a transaction.

        Returns:
            The first copy, if this is one of the last batches sent again; None if the batch is to be
            appended.

        Raises:
            InvalidProducerEpochError: A newer instance has written.
            OutOfOrderSequenceError: A batch is missing before this one.
            InvalidTransactionStateError: The batch is outside of the transaction that its producer has open.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if producer_epoch == entry.producer_epoch:
            batches = entry.batches
            # After a marker with a new epoch nothing of that epoch is there: it begins with 0.
            expected = (batches[-1].last_sequence + 1) & MAX_SEQUENCE if batches else 0
            if base_sequence == expected:
                if entry.transaction_first_offset >= 0 and not transactional:
                    raise _outside(producer_id, entry)
                return None
            for batch in batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                    return batch
            raise OutOfOrderSequenceError(
                f"producer {producer_id} sent sequence {base_sequence} where {expected} was to come"
            )
        if producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} has epoch {producer_epoch}, but epoch {entry.producer_epoch} has written"
            )
        if base_sequence != 0:
            raise OutOfOrderSequenceError(
                f"producer {producer_id} began its epoch {producer_epoch} with sequence {base_sequence} instead of 0"
            )
        if entry.transaction_first_offset >= 0 and not transactional:
            raise _outside(producer_id, entry)
        return None

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether a transactional batch of the producer goes on with a transaction rather than begin one."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0

    def check_marker(self, producer_id: int, producer_epoch: int, marker: Marker) -> None:
        """Checks that a marker may end the producer's transaction.

        Raises:
            InvalidProducerEpochError: A newer instance has written.
            CoordinatorFencedError: A newer coordinator has.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"a marker for producer {producer_id} has epoch {producer_epoch}, but epoch "
                f"{entry.producer_epoch} has written"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFencedError(
                f"a marker for producer {producer_id} comes from coordinator epoch {marker.coordinator_epoch}, but "
                f"{entry.coordinator_epoch} has written one"
            )

    def end_transaction(
        self, header: HeaderTuple, base_offset: int, marker: Marker, now_ms: int
    ) -> AbortedTransaction | None:
        """Takes note of a marker that was appended at `base_offset`.

        Returns:
            The transaction, where the marker aborts one that has records here.
        """
        producer_id, producer_epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        entry = self._entries.get(producer_id)
        self._keep_before(producer_id, entry)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_epoch, now_ms)
        elif entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = header[MAX_TIMESTAMP_MS]
        entry.seen_ms = now_ms
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return None
        entry.transaction_first_offset = -1
        self.unstable[first_offset] = base_offset
        if marker.committed:
            return None
        still_open = (offset for offset, end_offset in self.unstable.items() if end_offset == _OPEN)
        return AbortedTransaction(producer_id, first_offset, base_offset, next(still_open, base_offset + 1))

    def record(self, header: HeaderTuple, base_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        """Takes note of a batch with a producer id that was appended at `base_offset`."""
        producer_epoch = header[PRODUCER_EPOCH]
        entry = self._entries.get(header[PRODUCER_ID])
        if entry is None:
            self._keep_before(header[PRODUCER_ID], None)
            entry = self._entries[header[PRODUCER_ID]] = ProducerEntry(producer_epoch, now_ms)
        elif entry.producer_epoch != producer_epoch:
            self._keep_before(header[PRODUCER_ID], entry)
            entry.producer_epoch = producer_epoch
            entry.batches.clear()
        if header[ATTRIBUTES] & TRANSACTIONAL and entry.transaction_first_offset < 0:
            self._keep_before(header[PRODUCER_ID], entry)
            entry.transaction_first_offset = base_offset
            self.unstable[base_offset] = _OPEN
        entry.keep(header[BASE_SEQUENCE], base_offset, header[LAST_OFFSET_DELTA], max_timestamp_ms, now_ms)

    def expire(self, before_ms: int) -> None:
        """Forgets producers that wrote nothing since `before_ms` and have no open transaction."""
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.seen_ms < before_ms and entry.transaction_first_offset < 0
        ]
        for producer_id in idle:
            del self._entries[producer_id]

    def recall(self, headers: Iterator[HeaderTuple]) -> None:
        """Adds what a snapshot leaves out: it holds one batch of each producer, and any of five may come
        again.

        Args:
            headers: The batches just before the snapshot, in order.
        """
        earlier = ProducerStates()
        for header in headers:
            if header[PRODUCER_ID] != NO_PRODUCER_ID and header[BASE_SEQUENCE] >= 0:
                earlier.record(header, header[BASE_OFFSET], header[MAX_TIMESTAMP_MS], 0)
        for producer_id, recalled in earlier.items():
            entry = self._entries.get(producer_id)
            if (
                entry is not None
                and entry.producer_epoch == recalled.producer_epoch
                and entry.batches == recalled.batches[-1:]
            ):
                entry.batches = recalled.batches


def _outside(producer_id: int, entry: ProducerEntry) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        f"producer {producer_id} has had a transaction open since offset {entry.transaction_first_offset}: a batch "
        "outside of it cannot be taken"
    )
