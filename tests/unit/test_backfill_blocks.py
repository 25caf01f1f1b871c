"""The blocks by which a repair tells the batch of a record."""

from random import Random

from headwater_streams.backfill.repair.row_replay import _Blocks


def test_each_offset_of_a_range_is_in_one_of_its_blocks() -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(500):
        parts = []
        for _ in range(rng.randint(1, 5)):
            start = rng.choice([0, rng.randrange(1 << 20), rng.randrange(1 << 62)])
            parts.append(
                {"t": {rng.randrange(3): (start, start + rng.choice([0, 1, rng.randrange(1 << 20)]))}}
            )
        blocks = _Blocks.of(parts)
        for ranges in parts:
            for start, end in ranges["t"].values():
                within = blocks.within(start, end)
                assert 0 <= within[0] <= within[-1] < 1 << 31
                for offset in {start, max(start, end - 1), rng.randint(start, max(start, end - 1))}:
                    assert (offset - blocks.first) >> blocks.shift in within


def test_blocks_are_about_as_long_as_a_batch() -> None:
    parts = [{"t": {0: (start, start + 1000)}} for start in range(5_000_000_000, 5_000_100_000, 1000)]
    blocks = _Blocks.of(parts)
    assert max(len(blocks.within(*ranges["t"][0])) for ranges in parts) <= 2
    assert 1 << blocks.shift <= 2000


def test_no_ranges_make_no_trouble() -> None:
    assert _Blocks.of([]) == _Blocks(0, 0)
