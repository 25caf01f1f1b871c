"""What a partition remembers of its idempotent producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater_broker.log.batch import (
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_MS,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    HeaderTuple,
)
from headwater_broker.log.errors import InvalidProducerEpochError, OutOfOrderSequenceError

BATCHES_KEPT = 5
"""A client may have five batches in flight, so any of the last five may come again."""


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


class ProducerStates:
    """Every producer that wrote to one partition and has not expired."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

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

    def find_duplicate(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> KeptBatch | None:
        """Checks that a batch follows what is known of its producer.

        A producer of which nothing is known may start anywhere: its state may have expired or been deleted.

        Returns:
            The first copy, if this is one of the last batches sent again; None if the batch is to be
            appended.

        Raises:
            InvalidProducerEpochError: A newer instance has written.
            OutOfOrderSequenceError: A batch is missing before this one.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if producer_epoch == entry.producer_epoch:
            batches = entry.batches
            if not batches:
                return None
            expected = (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            if base_sequence == expected:
                return None
            for kept in batches:
                if kept.base_sequence == base_sequence and kept.last_sequence == last_sequence:
                    return kept
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
        return None

    def record(self, header: HeaderTuple, base_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        """Takes note of a batch with a producer id that was appended at `base_offset`."""
        delta = header[LAST_OFFSET_DELTA]
        producer_epoch = header[PRODUCER_EPOCH]
        base_sequence = header[BASE_SEQUENCE]
        entry = self._entries.get(header[PRODUCER_ID])
        if entry is None:
            entry = self._entries[header[PRODUCER_ID]] = ProducerEntry(producer_epoch, now_ms)
        elif entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches.clear()
        batches = entry.batches
        batches.append(
            KeptBatch(
                base_sequence,
                (base_sequence + delta) & MAX_SEQUENCE,
                base_offset,
                base_offset + delta,
                max_timestamp_ms,
            )
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        entry.last_timestamp_ms = max_timestamp_ms
        entry.seen_ms = now_ms

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
        for producer_id, found in earlier.items():
            entry = self._entries.get(producer_id)
            if (
                entry is not None
                and entry.producer_epoch == found.producer_epoch
                and entry.batches == found.batches[-1:]
            ):
                entry.batches = found.batches
