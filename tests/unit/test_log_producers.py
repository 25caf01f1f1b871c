"""What a partition remembers of idempotent producers, and the snapshot file."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from headwater_broker.log import InvalidProducerEpochError, OutOfOrderSequenceError
from headwater_broker.log.batch import HEADER, HeaderTuple
from headwater_broker.log.producers import KeptBatch, ProducerEntry, ProducerStates
from headwater_broker.log.snapshot import DamagedSnapshotError, decode_snapshot, encode_snapshot
from headwater_broker.testing.batches import build_batch

MAX_SEQUENCE = 2**31 - 1


def _header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, offset: int = 0
) -> HeaderTuple:
    batch = build_batch(
        [b"x"] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        timestamps_ms=[1000 + offset] * count,
    )
    header: HeaderTuple = HEADER.unpack_from(batch)
    return header


def _states(*headers: HeaderTuple) -> ProducerStates:
    states = ProducerStates()
    for header in headers:
        states.record(header, header[0], header[8], 0)
    return states


def test_find_duplicate_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().find_duplicate(7, 3, 100, 100) is None


def test_find_duplicate_next_sequence_is_new() -> None:
    assert _states(_header(0, 3)).find_duplicate(7, 0, 3, 4) is None


@pytest.mark.parametrize("sequence", [0, 2, 4, 100])
def test_find_duplicate_gap_refused(sequence: int) -> None:
    with pytest.raises(OutOfOrderSequenceError, match=f"sent sequence {sequence} where 3"):
        _states(_header(0, 3)).find_duplicate(7, 0, sequence, sequence)


def test_find_duplicate_answers_each_of_the_last_five() -> None:
    states = _states(*(_header(number * 2, 2, offset=number * 10) for number in range(6)))
    for number in range(1, 6):
        found = states.find_duplicate(7, 0, number * 2, number * 2 + 1)
        assert found == KeptBatch(
            number * 2, number * 2 + 1, number * 10, number * 10 + 1, 1000 + number * 10
        )
    with pytest.raises(OutOfOrderSequenceError):
        states.find_duplicate(7, 0, 0, 1)


def test_find_duplicate_other_range_is_no_duplicate() -> None:
    with pytest.raises(OutOfOrderSequenceError):
        _states(_header(0, 3)).find_duplicate(7, 0, 0, 1)


def test_find_duplicate_sequence_wraps_around() -> None:
    states = _states(_header(MAX_SEQUENCE - 1, 2))
    assert states.find_duplicate(7, 0, 0, 0) is None
    states = _states(_header(MAX_SEQUENCE, 3, offset=5))
    assert states.find_duplicate(7, 0, 2, 2) is None
    assert states.find_duplicate(7, 0, MAX_SEQUENCE, 1) == KeptBatch(MAX_SEQUENCE, 1, 5, 7, 1005)


def test_find_duplicate_older_epoch_fenced() -> None:
    with pytest.raises(InvalidProducerEpochError, match="epoch 1, but epoch 2"):
        _states(_header(0, epoch=2)).find_duplicate(7, 1, 1, 1)


def test_find_duplicate_newer_epoch_starts_at_zero() -> None:
    states = _states(_header(0, 5, epoch=1))
    assert states.find_duplicate(7, 2, 0, 0) is None
    with pytest.raises(OutOfOrderSequenceError, match="instead of 0"):
        states.find_duplicate(7, 2, 5, 5)


def test_record_newer_epoch_forgets_older_batches() -> None:
    states = _states(_header(0, epoch=1), _header(0, epoch=2, offset=9))
    entry = states.get(7)
    assert entry is not None
    assert entry.producer_epoch == 2
    assert [kept.base_offset for kept in entry.batches] == [9]


def test_expire_forgets_idle_producers_by_the_brokers_clock() -> None:
    states = ProducerStates()
    states.record(_header(0, producer_id=1), 0, 10**15, 100)
    states.record(_header(0, producer_id=2), 0, 0, 200)
    states.expire(200)
    assert [producer_id for producer_id, _ in states.items()] == [2]


def test_expire_keeps_open_transactions() -> None:
    states = _states(_header(0))
    entry = states.get(7)
    assert entry is not None
    entry.transaction_first_offset = 0
    states.expire(10**15)
    assert len(states) == 1


def test_snapshot_golden_bytes() -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 3, 12, 112, 2, 1110, -1, -1)
    assert encode_snapshot(_states(_header(10, 3, epoch=3, offset=110))) == (
        struct.pack(">hI", 1, crc32c(body)) + body
    )


def test_snapshot_round_trip_keeps_the_last_batch() -> None:
    states = _states(_header(0, 2), _header(2, 3, offset=40), _header(9, producer_id=8, epoch=5, offset=50))
    again = decode_snapshot(encode_snapshot(states), 777)
    entry = again.get(7)
    assert entry is not None
    assert entry.batches == [KeptBatch(2, 4, 40, 42, 1040)]
    assert entry.seen_ms == 777
    assert again.find_duplicate(8, 5, 9, 9) == KeptBatch(9, 9, 50, 50, 1050)


def test_snapshot_producer_without_batches_round_trips() -> None:
    states = ProducerStates()
    states.put(3, ProducerEntry(4, 0))
    entry = decode_snapshot(encode_snapshot(states), 0).get(3)
    assert entry is not None
    assert entry.batches == []
    assert entry.producer_epoch == 4


def test_snapshot_any_bit_flipped_refused() -> None:
    data = encode_snapshot(_states(_header(0)))
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedSnapshotError):
            decode_snapshot(bytes(damaged), 0)
    with pytest.raises(DamagedSnapshotError):
        decode_snapshot(data[:5], 0)


def test_recall_adds_the_batches_before_the_snapshot() -> None:
    headers = [_header(number, offset=number) for number in range(8)]
    states = decode_snapshot(encode_snapshot(_states(*headers)), 0)
    states.recall(iter(headers))
    entry = states.get(7)
    assert entry is not None
    assert [kept.base_sequence for kept in entry.batches] == [3, 4, 5, 6, 7]


def test_recall_batches_that_do_not_lead_to_the_snapshot_are_left_out() -> None:
    states = decode_snapshot(encode_snapshot(_states(_header(5, offset=5))), 0)
    states.recall(iter([_header(3, offset=3), _header(4, offset=4)]))
    entry = states.get(7)
    assert entry is not None
    assert [kept.base_sequence for kept in entry.batches] == [5]
