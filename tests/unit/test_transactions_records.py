"""Transactions as they are stored: Kafka's bytes, round trips, damage."""

from __future__ import annotations

import random
import struct

import pytest

from headwater_broker.transactions import (
    PendingOffset,
    Producer,
    Transaction,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from headwater_broker.transactions.records import UnreadableTransactionError

ONGOING = Transaction(
    "id",
    Producer(7, 3),
    60_000,
    TransactionState.ONGOING,
    200,
    100,
    frozenset({("b", 1), ("a", 0), ("a", 2)}),
)


def test_key_golden_bytes_are_kafkas() -> None:
    assert encode_key("id-é") == b"\0\0\0\5id-\xc3\xa9"
    assert decode_key(encode_key("id-é")) == "id-é"
    for damaged in (b"", b"\0\1\0\0", b"\0\0\0\3id", b"\0\0\0\1id"):
        with pytest.raises(UnreadableTransactionError):
            decode_key(damaged)


def test_value_golden_bytes_are_kafkas_version_0() -> None:
    fixed = struct.pack(">hqhib", 0, 7, 3, 60_000, 1)
    topics = b"\0\0\0\2" + b"\0\1a" + struct.pack(">iii", 2, 0, 2) + b"\0\1b" + struct.pack(">ii", 1, 1)
    assert encode_value(ONGOING) == fixed + topics + struct.pack(">qq", 200, 100)
    empty = Transaction("id", Producer(7, 0), 60_000, TransactionState.EMPTY, 200)
    assert encode_value(empty) == (
        struct.pack(">hqhib", 0, 7, 0, 60_000, 0) + b"\xff\xff\xff\xff" + struct.pack(">qq", 200, -1)
    )


def test_value_of_kafka_4_is_read() -> None:
    """Version 1 with the tags 0 (previous producer id), 1 (next) and 2 (client's transaction version)."""
    value = struct.pack(">hqhib", 1, 7, 3, 60_000, 4) + b"\2\2a\2\0\0\0\5\0" + struct.pack(">qq", 200, 100)
    value += b"\3" + b"\0\x08" + struct.pack(">q", 6) + b"\1\x08" + struct.pack(">q", -1) + b"\2\2\0\2"
    found = decode_value("id", value)
    assert found.partitions == {("a", 5)}
    assert (found.state, found.previous_producer_id) == (TransactionState.COMPLETE_COMMIT, 6)


def test_value_with_offsets_round_trips() -> None:
    rng = random.Random(4)
    for _ in range(200):
        offsets = {
            f"group-{'x' * rng.randrange(200)}{index}": {
                (f"topic-{'é' * rng.randrange(90)}", partition): PendingOffset(
                    rng.randrange(2**63), rng.randrange(-1, 9), "m" * rng.randrange(300), rng.randrange(2**40)
                )
                for partition in range(rng.randrange(1, 4))
            }
            for index in range(rng.randrange(3))
        }
        transaction = Transaction(
            "id",
            Producer(rng.randrange(2**63), rng.randrange(2**15)),
            rng.randrange(2**31),
            rng.choice([state for state in TransactionState if state is not TransactionState.EMPTY]),
            rng.randrange(2**50),
            rng.randrange(-1, 2**50),
            frozenset((rng.choice("abc"), rng.randrange(9)) for _ in range(rng.randrange(6))),
            frozenset(offsets) | {"without offsets"},
            offsets,
            rng.randrange(-1, 2**15),
            rng.randrange(-1, 2**63),
        )
        assert decode_value("id", encode_value(transaction)) == transaction


def test_value_cut_anywhere_is_refused() -> None:
    with_offsets = Transaction(
        "id",
        Producer(7, 3),
        1,
        TransactionState.PREPARE_COMMIT,
        2,
        3,
        frozenset({("a", 0)}),
        frozenset({"g"}),
        {"g": {("a", 0): PendingOffset(1)}},
    )
    for transaction in (ONGOING, with_offsets):
        value = encode_value(transaction)
        for length in range(len(value)):
            with pytest.raises(UnreadableTransactionError):
                decode_value("id", value[:length])
    with pytest.raises(UnreadableTransactionError):
        decode_value("id", struct.pack(">h", 2) + encode_value(ONGOING)[2:])
