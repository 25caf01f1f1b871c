"""Deduplication by offset: any order, any resends, each record once; the state is intervals, not records."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_streams.operators.dedup import IntervalSet
from headwater_streams.operators.dedup.verdicts import IMPLAUSIBLE, Seen, judge

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=25)


@settings(print_blob=True)
@given(ranges)
def test_interval_set_any_additions_equal_a_set_of_offsets(added: list[tuple[int, int]]) -> None:
    intervals, model = IntervalSet(), set()
    for start, length in added:
        intervals.add(start, start + length)
        model |= set(range(start, start + length))
    assert [n for n in range(90) if n in intervals] == sorted(model)
    pairs = intervals.pairs()
    assert all(end < start for (_, end), (start, _) in pairwise(pairs))
    for start, end in ((0, 5), (10, 20), (30, 90)):
        touched = {pair for pair in pairs if pair[0] < end and pair[1] > start}
        assert set(intervals.overlapping(start, end)) == touched


def _batch(rows: list[tuple[str, int]], first_offset: int) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.string()),
            "at": pa.array([at for _, at in rows], pa.int64()),
            "_topic": pa.array(["t"] * len(rows), pa.string()),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array(range(first_offset, first_offset + len(rows)), pa.int64()),
        }
    )


deliveries = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 20)), max_size=60)


@settings(print_blob=True)
@given(deliveries, st.lists(st.integers(0, 60), max_size=6))
def test_judge_any_order_and_resends_keep_the_first_of_each(
    delivered: list[tuple[str, int]], cuts: list[int]
) -> None:
    seen: Seen = {}
    kept: list[tuple[str, int]] = []
    bounds = sorted({0, len(delivered), *(cut for cut in cuts if cut < len(delivered))})
    for start, end in pairwise(bounds):
        verdicts = judge(_batch(delivered[start:end], start), seen, max_jump=1000)
        cut = set(verdicts.rows.column("_offset").to_pylist())
        kept += [delivered[n] for n in range(start, end) if n not in cut]
        assert verdicts.duplicates == len(cut)
        seen = verdicts.seen
    assert kept == list(dict.fromkeys(delivered))
    for key in ("a", "b"):
        offsets = {at for k, at in delivered if k == key}
        assert {n for n in range(25) if n in seen.get(key, IntervalSet())} == offsets


def test_judge_offset_far_beyond_all_seen_moves_nothing() -> None:
    first = judge(_batch([("a", 0), ("a", 1)], 0), {}, max_jump=100)
    second = judge(_batch([("a", 10_000), ("a", 2)], 2), first.seen, max_jump=100)
    assert second.rows.to_pylist() == [
        {"_topic": "t", "_partition": 0, "_offset": 2, "_verdict": IMPLAUSIBLE}
    ]
    assert second.seen["a"].pairs() == [(0, 3)]
