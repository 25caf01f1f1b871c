"""How a transaction is stored in `__transaction_state`: Kafka's TransactionLogKey and TransactionLogValue.

The key is the version 0 (2 bytes) and the transactional id. The value of version 0 is: version (2), producer id (8),
epoch (2), timeout in ms (4), state (1), partitions (null in the state Empty), time of the last update (8), of the
start (8). Version 1 is the same in Kafka's flexible encoding (KIP-482), with tagged fields; it is written where there
is something to put into them:

    tag    field
    0      producer id before it ran out of epochs (8), as Kafka 4 has it
    10000  epoch before the producer bumped it (2)
    10001  groups: uvarint count, then for each its id, the number of offsets, and for each offset the topic, partition
           (4), offset (8), leader epoch (4), metadata, time of the commit (8)

Lengths within are uvarints, one more than the number of bytes for text, as everywhere in the flexible encoding. The
tags from 10000 on are this broker's own. Kafka passes over tags that it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from headwater_broker.transactions.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    GroupOffsets,
    PendingOffset,
    Producer,
    TopicPartition,
    Transaction,
    TransactionState,
)
from headwater_broker.wire.primitives import write_uvarint

_PREVIOUS_PRODUCER_TAG = 0
_LAST_EPOCH_TAG = 10_000
_GROUPS_TAG = 10_001

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_FIXED = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_OFFSET = struct.Struct(">iqi")


class UnreadableTransactionError(Exception):
    """A record of `__transaction_state` that cannot be read."""


def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records."""
    name = transactional_id.encode()
    return _SHORT.pack(0) + _SHORT.pack(len(name)) + name


def decode_key(key: bytes) -> str:
    """The id of a record.

    Raises:
        UnreadableTransactionError: Another version, or not the bytes that its length says.
    """
    try:
        (version,) = _SHORT.unpack_from(key)
        (length,) = _SHORT.unpack_from(key, 2)
    except struct.error as error:
        raise UnreadableTransactionError(f"a key of {len(key)} bytes") from error
    if version != 0 or len(key) != 4 + length:
        raise UnreadableTransactionError(f"a key of version {version} and {len(key)} bytes")
    return key[4:].decode()


def encode_value(transaction: Transaction) -> bytes:
    """The value of an id's record."""
    tags = _tags(transaction)
    producer = transaction.producer
    fixed = _FIXED.pack(
        1 if tags else 0,
        producer.producer_id,
        producer.epoch,
        transaction.timeout_ms,
        transaction.state.value,
    )
    times = _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    partitions = None if transaction.state is TransactionState.EMPTY else _by_topic(transaction.partitions)
    if tags:
        fields = b"".join(write_uvarint(tag) + write_uvarint(len(data)) + data for tag, data in tags)
        return fixed + _compact_partitions(partitions) + times + write_uvarint(len(tags)) + fields
    return fixed + _plain_partitions(partitions) + times


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Reads a value, Kafka's too.

    Raises:
        UnreadableTransactionError: It is none of version 0 or 1.
    """
    try:
        return _decode(transactional_id, value)
    except (struct.error, IndexError, ValueError) as error:
        raise UnreadableTransactionError(
            f"the state of transactional id {transactional_id!r}: {error}"
        ) from error


def _decode(transactional_id: str, value: bytes) -> Transaction:
    version, producer_id, epoch, timeout_ms, state = _FIXED.unpack_from(value)
    if version not in (0, 1):
        raise ValueError(f"version {version}, known are 0 and 1")
    read = _Reader(value, _FIXED.size, is_flexible=version == 1)
    partitions: set[TopicPartition] = set()
    for _ in range(read.count()):
        topic = read.text()
        partitions.update((topic, read.integer()) for _ in range(read.count()))
        read.skip_tags()
    updated_ms, started_ms = read.long(), read.long()
    tags = read.tags()
    groups, offsets = _decode_groups(tags.get(_GROUPS_TAG, b"\0"))
    return Transaction(
        transactional_id=transactional_id,
        producer=Producer(producer_id, epoch),
        timeout_ms=timeout_ms,
        state=TransactionState(state),
        updated_ms=updated_ms,
        started_ms=started_ms,
        partitions=frozenset(partitions),
        groups=groups,
        offsets=offsets,
        last_epoch=_SHORT.unpack(tags.get(_LAST_EPOCH_TAG, b"\xff\xff"))[0],
        previous_producer_id=_LONG.unpack(tags.get(_PREVIOUS_PRODUCER_TAG, b"\xff" * 8))[0],
    )


def _tags(transaction: Transaction) -> list[tuple[int, bytes]]:
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_TAG, _LONG.pack(transaction.previous_producer_id)))
    if transaction.last_epoch != NO_EPOCH:
        tags.append((_LAST_EPOCH_TAG, _SHORT.pack(transaction.last_epoch)))
    if transaction.groups or transaction.offsets:
        tags.append((_GROUPS_TAG, _encode_groups(transaction)))
    return tags


def _encode_groups(transaction: Transaction) -> bytes:
    groups = sorted(transaction.groups | transaction.offsets.keys())
    data = bytearray(write_uvarint(len(groups)))
    for group in groups:
        offsets = transaction.offsets.get(group, {})
        data += _text(group) + write_uvarint(len(offsets))
        for (topic, partition), pending in offsets.items():
            data += _text(topic) + _OFFSET.pack(partition, pending.offset, pending.leader_epoch)
            data += _text(pending.metadata) + _LONG.pack(pending.timestamp_ms)
    return bytes(data)


def _decode_groups(data: bytes) -> tuple[frozenset[str], GroupOffsets]:
    read = _Reader(data, 0, is_flexible=True)
    groups = set()
    offsets: dict[str, dict[TopicPartition, PendingOffset]] = {}
    for _ in range(read.uvarint()):
        group = read.text()
        groups.add(group)
        for _ in range(read.uvarint()):
            topic, partition = read.text(), read.integer()
            offset, leader_epoch = read.long(), read.integer()
            pending = PendingOffset(offset, leader_epoch, read.text(), read.long())
            offsets.setdefault(group, {})[topic, partition] = pending
    return frozenset(groups), offsets


def _by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _plain_partitions(topics: Mapping[str, list[int]] | None) -> bytes:
    if topics is None:
        return _INT.pack(-1)
    data = bytearray(_INT.pack(len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        data += _SHORT.pack(len(name)) + name + _INT.pack(len(partitions))
        data += b"".join(map(_INT.pack, partitions))
    return bytes(data)


def _compact_partitions(topics: Mapping[str, list[int]] | None) -> bytes:
    if topics is None:
        return b"\0"
    data = bytearray(write_uvarint(len(topics) + 1))
    for topic, partitions in topics.items():
        data += _text(topic) + write_uvarint(len(partitions) + 1)
        data += b"".join(map(_INT.pack, partitions)) + b"\0"
    return bytes(data)


def _text(text: str) -> bytes:
    data = text.encode()
    return write_uvarint(len(data) + 1) + data


class _Reader:
    """A position in a value; every length is checked against the bytes that are left."""

    def __init__(self, data: bytes, position: int, *, is_flexible: bool) -> None:
        self._data = data
        self._at = position
        self._is_flexible = is_flexible

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise ValueError(f"{count} bytes at {self._at} of {len(self._data)}")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError(f"a length of more than 32 bits at {self._at}")

    def count(self) -> int:
        """Length of an array; 0 where it is null."""
        count = self.uvarint() - 1 if self._is_flexible else self.integer()
        return max(count, 0)

    def text(self) -> str:
        if self._is_flexible:
            return self._take(max(self.uvarint() - 1, 0)).decode()
        (length,) = _SHORT.unpack(self._take(2))
        return self._take(length).decode()

    def integer(self) -> int:
        number: int = _INT.unpack(self._take(4))[0]
        return number

    def long(self) -> int:
        number: int = _LONG.unpack(self._take(8))[0]
        return number

    def tags(self) -> dict[int, bytes]:
        if not self._is_flexible:
            return {}
        tags = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            tags[tag] = self._take(self.uvarint())
        return tags

    def skip_tags(self) -> None:
        self.tags()
