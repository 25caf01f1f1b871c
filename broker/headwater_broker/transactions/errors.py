"""Why the transaction coordinator refuses."""

from __future__ import annotations

import enum


class TransactionError(enum.Enum):
    """Reasons, under the names of Kafka's error codes."""

    CONCURRENT_TRANSACTIONS = enum.auto()
    """The last step of this transaction is not done yet: try again."""
    INVALID_PRODUCER_ID_MAPPING = enum.auto()
    """The transactional id is not known, or has another producer id."""
    INVALID_REQUEST = enum.auto()
    """No transactional id."""
    INVALID_TRANSACTION_TIMEOUT = enum.auto()
    """The timeout is not one that the broker allows."""
    INVALID_TXN_STATE = enum.auto()
    """The transaction is not in a state from which this can be done."""
    PRODUCER_FENCED = enum.auto()
    """Another producer has taken over the transactional id, or the transaction timed out."""
    TRANSACTION_ABORTABLE = enum.auto()
    """This is not part of the transaction: abort it and begin again."""
    TRANSACTIONAL_ID_NOT_FOUND = enum.auto()
    """There is nothing to describe."""


class TransactionRefused(Exception):  # noqa: N818 - a decision, not a fault
    """A request that changes nothing.

    Attributes:
        error: Why.
    """

    def __init__(self, error: TransactionError, message: str) -> None:
        super().__init__(message)
        self.error = error


class ProducerIdNeeded(Exception):  # noqa: N818 - a question, not a fault
    """The decision needs a producer id that nobody was given before: get one and ask again."""
