"""The walk through a batch's records, compiled and in Python: both see the same, in pieces of any size."""

import pytest

from bad_batches import ACCEPTED, NONE, cases, plain, raw_record
from headwater_broker.log.batch import BASE_TIMESTAMP_MS, HEADER, MAX_TIMESTAMP_MS, RECORD_COUNT
from headwater_broker.log.walk import (
    GOOD,
    IS_COMPILED,
    MAX_WRONG,
    PlainWalker,
    RecordWalker,
    Walker,
    are_plain,
    explain,
    plain_records,
)

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
OF_THE_HEADER = frozenset(
    {
        "negative count",
        "empty that claims none",
        "last delta too large",
        "last delta too small",
        "last delta negative",
        "base offset of 5",
        "base offset negative",
        "control batch",
        "append time",
        "transactional without a producer",
        "producer without epoch",
        "producer without sequence",
        "codec 5",
        "codec 7",
    }
)
"""What is wrong with these is seen in the header."""


@pytest.fixture(
    params=[
        PlainWalker,
        pytest.param(Walker, marks=pytest.mark.skipif(not IS_COMPILED, reason="no compiler")),
    ]
)
def walker(request: pytest.FixtureRequest) -> type[RecordWalker]:
    found: type[RecordWalker] = request.param
    return found


def _verdict(walker: RecordWalker, data: bytes, count: int, piece: int) -> str | None:
    error = GOOD
    for at in range(0, len(data), piece):
        error = walker.feed(data[at : at + piece])
        if error:
            break
    return explain(walker, error, count)


@pytest.mark.parametrize("name", cases(NONE))
def test_walk_tells_good_records_from_bad_ones(walker: type[RecordWalker], name: str) -> None:
    batch = cases(NONE)[name]
    header, data = HEADER.unpack_from(batch), bytes(batch[HEADER.size :])
    count, first_ms = header[RECORD_COUNT], header[BASE_TIMESTAMP_MS]
    for piece in (1, 3, 4096):
        verdict = _verdict(walker(count, first_ms, LONG_MIN, LONG_MAX, False, False), data, count, piece)
        assert (verdict is None) == (name in ACCEPTED | OF_THE_HEADER), verdict
    delta_ms = header[MAX_TIMESTAMP_MS] - first_ms
    is_plain = (
        name in ACCEPTED | OF_THE_HEADER - {"negative count", "empty that claims none"} and delta_ms == 0
    )
    assert are_plain(batch, HEADER.size, count, delta_ms) == is_plain
    assert plain_records(batch, HEADER.size, count, delta_ms) == is_plain


def test_walk_finds_the_greatest_timestamp(walker: type[RecordWalker]) -> None:
    data = b"".join(raw_record(n, stamp_delta_ms=delta) for n, delta in enumerate((0, 500, -70_000, 3)))
    walk = walker(4, 1_000, LONG_MIN, LONG_MAX, False, False)
    assert _verdict(walk, data, 4, 7) is None
    assert walk.state() == (4, True, 1_500, 0, 0)
    assert are_plain(data, 0, 4, 500)
    assert plain_records(data, 0, 4, 500)
    assert not are_plain(data, 0, 4, 499)
    assert not plain_records(data, 0, 4, 499)


def test_walk_records_without_a_timestamp_have_none(walker: type[RecordWalker]) -> None:
    walk = walker(2, -1, 0, 10, False, False)
    assert _verdict(walk, plain(2), 2, 4096) is None
    assert walk.state() == (2, True, -1, 0, 0)


def test_walk_timestamp_beyond_64_bits_is_an_error(walker: type[RecordWalker]) -> None:
    walk = walker(1, LONG_MAX - 4, LONG_MIN, LONG_MAX, False, False)
    assert "5 ms away" in str(_verdict(walk, raw_record(0, stamp_delta_ms=5), 1, 4096))


def test_walk_names_records_without_key_or_out_of_bounds(walker: type[RecordWalker]) -> None:
    records = [(b"k", 0), (None, 0), (b"k", 900), (b"", -1), (None, 900)]
    data = b"".join(raw_record(n, key=key, stamp_delta_ms=at) for n, (key, at) in enumerate(records))
    walk = walker(5, 1_000, 1_000, 1_500, True, False)
    assert _verdict(walk, data, 5, 2) is None
    assert walk.wrong() == [(1, None), (2, 1_900), (3, 999), (4, None)]
    assert walk.state()[4] == 4


def test_walk_names_only_so_many_and_counts_the_rest(walker: type[RecordWalker]) -> None:
    count = MAX_WRONG + 50
    walk = walker(count, 0, LONG_MIN, LONG_MAX, True, False)
    assert _verdict(walk, plain(count), count, 4096) is None
    assert [number for number, _ in walk.wrong()] == list(range(MAX_WRONG))
    assert walk.state()[4] == count


def test_walk_with_gaps_takes_what_compaction_leaves_and_no_other_order(walker: type[RecordWalker]) -> None:
    def verdict(*deltas: int, has_gaps: bool) -> str | None:
        data = b"".join(map(raw_record, deltas))
        return _verdict(walker(len(deltas), 0, LONG_MIN, LONG_MAX, False, has_gaps), data, len(deltas), 5)

    assert verdict(1, 5, 70, has_gaps=True) is None
    assert verdict(0, 1, 2, has_gaps=True) is None
    assert verdict(1, 5, 70, has_gaps=False) == "record 0 of 3 has offset delta 1"
    assert verdict(2, 2, has_gaps=True) == "record 1 of 2 has offset delta 2"
    assert verdict(5, 1, has_gaps=True) == "record 1 of 2 has offset delta 1"


def test_are_plain_offsets_of_any_length() -> None:
    for count in (1, 64, 65, 8_192, 8_193, 70_000):
        data = plain(count)
        assert are_plain(data, 0, count, 0)
        assert plain_records(data, 0, count, 0)
        assert not are_plain(data, 0, count - 1, 0)
        assert not plain_records(data, 0, count + 1, 0)


def test_are_plain_hostile_differences_are_no_error() -> None:
    assert not are_plain(plain(1), 0, 1, 2**64)
    assert not are_plain(plain(1), 5_000, 1, 0)
    assert not are_plain(plain(1), 0, -1, 0)
