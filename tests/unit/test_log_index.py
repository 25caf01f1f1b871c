"""The sparse indexes and the set of checked ranges."""

from __future__ import annotations

import random
import struct

import pytest

from amount import drawn_seed
from headwater_broker.log.index import DamagedIndexError, OffsetIndex, TimeIndex
from headwater_broker.log.ranges import RangeSet


def _offsets() -> OffsetIndex:
    index = OffsetIndex(1000)
    for last_offset, position in ((1009, 100), (1019, 200), (1029, 300)):
        index.append(last_offset, position)
    return index


def test_offset_index_bytes_are_kafkas() -> None:
    assert bytes(_offsets().data) == struct.pack(">iiiiii", 9, 100, 19, 200, 29, 300)


@pytest.mark.parametrize(
    ("offset", "position", "last_offset"),
    [
        (1000, 0, None),
        (1008, 0, None),
        (1009, 100, 1009),
        (1018, 100, 1009),
        (1019, 200, 1019),
        (5000, 300, 1029),
    ],
)
def test_offset_index_position_for(offset: int, position: int, last_offset: int | None) -> None:
    assert _offsets().position_for(offset) == (position, last_offset)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 99, None), (0, 100, 100), (100, 199, None), (100, 299, 200), (0, 999, 300)],
)
def test_offset_index_last_position_within(start: int, end: int, found: int | None) -> None:
    assert _offsets().last_position_within(start, end) == found


@pytest.mark.parametrize(
    ("offset", "left"), [(1000, 0), (1009, 0), (1010, 1), (1019, 1), (1020, 2), (1030, 3)]
)
def test_offset_index_truncate_drops_batches_that_reach_the_offset(offset: int, left: int) -> None:
    index = _offsets()
    index.truncate_to(offset)
    assert len(index) == left


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack(">iiii", 9, 100, 9, 200),
        struct.pack(">iiii", 9, 100, 19, 100),
        struct.pack(">ii", 9, 1000),
        struct.pack(">ii", -1, 100),
    ],
)
def test_offset_index_load_damaged_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndexError):
        OffsetIndex.load(1000, data, 1000)


def test_offset_index_load_reads_its_own_bytes() -> None:
    assert OffsetIndex.load(1000, bytes(_offsets().data), 301).data == _offsets().data


def _times() -> TimeIndex:
    index = TimeIndex(1000)
    for timestamp_ms, offset in ((50, 1009), (50, 1019), (40, 1025), (70, 1029), (-1, 1030)):
        index.append(timestamp_ms, offset)
    return index


def test_time_index_keeps_only_greater_timestamps_in_kafkas_bytes() -> None:
    assert bytes(_times().data) == struct.pack(">qiqi", 50, 9, 70, 29)
    assert _times().last == (70, 1029)


def test_time_index_without_timestamps_stays_empty() -> None:
    index = TimeIndex(0)
    index.append(-1, 5)
    assert not index.data


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"), [(0, 1000), (49, 1000), (50, 1009), (69, 1009), (70, 1029)]
)
def test_time_index_offset_for(timestamp_ms: int, offset: int) -> None:
    assert _times().offset_for(timestamp_ms) == offset


@pytest.mark.parametrize(
    "data", [b"\0" * 11, struct.pack(">qiqi", 50, 9, 50, 10), struct.pack(">qiqi", 5, 9, 6, 8)]
)
def test_time_index_load_damaged_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndexError):
        TimeIndex.load(1000, data)


def test_time_index_truncate_drops_later_entries() -> None:
    index = _times()
    index.truncate_to(1029)
    assert index.last == (50, 1009)


def test_range_set_agrees_with_a_set_of_integers() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    ranges, model = RangeSet(), set[int]()
    for _ in range(2000):
        start = rng.randrange(100)
        end = start + rng.randrange(1, 20)
        if rng.random() < 0.05:
            ranges.cut(start)
            model = {number for number in model if number < start}
        elif rng.random() < 0.3:
            ranges.add(start, end)
            model.update(range(start, end))
        assert ranges.covers(start, end) == (set(range(start, end)) <= model)
