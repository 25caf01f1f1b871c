"""Recent keys against a list of what was kept."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import amount
from headwater_streams.operators.dedup.recent_keys import RecentKeys

WITHIN, DELAY = 10, 5
ROW = st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 60))


def table(rows: list[tuple[int, int, int]], first_offset: int) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    data = {
        name: pa.array(values, pa.int64())
        for name, values in zip(("key", "more", "at_us"), columns, strict=True)
    }
    offsets = range(first_offset, first_offset + len(rows))
    return pa.table(
        data
        | {
            "_topic": pa.array(["t"] * len(rows), pa.string()),
            "_partition": pa.array([n % 2 for n in offsets], pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
        }
    )


@given(st.lists(st.lists(ROW, max_size=8), max_size=8))
@settings(max_examples=amount(small=60, full=300))
def test_recent_keys_any_batches_keep_what_a_list_would(batches: list[list[tuple[int, int, int]]]) -> None:
    keys = RecentKeys(WITHIN, DELAY)
    kept: list[tuple[int, int, int]] = []
    newest, offset = None, 0
    for rows in batches:
        placed = list(zip(rows, range(offset, offset + len(rows)), strict=True))
        in_time = [(row, n) for row, n in placed if newest is None or row[2] >= newest - DELAY]
        placed = sorted(in_time, key=lambda pair: (pair[0][2], pair[1] % 2, pair[1]))
        expected = set()
        for row, n in placed:
            if any(row[:2] == other[:2] and abs(row[2] - other[2]) <= WITHIN for other in kept):
                expected.add(n)
            else:
                kept.append(row)
        chosen = [row for row, _ in sorted(in_time, key=lambda pair: pair[1])]
        offsets = sorted(n for _, n in in_time)
        batch = table(chosen, 0).set_column(5, "_offset", pa.array(offsets, pa.int64()))
        batch = batch.set_column(4, "_partition", pa.array([n % 2 for n in offsets], pa.int32()))
        verdicts = keys.judge(batch)
        assert set(verdicts.rows["_offset"].to_pylist()) == expected
        assert verdicts.kept.num_rows == len(chosen) - len(expected)
        keys.add(verdicts.kept)
        offset += len(rows)
        times = [at for _, _, at in kept]
        newest = max(times, default=None)


def test_recent_keys_old_ones_are_forgotten() -> None:
    keys = RecentKeys(WITHIN, DELAY)
    for at in range(0, 10_000, 5):
        keys.add(keys.judge(table([(at, 0, at)], at)).kept)
    assert len(keys) < 40
    assert keys.horizon_us == 9995 - WITHIN - DELAY
