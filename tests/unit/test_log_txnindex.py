"""The transaction index's file."""

from __future__ import annotations

import struct

import pytest

from headwater_broker.log.txnindex import (
    AbortedTransaction,
    DamagedTransactionIndexError,
    decode_transaction_index,
    encode_transaction_index,
)

ENTRIES = [AbortedTransaction(7, 0, 10, 11), AbortedTransaction(2**40, 5, 20, 3)]


def test_transaction_index_round_trip_is_kafkas_34_bytes_each() -> None:
    data = encode_transaction_index(ENTRIES)
    assert data == struct.pack(">hqqqqhqqqq", 0, 7, 0, 10, 11, 0, 2**40, 5, 20, 3)
    assert decode_transaction_index(data) == ENTRIES
    assert decode_transaction_index(b"") == []


@pytest.mark.parametrize("damage", ["short", "version", "order", "negative"])
def test_transaction_index_damaged_refused(damage: str) -> None:
    data = bytearray(encode_transaction_index(ENTRIES))
    if damage == "short":
        del data[-1]
    elif damage == "version":
        data[1] = 1
    elif damage == "order":
        data = bytearray(encode_transaction_index(ENTRIES[::-1]))
    else:
        data = bytearray(encode_transaction_index([AbortedTransaction(1, 5, 4, 0)]))
    with pytest.raises(DamagedTransactionIndexError):
        decode_transaction_index(bytes(data))
