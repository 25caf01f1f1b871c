"""Runs of coordinates unroll to the records that they were made of."""

import random

import pyarrow as pa
import pytest

from headwater_streams.operators.dedup.runs import unrolled

Row = tuple[str, str, int, int, int]
"""Key, topic, partition, offset here, offset there less offset here."""


def _runs(rows: list[Row]) -> pa.Table:
    found: dict[tuple[str, str, int, int], list[int]] = {}
    for key, topic, partition, offset, ahead in rows:
        found.setdefault((key, topic, partition, ahead), []).append(offset)
    columns = {
        name: [of[i] for of in found] for i, name in enumerate(("key", "_topic", "_partition", "_ahead"))
    }
    bounds = {
        "first": [min(offsets) for offsets in found.values()],
        "last": [max(offsets) for offsets in found.values()],
        "rows": [len(offsets) for offsets in found.values()],
    }
    return pa.table(columns | bounds)


@pytest.mark.parametrize("seed", range(20))
def test_unrolled_gives_the_records(seed: int) -> None:
    rng = random.Random(seed)
    rows: list[Row] = []
    for partition in range(3):
        key, ahead = "a", rng.randrange(-5, 5)
        for offset in range(100, 100 + rng.randrange(1, 50)):
            if rng.random() < 0.1:  # a resend, or another sender: what follows stands elsewhere
                key, ahead = rng.choice("ab"), 1_000 + 50 * len(rows)
            rows.append((key, "t", partition, offset, ahead))
    found = unrolled(_runs(rows))
    assert found is not None, f"seed {seed}"
    names = ("key", "_topic", "_partition", "_offset", "_ahead")
    assert sorted(zip(*(found[name].to_pylist() for name in names), strict=True)) == sorted(rows), (
        f"seed {seed}"
    )


def test_unrolled_says_that_a_run_has_gaps() -> None:
    assert unrolled(_runs([("a", "t", 0, 5, 0), ("a", "t", 0, 7, 0)])) is None


def test_unrolled_of_nothing_is_nothing() -> None:
    empty = _runs([("a", "t", 0, 5, 0)]).slice(0, 0)
    found = unrolled(empty)
    assert found is not None
    assert found.num_rows == 0
