"""Which offsets the batches before one read, as far as their records may be as young as a time."""

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, intersection
from headwater_streams.runtime.stages.read_before import read_before

_US = 1_000_000


def entry(batch: int, ranges: dict[int, tuple[int, int]], watermark_ms: int | None) -> LedgerEntry:
    return LedgerEntry(
        job="j",
        generation=1,
        batch=batch,
        table="gold.t",
        kind="join",
        sources=(SourceRange(input="sales", ranges={"sales": ranges}, topic="sales"),),
        extra={Extra.WATERMARKS_MS: {"sales": watermark_ms}},
    )


def source(ranges: dict[int, tuple[int, int]]) -> SourceRange:
    return SourceRange(input="sold", ranges={"sales": ranges}, topic="sales")


# batch                0            1            2            3 (the batch)
# offsets of 0         [0, 10)      [10, 20)     [20, 30)     [30, 40)
# offsets of 1         [0, 5)       -            [5, 7)       -
# newest before (s)    not said     15           25           35
ENTRIES = [
    entry(0, {0: (0, 10), 1: (0, 5)}, None),
    entry(1, {0: (10, 20)}, 4_999),
    entry(2, {0: (20, 30), 1: (5, 7)}, 14_999),
    entry(3, {0: (30, 40)}, 24_999),
]
DELAY_US = 10 * _US


def before(needed_us: int | None) -> object:
    return read_before(ENTRIES, source({0: (30, 40)}), needed_us, DELAY_US)


def test_offsets_are_read_from_the_first_batch_with_a_record_so_young() -> None:
    everything = {"sales": {0: (0, 30), 1: (0, 7)}}
    assert before(None) == everything
    assert before(15 * _US - 1) == everything
    assert before(15 * _US) == {"sales": {0: (20, 30), 1: (5, 7)}}
    assert before(25 * _US) == {}
    assert read_before(ENTRIES[:1], source({0: (10, 20)}), 99 * _US, DELAY_US) == {
        "sales": {0: (0, 10), 1: (0, 5)}
    }


def test_other_topics_are_no_matter_and_the_batch_itself_is_not_before_it() -> None:
    other = SourceRange(input="sales", ranges={"other": {0: (30, 40)}}, topic="other")
    assert read_before(ENTRIES, other, None, DELAY_US) == {}
    assert read_before([], source({0: (0, 10)}), None, DELAY_US) == {}


def test_what_the_topics_lost_is_left_out() -> None:
    read = {"sales": {0: (0, 30), 1: (0, 7), 2: (3, 4)}, "gone": {0: (0, 1)}}
    assert intersection(read, {"sales": {0: (12, 99), 1: (7, 9)}}) == {"sales": {0: (12, 30)}}


def test_ranges_overlap_where_an_offset_is_in_both() -> None:
    some = {"sales": {0: (5, 9), 1: (0, 3)}}
    assert intersection(some, {"sales": {0: (8, 20)}})
    assert not intersection(some, {"sales": {0: (9, 20), 2: (0, 3)}, "returns": {1: (0, 3)}})
    assert not intersection(some, {})
