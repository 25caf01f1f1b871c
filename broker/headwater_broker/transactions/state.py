"""One transactional id: who holds it, and what its transaction has come to."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

TopicPartition = tuple[str, int]

MAX_EPOCH = 2**15 - 1
NO_EPOCH = -1
NO_PRODUCER_ID = -1


class TransactionState(enum.Enum):
    """Kafka's states, with its numbers; it has two more, which are never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """As Kafka's tools show it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Decided, but not everybody has been told."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Producer(NamedTuple):
    """A producer id with an epoch: one instance of a transactional producer."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH)


class PendingOffset(NamedTuple):
    """An offset that a group will have committed once the transaction has been."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    timestamp_ms: int = -1


GroupOffsets = Mapping[str, Mapping[TopicPartition, PendingOffset]]
"""By group."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is stored under a transactional id.

    Attributes:
        transactional_id: The id.
        producer: Who holds it.
        timeout_ms: How long a transaction may stay open.
        state: See `TransactionState`.
        updated_ms: When this was decided.
        started_ms: When the transaction began; -1 if none did.
        partitions: Where it has, or may have, records.
        groups: Groups whose offsets it may commit.
        offsets: What it commits for them.
        last_epoch: The epoch before the producer bumped it itself (KIP-360), for a repeated request.
        previous_producer_id: The same for a producer id that ran out of epochs.
    """

    transactional_id: str
    producer: Producer
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    started_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    offsets: GroupOffsets = field(default_factory=dict)
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID


def is_exhausted(epoch: int) -> bool:
    """Whether a producer may not get the next epoch: the last one is kept to fence it."""
    return epoch >= MAX_EPOCH - 1


def partition_for(transactional_id: str, partition_count: int) -> int:
    """The partition of `__transaction_state` that holds an id: Kafka's choice, so that its logs can be read.

    >>> partition_for("my-transactional-id", 50)
    46
    """
    # Java's String.hashCode over UTF-16 units, then Utils.abs.
    units = transactional_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (code * 31 + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    if code >= 2**31:
        code = 2**32 - code
    return (0 if code == 2**31 else code) % partition_count
