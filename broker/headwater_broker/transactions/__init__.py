"""The transaction coordinator: which transactions are open, and how each of them ended.

`TransactionCoordinator` decides, without I/O and without a clock: a request becomes a `Transition`, which its caller
stores and then applies. `records` says how a transaction is stored.

A transaction is decided at the moment when its PrepareCommit or PrepareAbort record is stored. The record carries
all that is left to do, partitions to write markers to and offsets of groups to apply, so that a coordinator which
finds it at its start does that (again, which changes nothing) and then stores that it is complete.
"""

from headwater_broker.transactions.coordinator import HERE, Origin, TransactionCoordinator, Transition
from headwater_broker.transactions.errors import ProducerIdNeeded, TransactionError, TransactionRefused
from headwater_broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from headwater_broker.transactions.state import (
    NO_PRODUCER,
    PendingOffset,
    Producer,
    TopicPartition,
    Transaction,
    TransactionState,
    partition_for,
)

__all__ = [
    "HERE",
    "NO_PRODUCER",
    "Origin",
    "PendingOffset",
    "Producer",
    "ProducerIdNeeded",
    "TopicPartition",
    "Transaction",
    "TransactionCoordinator",
    "TransactionError",
    "TransactionRefused",
    "TransactionState",
    "Transition",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
    "partition_for",
]
