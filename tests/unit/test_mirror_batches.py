"""Batches as they are fetched, and as the mirror produces them."""

import pytest
from crc32c import crc32c

from headwater.mirror.batches import Copying, Outgoing, Planned
from headwater.mirror.errors import HaltedError
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP_MS,
    CHECKED_FROM,
    CHECKSUM_VALUE,
    CONTROL,
    HEADER,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_MS,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
)
from headwater_broker.log.records import record_timestamps, split_records, uncompressed_records, write_varint
from headwater_broker.testing.batches import build_batch, reseal_batch


def copying(there: int = 0, here: int = 0) -> Copying:
    return Copying(there, here, producer_id=7, producer_epoch=1)


def batch(offset: int, *values: bytes, **more: object) -> bytearray:
    return build_batch(values, base_offset=offset, **more)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, kind: int) -> bytearray:
    made = build_batch(
        [b"\0" * 6],
        keys=[b"\0\0" + kind.to_bytes(2)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
    )
    reseal_batch(made)
    return made


def with_holes(offset: int, deltas: list[int], codec: int = 0, span: int | None = None) -> bytearray:
    """A batch as compaction leaves it; the key of each record is its offset."""
    whole = build_batch(
        [b"v%d" % (offset + each) for each in range(max(deltas) + 1)],
        base_offset=offset,
        timestamps_ms=[1000 + each for each in range(max(deltas) + 1)],
    )
    header = list(HEADER.unpack_from(whole))
    records = bytes(whole[HEADER.size :])
    kept = b"".join(
        records[each.start : each.end]
        for each in split_records(records, header[RECORD_COUNT])
        if each.offset_delta in deltas
    )
    from headwater_broker.log.compression import compress

    data = compress(kept, codec)
    header[1] = HEADER.size - 12 + len(data)
    header[ATTRIBUTES], header[RECORD_COUNT] = codec, len(deltas)
    header[LAST_OFFSET_DELTA] = span if span is not None else max(deltas)
    made = bytearray(HEADER.pack(*header)) + data
    reseal_batch(made)
    return made


def written(batch: Outgoing) -> bytes:
    return batch.header + bytes(batch.records)


def headers(planned: Planned) -> list[tuple[int, ...]]:
    found = []
    for each in planned.batches:
        data = written(each)
        header = HEADER.unpack_from(data)
        assert header[CHECKSUM_VALUE] == crc32c(memoryview(data)[CHECKED_FROM:])
        assert each.size == len(data) == header[1] + 12
        assert header[RECORD_COUNT] == each.count == header[LAST_OFFSET_DELTA] + 1
        assert (header[PRODUCER_ID], header[PRODUCER_EPOCH]) == (7, 1)
        assert header[BASE_SEQUENCE] == each.here & MAX_SEQUENCE
        found.append(header)
    return found


@pytest.mark.parametrize("codec", range(5))
def test_mirror_batches_whole_one_keeps_its_records_byte_for_byte(codec: int) -> None:
    sent = batch(
        40, b"a", b"b" * 300, attributes=codec, timestamps_ms=[5, 9], producer_id=99, producer_epoch=3
    )

    planned = copying(40, 40).plan(bytes(sent))

    (header,) = headers(planned)
    assert planned.batches[0].records == sent[HEADER.size :]
    assert (header[ATTRIBUTES], header[BASE_TIMESTAMP_MS], header[MAX_TIMESTAMP_MS]) == (codec, 5, 9)
    assert planned.runs == [(40, 40)]


def test_mirror_batches_follow_each_other_here_over_gaps_there() -> None:
    state = copying(100, 0)

    planned = state.plan(bytes(batch(100, b"a", b"b") + batch(102, b"c") + batch(110, b"d")))

    assert [each.here for each in planned.batches] == [0, 2, 3]
    assert [each.origin_end for each in planned.batches] == [102, 103, 111]
    assert planned.runs == [(0, 100), (3, 110)]
    assert (state.there, state.here) == (111, 4)


def test_mirror_batches_one_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    state = copying()
    both = bytes(batch(0, b"a") + batch(1, b"b"))

    for end in range(len(batch(0, b"a")), len(both)):
        assert len(copying().plan(both[:end]).batches) == 1
    state.plan(both[:-1])
    assert state.there == 1


def test_mirror_batches_sequence_wraps_as_a_producer_of_kafka_does() -> None:
    planned = copying(2**31 - 1, 2**31 - 1).plan(bytes(batch(2**31 - 1, b"a") + batch(2**31, b"b")))

    assert [each[BASE_SEQUENCE] for each in headers(planned)] == [MAX_SEQUENCE, 0]


def test_mirror_batches_of_transactions_are_copied_without_markers_and_without_aborted_ones() -> None:
    of_one = {"producer_id": 1, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    of_two = {"producer_id": 2, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    data = (
        batch(0, b"1 is aborted", **of_one)
        + batch(1, b"2 is committed", **of_two)
        + marker(2, 1, 0)
        + marker(3, 2, 1)
        + batch(4, b"1 is committed", **of_one)
        + marker(5, 1, 1)
    )
    state = copying(0, 0)

    planned = state.plan(bytes(data), aborted=[(1, 0)])

    assert [each.count for each in planned.batches] == [1, 1]
    assert planned.runs == [(0, 1), (1, 4)]
    assert state.there == 6
    assert all(not header[ATTRIBUTES] for header in headers(planned))


@pytest.mark.parametrize("codec", range(5))
def test_mirror_batches_with_holes_are_written_anew_with_a_run_for_each_hole(codec: int) -> None:
    state = copying(10, 3)

    planned = state.plan(bytes(with_holes(10, [0, 1, 5, 6, 9], codec, span=12)))

    (header,) = headers(planned)
    assert header[ATTRIBUTES] == codec
    made = written(planned.batches[0])
    records = uncompressed_records(made, header)  # type: ignore[arg-type]
    assert [each.offset_delta for each in split_records(records, 5)] == [0, 1, 2, 3, 4]
    assert [stamp for _, stamp in record_timestamps(made)] == [1000, 1001, 1005, 1006, 1009]
    assert planned.runs == [(3, 10), (5, 15), (7, 19)]
    assert (state.there, state.here) == (23, 8)


def test_mirror_batches_stamped_by_the_broker_keep_that_time() -> None:
    sent = batch(0, b"a", b"b", timestamps_ms=[5, 9], attributes=LOG_APPEND_TIME)
    header = list(HEADER.unpack_from(sent))
    header[MAX_TIMESTAMP_MS] = 777
    HEADER.pack_into(sent, 0, *header)
    reseal_batch(sent)

    planned = copying().plan(bytes(sent))

    assert not headers(planned)[0][ATTRIBUTES]
    assert [stamp for _, stamp in record_timestamps(written(planned.batches[0]))] == [777, 777]


def test_mirror_batches_whose_first_records_are_mirrored_leave_these_out() -> None:
    state = copying(2, 2)

    planned = state.plan(bytes(batch(0, b"a", b"b", b"c", b"d")))

    assert [(each.here, each.count) for each in planned.batches] == [(2, 2)]
    assert planned.runs == [(2, 2)]


def test_mirror_batches_of_before_kafka_0_11_halt_the_partition() -> None:
    old = bytearray(batch(0, b"a"))
    old[16] = 1

    with pytest.raises(HaltedError, match=r"magic 1"):
        copying().plan(bytes(old))


@pytest.mark.parametrize(
    "damaged", [with_holes(0, [0, 2]), batch(0, b"a", b"b")], ids=["to be read", "whole"]
)
def test_mirror_batches_that_are_damaged_halt_the_partition(damaged: bytearray) -> None:
    damaged[-1] ^= 1

    with pytest.raises(HaltedError, match=r"offset 0 of the source is damaged"):
        copying().plan(bytes(damaged))


@pytest.mark.parametrize(
    "damaged", [with_holes(2, [0, 2]), batch(2, b"c", b"d")], ids=["to be read", "whole"]
)
def test_mirror_batches_before_a_damaged_one_are_copied_first(damaged: bytearray) -> None:
    state = copying()
    damaged[-1] ^= 1

    planned = state.plan(bytes(batch(0, b"a", b"b") + damaged))

    assert ([each.count for each in planned.batches], planned.runs, state.there) == ([2], [(0, 0)], 2)
    with pytest.raises(HaltedError, match=r"offset 2 of the source is damaged"):
        state.plan(bytes(damaged))


def test_mirror_batches_an_empty_one_that_compaction_left_is_passed_over() -> None:
    empty = with_holes(0, [0])
    header = list(HEADER.unpack_from(empty))
    header[1], header[RECORD_COUNT], header[LAST_OFFSET_DELTA] = HEADER.size - 12, 0, 4
    made = bytearray(HEADER.pack(*header))
    reseal_batch(made)
    state = copying()

    assert state.plan(bytes(made)).batches == []
    assert state.there == 5


def test_mirror_batches_long_deltas_are_written_as_varints() -> None:
    planned = copying(0, 0).plan(bytes(with_holes(0, [0, *range(100, 300)])))

    records = uncompressed_records(written(planned.batches[0]), headers(planned)[0])  # type: ignore[arg-type]
    assert [each.offset_delta for each in split_records(records, 201)] == list(range(201))
    assert write_varint(200) in records
