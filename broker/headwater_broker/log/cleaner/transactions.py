"""What a pass over a log learns of its transactions: which data were aborted, which markers have none left."""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.log.batch import PRODUCER_ID, HeaderTuple, last_offset_of
from headwater_broker.log.txnindex import AbortedTransaction

ABORT, COMMIT = 0, 1
"""Types of control records."""


class _OpenAborted:
    """An aborted transaction whose marker the pass has not met yet."""

    __slots__ = ("entry", "has_data")

    def __init__(self, entry: AbortedTransaction) -> None:
        self.entry = entry
        self.has_data = False


class TransactionPass:
    """Follows transactions through one pass over a log, from its start on, as Kafka's cleaner does.

    Attributes:
        retained: Entries of the transaction index whose data or markers are still in the log.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: int) -> None:
        """Begins a pass.

        Args:
            aborted: Entries of the log's transaction indexes.
            start_offset: Where the pass begins; transactions that ended before it do not matter.
        """
        relevant = (entry for entry in set(aborted) if entry.last_offset >= start_offset)
        self._coming = sorted(relevant, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, _OpenAborted] = {}
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []

    def is_aborted(self, header: HeaderTuple) -> bool:
        """Whether a transactional data batch belongs to an aborted transaction."""
        self._advance(header)
        transaction = self._aborted.get(header[PRODUCER_ID])
        if transaction is not None:
            transaction.has_data = True
            return True
        self._committed.add(header[PRODUCER_ID])
        return False

    def is_empty(self, header: HeaderTuple, control_type: int | None) -> bool:
        """Whether a control batch marks a transaction of which the pass met no data.

        Args:
            header: Of the batch.
            control_type: `ABORT`, `COMMIT` or another; None where its record was removed before.
        """
        self._advance(header)
        producer_id = header[PRODUCER_ID]
        if control_type is None:
            return True
        if control_type == ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or not transaction.has_data:
                return True
            self.retained.append(transaction.entry)
            return False
        if control_type == COMMIT:
            was_open = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_open
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """The entries retained since the last call."""
        retained, self.retained = self.retained, []
        return retained

    def _advance(self, header: HeaderTuple) -> None:
        last_offset = last_offset_of(header)
        while self._coming and self._coming[-1].first_offset <= last_offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, _OpenAborted(entry))
